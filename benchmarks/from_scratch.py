"""One recipe from scratch on real datasets, beside cheap models: the table of the README.

    MANYHEADS_DATA=<folder of NAME/{train,validation,test}.csv> python benchmarks/from_scratch.py [NAME ...]

Each dataset is one command, `manyheads train data.path=<folder>`, run alone and one after another; sick also with its
texts read apart. The test split is read once, after training. fastText (word bigrams, rate and epochs chosen on a tenth
of train) runs too where `pip install fasttext` was made. Figures go to from_scratch.json as they come; a second start
measures only what is missing.
"""

import csv
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from machine import machine

NAMES = ["trec6", "sst2", "snips", "banking77", "sick", "sick-cross", "indonlu_smsa", "emotion", "ag_news_10k", "imdb"]
MORE = {"sick-cross": ["model.pair=cross"]}  # the same data with a setting more; the name before the dash is the folder
RESULTS = Path(__file__).with_suffix(".json")
KEPT = ("test", "best", "seconds", "wall_seconds", "real_tokens_per_s", "padding_share", "parameters", "steps")


def main() -> None:
    data = os.environ.get("MANYHEADS_DATA")
    if not data:
        sys.exit("MANYHEADS_DATA is not set: it names the folder that holds NAME/{train,validation,test}.csv")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"machine": machine(), "sets": {}}
    for name in sys.argv[1:] or NAMES:
        figures = results["sets"].setdefault(name, {})
        folder = Path(data) / name.partition("-")[0]
        if "ours" not in figures:
            figures.update(ours(folder, MORE.get(name, [])))
        if "fastText" not in figures and (accuracy := fasttext_accuracy(folder)) is not None:
            figures["fastText"] = accuracy
        RESULTS.write_text(json.dumps(results, indent=2) + "\n")
        print(row(name, figures), flush=True)
    print("\n" + table(results["sets"]))


def ours(folder: Path, more: list[str]) -> dict[str, Any]:
    """Train by the command line; returns our figures and those of the TF-IDF model fitted beside it."""
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "run"
        command = [sys.executable, "-m", "manyheads.cli", "train", f"data.path={folder}", f"output={output}"]
        subprocess.run([*command, *more], check=True)
        summary = json.loads((output / "summary.json").read_text())
    cheap = next(figures for name, figures in summary["baselines"].items() if name.startswith("TF-IDF"))
    return {"ours": {key: summary[key] for key in KEPT}, "TF-IDF": cheap, "versions": summary["versions"]}


def fasttext_accuracy(folder: Path) -> float | None:
    """Test accuracy of fastText with word bigrams, its rate and epochs chosen on a tenth of train; None if missing."""
    try:
        import fasttext
    except ImportError:
        return None
    train, test = rows(folder / "train.csv"), rows(folder / "test.csv")
    classes = {label: at for at, label in enumerate(sorted({label for _, label in train}))}
    order = random.Random(0).sample(train, len(train))
    tenth = len(order) // 10
    with tempfile.TemporaryDirectory() as scratch:

        def accuracy(fit: list[tuple[str, str]], judge: list[tuple[str, str]], rate: float, epochs: int) -> float:
            files = [Path(scratch) / "fit.txt", Path(scratch) / "judge.txt"]
            for file, part in zip(files, (fit, judge), strict=True):
                lines = (f"__label__{classes[label]} {text}\n" for text, label in part)
                file.write_text("".join(lines), encoding="utf-8")
            model = fasttext.train_supervised(str(files[0]), wordNgrams=2, lr=rate, epoch=epochs, thread=2, verbose=0)
            return model.test(str(files[1]))[1]

        choices = [(rate, epochs) for rate in (0.1, 0.5, 1.0) for epochs in (5, 25)]
        best = max(choices, key=lambda choice: accuracy(order[tenth:], order[:tenth], *choice))
        return round(accuracy(train, test, *best), 4)


def rows(file: Path) -> list[tuple[str, str]]:
    """Texts (both of a pair joined) in lower case without line breaks, and labels."""
    csv.field_size_limit(10**9)
    with file.open(newline="", encoding="utf-8") as lines:
        table = list(csv.DictReader(lines))
    return [(" ".join(f"{one['text']} {one.get('text_pair', '')}".lower().split()), one["label"]) for one in table]


def table(sets: dict[str, Any]) -> str:
    head = "| set | ours: accuracy (95 %) | macro-F1 | TF-IDF + SVM | fastText | training | real tokens/s |\n"
    return head + "|---|---|---|---|---|---|---|\n" + "\n".join(row(name, one) for name, one in sets.items())


def row(name: str, figures: dict[str, Any]) -> str:
    test, cheap = figures["ours"]["test"], figures["TF-IDF"]
    accuracy, macro_f1 = test["accuracy"], test["macro_f1"]["value"]
    fast = f"{figures['fastText']:.3f}" if "fastText" in figures else "-"
    return (
        f"| {name} | {accuracy['value']:.3f} ({accuracy['low']:.3f}-{accuracy['high']:.3f}) | {macro_f1:.3f} "
        f"| {cheap['accuracy']['value']:.3f} | {fast} | {figures['ours']['seconds']:.0f} s "
        f"| {figures['ours']['real_tokens_per_s']:,.0f} |"
    )


if __name__ == "__main__":
    main()
