"""Figures of a split during training, by torchmetrics; added up batch by batch, computed once an epoch."""

from collections.abc import Sequence

from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score, MulticlassPrecision, MulticlassRecall


def make_metrics(n_classes: int, prefix: str) -> MetricCollection:
    """Accuracy over rows; F1, precision and recall averaged over classes, which share their counts.

    Groups are named, not found at the first batch: a rank of several may never see one.
    """
    return MetricCollection(
        {
            "accuracy": MulticlassAccuracy(n_classes, average="micro"),
            "macro_f1": MulticlassF1Score(n_classes, average="macro"),
            "macro_precision": MulticlassPrecision(n_classes, average="macro"),
            "macro_recall": MulticlassRecall(n_classes, average="macro"),
        },
        prefix=prefix,
        compute_groups=[["accuracy"], ["macro_f1", "macro_precision", "macro_recall"]],
    )


def make_shares(prefix: str, names: Sequence[str]) -> MetricCollection:
    """Shares of what is right, each told by itself of its rows or tokens."""
    return MetricCollection({name: MeanMetric() for name in names}, prefix=prefix, compute_groups=False)


def make_loss_meter() -> MeanMetric:
    """The mean of a loss over rows; of a training that diverged it is not a number."""
    return MeanMetric(nan_strategy="disable")
