"""The figures of a classifier: their list, and each by its definition.

Core's figures and those of a plugin are parts of kind `figure`, and are registered alike. What is called by `make`, and
what it gives, depends on the fact `of`:

- "counts", of labels and answers alone: `make(counts)` is given `metrics.Counts` and gives a `metrics.MeanOfShares`,
  by which the interval follows, and that of a difference between two models, too. Baselines have these figures.
- "rows", of probabilities, by what `metrics.Outcomes` knows of each row: `make(outcomes)` gives an `Interval`.
- without it: `make(labels, probabilities_nC)` gives an `Interval`, or a number, whose interval is the bootstrap's.
  Labels are class ids `(n,)`, or marks `(n, C)` where a row has any number of labels.

Further facts, where "classes" stands for rows that have one class each and "labels" for rows with any number of labels:

- `rows`: which of them have the figure, both where it is missing.
- `main`: of which of them it is the main figure, by which models are compared.
- `table`: of which of them tables and summary.json show it; by default those of `checkpoint`.
- `checkpoint`: of which of them a validation during training measures it, so that `checkpoint.metric` may name it. Of
  figures without `of` validation keeps all logits, and measures the one that is named.
- `words`: its name in a report, by kind of rows, where that is not its own.
- `is_share`: it lies between 0 and 1. `lower_is_better`: as a loss, which is at least 0. Without either it may be
  negative.

Tables show the main figure first, then the others in the order of the list. Standard library only: to list figures
imports nothing, NumPy comes with what they are given.
"""

from typing import TYPE_CHECKING, Any

from manyheads.hooks import Part

if TYPE_CHECKING:
    from manyheads.evaluation.metrics import Counts, MeanOfShares, Outcomes
    from manyheads.runs.summary import Interval

CLASSES, LABELS, BOTH = ("classes",), ("labels",), ("classes", "labels")


def accuracy(counts: "Counts") -> "MeanOfShares":
    """The share of rows that are answered right; of rows with labels, by all of them and no others."""
    return counts.of_rows()


def micro_f1(counts: "Counts") -> "MeanOfShares":
    """F1 of all labels of all rows together. With one answer a row it is the accuracy, as are micro precision and
    micro recall."""
    return counts.micro(answered=0.5, labelled=0.5) if counts.multi else counts.of_rows()


def micro_precision(counts: "Counts") -> "MeanOfShares":
    return counts.micro(answered=1, labelled=0)


def micro_recall(counts: "Counts") -> "MeanOfShares":
    return counts.micro(answered=0, labelled=1)


def macro_f1(counts: "Counts") -> "MeanOfShares":
    """The mean over classes of 2 right / (answered + labelled): the share that is right of the mean of both."""
    return counts.macro(answered=0.5, labelled=0.5)


def macro_precision(counts: "Counts") -> "MeanOfShares":
    return counts.macro(answered=1, labelled=0)


def macro_recall(counts: "Counts") -> "MeanOfShares":
    return counts.macro(answered=0, labelled=1)


def loss(outcomes: "Outcomes") -> "Interval":
    """The mean cross-entropy of a row, in nats; of rows with labels, the sum over their labels."""
    return outcomes.mean(outcomes.loss_n)


def brier(outcomes: "Outcomes") -> "Interval":
    """The mean squared distance of all probabilities of a row from what is true, summed over classes."""
    return outcomes.mean(outcomes.brier_n)


def calibration_error(outcomes: "Outcomes") -> "Interval":
    """The gap between confidence and accuracy, a mean over bins of equal width weighted by their rows: Guo et al.
    (2017), "On Calibration of Modern Neural Networks", equation 3."""
    return outcomes.calibration_error(equal_width=True)


def adaptive_calibration_error(outcomes: "Outcomes") -> "Interval":
    """The same over bins of equally many rows, so that confident rows are not all in one: Nixon et al. (2019),
    "Measuring Calibration in Deep Learning"."""
    return outcomes.calibration_error(equal_width=False)


def classwise_calibration_error(outcomes: "Outcomes") -> "Interval":
    """The mean over classes of the error of each class's own probability, answered or not: Kull et al. (2019), "Beyond
    temperature scaling"."""
    return outcomes.classwise_calibration_error()


def _figure(make: Any, of: str, **facts: Any) -> Part:
    return Part("figure", make.__name__, make, facts={"of": of, **facts})


def _share(make: Any, **facts: Any) -> Part:
    return _figure(make, "counts", is_share=True, **facts)


def _error(make: Any, **facts: Any) -> Part:
    return _figure(make, "rows", lower_is_better=True, **facts)


FIGURES = (
    _share(micro_f1, main=LABELS, table=LABELS, checkpoint=LABELS),
    _share(macro_f1, table=BOTH, checkpoint=BOTH),
    _share(accuracy, main=CLASSES, table=BOTH, checkpoint=CLASSES, words={"labels": "rows with all labels right"}),
    _error(
        loss,
        table=BOTH,
        checkpoint=BOTH,
        words={"classes": "cross-entropy loss", "labels": "loss of a row, in nats"},
    ),
    _error(calibration_error, rows=CLASSES, table=CLASSES, is_share=True),
    _share(macro_precision, table=CLASSES),
    _share(macro_recall, table=CLASSES),
    _share(micro_precision, rows=LABELS, table=LABELS),
    _share(micro_recall, rows=LABELS, table=LABELS),
    _error(brier, words=dict.fromkeys(BOTH, "Brier score")),
    _error(adaptive_calibration_error, rows=CLASSES, is_share=True),
    _error(
        classwise_calibration_error,
        is_share=True,
        words={"classes": "calibration error of a class", "labels": "calibration error of a label"},
    ),
)
