"""The objective of classification: the loss of a row, and the figures of a split.

Figures are accumulated on the device and computed once an epoch: so no step waits for a GPU. The classes of
torchmetrics would make it wait: they check for values out of range and NaN, and copy a weight to the device.

B documents . C classes or labels . T thresholds
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import Metric, MetricCollection
from torchmetrics.utilities import dim_zero_cat

import manyheads.plugin as plugin
from manyheads.config import RunConfig
from manyheads.config.facts import hooks
from manyheads.data.batches import Batch
from manyheads.data.class_names import ClassLookup
from manyheads.data.tokens import Tokens
from manyheads.errors import UserError
from manyheads.linear.blend import row_weights, weighted
from manyheads.linear.thresholds import ThresholdCounts, add_counts, best_thresholds, zero_counts
from manyheads.nn import Classifier
from manyheads.nn.cost import mean_flops
from manyheads.training.context import RunContext


class Mean(Metric):
    """The mean of values, optionally weighted; NaN if training diverged.

    In double precision: in single precision adding one to 2^24 changes nothing.
    """

    full_state_update = False
    total: Tensor
    weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("total", "weight"):
            self.add_state(name, torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, values: Tensor, weights: Tensor | None = None) -> None:
        if weights is None:
            self.total += values.sum()
            self.weight += values.numel()
        else:
            self.total += (values * weights).sum()
            self.weight += weights.sum()

    def compute(self) -> Tensor:
        return (self.total / self.weight).float()


class ClassFigures(Metric):
    """Accuracy; F1, precision and recall averaged over the classes that occur in labels or predictions."""

    full_state_update = False
    rows_C: Tensor
    answers_C: Tensor
    right_C: Tensor

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        for name in ("rows_C", "answers_C", "right_C"):
            self.add_state(name, torch.zeros(n_classes, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, logits_BC: Tensor, labels_B: Tensor, counts_B: Tensor | None = None) -> None:
        answers_B = logits_BC.argmax(-1)
        one_B = torch.ones_like(labels_B) if counts_B is None else counts_B.long()  # 0 of a row that does not count
        self.rows_C.index_add_(0, labels_B, one_B)
        self.answers_C.index_add_(0, answers_B, one_B)
        self.right_C.index_add_(0, labels_B, (answers_B == labels_B) * one_B)

    def compute(self) -> dict[str, Tensor]:
        occurs_C = self.rows_C + self.answers_C > 0

        def macro(numerator_C: Tensor, denominator_C: Tensor) -> Tensor:
            """The mean over the classes that occur; 0 for one without a denominator."""
            return (numerator_C / denominator_C.clamp(min=1)).sum() / occurs_C.sum()

        return {
            "accuracy": self.right_C.sum() / self.rows_C.sum(),
            "macro_f1": macro(2 * self.right_C, self.rows_C + self.answers_C),
            "macro_precision": macro(self.right_C, self.answers_C),
            "macro_recall": macro(self.right_C, self.rows_C),
        }


class LabelFigures(Metric):
    """Micro and macro F1 of rows with any number of labels, with the thresholds that are best on these rows: so the
    figure measures how well the logits separate rows, not the choice of thresholds."""

    full_state_update = False
    own_CT: Tensor
    all_CT: Tensor

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        for name, counts in zero_counts(n_classes)._asdict().items():
            self.add_state(name, counts, dist_reduce_fx="sum")

    def update(self, logits_BC: Tensor, marks_BC: Tensor) -> None:
        add_counts(ThresholdCounts(self.own_CT, self.all_CT), logits_BC, marks_BC)

    def compute(self) -> dict[str, Tensor]:
        found = best_thresholds(ThresholdCounts(self.own_CT, self.all_CT))
        return {"micro_f1": found.micro_f1, "macro_f1": found.macro_f1}


class RegisteredFigure(Metric):
    """A figure of a plugin, which is computed from the logits of all rows at once.

    Args:
        multi: whether a row has any number of labels, marks of which are kept.
    """

    full_state_update = False
    logits: list[Tensor]
    labels: list[Tensor]

    def __init__(self, name: str, n_classes: int, *, multi: bool) -> None:
        super().__init__()
        self.name, self.n_classes, self.multi = name, n_classes, multi
        for state in ("logits", "labels"):
            self.add_state(state, [], dist_reduce_fx="cat")

    def update(self, logits_BC: Tensor, labels: Tensor) -> None:
        self.logits.append(logits_BC.detach())
        self.labels.append(labels)

    def sync(self, *args: Any, **how: Any) -> None:
        """A rank without rows gives none of the shape and type of the others': they are gathered by their axes."""
        if not self.logits:
            none_BC = torch.zeros(0, self.n_classes, device=self.device)
            self.update(none_BC, none_BC.byte() if self.multi else none_BC[:, 0].long())
        super().sync(*args, **how)

    def compute(self) -> dict[str, Tensor]:
        logits_nC, labels = dim_zero_cat(self.logits).double(), dim_zero_cat(self.labels)
        if labels.ndim == 2:
            labels, probabilities_nC = labels.bool(), logits_nC.sigmoid()
        else:
            probabilities_nC = logits_nC.softmax(-1)
        figure = plugin.make("figure", self.name)(labels.cpu().numpy(), probabilities_nC.cpu().numpy())
        return {self.name: torch.tensor(float(getattr(figure, "value", figure)))}  # a number, or an `Interval`


def mean_metrics(*names: str) -> MetricCollection:
    """A collection of means that are updated separately, such as shares of correct tokens and rows."""
    return MetricCollection({name: Mean() for name in names}, compute_groups=False)


class Classify(nn.Module):
    """Cross-entropy of a row's class; for rows with any number of labels the sum of each label's binary cross-entropy
    (binary relevance: Tsoumakas and Katakis, 2007, "Multi-Label Classification", section 2.2).

    Args:
        class_weights_C: factor of the training loss of each class or label.
        label_smoothing: probability mass that is shared among all classes, or taken from a label's own probability.
        focal_gamma: the training loss is multiplied by (1 - p)^focal_gamma, where p is the predicted probability of the
            true class, or of having or not having the label.
        multi: whether a row has any number of labels.
        loss: `loss(logits_BC, labels)` returns a loss for each element of the labels, which are class ids `(B,)` or 0
            and 1 `(B, C)`; default: (binary) cross-entropy.
        figure: the name of a plugin's figure that validation measures as well.
    """

    class_weights_C: Tensor

    def __init__(
        self,
        class_weights_C: Tensor,
        *,
        label_smoothing: float,
        focal_gamma: float = 0.0,
        multi: bool = False,
        loss: Callable[..., Tensor] | None = None,
        figure: str = "",
    ) -> None:
        super().__init__()
        if loss is None:
            loss = partial(label_losses, smoothing=label_smoothing, multi=multi)
        self.loss: Callable[..., Tensor] = loss
        self.register_buffer("class_weights_C", class_weights_C, persistent=False)
        self.focal_gamma, self.multi = focal_gamma, multi
        n_classes, figures = class_weights_C.numel(), LabelFigures if multi else ClassFigures
        self.train_metrics, self.validation_metrics = figures(n_classes), figures(n_classes)
        if figure:
            both = [self.validation_metrics, RegisteredFigure(figure, n_classes, multi=multi)]
            self.validation_metrics = MetricCollection(both, compute_groups=False)

    def training_loss(self, classifier: Classifier, batch: Batch) -> Tensor:
        """The weighted and smoothed loss of each row `(B,)`; updates `train_metrics`."""
        logits_BC, labels = class_logits(classifier, batch), batch.labels_B
        if len(batch.rows_B):
            self.train_metrics.update(logits_BC.detach(), labels)
        if batch.probabilities_BC is None:
            wanted, weights = labels, row_weights(labels, self.class_weights_C)
        else:
            wanted, weights = weighted(batch.probabilities_BC, self.class_weights_C, multi=self.multi)
        losses = self.loss(logits_BC, wanted, *([] if batch.any_of_B is None else [batch.any_of_B]))
        if losses.shape != labels.shape:  # it would be broadcast to wrong ones
            raise UserError(
                f"optim.objective gives losses of shape {tuple(losses.shape)} for labels of shape "
                f"{tuple(labels.shape)}: it must give one for each, without a sum or mean of them"
            )
        if self.focal_gamma:
            losses = losses * (self.focal_gamma * log_missed(logits_BC, labels)).exp()
        losses = losses * weights
        losses = losses.sum(1) if self.multi else losses
        return losses if batch.weights_B is None else losses * batch.weights_B

    def validation_loss(self, classifier: Classifier, batch: Batch) -> Tensor:
        """The plain loss of each row `(B,)`; updates `validation_metrics`."""
        logits_BC = class_logits(classifier, batch)
        self.validation_metrics.update(logits_BC, batch.labels_B)
        wanted = batch.labels_B if batch.probabilities_BC is None else batch.probabilities_BC
        losses = label_losses(logits_BC, wanted, multi=self.multi)
        return losses.sum(1) if self.multi else losses

    def given(self, batch: Batch) -> tuple[Any, ...]:
        """The arguments of the network."""
        return batch.ids_N, batch.layout, batch.segments_N

    def plan(self, run: RunConfig, tokens: Tokens, labels: list[str], n_words: int) -> dict[str, str]:
        """Lines of a dry run: the classes, and the average cost of a token."""
        what = "labels, any number a text" if self.multi else "classes"
        names = ", ".join(labels[:8])
        if len(labels) > 8:
            names += " ..."
        forward = mean_flops(run.model, tokens.sizes(), pooled=True)
        return {
            what: f"{len(labels)}: {names}",
            "FLOPs a token": f"{forward:,.0f} forward, {3 * forward:,.0f} with backward",
        }


def classify(run: RunConfig, tokens: Tokens, labels: list[str]) -> Classify:
    """The objective of task=classify; `tokens` are the training rows."""
    metric, figure = run.checkpoint.metric, ""
    if metric != "auto" and plugin.owner("figure", metric).name != "core":
        figure = metric
    loss = next((loss for make in hooks(run, "loss") if (loss := make(run))), None)
    if run.optim.objective != "cross_entropy":
        loss = plugin.make("objective", run.optim.objective)
    wanted = tokens.labels if tokens.probabilities_nC is None else tokens.probabilities_nC
    return Classify(
        class_weights(run.optim.class_weights, wanted, labels, tokens.weights_n),
        label_smoothing=run.optim.label_smoothing,
        focal_gamma=run.optim.focal_gamma,
        multi=tokens.labels.ndim == 2,
        loss=loss,
        figure=figure,
    )


def class_logits(classifier: Classifier, batch: Batch) -> Tensor:
    """Logits `(B, C)`, in single precision."""
    return classifier(batch.ids_N, batch.layout, batch.segments_N).float()


def label_losses(logits_BC: Tensor, labels: Tensor, smoothing: float = 0.0, multi: bool | None = None) -> Tensor:
    """Cross-entropy for class ids `(B,)`, or binary cross-entropy of each label for labels 0 and 1 `(B, C)`; or for
    probabilities `(B, C)` in place of either.

    Args:
        multi: whether a row has any number of labels; None: as the shape of labels says.
    """
    if labels.ndim == 1 or multi is False:  # torch's `weight` would also multiply the mass that smoothing gives others
        return F.cross_entropy(logits_BC, labels, label_smoothing=smoothing, reduction="none")
    spread = smoothing / max(2, logits_BC.shape[1])  # of one label: to having and not having it
    return F.binary_cross_entropy_with_logits(logits_BC, labels * (1 - smoothing) + spread, reduction="none")


def log_missed(logits_BC: Tensor, labels: Tensor) -> Tensor:
    """ln(1 - p), where p is the predicted probability of the true class `(B,)`, or of each label as it is `(B, C)`.

    For the factor (1 - p)^gamma of Lin et al. (2017), "Focal Loss for Dense Object Detection", section 3.2. Computed
    from p itself, its derivative would be infinite at p = 1.
    """
    if labels.ndim == 1:
        others_BC = logits_BC.scatter(1, labels[:, None], -torch.inf)
        return others_BC.logsumexp(-1) - logits_BC.logsumexp(-1)
    return F.logsigmoid(logits_BC * (1 - 2 * labels.to(logits_BC)))


def class_weights(choice: Any, labels: Tensor, names: list[str], weights_n: Tensor | None = None) -> Tensor:
    """A factor for each class, `(C,)`, scaled so that the mean over the training rows is 1; 1 for a class without rows.

    Args:
        choice: `none`, `balanced` (rows / rows of the class), or factors by class name (others: 1).
        labels: class ids of the training rows `(n,)`, or labels 0 and 1, or probabilities `(n, C)`.
        names: of the classes.
        weights_n: how much each row counts; None: all alike.
    """
    if labels.ndim == 1:
        rows_C = torch.bincount(labels, weights_n, minlength=len(names)).double()
    else:
        rows_C = (labels if weights_n is None else labels * weights_n[:, None]).double().sum(0)
    if choice == "none":
        return torch.ones(len(names))
    if choice == "balanced":
        weights_C = rows_C.sum() / rows_C.where(rows_C > 0, 1.0)
    else:
        known = ClassLookup(names, any_case=True)
        chosen = {known.find(name): float(weight) for name, weight in choice.items()}
        weights_C = torch.tensor([chosen.get(name, 1.0) for name in names], dtype=torch.float64)
    weights_C = weights_C * rows_C.sum() / (weights_C @ rows_C)
    return weights_C.where(rows_C > 0, 1.0).float()


def weights_of_linear(context: RunContext) -> Tensor | None:
    """The `class_weights` of the linear model of a run, `(C,)`; None: it has none."""
    choice, splits = context.run.optim.class_weights, context.splits
    if choice == "none":
        return None
    tokens = context.tokens["train"]
    learnt = tokens.labels
    if splits.train.voters is not None and tokens.probabilities_nC is not None:
        learnt = tokens.probabilities_nC
    return class_weights(choice, learnt, splits.labels, tokens.weights_n)
