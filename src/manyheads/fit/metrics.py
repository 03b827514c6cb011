"""Figures of a split during training, by torchmetrics; added up batch by batch, computed once an epoch."""

from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score, MulticlassPrecision, MulticlassRecall


def make_metrics(n_classes: int, prefix: str) -> MetricCollection:
    """Accuracy over rows; F1, precision and recall averaged over classes."""
    return MetricCollection(
        {
            "accuracy": MulticlassAccuracy(n_classes, average="micro"),
            "macro_f1": MulticlassF1Score(n_classes, average="macro"),
            "macro_precision": MulticlassPrecision(n_classes, average="macro"),
            "macro_recall": MulticlassRecall(n_classes, average="macro"),
        },
        prefix=prefix,
    )


def make_loss_meter() -> MeanMetric:
    """The mean of a loss over rows."""
    return MeanMetric()
