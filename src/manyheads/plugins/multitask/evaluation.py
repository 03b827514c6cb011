"""Evaluation of a model of several columns: each column is judged as a classifier is, on the rows that have it.

n rows . C labels of all columns . K labels of one
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from manyheads.config.facts import require
from manyheads.config.figures import is_of_answers
from manyheads.data.rows import Rows
from manyheads.evaluation.answered import LogitStore, evaluated_models
from manyheads.evaluation.classification import CLASSES, LABELS, evaluate_classifier
from manyheads.evaluation.evaluation import Evaluation, Setup, compared, write_answers
from manyheads.evaluation.logits import new_array
from manyheads.evaluation.report import Link, Picture, ReportSection
from manyheads.inference.classifier import DIGITS, OVERFLOW, chunks_of, rows_at_once
from manyheads.plugins.multitask.columns import rows_of
from manyheads.plugins.multitask.config import MEAN
from manyheads.plugins.multitask.model import ColumnsClassifier
from manyheads.runs.summary import BOTH, LINEAR, NETWORK, Figures, Interval, figures_to_plain, with_baselines, words_of

TOKENS = 8192  # most of a batch
MEMBERS = {BOTH: "both", NETWORK: "network", LINEAR: "linear"}  # names in tables, and in `member_logits`
Logits = dict[str, NDArray[np.float32]]  # `(n, C)` by the name of a member


def evaluate_columns(model: ColumnsClassifier, rows: Rows, setup: Setup) -> Evaluation:
    """`Task.evaluate`: each column as `evaluate_classifier` judges it. Texts are read once for all of them.

    Raises:
        UserError: no row has a label in some column, or an answer is not finite.
    """
    parts = [rows_of(column, rows) for column in model.columns]
    for column, (own, _) in zip(model.columns, parts, strict=True):
        require(
            len(own) > 0,
            f"no row of {rows.source} has a label in the column '{column.name}': label some of them, or judge another "
            "column by run=<run>/model/<column>",
        )
    logits = all_logits(model, rows, setup)
    found: dict[str, Evaluation] = {}
    for (own, at_n), column, head in zip(parts, model.columns, model.heads, strict=True):
        baseline = head.baseline(None)
        models = evaluated_models(head, baseline)
        stored = LogitStore(own, column.labels, models, {name: logits[name][at_n][:, column.ids] for name in models})
        train = None if setup.train is None else rows_of(column, setup.train)[0]
        of_column = replace(setup, train=train, label_counts=setup.label_counts[column.ids], baseline=baseline)
        found[column.name] = evaluate_classifier(head, own, of_column, stored)
    return join_evaluations(model, rows, found, logits[BOTH])


def all_logits(model: ColumnsClassifier, rows: Rows, setup: Setup) -> Logits:
    """The logits of all members to all rows; of a column without a linear model those of the network."""
    logits, start = {name: new_array((len(rows), len(model.labels))) for name in MEMBERS}, 0

    def answer(texts: list[str], pairs: list[str] | None) -> dict[str, Tensor]:
        network_nC = model.network_logits(texts, pairs, tokens=setup.tokens or TOKENS)
        by_column = []
        for column, head in zip(model.columns, model.heads, strict=True):
            by_column.append(head.member_logits(texts, pairs, network_nC=network_nC[:, column.ids]))
        return {
            name: torch.cat([own.get(key, own["network"]) for own in by_column], 1) for name, key in MEMBERS.items()
        }

    for chunk in chunks_of(answer, rows, len(model.labels), setup.progress):
        end = start + len(chunk[BOTH])
        for name, logits_nC in chunk.items():
            require(bool(logits_nC.isfinite().all()), f"{rows.source}: what the {name} answers to some row {OVERFLOW}")
            logits[name][start:end] = logits_nC.numpy()
        start = end
    return logits


def join_evaluations(
    model: ColumnsClassifier, rows: Rows, found: dict[str, Evaluation], logits_nC: NDArray[np.float32]
) -> Evaluation:
    """The evaluation of all columns: figures are called `topic.accuracy`, and each column has its chapter."""
    answering = BOTH if any(BOTH in one.members for one in found.values()) else NETWORK
    of_members, first = {}, []  # the first figure of each column
    for name, one in found.items():
        own = next(iter(one.members.values()))
        of_members[name] = {answering: own, **one.members}
        first.append(f"{name}.{next(iter(own))}")
    members = over_columns(of_members)
    baselines = over_columns({name: one.baselines for name, one in found.items()})
    models = with_baselines(members, baselines)
    models = {f"{answering} (this model)": models.pop(answering), **models}
    columns = {}
    for name, one in found.items():
        columns[name] = one.scores | {"members": {who: figures_to_plain(of) for who, of in one.members.items()}}
    return Evaluation(
        title="Evaluation of a text classifier of several columns",
        size=f"{len(rows):,} rows, {len(found)} columns with {len(model.labels)} labels",
        scores={**figures_to_plain(members[answering]), "n_rows": len(rows), "columns": columns},
        members=members,
        baselines=baselines,
        leads=over_columns({name: one.leads for name, one in found.items()}),
        verdict=" ".join(f"{name}: {one.verdict}" for name, one in found.items()),
        tiles={words_of(name): members[answering][name] for name in (MEAN, *first)},
        comparison=compared("Compared with simpler models, on the same rows", models, MEAN, *first),
        note=" ".join(f"{name}: {one.note}" for name, one in found.items() if one.note),
        mistakes=lambda: chapters({name: one.mistakes() for name, one in found.items()}),
        details=lambda: chapters({name: one.details() for name, one in found.items()}),
        write=lambda path: write_labels(path, model, rows, logits_nC),
        tuned=[label for column in model.columns if column.is_set for label in model.labels[column.ids]],
    )


def over_columns(of_columns: dict[str, dict[str, Figures]]) -> dict[str, Figures]:
    """The figures by the name of a model, from those by column and model; of the models that all columns have."""
    by_model: dict[str, dict[str, Figures]] = {}
    for column, models in of_columns.items():
        for name, figures in models.items():
            name = CLASSES.most_frequent if name == LABELS.most_frequent else name
            by_model.setdefault(name, {})[column] = figures
    return {name: with_mean(figures) for name, figures in by_model.items() if len(figures) == len(of_columns)}


def with_mean(of_columns: dict[str, Figures]) -> Figures:
    """The figures of all columns, and before them the mean of the first of each. Its interval is as wide as if all
    columns erred on the same rows: from the mean of the lower ends to that of the upper ones."""
    first, others = Figures(), Figures()
    for column, figures in of_columns.items():
        main, *names = [name for name in figures if is_of_answers(name)]
        first[f"{column}.{main}"] = figures[main]
        others |= {f"{column}.{name}": figures[name] for name in names}
    ends = [sum(getattr(one, end) for one in first.values()) / len(first) for end in ("value", "low", "high")]
    return {MEAN: Interval(*ends), **first, **others}


def chapters(of_columns: dict[str, list[ReportSection]]) -> list[ReportSection]:
    """The sections of each column under its name."""
    found = []
    for number, (name, sections) in enumerate(of_columns.items(), 1):
        found += [section_of(name, number, section) for section in sections]
    return found


def section_of(name: str, number: int, section: ReportSection) -> ReportSection:
    """A section of a column, whose pictures and links have names of their own in the page."""
    key, table = f"column-{number}-", section.table
    if table is not None:
        cells = [[replace(c, to=key + c.to) if isinstance(c, Link) and c.to else c for c in row] for row in table.rows]
        table = replace(table, rows=cells)
    return replace(
        section,
        title=section.title and f"{name}: {section.title}",
        table=table,
        pictures=[Picture(key + one.name, one.figure, f"{name}: {one.caption}") for one in section.pictures],
        groups=[replace(group, key=key + group.key) for group in section.groups],
    )


def write_labels(path: Path, model: ColumnsClassifier, rows: Rows, logits_nC: NDArray[np.float32]) -> None:
    """Write the columns of `write_answers`, then of each column its label and the `prediction`, and `p_<label>` for
    every label, in six decimals."""
    assert rows.sets is not None, "their labels are those of all columns"
    sets, names = rows.sets, list[str]()
    for column in model.columns:
        names += [column.name, f"{column.name} prediction"]

    def answers() -> Iterator[list[Any]]:
        step = rows_at_once(len(model.labels))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            found = model.predictions(torch.from_numpy(np.array(logits_nC[part])), rows.texts[part])
            for ids, one in zip(sets[part], found, strict=True):
                cells = []
                for column in model.columns:
                    labels: Any = [
                        column.labels[id - column.ids.start] for id in ids if column.ids.start <= id < column.ids.stop
                    ]
                    cells += [labels if column.is_set else next(iter(labels), None), one.answers[column.name]]
                yield [*cells, *(round(p, DIGITS) for p in one.probabilities.values())]

    write_answers(path, rows, [*names, *(f"p_{label}" for label in model.labels)], answers())
