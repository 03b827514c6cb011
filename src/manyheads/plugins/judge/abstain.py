"""When not to answer, and which classes to leave open: rules set on labelled rows that the model did not learn from.

`Rules.least` is the confidence from which on texts are answered so that, with 95 % confidence, no more than a share
`risk` of the answers is wrong: Geifman and El-Yaniv (2017), "Selective Classification for Deep Neural Networks",
algorithm 1, with Clopper and Pearson's bound. `Rules.bounds_C` make sets of classes that hold the right one as often as
`coverage` says: split conformal prediction with adaptive sets, Romano, Sesia and Candès (2020), "Classification with
Valid and Adaptive Coverage". Their random number is 0, so that a text always has the same set, and never an empty one.

n rows . C classes
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.config import DataConfig
from manyheads.data.rows import Rows
from manyheads.data.sources import read_rows, read_split
from manyheads.errors import UserError
from manyheads.evaluation.evaluation_data import with_columns
from manyheads.evaluation.held_out import require_held_out, require_new, require_same
from manyheads.inference.classifier import Prediction, TextClassifier, chunks_of
from manyheads.inference.format import COLUMNS, ModelFolder, enclosing_run
from manyheads.inference.rules import AnswerRule
from manyheads.plugins.judge.checks import AnswerSettings
from manyheads.runs.config_file import read_run

DOUBT = 0.05  # that the promise of a risk does not hold
UNNAMED: dict[str, Any] = dict.fromkeys(COLUMNS, "")


@dataclass(slots=True)
class Rules:
    """What was set on a number of `rows`; a `risk` or `coverage` of 0 promises nothing. `answered` is the share of the
    rows that `least` lets through; a `least` above 1 answers none."""

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
        by = f"by {self.rows:,} labelled rows"
        said = [*self.notes]
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
    """Rows with the class ids of the model: those of the file `labelled`, else the run's own validation split. A
    ValueError where there are none."""
    settings, labels, home = folder.settings, folder.labels(), enclosing_run(folder.path)
    if config.labelled:
        data = with_columns(
            DataConfig(source="run", path=config.labelled, **UNNAMED), settings.columns, pairs=settings.pairs
        )
        return read_split(data, "validation", labels)
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
    rows, ids = splits.validation, [labels.index(name) for name in splits.labels]
    return replace(rows, labels=[ids[label] for label in rows.labels])


def promise_rule(config: AnswerSettings, folder: ModelFolder, classifier: TextClassifier) -> AnswerRule:
    """What predict and evaluate do with answers by `Rules`."""
    rules = set_rules(config, folder, classifier)
    return AnswerRule(
        apply=lambda answers, predictions, marks_n: apply(rules, answers, predictions),
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


def apply(rules: Rules, answers: list[dict[str, Any]], predictions: list[Prediction]) -> None:
    """The label of an answer below the least confidence becomes null; each gets its set, the likeliest class first."""
    for answer, one in zip(answers, predictions, strict=True):
        if max(one.probabilities.values()) < rules.least:
            answer["label"] = None
    if not rules.coverage:
        return
    sets_nC = rules.sets(np.array([list(one.probabilities.values()) for one in predictions]))
    for answer, one, held in zip(answers, predictions, sets_nC.tolist(), strict=True):
        names = [name for name, is_in in zip(one.probabilities, held, strict=True) if is_in]
        answer["set"] = sorted(names, key=lambda name: -one.probabilities[name])


def set_rules(config: AnswerSettings, folder: ModelFolder, classifier: TextClassifier) -> Rules:
    """The rules that the settings ask for, by the classifier's answers to `held_out_rows`."""
    rows, tokens = held_out_rows(config, folder), config.batch.tokens
    otherwise = "name others by labelled=<file>"
    notes = require_new(enclosing_run(folder.path), rows, classifier.labels, otherwise) if config.labelled else []
    labels_n, n_classes = np.array(rows.labels), len(classifier.labels)
    confidence_n, likelier_n, right_n = np.empty(len(rows)), np.empty(len(rows)), np.empty(len(rows), dtype=bool)
    start = 0
    ask = lambda texts, pairs: {"": classifier.logits(texts, pairs, tokens=tokens)}  # noqa: E731
    for found in chunks_of(ask, rows, n_classes, lambda n_rows: None):
        likely_nC = classifier.probabilities(found[""]).numpy()
        some = slice(start, start + len(likely_nC))
        confidence_n[some], right_n[some] = likely_nC.max(1), likely_nC.argmax(1) == labels_n[some]
        likelier_n[some] = of_label(likelier(likely_nC), labels_n[some])
        start = some.stop
    rules = Rules(len(rows), config.abstain.risk, coverage=config.sets.coverage, by_class=config.sets.by_class)
    rules.digest, rules.notes = rows.digest(classifier.labels), notes
    if classifier.calibration is not None and classifier.calibration.digest == rules.digest:
        raise UserError(
            f"abstain.risk and sets.coverage are set on the rows of {rows.source}, which calibrate was fitted on: name "
            "others by labelled=<file>"
        )
    if rules.risk:
        rules.least = least_confidence(confidence_n, right_n, rules.risk)
        rules.answered = float((confidence_n >= rules.least).mean())
    if rules.coverage:
        rules.bounds_C = set_bounds(likelier_n, labels_n, n_classes, rules.coverage, by_class=rules.by_class)
    return rules


def least_confidence(confidence_n: NDArray[np.float64], right_n: NDArray[np.bool_], risk: float) -> float:
    """The least confidence at which a binary search finds that no more than `risk` of the answers are wrong; 2.0 where
    it finds none. Each of its steps may err by an equal part of `DOUBT`."""
    order = np.argsort(-confidence_n, kind="stable")
    sure_n, wrong_n = confidence_n[order], np.cumsum(~right_n[order])
    steps = max(1, math.ceil(math.log2(len(sure_n) + 1)))
    low, high, found = 0, len(sure_n), 2.0  # rows that are answered
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
    from scipy.stats import beta

    return 1.0 if n_wrong >= n else float(beta.ppf(1 - doubt, n_wrong + 1, n - n_wrong))


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
    """Up to which probability of all likelier classes a class is in a set `(C,)`, by that of the right class of each
    row: one bound for all, or each class has its own, and is in every set where it has too few rows to promise
    anything."""

    def bound(scores: NDArray[np.float64]) -> float:
        rank = math.ceil((len(scores) + 1) * coverage - 1e-9)
        return float(np.sort(scores)[rank - 1]) if rank <= len(scores) else math.inf

    if not by_class:
        return np.full(n_classes, bound(likelier_n))
    return np.array([bound(likelier_n[labels_n == at]) for at in range(n_classes)])
