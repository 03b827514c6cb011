"""When not to answer, and which classes to leave open: rules set on labelled rows that the model did not learn from.

`Rules.least` is the confidence from which on texts are answered so that, with 95 % confidence, no more than a share
`risk` of the answers is wrong: Geifman and El-Yaniv (2017), "Selective Classification for Deep Neural Networks",
algorithm 1, with Clopper and Pearson's bound. `Rules.bounds_C` make sets of classes that hold the right one as often as
`coverage` says: split conformal prediction with adaptive sets, Romano, Sesia and Candès (2020), "Classification with
Valid and Adaptive Coverage". Their random number is 0, so that a text always has the same set, and never an empty one.

n rows . C classes
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.config import DataConfig
from manyheads.data.rows import Rows
from manyheads.data.sources import read_rows, read_split
from manyheads.errors import UserError
from manyheads.evaluation.evaluation_data import renumber, with_columns
from manyheads.evaluation.held_out import require_new, require_same
from manyheads.inference.classifier import Prediction, TextClassifier, chunks_of
from manyheads.inference.format import COLUMNS, ModelFolder, enclosing_run
from manyheads.inference.rules import AnswerRule
from manyheads.plugins.judge.checks import AnswerSettings, require_held_out
from manyheads.runs.config_file import read_run

DOUBT = 0.05  # that the promise of a risk does not hold
UNNAMED: dict[str, Any] = dict.fromkeys(COLUMNS, "")


@dataclass(slots=True)
class Rules:
    """What was set on labelled rows.

    Attributes:
        rows: how many there are.
        risk: most of the answers that may be wrong; 0: nothing is promised.
        least: the confidence from which on texts are answered; above 1: none is.
        answered: the share of the rows that are answered by it.
        coverage: the share of texts whose set is to hold the right class; 0: there are no sets.
        by_class: the same for the texts of each class.
        bounds_C: a class is in a set up to this probability of all likelier ones.
    """

    rows: int
    risk: float = 0.0
    least: float = 0.0
    answered: float = 1.0
    coverage: float = 0.0
    by_class: bool = False
    bounds_C: NDArray[np.float64] | None = None
    digest: str = ""  # of the rows
    notes: list[str] = field(default_factory=list)  # of those among them that the model learnt from

    def sets(self, probabilities_nC: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which classes each row's set holds `(n, C)`, the likeliest always."""
        assert self.bounds_C is not None, "sets were asked for"
        return likelier(probabilities_nC) <= self.bounds_C

    def words(self) -> list[str]:
        """What is promised, in sentences without a full stop."""
        by, said = f"by {self.rows:,} labelled rows", list(self.notes)
        if self.risk and self.least > 1:
            said.append(f"abstain.risk={self.risk:g}: no text is answered, as {by} no confidence keeps the promise")
        elif self.risk:
            said.append(
                f"abstain.risk={self.risk:g}: texts are answered from a confidence of {self.least:.4f} on; {by} "
                f"{self.answered:.1%} are answered, and with 95 % confidence at most {100 * self.risk:g}% of the "
                "answers are wrong"
            )
        if self.coverage:
            each = " of each class" if self.by_class else ""
            said.append(
                f"sets.coverage={self.coverage:g}: sets are to hold the right class of "
                f"{100 * self.coverage:g}%{each} {by}"
            )
        return said


def held_out_rows(config: AnswerSettings, folder: ModelFolder) -> Rows:
    """Rows with the class ids of the model: those of the file `labelled`, else the run's own validation split.

    Raises:
        UserError: there are none that the model did not learn from.
    """
    settings, labels, home = folder.settings, folder.labels(), enclosing_run(folder.path)
    if config.labelled:
        data = DataConfig(source="run", path=config.labelled, **UNNAMED)
        return read_split(with_columns(data, settings), "validation", labels)
    if home is None:
        raise UserError(
            f"run={config.run} is a model without its run folder, whose validation split abstain.risk and "
            "sets.coverage are set on: name rows with their labels by labelled=<file>"
        )
    run = read_run(home / "config.yaml")
    require_held_out(run, "abstain.risk and sets.coverage", "name rows by labelled=<file>")
    splits = read_rows(run, with_test=False)
    require_same(splits, "validation", home, "name rows by labelled=<file>")
    if sorted(splits.labels) != sorted(labels):
        raise UserError(f"{splits.validation.source} has changed since training: name rows by labelled=<file>")
    if splits.labels != labels:
        renumber(splits, labels)
    return splits.validation


def promise_rule(config: AnswerSettings, folder: ModelFolder, classifier: TextClassifier) -> AnswerRule:
    """What predict and evaluate do with answers by `Rules`."""
    rules = set_rules(config, folder, classifier)
    return AnswerRule(
        apply=lambda answers, predictions, marks_n: apply_rules(rules, answers, predictions),
        columns=("set",) if rules.coverage else (),
        lines=rules.words(),
        digest=str(rules),
        judge="manyheads.plugins.judge.decisions:promises_kept",
        fitted=rules,
        set_on=rules.digest,
        refusal=(
            "abstain.risk and sets.coverage are set on the rows of {source}, which are judged: judge others, or name "
            "others by labelled=<file>"
        ),
    )


def apply_rules(rules: Rules, answers: list[dict[str, Any]], predictions: list[Prediction]) -> None:
    """The label of an answer below the least confidence becomes null; each gets its set, the likeliest class first."""
    for answer, prediction in zip(answers, predictions, strict=True):
        if max(prediction.probabilities.values()) < rules.least:
            answer["label"] = None
    if not rules.coverage:
        return
    probabilities_nC = np.array([list(prediction.probabilities.values()) for prediction in predictions])
    for answer, prediction, is_in_C in zip(answers, predictions, rules.sets(probabilities_nC), strict=True):
        likelihood = prediction.probabilities
        names = [name for name, is_in in zip(likelihood, is_in_C.tolist(), strict=True) if is_in]
        answer["set"] = sorted(names, key=lambda name: -likelihood[name])


def set_rules(config: AnswerSettings, folder: ModelFolder, classifier: TextClassifier) -> Rules:
    """The rules that the settings ask for, by the classifier's answers to `held_out_rows`."""
    rows = held_out_rows(config, folder)
    labels_n, n_classes = np.array(rows.labels), len(classifier.labels)
    rules = Rules(len(rows), config.abstain.risk, coverage=config.sets.coverage, by_class=config.sets.by_class)
    rules.digest = rows.digest(classifier.labels)
    if config.labelled:
        otherwise = "name others by labelled=<file>"
        rules.notes = require_new(folder.path, rows, classifier.labels, otherwise)
    if classifier.calibration is not None and classifier.calibration.digest == rules.digest:
        raise UserError(
            f"abstain.risk and sets.coverage are set on the rows of {rows.source}, which calibrate was fitted on: name "
            "others by labelled=<file>"
        )

    def answer(texts: list[str], pairs: list[str] | None) -> dict[str, Any]:
        return {"": classifier.logits(texts, pairs, tokens=config.batch.tokens)}

    confidence_n, likelier_n, right_n = np.empty(len(rows)), np.empty(len(rows)), np.empty(len(rows), dtype=bool)
    start = 0
    for logits in chunks_of(answer, rows, n_classes, lambda n_rows: None):
        probabilities_nC = classifier.probabilities(logits[""]).numpy()
        some = slice(start, start + len(probabilities_nC))
        confidence_n[some] = probabilities_nC.max(1)
        right_n[some] = probabilities_nC.argmax(1) == labels_n[some]
        likelier_n[some] = of_label(likelier(probabilities_nC), labels_n[some])
        start = some.stop
    if rules.risk:
        rules.least = least_confidence(confidence_n, right_n, rules.risk)
        rules.answered = float((confidence_n >= rules.least).mean())
    if rules.coverage:
        rules.bounds_C = set_bounds(likelier_n, labels_n, n_classes, rules.coverage, by_class=rules.by_class)
    return rules


def least_confidence(confidence_n: NDArray[np.float64], right_n: NDArray[np.bool_], risk: float) -> float:
    """The least confidence at which a binary search finds that no more than `risk` of the answers are wrong: Geifman
    and El-Yaniv (2017), algorithm 1. Each of its steps may err by an equal part of `DOUBT`. It assumes rows that are
    drawn as the texts to come are.

    Returns:
        2.0 where it finds none.
    """
    order = np.argsort(-confidence_n, kind="stable")
    sure_n, wrong_n = confidence_n[order], np.cumsum(~right_n[order])
    steps = max(1, math.ceil(math.log2(len(sure_n) + 1)))
    low, high, found = 0, len(sure_n), 2.0  # low, high: how many rows are answered
    for _ in range(steps):
        middle = (low + high + 1) // 2
        if middle <= low:
            break
        n = int(np.searchsorted(-sure_n, -sure_n[middle - 1], side="right"))  # with all that are as sure
        if most_wrong(int(wrong_n[n - 1]), n, DOUBT / steps) <= risk:
            low, found = middle, min(found, float(sure_n[middle - 1]))
        else:
            high = middle - 1
    return found


def most_wrong(n_wrong: int, n: int, doubt: float) -> float:
    """The largest share of wrong answers that `n_wrong` of `n` do not rule out: Clopper and Pearson (1934)."""
    from scipy.stats import beta  # costs, which need this file, do not wait for it

    if n_wrong >= n:
        return 1.0
    return float(beta.ppf(1 - doubt, n_wrong + 1, n - n_wrong))


def likelier(probabilities_nC: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each class the probability of all that are likelier `(n, C)`: 0 of the likeliest."""
    order = np.argsort(-probabilities_nC, axis=1, kind="stable")
    sums = np.take_along_axis(probabilities_nC, order, axis=1).cumsum(1)
    before, found = np.zeros_like(sums), np.empty_like(sums)
    before[:, 1:] = sums[:, :-1]
    np.put_along_axis(found, order, before, axis=1)
    return found


def of_label(figures_nC: NDArray[np.float64], labels_n: NDArray[Any]) -> NDArray[np.float64]:
    """Of each row the figure of its own class."""
    return np.take_along_axis(figures_nC, labels_n[:, None], axis=1)[:, 0]


def set_bounds(
    likelier_n: NDArray[np.float64], labels_n: NDArray[Any], n_classes: int, coverage: float, *, by_class: bool
) -> NDArray[np.float64]:
    """Up to which probability of all likelier classes a class is in a set: split conformal prediction, Romano, Sesia
    and Candès (2020). It assumes that rows and texts to come can be exchanged.

    Args:
        likelier_n: that probability, for the right class of each row.

    Returns:
        `(C,)`: one bound for all, or each class has its own, and is in every set where it has too few rows to promise
        anything.
    """

    def bound(scores: NDArray[np.float64]) -> float:
        rank = math.ceil((len(scores) + 1) * coverage - 1e-9)
        if rank > len(scores):
            return math.inf
        return float(np.sort(scores)[rank - 1])

    if not by_class:
        return np.full(n_classes, bound(likelier_n))
    return np.array([bound(likelier_n[labels_n == at]) for at in range(n_classes)])
