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

`networks`: the same rows and ways for a small network from scratch, alone and with its linear model.

`heads`: a run of two label columns against a run for each of them, of a network from scratch and 1,000 training rows:
the type of a question and its question word (trec6), and the topic of a news item and the agency that sent it
(ag_news_10k; the agency is taken out of the text, and only items of an agency are read). In `apart` each row has one of
the two labels alone. `uncertain` is the run of two columns whose losses are weighted by uncertainty (Kendall, Gal and
Cipolla, 2018), where the others weigh them alike.

Parts that are typed after the name of the file are measured alone; `table` measures nothing. Figures of networks go to
labels.json as they are measured; a second start measures only what is missing. Their table is in the lab notes.
"""

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from contestants.tables import fill_document, markdown
from machine import machine
from scipy.stats import t
from ways.recipes import data_folder, filled
from ways.rows import Cells, read, write

from manyheads import compose, train
from manyheads.data.prepare_tokens import splits_as_read
from manyheads.data.rows import Splits
from manyheads.data.sources import read_splits
from manyheads.evaluation.metrics import score
from manyheads.linear.blend import tune
from manyheads.linear.fit import fit_linear
from manyheads.linear.model import linear_logits
from manyheads.linear.thresholds import probabilities_of
from manyheads.plugins.columns.units import learn_buckets
from manyheads.plugins.multitask.columns import columns_of
from manyheads.plugins.multitask.config import kept_columns
from manyheads.plugins.multitask.learning import LearnColumns, column_losses
from manyheads.training.objectives import class_logits
from manyheads.training.optim import make_optimizer

RESULTS = Path(__file__).with_suffix(".json")
DOCUMENT = RESULTS.parents[1] / "docs" / "results" / "lab-notes.md"
SETS, DRAWS, ROWS = ("snips", "emotion", "ag_news_10k", "trec6"), (0, 1, 2), 2000
FIGURES = ("accuracy", "macro_f1", "loss")
SKILLS, VOTERS, LEAST, MOST, MISLED = 9, 3, 0.4, 0.9, 0.5  # of annotators
POOR, WRONG, TRUST = 0.5, 0.4, 0.3  # of the poor source: rows, wrong labels, weight
HEADS = {"trec6": ("type", "word"), "ag_news_10k": ("topic", "agency")}  # columns of labels
WORDS = ("what", "who", "how", "where", "when", "which", "why")  # of a question
AGENCY = re.compile(r"\b(Reuters|AP|AFP)\b")
ROWS_OF_HEADS = 1000
RATE = 0.05  # of the logarithms of variances, which have to move by about 1 in 120 steps
RUN = ("model=tiny", "trainer.max_epochs=8", "hardware=cpu", "hardware.precision=fp32", "hardware.threads=1")
WAYS: dict[str, dict[str, list[str]]] = {  # the words of each; {data} has all rows, {good} those of the good source
    "votes": {"majority": ["data.path={data}"], "votes": ["data.path={data}", "data.votes=votes"]},
    "weights": {
        "alike": ["data.path={data}"],
        "weighted": ["data.path={data}", "data.weight=trust"],
        "left out": ["data.path={good}"],
    },
    "columns": {"text": ["data.path={data}"], "columns": ["data.path={data}", "data.columns=[{column}]"]},
}
COLUMNS = {"trec6": "asks", "ag_news_10k": "source", "sst2": "stars"}
NETWORKS = {"votes": ("trec6", "snips"), "weights": ("trec6", "snips"), "columns": ("trec6", "sst2")}  # their sets
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


def prepare(part: str, name: str, draw: int, scratch: Path) -> dict[str, list[str]]:
    """Write one draw of a set; returns the words that say which data each way reads."""
    published, column = data_folder() / name, COLUMNS.get(name, "")
    random = np.random.default_rng(draw if part == "columns" else [draw, len(part)])
    train, test = (read(published / f"{split}.csv") for split in ("train", "test"))
    if part == "columns":
        train = [with_column(name, row, random) for row in train]
    train = [train[at] for at in random.choice(len(train), min(ROWS, len(train)), replace=False)]
    if part == "columns":
        test = [with_column(name, row, random) for row in test]
    else:
        train = [{"text": row["text"], "label": row["label"]} for row in train]
        names = sorted({row["label"] for row in train})
        train = (voted if part == "votes" else trusted)(train, names, random)
    for folder, rows in (("data", train), ("good", [row for row in train if row.get("trust") == "1"])):
        (scratch / folder).mkdir()
        write(scratch / folder / "train.csv", rows)
        write(scratch / folder / "test.csv", test)
    places = {"data": str(scratch / "data"), "good": str(scratch / "good"), "column": column}
    return {way: filled(words, places) for way, words in WAYS[part].items()}


def measure(part: str, name: str, draw: int) -> dict[str, Any]:
    """The figures of the linear model of each way on one draw of a set."""
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for way, words in prepare(part, name, draw, Path(scratch)).items():
            data = compose("train", words).data
            splits = read_splits(data, draw)
            if part == "columns":
                splits.kept = learn_buckets(data, splits)
            found[way] = figures_of(splits_as_read(splits))
    return found


def measure_network(part: str, name: str, draw: int) -> dict[str, Any]:
    """The accuracy of a run of each way on one draw of a set: as it answers, and of the network alone."""
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for way, words in prepare(part, name, draw, Path(scratch)).items():
            summary = train(compose("train", [*words, *RUN, f"seed={draw}", f"output={scratch}/{way}"]))
            assert summary is not None, "this is one process"
            members = {"answer": summary.test, "network": summary.members["test"]["network"]}
            found[way] = {member: round(figures["accuracy"].value, 4) for member, figures in members.items()}
    return found


def questions(split: str) -> list[Cells]:
    """Rows of trec6 with the type of a question and its question word."""
    found = []
    for row in read(data_folder() / "trec6" / f"{split}.csv"):
        word = next((word for word in row["text"].lower().split() if word in WORDS), "other")
        found.append({"text": row["text"], "type": row["label"], "word": word})
    return found


def news(split: str) -> list[Cells]:
    """Rows of ag_news_10k that an agency has sent, without what names it at the beginning."""
    found = []
    for row in read(data_folder() / "ag_news_10k" / f"{split}.csv"):
        source = SOURCE.match(row["text"])
        if source and (agency := AGENCY.search(source[1])):
            found.append({"text": row["text"][source.end() :], "topic": row["label"], "agency": agency[1]})
    return found


class LearnByUncertainty(LearnColumns):
    """Adds up exp(-s) times the loss of each column and s / 2, where s, the logarithm of its variance, is learnt with
    the network: Kendall, Gal and Cipolla (2018), "Multi-Task Learning Using Uncertainty to Weigh Losses", equation 10.
    Its columns have one class a row each."""

    def __init__(self, columns: list[Any], *, smoothing: float) -> None:
        super().__init__(columns, smoothing=smoothing, weights={})
        self.log_variance_H = torch.nn.Parameter(torch.zeros(len(columns)))

    def training_loss(self, classifier: Any, batch: Any) -> torch.Tensor:
        logits_BC, marks_BC = class_logits(classifier, batch), batch.labels_B
        if len(batch.rows_B):
            self.train_metrics.update(logits_BC.detach(), marks_BC)
        total_B = logits_BC.new_zeros(len(logits_BC))
        for column, log_variance in zip(self.columns, self.log_variance_H, strict=True):
            losses_B = column_losses([column], logits_BC, marks_BC, self.smoothing)
            has_B = marks_BC[:, column.ids].bool().any(1)
            total_B = total_B + (-log_variance).exp() * losses_B + has_B * log_variance / 2
        return total_B


def train_by_uncertainty(run: Any) -> tuple[Any, list[float]]:
    """The summary of a run whose columns are weighted by uncertainty, and the weights with which it ends."""
    made: list[LearnByUncertainty] = []

    def learn(run: Any, tokens: Any, labels: list[str]) -> LearnByUncertainty:
        made.append(LearnByUncertainty(columns_of(labels, kept_columns(run.data)), smoothing=run.optim.label_smoothing))
        return made[-1]

    def optimizer_of(*args: Any, **settings: Any) -> Any:
        optimizer = make_optimizer(*args, **settings)
        optimizer.add_param_group({"params": [made[-1].log_variance_H], "lr": RATE, "weight_decay": 0.0})
        return optimizer

    with (
        mock.patch("manyheads.plugins.multitask.learning.learn_columns", learn),
        mock.patch("manyheads.training.module.make_optimizer", optimizer_of),
    ):
        summary = train(run)
    return summary, (-made[-1].log_variance_H.detach()).exp().tolist()


def measure_heads(name: str, draw: int, known: dict[str, Any], *, apart: bool) -> None:
    """Accuracy of each column by one run for both columns, of equal weights or weighted by uncertainty, and by a run
    for each; what is `known` is not measured again."""
    columns, rows_of = HEADS[name], questions if name == "trec6" else news
    random, rows = np.random.default_rng([draw, 5]), rows_of("train")
    rows = [rows[at] for at in random.choice(len(rows), ROWS_OF_HEADS, replace=False)]
    if apart:
        rows = [row | {columns[at % 2]: ""} for at, row in enumerate(rows)]
    for way in ("single", "heads", "uncertain"):
        if way in known:
            continue
        found: dict[str, Any] = {}
        for of_run in [(column,) for column in columns] if way == "single" else [columns]:
            with tempfile.TemporaryDirectory() as scratch:
                folder = Path(scratch)
                write(folder / "train.csv", [row for row in rows if any(row[column] for column in of_run)])
                write(folder / "test.csv", rows_of("test"))
                labels = f"data.label={of_run[0]}" if way == "single" else f"data.labels=[{','.join(columns)}]"
                run = compose("train", [f"data.path={folder}", labels, *RUN, f"seed={draw}", f"output={folder}/run"])
                if way == "uncertain":
                    summary, weights = train_by_uncertainty(run)
                    found["weights"] = [round(weight, 2) for weight in weights]
                else:
                    summary = train(run)
                assert summary is not None, "this is one process"
            for column in of_run:
                key = "accuracy" if way == "single" else f"{column}.accuracy"
                found[column] = round(summary.test[key].value, 4)
                found[f"{column} network"] = round(summary.members["test"]["network"][key].value, 4)
        known[way] = found


def table(networks: dict[str, Any]) -> str:
    """What each way gains over the first in a network, by set and in all, in points with Student's intervals of the
    pairs."""
    lines = []
    for part, cells in networks.items():
        first, *others = WAYS[part]
        sets = [*dict.fromkeys(title.partition(" draw=")[0] for title in cells)]
        for name in [*sets, *([", ".join(sets)] if len(sets) > 1 else [])]:
            of_set = [one for title, one in cells.items() if title.partition(" draw=")[0] in name.split(", ")]
            for way in others:
                line = [f"{way} less {first}", name, str(len(of_set))]
                for member in ("answer", "network"):
                    gains = [100 * (one[way][member] - one[first][member]) for one in of_set]
                    mean, half = mean_and_half(gains)
                    line.append(f"{np.mean([one[first][member] for one in of_set]):.3f}")
                    line.append(f"{mean:+.1f} ({mean - half:+.1f} to {mean + half:+.1f})")
                lines.append(line)
    return markdown(["way", "set", "pairs", "accuracy", "gain (95 %)", "network alone", "gain (95 %)"], lines)


def gain(values: list[float]) -> str:
    """The mean of differences of pairs, with Student's interval."""
    mean, half = mean_and_half(values)
    return f"{mean:+.3f} ({mean - half:+.3f} to {mean + half:+.3f}) of {len(values)}"


def mean_and_half(values: list[float]) -> tuple[float, float]:
    """The mean of differences of pairs, and half of Student's interval; 0 of one pair."""
    if len(values) == 1:
        return values[0], 0.0
    half = t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return float(np.mean(values)), float(half)


def main() -> None:
    results: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) | {"machine": machine()}
    wanted = sys.argv[1:] or [*WAYS, "networks", "heads"]

    def save() -> None:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")

    for part in [part for part in WAYS if part in wanted]:
        found = results[part] = {}
        for draw in DRAWS:
            for name in COLUMNS if part == "columns" else SETS:
                found[f"{name} draw={draw}"] = measure(part, name, draw)
        first, *others = WAYS[part]
        for way in others:
            for figure in FIGURES:
                gains = [one[way][figure] - one[first][figure] for one in found.values()]
                print(f"{part}: {figure} of {way} less {first}: {gain(gains)}", flush=True)
        save()
    if "networks" in wanted:
        for draw in DRAWS:
            for part, names in NETWORKS.items():
                known = results.setdefault("networks", {}).setdefault(part, {})
                for name in names:
                    if f"{name} draw={draw}" not in known:
                        known[f"{name} draw={draw}"] = measure_network(part, name, draw)
                        print(part, name, draw, known[f"{name} draw={draw}"], flush=True)
                        save()
    if "heads" in wanted:
        for draw in DRAWS:
            for name in HEADS:
                for apart in (False, True):
                    known = results["heads"].setdefault(f"{name} apart" if apart else name, [{} for _ in DRAWS])[draw]
                    measure_heads(name, draw, known, apart=apart)
                    print("heads", name, draw, "apart" if apart else "", known, flush=True)
                    save()
        for key, draws in results["heads"].items():
            for column in HEADS[key.removesuffix(" apart")]:
                for figure in (column, f"{column} network"):
                    for way, other in (("heads", "single"), ("uncertain", "heads")):
                        gains = [one[way][figure] - one[other][figure] for one in draws]
                        print(f"heads: {key}: {figure} of {way} less {other}: {gain(gains)}", flush=True)
    fill_document(DOCUMENT, {"labels-networks": table(results["networks"])})


if __name__ == "__main__":
    main()
