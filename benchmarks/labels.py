"""What weights of rows bring, votes in place of their majority, and columns in addition to the text.

    MANYHEADS_DATA=<folder of NAME/{train,test}.csv> python benchmarks/labels.py [PART ...]

`votes`: each of ROWS training rows is judged by three of nine annotators, whose skills are drawn between .4 and .9; a
wrong answer is the same for all who err on a row with a chance of one half, as people are misled alike. The model
learns from the majority, or from the shares of votes.

`weights`: half of the rows have the labels of a poor source, of which 40 % are drawn at random. All rows count alike,
the poor ones count .3, or they are left out.

`columns`: what a text says is moved to a column of its row, so that only those who read the column have it: the first
word of a question (trec6), and what stands before the first dash of a news item, an agency or a place (ag_news_10k).
For sst2 a number of stars is drawn, of a mean of 3.5 or 2.5 by the class and a deviation of 1, in halves, missing in a
fifth of the rows. The same texts with the columns and without.

The model is the linear one of a run, with its temperature from validation; figures are of the whole test split.

`heads`: a run of two label columns against a run for each of them, of a network from scratch and 1,000 training rows:
the type of a question and its question word (trec6). In `apart` each row has one of the two labels alone.

Parts that are typed after the name of the file are measured alone.
"""

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine
from scipy.stats import t
from ways.recipes import data_folder
from ways.rows import Cells, read, write

from manyheads import compose, train
from manyheads.config import DataConfig
from manyheads.data.prepare_tokens import splits_as_read
from manyheads.data.rows import Splits
from manyheads.data.sources import read_splits
from manyheads.evaluation.metrics import score
from manyheads.linear.blend import tune
from manyheads.linear.fit import fit_linear
from manyheads.linear.model import linear_logits
from manyheads.linear.thresholds import probabilities_of
from manyheads.plugins.columns.units import learn_buckets

RESULTS = Path(__file__).with_suffix(".json")
SETS, DRAWS, ROWS = ("snips", "emotion", "ag_news_10k", "trec6"), (0, 1, 2), 2000
FIGURES = ("accuracy", "macro_f1", "loss")
SKILLS, VOTERS, LEAST, MOST, MISLED = 9, 3, 0.4, 0.9, 0.5  # of annotators
POOR, WRONG, TRUST = 0.5, 0.4, 0.3  # of the poor source: rows, wrong labels, weight
HEADS = ("type", "word")  # columns of trec6
WORDS = ("what", "who", "how", "where", "when", "which", "why")  # of a question
ROWS_OF_HEADS = 1000
RUN = ("model=tiny", "trainer.max_epochs=8", "hardware=cpu", "hardware.precision=fp32", "hardware.threads=1")
WAYS: dict[str, dict[str, dict[str, Any]]] = {
    "votes": {"majority": {}, "votes": {"votes": "votes"}},
    "weights": {"alike": {}, "weighted": {"weight": "trust"}, "left out": {"path": "good"}},
    "columns": {"text": {}, "columns": {}},
}
COLUMNS = {"trec6": "asks", "ag_news_10k": "source", "sst2": "stars"}
SOURCE = re.compile(r"([\w./, ()#;=&-]{2,60}?) --? ")


def other(label: str, names: list[str], random: np.random.Generator) -> str:
    """A wrong class."""
    return str(random.choice([name for name in names if name != label]))


def voted(rows: list[Cells], names: list[str], random: np.random.Generator) -> list[Cells]:
    """Rows with votes, and the label that most are for; of equal ones that of the most skilled is not known: the first
    by name."""
    skills = random.uniform(LEAST, MOST, SKILLS)
    found = []
    for row in rows:
        trap, votes = other(row["label"], names, random), dict.fromkeys(names, 0)
        for voter in random.choice(SKILLS, VOTERS, replace=False):
            vote = row["label"]
            if random.random() > skills[voter]:
                vote = trap if random.random() < MISLED else other(row["label"], names, random)
            votes[vote] += 1
        cell = "|".join(f"{name}:{n}" for name, n in votes.items() if n)
        found.append(row | {"label": max(sorted(votes), key=lambda name: votes[name]), "votes": cell})
    return found


def trusted(rows: list[Cells], names: list[str], random: np.random.Generator) -> list[Cells]:
    """Rows of which half are of a poor source."""
    found = []
    for row in rows:
        is_poor = random.random() < POOR
        label = other(row["label"], names, random) if is_poor and random.random() < WRONG else row["label"]
        found.append(row | {"label": label, "trust": str(TRUST if is_poor else 1)})
    return found


def with_column(name: str, row: Cells, random: np.random.Generator) -> Cells:
    """A row with the column of its set."""
    text, cell = row["text"], ""
    if name == "trec6":
        cell, _, text = text.partition(" ")
    elif name == "ag_news_10k" and (found := SOURCE.match(text)):
        cell, text = found[1], text[found.end() :]
    elif name == "sst2" and random.random() > 0.2:
        cell = str(round(2 * random.normal(3.5 if row["label"] == "positive" else 2.5)) / 2)
    return {"text": text or cell, COLUMNS[name]: cell, "label": row["label"]}


def figures_of(splits: Splits) -> dict[str, float]:
    """Of the linear model of a run, on test."""
    n_classes, test = len(splits.labels), splits.test
    assert test is not None, "each set has a test file"
    linear = fit_linear(splits.train, n_classes, None, splits.validation)
    baseline = tune(None, linear, splits.validation, n_classes, answers=False).baseline
    assert baseline is not None, "there are terms"
    probabilities_nC = probabilities_of(linear_logits(baseline.linear, test.texts, None), multi=False)
    figures = score(test.labels, probabilities_nC, splits.labels).figures
    return {figure: round(figures[figure].value, 4) for figure in FIGURES}


def measure_columns(name: str, draw: int) -> dict[str, Any]:
    """The figures without the column and with it, on one draw of a set."""
    random, found = np.random.default_rng(draw), dict[str, Any]()
    with tempfile.TemporaryDirectory() as folder:
        for split in ("train", "test"):
            rows = [with_column(name, row, random) for row in read(data_folder() / name / f"{split}.csv")]
            if split == "train":
                rows = [rows[at] for at in random.choice(len(rows), min(ROWS, len(rows)), replace=False)]
            write(Path(folder) / f"{split}.csv", rows)
        for way, columns in (("text", []), ("columns", [f"data.columns=[{COLUMNS[name]}]"])):
            data = compose("train", [f"data.path={folder}", *columns]).data
            splits = read_splits(data, draw)
            splits.kept = learn_buckets(data, splits)
            found[way] = figures_of(splits_as_read(splits))
    return found


def measure(part: str, name: str, draw: int) -> dict[str, Any]:
    """The figures of each way on one draw of a set."""
    random = np.random.default_rng([draw, len(part)])
    rows = [{"text": row["text"], "label": row["label"]} for row in read(data_folder() / name / "train.csv")]
    rows = [rows[at] for at in random.choice(len(rows), min(ROWS, len(rows)), replace=False)]
    names = sorted({row["label"] for row in rows})
    rows = (voted if part == "votes" else trusted)(rows, names, random)
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for folder, kept in (("all", rows), ("good", [row for row in rows if row.get("trust") == "1"])):
            (Path(scratch) / folder).mkdir()
            write(Path(scratch) / folder / "train.csv", kept)
            (Path(scratch) / folder / "test.csv").symlink_to(data_folder() / name / "test.csv")
        for way, settings in WAYS[part].items():
            data = DataConfig(**settings | {"path": str(Path(scratch) / settings.get("path", "all"))})
            found[way] = figures_of(read_splits(data, draw))
    return found


def questions(split: str) -> list[Cells]:
    """Rows of trec6 with the type of a question and its question word."""
    found = []
    for row in read(data_folder() / "trec6" / f"{split}.csv"):
        word = next((word for word in row["text"].lower().split() if word in WORDS), "other")
        found.append({"text": row["text"], "type": row["label"], "word": word})
    return found


def measure_heads(draw: int, *, apart: bool) -> dict[str, Any]:
    """Accuracy of each column, and seconds of training, by one run for both columns and by a run for each."""
    random, rows = np.random.default_rng([draw, 5]), questions("train")
    rows = [rows[at] for at in random.choice(len(rows), ROWS_OF_HEADS, replace=False)]
    if apart:
        rows = [row | {HEADS[at % 2]: ""} for at, row in enumerate(rows)]
    found: dict[str, Any] = {"single": {}, "heads": {}}
    with tempfile.TemporaryDirectory() as scratch:
        for way in ("heads", *HEADS):
            folder = Path(scratch) / way
            folder.mkdir()
            write(folder / "train.csv", [row for row in rows if way == "heads" or row[way]])
            write(folder / "test.csv", questions("test"))
            labels = f"data.labels=[{','.join(HEADS)}]" if way == "heads" else f"data.label={way}"
            summary = train(
                compose("train", [f"data.path={folder}", labels, *RUN, f"seed={draw}", f"output={folder}/run"])
            )
            assert summary is not None, "this is one process"
            of = found["heads" if way == "heads" else "single"]
            for column in HEADS if way == "heads" else (way,):
                key = f"{column}.accuracy" if way == "heads" else "accuracy"
                of[column] = round(summary.test[key].value, 4)
                of[f"{column} network"] = round(summary.members["test"]["network"][key].value, 4)
            of["seconds"] = round(of.get("seconds", 0.0) + summary.seconds, 1)
    return found


def heads() -> dict[str, Any]:
    """The part `heads`."""
    results: dict[str, Any] = {}
    for key, apart in (("trec6", False), ("trec6 apart", True)):
        results[key] = [measure_heads(draw, apart=apart) for draw in DRAWS]
        for figure in [f"{column}{who}" for column in HEADS for who in ("", " network")]:
            gains = [one["heads"][figure] - one["single"][figure] for one in results[key]]
            print(f"heads: {key}: {figure} of one run less two: {gain(gains)}", flush=True)
    return results


def gain(values: list[float]) -> str:
    """The mean of differences of pairs, with Student's interval."""
    mean, half = float(np.mean(values)), 0.0
    if len(values) > 1:
        half = float(t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return f"{mean:+.3f} ({mean - half:+.3f} to {mean + half:+.3f}) of {len(values)}"


def main() -> None:
    results: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) | {"machine": machine()}
    for part, ways in WAYS.items():
        if sys.argv[1:] and part not in sys.argv[1:]:
            continue
        found = results[part] = {}
        for draw in DRAWS:
            for name in COLUMNS if part == "columns" else SETS:
                found[f"{name} draw={draw}"] = (
                    measure_columns(name, draw) if part == "columns" else measure(part, name, draw)
                )
                print(part, name, draw, found[f"{name} draw={draw}"], flush=True)
        first, *others = ways
        for way in others:
            for figure in FIGURES:
                gains = [one[way][figure] - one[first][figure] for one in found.values()]
                print(f"{part}: {figure} of {way} less {first}: {gain(gains)}", flush=True)
    if not sys.argv[1:] or "heads" in sys.argv[1:]:
        results["heads"] = heads()
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
