"""The optimiser, its schedule and the loss; which checkpoint is kept."""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from manyheads.config.knobs import check_ranges, knob, require
from manyheads.config.task import Task

BASE_STEPS = 600  # of steps_per_class
LARGEST_WEIGHT = 1e30  # of a class: sums of such weights are still finite


class OptimKind(Enum):
    adamw = "adamw"
    muon = "muon"


class Schedule(Enum):
    linear = "linear"
    cosine = "cosine"
    wsd = "wsd"
    constant = "constant"


@dataclass(kw_only=True, slots=True)
class OptimConfig:
    """AdamW or Muon with a warm-up and a decay, both counted in optimiser steps."""

    kind: OptimKind = knob(OptimKind.adamw, "AdamW, or Muon for the matrices of the layers and AdamW for all else")
    lr: float = knob(1e-3, "peak learning rate", above=0.0)
    muon_lr: float | None = knob(None, "peak rate of Muon, whose steps are as large as AdamW's; null: lr", above=0.0)
    few: int = knob(0, "so many rows a class, or less, are few: then the head is fitted before training", at_least=0)
    few_epochs: int = knob(0, "least epochs where rows are few, if trainer.max_epochs is not typed", at_least=0)
    steps_per_class: int = knob(
        0, "at most 600 steps and so many for each class, if no limit of trainer is typed; 0: no such limit", at_least=0
    )
    head_lr: float | None = knob(None, "peak learning rate of pooling and head; null: lr", above=0.0)
    layer_decay: float = knob(
        1.0,
        "each layer learns at so many times the rate of the one above it, the embeddings below all",
        above=0.0,
        at_most=1.0,
    )
    fast_words: bool = knob(
        True, "vectors of words, multiplied by √d_model when read, learn by so many times lr; false: by lr, as all else"
    )
    freeze: int = knob(0, "the embeddings and so many of the lowest layers stay as they are; 0: all learns", at_least=0)
    thaw: float = knob(
        0.0, "share of all steps over which frozen layers thaw, from the top; 0: never", at_least=0.0, at_most=1.0
    )
    weight_decay: float = knob(0.01, "decoupled weight decay of the matrices", at_least=0.0)
    beta1: float = knob(0.9, "AdamW's first moment", at_least=0.0, below=1.0)
    beta2: float = knob(0.999, "AdamW's second moment", at_least=0.0, below=1.0)
    eps: float = knob(1e-8, "AdamW's epsilon", above=0.0)
    warmup: float = knob(0.06, "share of all steps in which the rate rises", at_least=0.0, at_most=1.0)
    schedule: Schedule = knob(Schedule.linear, "decay after the warm-up; wsd stays at the peak and falls at the end")
    decay_share: float = knob(0.2, "share of all steps in which wsd falls", above=0.0, at_most=1.0)
    average: int = knob(
        300, "the weights that are judged and kept are a mean over about so many last steps; 0: the last", at_least=0
    )
    label_smoothing: float = knob(0.1, "probability mass spread over all classes", at_least=0.0, below=1.0)
    teacher_weight: float = knob(
        0.5, "share of the loss that is the distance from the answers of teacher", at_least=0.0, at_most=1.0
    )
    teacher_temperature: float = knob(
        2.0, "by what logits are divided before they are compared with the teacher's", above=0.0, at_most=1000.0
    )
    class_weights: Any = knob("none", "none, balanced, or weights by class name: {joy: 1, anger: 2.5}")

    def __post_init__(self) -> None:
        check_ranges(self, "optim.")
        require(
            not self.thaw or self.freeze > 0,
            f"optim.thaw={self.thaw} thaws frozen layers, but optim.freeze=0 freezes none: freeze some, such as "
            "optim.freeze=2, or leave optim.thaw away",
        )
        require(
            self.muon_lr is None or self.kind is OptimKind.muon,
            f"optim.muon_lr={self.muon_lr} is a rate of Muon, but optim.kind={self.kind.name}: add optim.kind=muon, or "
            "leave it out",
        )
        weights = self.class_weights
        by_name = isinstance(weights, dict) and all(
            isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < LARGEST_WEIGHT
            for value in weights.values()
        )
        require(
            weights in ("none", "balanced") or by_name,
            f"optim.class_weights={weights} is not understood: it must be none, balanced, or positive weights by "
            "class name such as '{joy: 1, anger: 2.5}'",
        )

    @property
    def limits_by_data(self) -> bool:
        """Whether the training rows or classes decide how long a run trains."""
        return bool(self.few_epochs or self.steps_per_class)

    def limited(self, trainer: dict[str, Any], *, few: bool, n_classes: int) -> dict[str, Any]:
        """The flags `trainer` with `few_epochs` at least, if epochs limit them and rows are `few`; and with at most
        `BASE_STEPS` and `steps_per_class` for each class, the more of which there are the longer trained weights have
        to learn."""
        limits: dict[str, int] = {}
        epochs, steps = (trainer.get(name) for name in ("max_epochs", "max_steps"))
        if few and epochs not in (None, -1) and epochs < self.few_epochs:
            limits["max_epochs"] = self.few_epochs
        most = BASE_STEPS + self.steps_per_class * n_classes
        if self.steps_per_class and (steps in (None, -1) or steps > most):
            limits["max_steps"] = most
        return trainer | limits

    def check_spread(self, *, in_parts: bool) -> None:
        """Refuse an optimiser that needs whole matrices where each process holds its share of them."""
        require(
            not (in_parts and self.kind is OptimKind.muon),
            "optim.kind=muon makes whole matrices orthogonal, of which a device sees its share alone with "
            "hardware.strategy=fsdp: use hardware.strategy=ddp, or optim.kind=adamw",
        )


class Metric(Enum):
    auto = "auto"
    exact_match = "exact_match"
    token_accuracy = "token_accuracy"  # noqa: S105 - of an answer
    masked_accuracy = "masked_accuracy"
    accuracy = "accuracy"
    micro_f1 = "micro_f1"
    macro_f1 = "macro_f1"
    loss = "loss"


FIGURES = {  # of the validation split, while a model is trained
    Task.classify: (Metric.accuracy, Metric.micro_f1, Metric.macro_f1, Metric.loss),
    Task.seq2seq: (Metric.exact_match, Metric.token_accuracy, Metric.loss),
    Task.pretrain: (Metric.loss, Metric.masked_accuracy),
}
USUAL = {Task.classify: Metric.accuracy, Task.seq2seq: Metric.exact_match}  # what auto stands for


@dataclass(kw_only=True, slots=True)
class CheckpointConfig:
    """Which epoch's weights become the model, when to stop waiting for a better one, and what a run resumes from."""

    metric: Metric = knob(
        Metric.auto,
        "validation figure to be best in",
    )
    patience: int = knob(0, "epochs without a better figure before training stops; 0: never", at_least=0)
    every: int = knob(
        0, "steps between two checkpoints; 0: each epoch and each minute, 2 % of the time at most", at_least=0
    )
    keep: int = knob(2, "newest checkpoints that are kept", at_least=2, at_most=1000)

    def __post_init__(self) -> None:
        check_ranges(self, "checkpoint.")

    def settled(self, task: Task, *, multi: bool) -> "CheckpointConfig":
        """The same with a figure for `auto`; `multi`: rows have any number of labels.

        Raises:
            ValueError: a figure that such rows do not have.
        """
        if self.metric is Metric.auto:
            return replace(self, metric=Metric.micro_f1 if multi else USUAL.get(task, Metric.loss))
        if multi:
            require(
                self.metric is not Metric.accuracy,
                "checkpoint.metric=accuracy counts the rows whose one class is told, but rows of this data have any "
                "number of labels: use checkpoint.metric=micro_f1, macro_f1 or loss",
            )
        else:
            require(
                self.metric is not Metric.micro_f1,
                "checkpoint.metric=micro_f1 is of rows with any number of labels; where each has one class it is the "
                "accuracy: use checkpoint.metric=accuracy",
            )
        return self
