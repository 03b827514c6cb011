"""The answers of a classifier to rows, however many: their logits lie in a file and are looked at a chunk at a time.

n rows . C classes or labels
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyheads.data.rows import Rows
from manyheads.data.tokens import multi_hot
from manyheads.errors import UserError
from manyheads.evaluation.evaluation import Setup, write_answers
from manyheads.evaluation.intervals import Bools, Floats, Ints
from manyheads.evaluation.report import Example, Group
from manyheads.inference.answers import Answers, Progress
from manyheads.inference.classifier import (
    OVERFLOW,
    TextClassifier,
    chunks_of,
    rows_at_once,
)
from manyheads.inference.rules import mark_texts
from manyheads.linear.thresholds import given_of, probabilities_of
from manyheads.runs.summary import BOTH, LINEAR, NETWORK

TOKENS = 8192  # most of a batch
NONE = "no label"
IN_MEMORY = 2**26  # bytes of logits, of which no file is made
BYTES = 4  # of a logit


@dataclass(slots=True)
class Answered:
    """Rows in their own order, the probabilities of their classes, those that they have, `marks_nC`, and those that
    they are given: the likeliest, or where they may have any number of labels (`multi`) each from its threshold on."""

    rows: Rows
    names: list[str]
    probabilities_nC: Floats
    marks_nC: Bools
    given_nC: Bools
    multi: bool

    @classmethod
    def of(
        cls, rows: Rows, names: list[str], logits_nC: Tensor, thresholds: list[float] | Tensor | None = None
    ) -> "Answered":
        """Probabilities and labels as the model itself gives them."""
        assert (rows.sets is None) == (thresholds is None), "rows are read as the model answers them"
        probabilities_nC = probabilities_of(logits_nC, multi=thresholds is not None)
        given_nC = given_of(probabilities_nC, thresholds).numpy()
        if rows.sets is None:
            marks_nC = np.zeros(given_nC.shape, dtype=bool)
            np.put_along_axis(marks_nC, np.array(rows.labels, dtype=np.int64)[:, None], True, axis=1)
        else:
            marks_nC = multi_hot(rows.sets, len(names)).bool().numpy()
        return cls(rows, names, probabilities_nC.numpy(), marks_nC, given_nC, rows.sets is not None)

    def judged(self, marks_nC: Bools) -> Any:
        """As figures take them: class ids `(n,)`, or marks."""
        return marks_nC if self.multi else marks_nC.argmax(1)

    @property
    def right_n(self) -> Bools:
        """Whether a row has the class it is given, or all labels and no others."""
        return (self.marks_nC == self.given_nC).all(1)

    def pick(self, rows: Ints) -> "Answered":
        """Some of the rows."""
        probabilities_nC, marks_nC, given_nC = self.probabilities_nC[rows], self.marks_nC[rows], self.given_nC[rows]
        return Answered(self.rows.pick(rows), self.names, probabilities_nC, marks_nC, given_nC, self.multi)

    def words(self, of_row: Bools) -> list[str]:
        """The names of a row's classes."""
        return [self.names[label] for label in np.flatnonzero(of_row).tolist()]


@dataclass(slots=True)
class Stored:
    """The logits of some models for all rows in `file`, chunk after chunk, in each model after model: its name, and its
    thresholds where rows have any number of labels. The first answers. `marks` are numbers of all rows `(n,)` of each
    rule of `Setup` that marks them, None of the others. Where each row
    was answered by one of several models of a kind, `of_model_n` says by which, and `by_model` has the thresholds
    `(models, C)` of each; those of `models` are then their means, to be shown."""

    rows: Rows
    names: list[str]
    models: dict[str, list[float] | None]
    file: Any
    marks: list[Any] = field(default_factory=list)
    of_model_n: Ints | None = None
    by_model: dict[str, Tensor] = field(default_factory=dict)

    def logits(self) -> Iterator[tuple[Rows, Tensor]]:
        """Some rows after others, and what each model makes of them: `(models, n, C)`."""
        step, n_classes = rows_at_once(len(self.names)), len(self.names)
        for start in range(0, len(self.rows), step):
            some = self.rows.pick(np.arange(start, min(start + step, len(self.rows))))
            size = len(some) * n_classes
            self.file.seek(BYTES * start * n_classes * len(self.models))
            held = bytearray(self.file.read(BYTES * size * len(self.models)))
            yield some, torch.frombuffer(held, dtype=torch.float32).view(len(self.models), len(some), n_classes)

    def chunks(self) -> Iterator[dict[str, Answered]]:
        """The answers of the models."""
        start = 0
        for some, logits in self.logits():
            found = {}
            for (name, thresholds), of_model in zip(self.models.items(), logits, strict=True):
                own = thresholds
                if name in self.by_model and self.of_model_n is not None:
                    own = self.by_model[name][self.of_model_n[start : start + len(some)]]
                found[name] = Answered.of(some, self.names, of_model, own)
            yield found
            start += len(some)

    def own(self) -> Iterator[Answered]:
        """Those of the model that answers."""
        return (next(iter(chunk.values())) for chunk in self.chunks())


def models_of(classifier: TextClassifier, setup: Setup) -> dict[str, list[float] | None]:
    """Who is asked, first what answers, `both` or the `network`; then each member alone; and the `linear model`, where
    it does not answer but is the baseline of the run. Of labels each has thresholds of its own."""
    alone, baseline = classifier.member_thresholds, setup.baseline
    own = {NETWORK: alone.get("network"), LINEAR: alone.get("linear")}
    names = [BOTH, NETWORK, LINEAR]
    if not classifier.share:
        own = {} if baseline is None else {LINEAR: baseline.thresholds}
        names = [NETWORK, *own]
    return {name: own.get(name) or classifier.thresholds for name in names}


def answer_rows(classifier: TextClassifier, rows: Rows, setup: Setup) -> Stored:
    """The answers of `models_of` to all rows; what `setup.answers` holds of them already is not asked again.

    Raises:
        UserError: `rows` are pairs and the model takes single texts, or the other way round; or an answer is no
            number, as where weights are so large that their sums are infinite.
    """
    tokens, baseline, models = setup.tokens or TOKENS, setup.baseline, models_of(classifier, setup)
    marked: list[list[Tensor | None]] = []  # of each chunk what each rule marks its rows with

    def ask(texts: list[str], pairs: list[str] | None) -> dict[str, Tensor]:
        network_nC, marks = mark_texts(setup.rules, classifier, texts, pairs, tokens=tokens)
        marked.append(marks)
        if classifier.share:
            found = classifier.member_logits(texts, pairs, tokens=tokens, network_nC=network_nC)
            return {BOTH: found["both"], NETWORK: found["network"], LINEAR: found["linear"]}
        logits_nC = {NETWORK: classifier.logits(texts, pairs, tokens=tokens, network_nC=network_nC)}
        return logits_nC | ({} if baseline is None else {LINEAR: baseline.logits(texts, pairs)})

    into = setup.answers
    if into is None or into.part is None:
        file = new_file()
        into = Answers("", False, file.write, Progress(), part=file)
    n_classes = len(classifier.labels)
    # marks of rows that were answered before a kill were not kept
    if into.progress.rows and any(rule.mark is not None for rule in setup.rules):
        for _ in chunks_of(ask, rows.pick(np.arange(into.progress.rows)), n_classes, lambda n_rows: None):
            pass
    for found in chunks_of(ask, rows, n_classes, setup.progress, done=into.progress.chunks):
        logits = torch.stack([found[name].float() for name in models])
        if len(broken := (~logits.isfinite()).any(2).nonzero()):
            name, at = [*models][int(broken[0, 0])], into.progress.rows + int(broken[0, 1])
            raise UserError(f"{rows.source}, row {rows.numbers[at]:,}: what the {name} answers {OVERFLOW}")
        into.add(logits.numpy().tobytes(), logits.size(1))
    marks = [[one.numpy() for one in of_rule if one is not None] for of_rule in zip(*marked, strict=True)]
    marks = [np.concatenate(of_rule) if of_rule else None for of_rule in marks]
    return Stored(rows, classifier.labels, models, into.part, marks)


def new_file() -> Any:
    """A file of logits, which ends with what holds it."""
    return SpooledTemporaryFile(IN_MEMORY)


class Worst:
    """The `n` rows with the likeliest class that they are given and have not, likeliest first; it is the answer."""

    def __init__(self, n: int = 20) -> None:
        self.n, self._heap, self._order = n, list[tuple[float, int, Example]](), count(0, -1)

    def add(self, found: Answered) -> None:
        sure_nC = np.where(found.given_nC & ~found.marks_nC, found.probabilities_nC, -1.0)
        sure_n, rows = sure_nC.max(1), found.rows
        for row in np.argsort(-sure_n, kind="stable")[: min(self.n, int((sure_n >= 0).sum()))].tolist():
            sure, answer = float(sure_n[row]), found.names[int(sure_nC[row].argmax())]
            if len(self._heap) == self.n and sure <= self._heap[0][0]:
                break
            texts = [rows.texts[row], *([] if rows.pairs is None else [rows.pairs[row]])]
            label = ", ".join(found.words(found.marks_nC[row])) or NONE
            place = f"{sure:.1%} sure, row {rows.numbers[row]:,}"
            one = (sure, next(self._order), Example(place, texts, label, answer))
            (heapq.heappush if len(self._heap) < self.n else heapq.heappushpop)(self._heap, one)

    def examples(self) -> list[Example]:
        return [example for *_, example in sorted(self._heap, reverse=True)]


def cell_groups(stored: Stored, cells: dict[tuple[int, int], int], most: int) -> list[Group]:
    """The surest mistakes, `most` of each of the `cells`: of a class and an answer, with the number of its rows."""
    worst = {cell: Worst(most) for cell in cells}
    for found in stored.own() if cells else ():
        labels_n, answers_n = found.marks_nC.argmax(1), found.given_nC.argmax(1)
        for label, answer in {*zip(labels_n.tolist(), answers_n.tolist(), strict=True)} & cells.keys():
            worst[label, answer].add(found.pick(np.flatnonzero((labels_n == label) & (answers_n == answer))))
    groups = []
    for (label, answer), n_rows in cells.items():
        shown = [replace(one, label=None, answer=None) for one in worst[label, answer].examples()]
        which = f", the {len(shown)} surest of {n_rows:,}" if len(shown) < n_rows else ""
        title = f"{stored.names[label]} answered as {stored.names[answer]}{which}"
        groups.append(Group(cell_key(label, answer), title, shown))
    return groups


def cell_key(label: int, answer: int) -> str:
    """By which a page refers to such mistakes."""
    return f"cell-{label}-{answer}"


def write_predictions(path: Path, stored: Stored) -> None:
    """The columns of `write_answers`, then label, or labels, and prediction, several joined by | in a csv, and
    `p_<class>` for every class, in six decimals."""
    multi = next(iter(stored.models.values())) is not None
    columns = ["labels" if multi else "label", "prediction", *(f"p_{name}" for name in stored.names)]

    def answers() -> Iterator[list[Any]]:
        for found in stored.own():
            probabilities = found.probabilities_nC.round(6).tolist()
            for marks, given, of_row in zip(found.marks_nC, found.given_nC, probabilities, strict=True):
                both = found.words(marks), found.words(given)
                yield [*(both if multi else (one[0] for one in both)), *of_row]

    write_answers(path, stored.rows, columns, answers())
