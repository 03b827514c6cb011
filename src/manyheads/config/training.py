"""How a run trains: how long, by which optimiser, on what loss, which weights it keeps, what it does where a step goes
wrong, and on which hardware.
"""

import math
import re
from dataclasses import replace
from enum import Enum, StrEnum
from typing import Any, NamedTuple

import manyheads.plugin as plugin
from manyheads.config.facts import require, section, setting
from manyheads.config.figures import checkpoint_figures
from manyheads.config.model import ModelConfig, PairKind
from manyheads.config.sentences import format_value, one_of
from manyheads.errors import UserError

SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
TOKENS = {"tok": 1.0, "ktok": 1e3, "Mtok": 1e6, "Gtok": 1e9}
BASE_STEPS = 600  # of steps_per_class
LARGEST_WEIGHT = 1e30  # of a class: sums of such weights are still finite
WRITTEN = re.compile(rf"(\d+(?:\.\d+)?)({'|'.join([*SECONDS, *TOKENS])})")


class Budget(NamedTuple):
    """One of the two is given, the other is zero."""

    seconds: float = 0.0
    tokens: float = 0.0


def read_budget(text: str) -> Budget | None:
    """What is written in the setting `budget`; None where nothing is.

    Raises:
        UserError: neither a time nor a number of tokens, or none at all.
    """
    if not text:
        return None
    found = WRITTEN.fullmatch(text.replace(" ", ""))
    number = float(found[1]) if found else 0.0
    if found is None or not 0 < number < math.inf:
        raise UserError(
            f"budget={format_value(text)} is no budget: write a time, such as 90s, 10min or 1h, or a number of "
            "tokens, such as 500ktok or 20Mtok"
        )
    unit = found[2]
    return Budget(seconds=number * SECONDS[unit]) if unit in SECONDS else Budget(tokens=number * TOKENS[unit])


Schedule = StrEnum("Schedule", "linear cosine wsd constant")


COMPARED = 4  # times optim.few rows per class: up to these, vectors of sentences are learnt from by comparing them


@section("optim.", opening="optim")
class OptimConfig:
    """AdamW with a warm-up and a decay, both counted in optimiser steps."""

    lr: float = setting(1e-3, "peak learning rate", gt=0.0)
    few: int = setting(0, "most rows per class that count as few: the head is then fitted before training", ge=0)
    few_strength: float | None = setting(
        None,
        "C of the fitted head's L2 penalty; null: 0.1, or 10 with model.pair=compare",
        by_rows=True,
        gt=0.0,
        le=1e6,
    )
    few_epochs: int = setting(
        0,
        "least epochs where rows are few, if trainer.max_epochs is not typed",
        ge=0,
        by_data=True,
        resume="warn",
    )
    steps_per_class: int = setting(
        0,
        "steps per class beyond a limit of 600, if no limit is typed; 0: no such limit",
        ge=0,
        by_data=True,
        resume="warn",
    )
    layer_decay: float = setting(
        1.0, "rate of a layer as a share of that of the layer above; embeddings are lowest", gt=0.0, le=1.0
    )
    compare_rate: float = setting(
        0.1,
        "with model.pair=compare and init_from: the learning rate as a share of optim.lr",
        gt=0.0,
        le=1.0,
        only_with="init_from",
    )
    scale_embedding_lr: bool = setting(
        False, "divide the rate of the embeddings by the √d_model that they are multiplied with; false: the rate of all"
    )
    freeze: int = setting(0, "lowest layers that stay as they are, with the embeddings; 0: all learns", ge=0)
    weight_decay: float = setting(0.01, "decoupled weight decay of the matrices", ge=0.0)
    beta1: float = setting(0.9, "AdamW's first moment", ge=0.0, lt=1.0)
    beta2: float = setting(0.999, "AdamW's second moment", ge=0.0, lt=1.0)
    eps: float = setting(1e-8, "AdamW's epsilon", gt=0.0)
    warmup: float = setting(0.06, "share of all steps in which the rate rises", ge=0.0, le=1.0)
    schedule: Schedule = setting(Schedule.linear, "decay after the warm-up; wsd stays at the peak and falls at the end")
    decay_share: float = setting(
        0.2, "share of all steps in which wsd falls, at most those after the warm-up", gt=0.0, le=1.0
    )
    average: int = setting(
        300, "the weights that are evaluated and kept are a mean over about this many last steps; 0: the last", ge=0
    )
    objective: str = setting("cross_entropy", "the loss of a row, in training", part="objective")
    label_smoothing: float = setting(0.1, "probability mass spread over all classes", ge=0.0, lt=1.0)
    focal_gamma: float = setting(
        0.0,
        "multiply the loss of a row by (1 - p)^gamma, where p is what its class is given",
        ge=0.0,
        le=10.0,
    )
    class_weights: Any = setting("none", "none, balanced, or weights by class name: {joy: 1, anger: 2.5}")

    def __post_init__(self) -> None:
        weights = self.class_weights
        require(
            weights in ("none", "balanced") or (isinstance(weights, dict) and all(map(is_factor, weights.values()))),
            f"optim.class_weights={weights} is not understood: it must be none, balanced, or positive weights by "
            "class name such as '{joy: 1, anger: 2.5}'",
        )

    @property
    def limits_by_data(self) -> bool:
        """Whether the training rows or classes decide how long a run trains."""
        return bool(self.few_epochs or self.steps_per_class)

    def are_few(self, n_rows: int, n_classes: int) -> bool:
        """Whether the training rows are at most `few` a class, on average."""
        return n_rows <= self.few * n_classes

    def may_compare(self, n_rows: int, n_classes: int) -> bool:
        """Whether rows are few enough to learn from vectors of sentences by comparing them: those of the two texts of a
        pair (`model.pair=auto`), or those of a class with those of others, as plugins do."""
        return n_rows <= COMPARED * self.few * n_classes

    def strength_of(self, model: ModelConfig) -> float:
        """`few_strength`, or its default for this model. Of compared vectors the cosine is the largest feature, and a
        strong penalty would leave the others out."""
        return self.few_strength or (10.0 if model.pair is PairKind.compare else 0.1)

    def limited(self, trainer: dict[str, Any], *, few: bool, n_classes: int) -> dict[str, Any]:
        """The flags `trainer` with `few_epochs` at least, if epochs limit them and rows are `few`; and with at most
        `BASE_STEPS` and `steps_per_class` for each class, the more of which there are the longer trained weights have
        to learn. Where there are no classes, data decides nothing."""
        limits: dict[str, int] = {}
        if not n_classes:
            return trainer
        epochs, steps = (trainer.get(name) for name in ("max_epochs", "max_steps"))
        if few and epochs not in (None, -1) and epochs < self.few_epochs:
            limits["max_epochs"] = self.few_epochs
        most = BASE_STEPS + self.steps_per_class * n_classes
        if self.steps_per_class and (steps in (None, -1) or steps > most):
            limits["max_steps"] = most
        return trainer | limits


def is_factor(value: Any) -> bool:
    """Whether a value may multiply losses: a positive number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 < value < LARGEST_WEIGHT


def all_figures() -> list[str]:
    """The validation figures of all tasks, each once."""
    found: list[str] = []
    for task in plugin.names("task"):
        found += [figure for figure in checkpoint_figures(task) if figure not in found]
    return found


Background = StrEnum("Background", "auto never always")


@section("checkpoint.")
class CheckpointConfig:
    """Which epoch's weights become the model, when to stop waiting for a better one, and what a run resumes from."""

    metric: str = setting(
        "auto", "metric of the best epoch", by_rows=True, resume="refuse", among=lambda: ["auto", *all_figures()]
    )
    patience: int = setting(0, "epochs without a better figure before training stops; 0: never", ge=0, resume="refuse")
    every: int = setting(
        0, "steps between two checkpoints; 0: each epoch and each minute, 2 % of the time at most", ge=0, resume="free"
    )
    keep: int = setting(2, "newest checkpoints that are kept", ge=2, le=1000, resume="free")
    background: Background = setting(
        Background.auto,
        "write while training continues; auto: if saving takes over 2 % of the time and memory has room",
        resume="free",
    )

    def settled(self, task: str, *, multi: bool) -> "CheckpointConfig":
        """The same with a figure for `auto`; `multi`: rows have any number of labels.

        Raises:
            UserError: a figure that such rows do not have.
        """
        figures = checkpoint_figures(task, "labels" if multi else "classes")
        if self.metric == "auto":
            return replace(self, metric=figures[0])
        rows = "may have any number of labels" if multi else "has one class"
        require(
            self.metric in figures,
            f"checkpoint.metric={self.metric} is not measured on this data, of which each row {rows}: "
            f"use checkpoint.metric={one_of(figures)}",
        )
        return self


Nonfinite = Enum("Nonfinite", {"raise": "raise", "skip": "skip", "rollback": "rollback"})  # `raise` is a keyword


@section("guard.")
class GuardConfig:
    """Steps whose loss or gradient is not a finite number change nothing; too little memory makes smaller batches."""

    nonfinite: Nonfinite = setting(
        Nonfinite["raise"],
        "if a loss or gradient is not finite: raise, skip the step, or rollback and leave it out",
        resume="warn",
    )
    at_most: int = setting(5, "steps that are skipped or left out before the run ends", ge=1, le=10_000, resume="free")
    halve: bool = setting(
        True, "where memory runs out, cut batches in two and sum twice as many into a step", resume="free"
    )


Accelerator = StrEnum("Accelerator", "auto cpu gpu")
Strategy = StrEnum("Strategy", "auto ddp fsdp")
Precision = StrEnum("Precision", "auto fp32 bf16 fp16")
Compile = StrEnum("Compile", "auto never always")


@section("hardware.")
class HardwareConfig:
    """Processors of the run."""

    accelerator: Accelerator = setting(Accelerator.auto, "auto takes the GPUs, else the CPU")
    devices: int = setting(1, "GPUs, or CPU processes, of each node; 0: all GPUs there are", ge=0, le=1024)
    nodes: int = setting(1, "machines", ge=1, le=4096)
    strategy: Strategy = setting(
        Strategy.auto, "ddp: each device holds all weights; fsdp: its share of them; auto: ddp where there are several"
    )
    precision: Precision = setting(Precision.auto, "auto: bf16 where the processor computes in it, else fp32")
    threads: int = setting(0, "CPU threads of a process; 0: torch decides", ge=0, le=1024)
    timeout: int = setting(
        600, "seconds without an answer after which a process is given up", ge=1, le=604_800, resume="free"
    )
    compile: Compile = setting(Compile.never, "compile the layers; auto: on a GPU, where the run is long enough")
    recompute: bool = setting(
        False,
        "keep only the inputs of layers, compute the rest again for the gradient: slower, far less memory",
        resume="free",
    )

    def __post_init__(self) -> None:
        in_parts = self.strategy is Strategy.fsdp
        require(
            not (in_parts and self.precision is Precision.fp16),
            "hardware.precision=fp16 cannot be combined with hardware.strategy=fsdp, where a device sees its share "
            "of a gradient alone: use hardware.precision=bf16, or hardware.strategy=ddp",
        )
        require(
            not (in_parts and self.compile is Compile.always),
            "hardware.compile=always cannot be combined with hardware.strategy=fsdp, which gathers weights between the "
            "layers: remove it, or use hardware.strategy=ddp",
        )


@section("logger.", opening="logger")
class LoggerConfig:
    """metrics.csv is always written; plugins add loggers: `logger=[NAME,NAME]`."""

    every: int = setting(50, "steps between two logged lines", ge=1)
