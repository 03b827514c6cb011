"""Our figures against torchmetrics' own."""

import pytest
import torch
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score, MulticlassPrecision, MulticlassRecall

from manyheads.training.metrics import ClassFigures, Mean


@pytest.mark.parametrize("seen", [[0, 1, 2, 3, 4], [0, 2], [3]], ids=["all classes", "two", "one"])
def test_class_figures_are_those_of_torchmetrics_also_of_classes_that_never_occur(seen):
    torch.manual_seed(0)
    ours = ClassFigures(5, "x_")
    theirs = MetricCollection(
        {
            "accuracy": MulticlassAccuracy(5, average="micro"),
            "macro_f1": MulticlassF1Score(5, average="macro"),
            "macro_precision": MulticlassPrecision(5, average="macro"),
            "macro_recall": MulticlassRecall(5, average="macro"),
        },
        prefix="x_",
    )
    for n_rows in (7, 1, 30):
        labels_B = torch.tensor(seen)[torch.randint(len(seen), (n_rows,))]
        logits_BC = torch.randn(n_rows, 5).index_fill(1, torch.tensor([1]), -9.0)  # class 1 is never answered
        ours.update(logits_BC, labels_B)
        theirs.update(logits_BC, labels_B)
    expected = theirs.compute()
    torch.testing.assert_close(ours.compute(), expected, check_dtype=False)
    ours.reset()
    assert int(ours.rows_C.sum()) == 0


def test_a_mean_of_many_values_counts_each():
    """From 2^24 on single precision passes over a value alone."""
    mean = Mean()
    mean.total += 2.0**24
    mean.weight += 2.0**24
    for _ in range(1000):
        mean.update(torch.tensor([1001.0]))
    n = 2**24 + 1000
    assert float(mean.compute()) == pytest.approx((2**24 + 1_001_000) / n, rel=1e-7)
    assert float(mean.weight) == n


def test_a_mean_is_that_of_torchmetrics():
    torch.manual_seed(0)
    for weighted in (False, True):
        ours, theirs = Mean(), MeanMetric()
        for n_rows in (7, 1, 30):
            values, weights = torch.randn(n_rows), torch.rand(n_rows)
            ours.update(values, weights if weighted else None)
            theirs.update(values, weights if weighted else 1.0)
        torch.testing.assert_close(ours.compute(), theirs.compute())
    ours.update(torch.tensor([float("nan")]))
    assert ours.compute().isnan()
