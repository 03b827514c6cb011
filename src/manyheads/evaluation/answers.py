"""The answers of a classifier to rows, and the cheap ones beside them.

What needs no training of ours: the bar a Transformer has to clear before anyone believes in it.

The model's answer to every row of a split.

n rows . C classes
"""

import csv
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from manyheads.data.rows import Rows
from manyheads.evaluation.scores import Answers, Interval, change_of_answers, score_answers
from manyheads.inference.classifier import TextClassifier, in_chunks
from manyheads.linear.model import LinearBaseline
from manyheads.runs.atomic import replace_file

POINTS = 100  # of a share
MAJORITY = "most frequent class"
NETWORK, LINEAR, BOTH = "network", "linear model", "both"
"""What the models of a run are called in tables, reports and files: see `predictions.logits_by_model`."""


@dataclass(slots=True)
class Baseline:
    """One baseline's answers on one split, judged. `lead` is how much better the model answers the same rows, figure by
    figure, with paired intervals."""

    name: str
    scores: Answers
    lead: Answers | None = None


def judge_baselines(
    rows: Rows,
    n_classes: int,
    answers: Mapping[str, Sequence[int]],
    model: Sequence[int] | None = None,
    *,
    n_resamples: int = 1000,
    seed: int = 0,
) -> list[Baseline]:
    """Cheap models' `answers` to `rows`, by their names, judged with the resamples of `score(..., seed=seed)`, and the
    lead of a `model` whose answers are given."""
    draws: dict[str, Any] = {"n_resamples": n_resamples, "seed": seed}
    judged = []
    for name, given in answers.items():
        lead = None if model is None else change_of_answers(rows.labels, given, [model], n_classes, **draws)[0]
        judged.append(Baseline(name, score_answers(rows.labels, given, n_classes, **draws), lead))
    return judged


def strongest(baselines: Sequence[Any], figure: str) -> Any:
    """The baseline with the highest `figure`, of equals the last: a lead is one over it. None: there are none."""
    return max(reversed(baselines), key=lambda one: getattr(one.scores, figure).value, default=None)


def lead_words(lead: Interval, name: str) -> str:
    """How far a model is ahead of the baseline `name`, in points of a share, and how sure that is."""
    value, low, high = (POINTS * one for one in (lead.value, lead.low, lead.high))
    between = f"95 % interval {low:.1f} to {high:.1f}"
    if low > 0:
        return f"beats the {name} by {value:.1f} points ({between})"
    if high < 0:
        return f"falls short of the {name} by {-value:.1f} points ({between})"
    return f"cannot be told from the {name}: {value:+.1f} points ({between})"


def majority(rows: Rows) -> int:
    """The most frequent class of `rows`, of equals the first."""
    counts = Counter(rows.labels)
    return max(sorted(counts), key=lambda label: counts[label])


@dataclass(slots=True)
class Predictions:
    """Rows in their own order with the model's fp32 logits; `answers` are class ids, of which `names` are the names."""

    rows: Rows
    names: list[str]
    logits_nC: Tensor

    @property
    def probabilities_nC(self) -> Tensor:
        """Softmax in fp64, so that the loss of a confident mistake stays finite: `(n, C)`."""
        return self.logits_nC.double().softmax(-1)

    @property
    def answers(self) -> list[int]:
        return self.logits_nC.argmax(-1).tolist()


@dataclass(slots=True)
class Mistake:
    """A wrong answer and how sure the model was of it."""

    number: int
    text: str
    pair: str | None
    label: str
    answer: str
    confidence: float


def judge_rows(
    deliverable: TextClassifier,
    rows: Rows,
    *,
    tokens: int = 8192,
    progress: Callable[[int], None] = lambda n_rows: None,
) -> Predictions:
    """Answer every row; `progress` hears how many more rows are done.

    Raises:
        ValueError: `rows` are pairs and the model takes single texts, or the other way round.
    """
    logits_nC = logits_of(deliverable, rows, tokens=tokens, progress=progress)
    return Predictions(rows, deliverable.labels, logits_nC)


def logits_of(deliverable: TextClassifier, rows: Rows, *, tokens: int, progress: Callable[[int], None]) -> Tensor:
    """Logits of every row `(n, C)`, in fp32. Arguments and errors as of `judge_rows`."""

    def answers(texts: list[str], pairs: list[str] | None) -> dict[str, Tensor]:
        return {BOTH: deliverable.logits(texts, pairs, tokens=tokens)}

    return in_chunks(answers, rows, len(deliverable.labels), progress)[BOTH]


def logits_by_model(
    deliverable: TextClassifier,
    rows: Rows,
    baseline: LinearBaseline | None = None,
    *,
    tokens: int = 8192,
    progress: Callable[[int], None] = lambda n_rows: None,
) -> dict[str, Tensor]:
    """Logits of every row `(n, C)`, in fp32, by the name of the model: first of what answers, `both` or the `network`;
    then of each member alone; and of the `linear model`, where it does not answer but is the `baseline` of the run.

    Errors as of `judge_rows`.
    """

    def answers(texts: list[str], pairs: list[str] | None) -> dict[str, Tensor]:
        if deliverable.share:
            found = deliverable.member_logits(texts, pairs, tokens=tokens)
            return {BOTH: found["both"], NETWORK: found["network"], LINEAR: found["linear"]}
        alone = {} if baseline is None else {LINEAR: baseline.logits(texts, pairs)}
        return {NETWORK: deliverable.logits(texts, pairs, tokens=tokens), **alone}

    return in_chunks(answers, rows, len(deliverable.labels), progress)


def worst_mistakes(predictions: Predictions, n: int = 20) -> list[Mistake]:
    """The `n` wrong answers the model was surest of, surest first."""
    confidence_n, answer_n = predictions.probabilities_nC.max(-1)
    rows = predictions.rows
    wrong_n = answer_n != torch.tensor(rows.labels, dtype=torch.int64)
    by_confidence = confidence_n.where(wrong_n, -1.0).argsort(descending=True, stable=True)
    return [
        Mistake(
            number=rows.numbers[row],
            text=rows.texts[row],
            pair=None if rows.pairs is None else rows.pairs[row],
            label=predictions.names[rows.labels[row]],
            answer=predictions.names[int(answer_n[row])],
            confidence=float(confidence_n[row]),
        )
        for row in by_confidence[: min(n, int(wrong_n.sum()))].tolist()
    ]


def write_predictions_csv(path: Path, predictions: Predictions) -> None:
    """One line a row, as of `write_answers_csv`: label, prediction and `p_<class>` for every class.

    Texts are quoted and written raw, as the data holds them, so that the file can be joined with it: a text such as
    `=1+1`, which a spreadsheet takes for a formula, stays one. A probability has six decimals. The file appears whole
    or not at all.
    """
    names, probabilities_nC = predictions.names, predictions.probabilities_nC
    said = [
        [names[label], names[answer]]
        for label, answer in zip(predictions.rows.labels, probabilities_nC.argmax(-1).tolist(), strict=True)
    ]
    columns = ["label", "prediction", *(f"p_{name}" for name in names)]
    probabilities = [[round(value, 6) for value in row] for row in probabilities_nC.tolist()]
    write_answers_csv(path, predictions.rows, columns, [one + of for one, of in zip(said, probabilities, strict=True)])


def write_answers_csv(path: Path, rows: Rows, columns: list[str], said: Sequence[list[Any]]) -> None:
    """One line a row: `row` and `index`, the text(s), the columns of its file that are not read, and under `columns`
    what is `said` of it.

    `row` is its number in messages and in the report: in a csv or tsv the header is row 1, in a .jsonl it is the line,
    elsewhere the first is 1. `index` counts the rows of data from 0, as `iloc` of a pandas frame. A column of the file
    that is itself called as one of these is kept as `input_<name>`, a cell that is no text, number or nothing as JSON.
    The file appears whole or not at all.
    """
    own = {"row": rows.numbers, "index": rows.unread.positions if rows.unread else range(len(rows)), "text": rows.texts}
    own |= {} if rows.pairs is None else {"text_pair": rows.pairs}
    kept: dict[str, list[Any]] = {}
    for name, cells in rows.unread.columns().items() if rows.unread else ():
        while name in own or name in kept or name in columns:
            name = f"input_{name}"
        kept[name] = [_cell(cell) for cell in cells]
    with replace_file(path) as part, part.open("w", encoding="utf-8", newline="") as file:
        write = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n").writerow
        write([*own, *kept, *columns])
        for *cells, of_row in zip(*own.values(), *kept.values(), said, strict=True):
            write([*cells, *of_row])


def _cell(cell: Any) -> Any:
    if cell is None or isinstance(cell, str | int | float):
        return cell
    try:
        return json.dumps(cell, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):  # such as a date, or bytes
        return str(cell)
