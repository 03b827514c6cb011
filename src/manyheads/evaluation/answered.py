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
from manyheads.inference.classifier import OVERFLOW, TextClassifier, chunks_of, rows_at_once
from manyheads.inference.rules import mark_texts
from manyheads.linear.model import LinearBaseline
from manyheads.linear.thresholds import given_of, probabilities_of
from manyheads.runs.summary import BOTH, LINEAR, NETWORK

TOKENS = 8192  # most of a batch


@dataclass(slots=True)
class AnsweredRows:
    """Some rows and the answers of a model to them.

    Attributes:
        names: of the classes or labels.
        probabilities_nC: of each class.
        marks_nC: the classes that the rows have.
        given_nC: those that they are given: the likeliest, or if rows have any number of labels (`multi`) each from its
            threshold on.
    """

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
        """Probabilities and labels as the model itself gives them; only labels have `thresholds`."""
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
        kept: what plugins keep with the model that answers, by name.
    """

    rows: Rows
    names: list[str]
    models: dict[str, list[float] | None]
    logits: dict[str, NDArray[np.float32]]
    marks: list[Any] = field(default_factory=list)
    of_model_n: Ints | None = None
    by_model: dict[str, Tensor] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)

    @property
    def multi(self) -> bool:
        """Whether rows have any number of labels: a model has a threshold for each then."""
        return next(iter(self.models.values())) is not None

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
    """The models that are evaluated, with their thresholds if rows have any number of labels. The first is the one that
    answers: `both` or the `network`. Then come its members alone, and the `linear model` of the run if it has no share
    in the answers."""
    if classifier.share:
        alone = classifier.member_thresholds
        return {
            BOTH: classifier.thresholds,
            NETWORK: alone.get("network") or classifier.thresholds,
            LINEAR: alone.get("linear") or classifier.thresholds,
        }
    models = {NETWORK: classifier.thresholds}
    if baseline is not None:
        models[LINEAR] = baseline.thresholds or classifier.thresholds
    return models


def answer_rows(classifier: TextClassifier, rows: Rows, setup: Setup) -> LogitStore:
    """The answers of `evaluated_models` to all rows. Those that `setup.logits` holds already are not computed again.

    Raises:
        UserError: `rows` are pairs and the model takes single texts, or the other way round; or an answer is not
            finite, as when weights are so large that their sums are infinite.
    """
    tokens, baseline, models = setup.tokens or TOKENS, setup.baseline, evaluated_models(classifier, setup.baseline)
    n, n_classes = len(rows), len(classifier.labels)
    marks_of_chunks: list[list[Tensor | None]] = []  # of each chunk, what each rule marks its rows with

    def answer(texts: list[str], pairs: list[str] | None) -> dict[str, Tensor]:
        network_nC, marks = mark_texts(setup.rules, classifier, texts, pairs, tokens=tokens)
        marks_of_chunks.append(marks)
        if classifier.share:
            found = classifier.member_logits(texts, pairs, tokens=tokens, network_nC=network_nC)
            return {BOTH: found["both"], NETWORK: found["network"], LINEAR: found["linear"]}
        logits_nC = {NETWORK: classifier.logits(texts, pairs, tokens=tokens, network_nC=network_nC)}
        if baseline is not None:
            logits_nC[LINEAR] = baseline.logits(classifier.as_read(texts), pairs)
        return logits_nC

    kept = setup.logits or KeptLogits(new_array((n, len(models), n_classes)))
    if kept.n_done and any(rule.mark is not None for rule in setup.rules):
        # the logits of these rows were kept when evaluation was interrupted, their marks were not
        for _ in chunks_of(answer, rows.pick(np.arange(kept.n_done)), n_classes, lambda n_rows: None):
            pass
    if kept.n_done:
        setup.progress(kept.n_done)
    for found in chunks_of(answer, rows.pick(np.arange(kept.n_done, n)), n_classes, setup.progress):
        logits = torch.stack([found[name].float() for name in models], dim=1)
        broken = (~logits.isfinite()).any(2).nonzero().tolist()
        if broken:
            row, model = broken[0]
            number, name = rows.numbers[kept.n_done + row], list(models)[model]
            raise UserError(f"{rows.source}, row {number:,}: what the {name} answers {OVERFLOW}")
        kept.add(logits.numpy())
    marks = []  # of each rule
    for of_chunks in zip(*marks_of_chunks, strict=True):
        known = [marks_m.numpy() for marks_m in of_chunks if marks_m is not None]
        marks.append(np.concatenate(known) if known else None)
    logits = {name: kept.array[:, at] for at, name in enumerate(models)}
    return LogitStore(rows, classifier.labels, models, logits, marks, kept=classifier.settings.kept)


def write_predictions(path: Path, stored: LogitStore) -> None:
    """Write the columns of `write_answers`, then `label` or `labels`, `prediction`, and `p_<class>` for every class, in
    six decimals. Several labels are joined by | in a csv."""
    columns = ["labels" if stored.multi else "label", "prediction", *(f"p_{name}" for name in stored.names)]

    def answers() -> Iterator[list[Any]]:
        for found in stored.answers():
            probabilities = found.probabilities_nC.round(6).tolist()
            for marks_C, given_C, of_row in zip(found.marks_nC, found.given_nC, probabilities, strict=True):
                labels, prediction = found.words(marks_C), found.words(given_C)
                if stored.multi:
                    yield [labels, prediction, *of_row]
                else:
                    yield [labels[0], prediction[0], *of_row]

    write_answers(path, stored.rows, columns, answers())
