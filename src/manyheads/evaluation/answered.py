"""The answers of a classifier to rows, however many: their logits are one array, which is read a chunk at a time.

n rows . C classes or labels
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from manyheads.data.rows import Rows
from manyheads.data.tokens import multi_hot
from manyheads.errors import UserError
from manyheads.evaluation.evaluation import Setup, write_answers
from manyheads.evaluation.intervals import Bools, Floats, Ints
from manyheads.evaluation.logits import KeptLogits, new_array
from manyheads.inference.classifier import (
    OVERFLOW,
    TextClassifier,
    chunks_of,
    rows_at_once,
)
from manyheads.inference.rules import mark_texts
from manyheads.linear.model import LinearBaseline
from manyheads.linear.thresholds import given_of, probabilities_of
from manyheads.runs.summary import BOTH, LINEAR, NETWORK

TOKENS = 8192  # most of a batch


@dataclass(slots=True)
class AnsweredRows:
    """Some rows in their own order, the probabilities of their classes, the classes that they have, `marks_nC`, and
    those that they are given: the likeliest, or where they may have any number of labels (`multi`) each from its
    threshold on."""

    rows: Rows
    names: list[str]
    probabilities_nC: Floats
    marks_nC: Bools
    given_nC: Bools
    multi: bool

    @classmethod
    def of(
        cls, rows: Rows, names: list[str], logits_nC: Tensor, thresholds: list[float] | Tensor | None = None
    ) -> "AnsweredRows":
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

    @property
    def labels(self) -> NDArray[Any]:
        """As figures take them: class ids `(n,)`, or marks `(n, C)`."""
        return self.marks_nC if self.multi else self.marks_nC.argmax(1).astype(np.int32)

    @property
    def answers(self) -> NDArray[Any]:
        """Like `labels`."""
        return self.given_nC if self.multi else self.given_nC.argmax(1).astype(np.int32)

    @property
    def right_n(self) -> Bools:
        """Whether a row has the class it is given, or all labels and no others."""
        return (self.marks_nC == self.given_nC).all(1)

    def pick(self, rows: Ints) -> "AnsweredRows":
        """Some of the rows."""
        probabilities_nC, marks_nC, given_nC = self.probabilities_nC[rows], self.marks_nC[rows], self.given_nC[rows]
        return AnsweredRows(self.rows.pick(rows), self.names, probabilities_nC, marks_nC, given_nC, self.multi)

    def words(self, of_row: Bools) -> list[str]:
        """The names of a row's classes."""
        return [self.names[label] for label in np.flatnonzero(of_row).tolist()]


@dataclass(slots=True)
class LogitStore:
    """The logits of some models for all rows.

    Attributes:
        names: of the classes or labels.
        models: by the name of each model its thresholds, where rows have any number of labels. The first answers.
        logits: by the name of each model `(n, C)`.
        marks: numbers of all rows `(n,)` of each rule of `Setup` that marks them, None of the others.
        of_model_n: which of several models of a kind answered each row, where several did.
        by_model: the thresholds `(models, C)` of each of these; those in `models` are then their means, to be shown.
    """

    rows: Rows
    names: list[str]
    models: dict[str, list[float] | None]
    logits: dict[str, NDArray[np.float32]]
    marks: list[Any] = field(default_factory=list)
    of_model_n: Ints | None = None
    by_model: dict[str, Tensor] = field(default_factory=dict)

    def answers(self, model: str = "") -> Iterator[AnsweredRows]:
        """The answers of a model, by default of the one that answers, a chunk of rows at a time."""
        model = model or next(iter(self.models))
        step = rows_at_once(len(self.names))
        for start in range(0, len(self.rows), step):
            rows = np.arange(start, min(start + step, len(self.rows)))
            thresholds = self.models[model]
            if model in self.by_model and self.of_model_n is not None:
                thresholds = self.by_model[model][self.of_model_n[rows]]
            logits_nC = torch.from_numpy(np.array(self.logits[model][start : start + step]))
            yield AnsweredRows.of(self.rows.pick(rows), self.names, logits_nC, thresholds)


def evaluated_models(classifier: TextClassifier, baseline: LinearBaseline | None) -> dict[str, list[float] | None]:
    """Who is asked, first what answers, `both` or the `network`; then each member alone; and the `linear model`, where
    it does not answer but is the `baseline` of the run. Of labels each has thresholds of its own."""
    alone = classifier.member_thresholds
    own = {NETWORK: alone.get("network"), LINEAR: alone.get("linear")}
    names = [BOTH, NETWORK, LINEAR]
    if not classifier.share:
        own = {} if baseline is None else {LINEAR: baseline.thresholds}
        names = [NETWORK, *own]
    return {name: own.get(name) or classifier.thresholds for name in names}


def answer_rows(classifier: TextClassifier, rows: Rows, setup: Setup) -> LogitStore:
    """The answers of `evaluated_models` to all rows; what `setup.logits` holds of them already is not asked again.

    Raises:
        UserError: `rows` are pairs and the model takes single texts, or the other way round; or an answer is not
            finite, as where weights are so large that their sums are infinite.
    """
    tokens, baseline, models = setup.tokens or TOKENS, setup.baseline, evaluated_models(classifier, setup.baseline)
    n, n_classes = len(rows), len(classifier.labels)
    marked: list[list[Tensor | None]] = []  # of each chunk what each rule marks its rows with

    def ask(texts: list[str], pairs: list[str] | None) -> dict[str, Tensor]:
        network_nC, marks = mark_texts(setup.rules, classifier, texts, pairs, tokens=tokens)
        marked.append(marks)
        if classifier.share:
            found = classifier.member_logits(texts, pairs, tokens=tokens, network_nC=network_nC)
            return {BOTH: found["both"], NETWORK: found["network"], LINEAR: found["linear"]}
        logits_nC = {NETWORK: classifier.logits(texts, pairs, tokens=tokens, network_nC=network_nC)}
        if baseline is not None:
            logits_nC[LINEAR] = baseline.logits(texts, pairs)
        return logits_nC

    into = setup.logits or KeptLogits(new_array((n, len(models), n_classes)))
    # marks of rows that were answered before a kill were not kept
    if into.n_done and any(rule.mark is not None for rule in setup.rules):
        for _ in chunks_of(ask, rows.pick(np.arange(into.n_done)), n_classes, lambda n_rows: None):
            pass
    if into.n_done:
        setup.progress(into.n_done)
    for found in chunks_of(ask, rows.pick(np.arange(into.n_done, n)), n_classes, setup.progress):
        logits = torch.stack([found[name].float() for name in models], dim=1)
        broken = (~logits.isfinite()).any(2).nonzero()
        if len(broken):
            at, name = into.n_done + int(broken[0, 0]), [*models][int(broken[0, 1])]
            raise UserError(f"{rows.source}, row {rows.numbers[at]:,}: what the {name} answers {OVERFLOW}")
        into.add(logits.numpy())
    marks = []
    for of_rule in zip(*marked, strict=True):
        of_chunks = [one.numpy() for one in of_rule if one is not None]
        marks.append(np.concatenate(of_chunks) if of_chunks else None)
    logits = {name: into.array[:, at] for at, name in enumerate(models)}
    return LogitStore(rows, classifier.labels, models, logits, marks)


def write_predictions(path: Path, stored: LogitStore) -> None:
    """The columns of `write_answers`, then label, or labels, and prediction, several joined by | in a csv, and
    `p_<class>` for every class, in six decimals."""
    multi = next(iter(stored.models.values())) is not None
    columns = ["labels" if multi else "label", "prediction", *(f"p_{name}" for name in stored.names)]

    def answers() -> Iterator[list[Any]]:
        for found in stored.answers():
            probabilities = found.probabilities_nC.round(6).tolist()
            for marks, given, of_row in zip(found.marks_nC, found.given_nC, probabilities, strict=True):
                both = found.words(marks), found.words(given)
                yield [*(both if multi else (one[0] for one in both)), *of_row]

    write_answers(path, stored.rows, columns, answers())
