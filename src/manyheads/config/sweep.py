"""All settings of `manyheads tune` and `manyheads ablate`: what varies, what is shared by all runs, and each run."""

import math
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from manyheads.config.axis import Axis, count_values, make_axis
from manyheads.config.data import BatchConfig, DataConfig, TokenizerConfig
from manyheads.config.facts import field_of, nearest_setting, require, section, setting, settings
from manyheads.config.fields import (
    default_trainer,
    from_plain,
    held,
    show,
    show_list,
    to_plain,
)
from manyheads.config.model import ModelConfig, Task
from manyheads.config.run import Resume, RunConfig
from manyheads.config.training import (
    CheckpointConfig,
    GuardConfig,
    HardwareConfig,
    LoggerConfig,
    OptimConfig,
    PretrainConfig,
)

COMPARED = ("model.", "optim.", "batch.")  # what may vary in `ablate`: all rows of a table see the same tokens
WIDTHS = ("model.d_ff", "model.d_model")  # what its solver may set
USUAL = 20  # trials of a search without an end of its own
MOST = 10_000
EXAMPLE = "optim.lr=1e-4,3e-4,1e-3, or a range, such as optim.lr=log:1e-4..1e-2"


Method = StrEnum("Method", "auto grid random tpe gp cmaes")
Prune = StrEnum("Prune", "never median halving")


OF_OPTUNA = (Method.tpe, Method.gp, Method.cmaes)


@section()
class TuneConfig:
    """All settings of `manyheads tune`. The sections are those of a training run, shared by all trials."""

    search: Any = setting(dict, f"what varies; typed as settings with several values: {EXAMPLE}")
    method: Method = setting(
        Method.auto, "auto: grid where all values are listed, else random; tpe, gp, cmaes: Optuna's"
    )
    trials: int = setting(0, f"settings tried; 0: all of a grid, else {USUAL}", ge=0, le=MOST)
    seeds: int = setting(1, "runs of each setting, with the seeds from seed upwards; their mean counts", ge=1,
                      le=100)  # fmt: skip
    jobs: int = setting(1, "runs at once, which share the processor's threads, or have a GPU each", ge=1, le=256)
    minutes: float = setting(0.0, "most minutes of training of a run, whose best figure so far counts; 0: no limit",
                          ge=0.0)  # fmt: skip
    prune: Prune = setting(
        Prune.never, "give up a setting early by its validation figures: Optuna's rules; never: none"
    )
    storage: str = setting(
        "",
        "shared by several machines, each with the same command: a journal file, sqlite:///FILE, postgresql://HOST/NAME",
        verbatim=True,
        may_be_empty=False,
    )
    task: Task = setting(Task.classify, "what a text is answered with: a class, or another text")
    seed: int = setting(0, "the first seed of the runs, and that of what is drawn", ge=0, lt=2**31)
    init_from: str = field_of(RunConfig, "init_from")
    teacher: str = field_of(RunConfig, "teacher")
    output: str = setting(
        "", "folder of the search, resumed if there is one; empty: outputs/tune-<what varies>", path=True
    )
    budget: str = setting("", "length of training of each run, such as 2min or 5Mtok; empty: as trainer says")
    data: DataConfig = setting(DataConfig, "texts and labels")
    tokenizer: TokenizerConfig = setting(TokenizerConfig, "text to tokens")
    batch: BatchConfig = setting(BatchConfig, "tokens to batches")
    model: ModelConfig = setting(ModelConfig, "the encoder classifier")
    optim: OptimConfig = setting(OptimConfig, "the optimiser")
    pretrain: PretrainConfig = setting(PretrainConfig, "learning from texts alone")
    checkpoint: CheckpointConfig = setting(CheckpointConfig, "the weights kept; its metric is what is compared")
    guard: GuardConfig = setting(GuardConfig, "what happens when a step goes wrong")
    hardware: HardwareConfig = setting(HardwareConfig, "processors of a run")
    logger: LoggerConfig = setting(LoggerConfig, "logged figures")
    trainer: dict[str, Any] = setting(default_trainer, "any other flag of Lightning's Trainer")

    def __post_init__(self) -> None:
        require(
            "max_time" not in self.trainer,
            f"trainer.max_time={show(self.trainer.get('max_time'))} is decided elsewhere: set minutes",
        )
        self._check_count(self.axes())
        self.run({})

    def axes(self) -> list[Axis]:
        """What varies, in order.

        Raises:
            ValueError: nothing does, or a value that its setting cannot have.
        """
        require(isinstance(self.search, dict), f"search={show(self.search)} holds no settings: type {EXAMPLE}")
        require(bool(self.search), f"nothing is searched: give a setting several values, such as {EXAMPLE}")
        return [make_axis(str(name), given) for name, given in self.search.items()]

    @property
    def size(self) -> int | None:
        """How many settings there are; None where a number is drawn between two ends."""
        listed = [axis.listed for axis in self.axes()]
        return None if None in listed else math.prod(len(one) for one in listed if one is not None)

    @property
    def chosen(self) -> Method:
        """The method, that of auto resolved."""
        if self.method is not Method.auto:
            return self.method
        return Method.grid if self.size is not None and self.trials in (0, self.size) else Method.random

    @property
    def n_trials(self) -> int:
        """How many settings are tried."""
        size = self.size
        if self.trials:
            return self.trials
        return size if self.chosen is Method.grid and size is not None else min(USUAL, size or USUAL)

    @property
    def needs_optuna(self) -> bool:
        return self.method in OF_OPTUNA or self.prune is not Prune.never or bool(self.storage)

    def run(self, setting: dict[str, Any], seed: int | None = None, output: str = "") -> RunConfig:
        """The training run of one setting; it never reads the test split, and is resumed if it was begun.

        Raises:
            ValueError: values that do not go together.
        """
        known = {one.name for one in fields(RunConfig)}
        plain: dict[str, Any] = {name: value for name, value in to_plain(self).items() if name in known}
        plain |= {"seed": self.seed if seed is None else seed, "output": output, "test": False}
        plain |= {"linear": False}  # what is compared is the network
        plain |= {"resume": Resume.auto.name} if output else {}
        if plain["seed"] != self.seed and plain["data"]["split_seed"] is None:
            plain["data"]["split_seed"] = self.seed  # carved-out rows are the same for all seeds, those of test too
        return _changed(plain, setting)

    def _check_count(self, axes: list[Axis]) -> None:
        ranges = [axis for axis in axes if axis.listed is None]
        if self.method is Method.grid and ranges:
            name = ranges[0].name
            raise ValueError(
                f"{name}={self.search[name]} is a range, of which method=grid cannot try every number: list values, "
                f"such as {name}={ranges[0].low:g},{ranges[0].high:g}, or use method=random"
            )
        size = self.size
        if size is None:
            return
        named = " x ".join(str(len(axis.listed or ())) for axis in axes)
        require(
            self.trials <= size,
            f"trials={self.trials} are more than the {size} settings there are ({named}): remove trials, or search "
            "more values",
        )
        require(
            self.method is not Method.grid or self.trials in (0, size),
            f"trials={self.trials} would cut short method=grid, which tries all {size} settings ({named}): "
            "remove trials, or use method=random",
        )
        require(
            self.n_trials <= MOST,
            f"the grid has {size:,} settings ({named}), more than {MOST:,}: search fewer values, or add trials=20",
        )


Equal = StrEnum("Equal", "parameters flops tokens seconds")


@dataclass(frozen=True, slots=True)
class Variant:
    """One row of the table: its name, which is its values, and the settings in which it differs from the others."""

    name: str
    changes: dict[str, Any]


@section()
class AblateConfig:
    """All settings of `manyheads ablate`. The sections are those of a training run, the same for all rows."""

    vary: Any = setting("", "the setting that varies, such as model.score, or several: [model.n_heads,model.d_k]")
    values: Any = setting(
        list, "its values, the first is what the others are compared with; of several settings: lists"
    )
    equal: Equal = setting(Equal.parameters, "what all rows have in common: the solver picks a width, steps or a time")
    tolerance: float = setting(0.01, "largest relative difference from the first row's budget", gt=0.0, le=0.1)
    seconds: float = setting(30.0, "training time of a run: its budget under equal=seconds, else its limit", gt=0.0)
    seeds: int = setting(3, "runs of each row, with the seeds from seed upwards", ge=1, le=100)
    seed: int = setting(0, "the first seed; also that of carved-out splits, which all runs share", ge=0, lt=2**31)
    sets: list[str] = setting(list, "data: demo, a file or folder, or a name in $MANYHEADS_DATA; empty: as data says")
    output: str = setting(
        "", "results file, <output>.json, which is continued; empty: outputs/ablate/<vary>.json", path=True
    )
    data: DataConfig = setting(DataConfig, "texts and labels")
    tokenizer: TokenizerConfig = setting(TokenizerConfig, "text to tokens")
    batch: BatchConfig = setting(BatchConfig, "tokens to batches")
    model: ModelConfig = setting(ModelConfig, "the encoder classifier of all rows, but for what varies")
    optim: OptimConfig = setting(OptimConfig, "the optimiser")
    hardware: HardwareConfig = setting(HardwareConfig, "processor: one device")
    trainer: dict[str, Any] = setting(default_trainer, "any other flag of Lightning's Trainer")

    def __post_init__(self) -> None:
        require(
            not (self.sets and (self.data.path or self.data.hub)),
            f"sets={show_list(self.sets)} and data.{'path' if self.data.path else 'hub'}="
            f"{show(self.data.path or self.data.hub)} both name data: give one of them",
        )
        for name, count in (("devices", self.hardware.devices), ("nodes", self.hardware.nodes)):
            require(
                count == 1,
                f"hardware.{name}={count}: ablate compares runs of one device, one after another: "
                f"leave hardware.{name} at 1",
            )
        for variant in self.variants():
            require(
                not self.run(variant).batch.is_auto,
                "batch.tokens=auto depends on the model, but all rows of a table see the same batches: give a number",
            )

    @property
    def varied(self) -> list[str]:
        """The settings that vary."""
        return [self.vary] if isinstance(self.vary, str) else list(self.vary)

    @property
    def vary_name(self) -> str:
        return ", ".join(self.varied)

    def variants(self) -> list[Variant]:
        """The rows of the table, in order.

        Raises:
            ValueError: nothing varies, not a setting that may, fewer than two values, or the same twice.
        """
        self._check_names()
        values = self.values if isinstance(self.values, list) else [self.values]
        require(
            len(values) > 1,
            f"values={show_list(values)} holds {count_values(values)}: a comparison needs two at least, such as "
            f"vary={show_list(self.vary)} values=[...,...]",
        )
        variants: dict[str, Variant] = {}
        for value in values:
            each = [value] if isinstance(self.vary, str) else value
            require(
                isinstance(each, list) and len(each) == len(self.varied),
                f"values holds {show(value)}, but vary names {len(self.varied)} settings: give each value as a list of "
                f"{len(self.varied)}, in the order of vary",
            )
            name = ", ".join(map(show_list, each))
            require(name not in variants, f"values holds {name} twice: name each value once")
            variants[name] = Variant(name, dict(zip(self.varied, each, strict=True)))
        return list(variants.values())

    def _check_names(self) -> None:
        require(
            bool(self.vary),
            "vary is empty: name the setting to compare, such as vary=model.score values=[scaled_dot,cosine], or an "
            "experiment such as experiment=ablate_scores",
        )
        known = [name for name in settings(RunConfig) if name.startswith(COMPARED)]
        for name in (name for name in self.varied if name not in known):
            require(
                name not in settings(RunConfig),
                f"vary={show(name)} cannot vary, as all rows share data, hardware and seeds: "
                f"choose a setting of model, optim or batch",
            )
            near = nearest_setting(str(name), RunConfig)
            remedy = f"did you mean {near}?" if near in known else f"choose one such as {', '.join(known[:3])}"
            raise ValueError(f"vary={show(name)} is not a setting: {remedy}")

    def run(self, variant: Variant, seed: int | None = None) -> RunConfig:
        """The training run of one row, before the solver; it never reads the test split.

        Raises:
            ValueError: a value that its setting or the model refuses.
        """
        sections = ("data", "tokenizer", "batch", "model", "optim", "hardware")
        plain: dict[str, Any] = {name: to_plain(getattr(self, name)) for name in sections}
        plain |= {"trainer": dict(self.trainer), "seed": self.seed if seed is None else seed, "test": False}
        return _changed(plain, variant.changes)


def _changed(plain: dict[str, Any], changes: dict[str, Any]) -> RunConfig:
    """The run of some plain settings and of changes by their dotted names."""
    for name, value in changes.items():
        section, key = held(plain, name)
        section[key] = value
    return from_plain(RunConfig, plain)
