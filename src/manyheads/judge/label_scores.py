"""Figures of a classifier that gives any number of labels, on one split, each with a 95 % interval.

n rows . C labels . R resamples
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manyheads.judge.scores import (
    Floats,
    Interval,
    change_interval,
    check_rows,
    class_interval,
    effective_rows,
    interval,
    macro_intervals,
    ratio,
    resamples,
    share_interval,
)

Bools = NDArray[np.bool_]


@dataclass(slots=True)
class LabelScore:
    """One label: `support` is the number of rows that have it; a ratio without a denominator is 0, as in scikit-learn.
    It is given from the probability `threshold` on."""

    name: str
    precision: float
    recall: float
    f1: float
    support: int
    threshold: float


@dataclass(slots=True)
class LabelAnswers:
    """What can be said of bare answers. Micro figures are of all labels of all rows together; macro figures are means
    over the labels that rows have or are given; accuracy is the share of rows whose labels are all right, and no
    others given."""

    micro_f1: Interval
    macro_f1: Interval
    accuracy: Interval
    micro_precision: Interval
    micro_recall: Interval
    macro_precision: Interval
    macro_recall: Interval


FIGURES = tuple(LabelAnswers.__dataclass_fields__)


@dataclass(slots=True)
class LabelScores:
    """All figures of one split. `loss` is the mean over rows of the sum over labels, in nats."""

    micro_f1: Interval
    macro_f1: Interval
    accuracy: Interval
    micro_precision: Interval
    micro_recall: Interval
    macro_precision: Interval
    macro_recall: Interval
    loss: Interval
    n_rows: int
    labels: list[str]
    per_class: list[LabelScore]


def score_labels(
    marks_nC: Bools,
    probabilities_nC: Floats,
    given_nC: Bools,
    names: list[str],
    thresholds: list[float],
    *,
    n_resamples: int = 1000,
    seed: int = 0,
) -> LabelScores:
    """Judge labels that are `given` for their `probabilities` against those that rows have, their `marks`.

    The bootstrap draws whole rows, so all figures of a resample belong together; the same `seed` gives the same
    intervals.

    Raises:
        ValueError: there are no rows.
    """
    kind = np.finfo(np.float64)  # a probability next to one has no digits left for what is wanting to it
    own_nC = np.where(marks_nC, np.maximum(probabilities_nC, kind.tiny), np.maximum(1 - probabilities_nC, kind.eps / 2))
    loss_n = -np.log(own_nC).sum(1)
    found = _resampled(marks_nC, given_nC, n_resamples, seed, loss_n)
    right_C, given_C, support_C = (one.sum(0) for one in (marks_nC & given_nC, given_nC, marks_nC))
    columns = (
        *(ratio(right_C, whole_C).tolist() for whole_C in (given_C, support_C)),
        ratio(2 * right_C, given_C + support_C).tolist(),
        support_C.tolist(),
    )
    return LabelScores(
        **_intervals(found, marks_nC, given_nC),
        n_rows=len(marks_nC),
        labels=list(names),
        per_class=[LabelScore(*row) for row in zip(names, *columns, thresholds, strict=True)],
    )


def score_given(marks_nC: Bools, given_nC: Bools, *, n_resamples: int = 1000, seed: int = 0) -> LabelAnswers:
    """Judge bare answers, such as a baseline's, on the resamples that `score_labels` draws for `seed`."""
    found = _resampled(marks_nC, given_nC, n_resamples, seed)
    return LabelAnswers(**_intervals(found, marks_nC, given_nC))


def _intervals(found: dict[str, Floats], marks_nC: Bools, given_nC: Bools) -> dict[str, Interval]:
    """Of the figures that were resampled. Labels of one row are not independent, so the whole of which a micro figure
    is a share counts as no more than the rows."""
    right_n = (marks_nC == given_nC).all(1)
    right_C, given_C, support_C = (one.sum(0) for one in (marks_nC & given_nC, given_nC, marks_nC))
    wholes = {"f1": (given_C + support_C).sum() / 2, "precision": given_C.sum(), "recall": support_C.sum()}
    micro = {
        f"micro_{name}": class_interval(
            found[f"micro_{name}"], found[f"micro_{name}"][:1], np.array([min(float(whole), len(right_n))])
        )
        for name, whole in wholes.items()
    }
    shares = micro | macro_intervals(found, right_C, support_C, given_C, len(right_n))
    others = {name: interval(value_R) for name, value_R in found.items() if name not in shares}
    return others | shares | {"accuracy": share_interval(int(right_n.sum()), len(right_n))}


def change_of_labels(
    marks_nC: Bools, given_nC: Bools, others_nC: Bools, *, n_resamples: int = 1000, seed: int = 0
) -> LabelAnswers:
    """Each figure of `given` less that of `others`, to the same rows: a paired bootstrap, as `change_of_answers`."""
    one, other = (_resampled(marks_nC, answers_nC, n_resamples, seed) for answers_nC in (given_nC, others_nC))
    n_macro = min(float(len(marks_nC)), effective_rows(marks_nC.sum(0)))
    n_rows = {name: n_macro if name.startswith("macro") else len(marks_nC) for name in FIGURES}
    return LabelAnswers(**{name: change_interval(one[name] - other[name], n_rows[name]) for name in FIGURES})


def _resampled(
    marks_nC: Bools, given_nC: Bools, n_resamples: int, seed: int, loss_n: Floats | None = None
) -> dict[str, Floats]:
    """Every figure `(R,)`: entry 0 is of the data as it is, the rest are of resamples."""
    n, n_labels = marks_nC.shape
    check_rows(n)
    per_row = [marks_nC & given_nC, given_nC, marks_nC, (marks_nC == given_nC).all(1)[:, None]]
    per_row += [] if loss_n is None else [loss_n[:, None]]
    of_rows = np.concatenate([np.asarray(one, dtype=np.float64) for one in per_row], axis=1)
    sums = np.stack([times_n @ of_rows for times_n in resamples(n, n_resamples, seed)])
    right_RC, given_RC, support_RC = (sums[:, at * n_labels : (at + 1) * n_labels] for at in range(3))
    figures = _figures(right_RC, given_RC, support_RC) | {"accuracy": sums[:, 3 * n_labels] / n}
    return figures if loss_n is None else figures | {"loss": sums[:, -1] / n}


def _figures(right_RC: Floats, given_RC: Floats, support_RC: Floats) -> dict[str, Floats]:
    wholes = {"f1": (given_RC + support_RC) / 2, "precision": given_RC, "recall": support_RC}
    occurs_R = np.maximum((wholes["f1"] > 0).sum(1), 1)
    macro = {f"macro_{name}": ratio(right_RC, whole).sum(1) / occurs_R for name, whole in wholes.items()}
    return macro | {f"micro_{name}": ratio(right_RC.sum(1), whole.sum(1)) for name, whole in wholes.items()}
