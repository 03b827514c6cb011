"""All settings of `manyheads tune` and `manyheads ablate`: what varies, what is shared by all runs, and each run."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from random import Random
from typing import Any

from manyheads.config.data import BatchConfig, DataConfig, TokenizerConfig
from manyheads.config.facts import Facts, Setting, field_of, nearest_setting, require, section, setting, settings
from manyheads.config.fields import convert, default_trainer, from_plain, held, show, show_list, to_plain, unwrap
from manyheads.config.model import ModelConfig, Task
from manyheads.config.run import Resume, RunConfig
from manyheads.config.training import (
    ArrayConfig,
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
SEARCHED = ("model.", "optim.", "batch.", "tokenizer.")  # the rows of train and validation stay the same
FLAGS = {"trainer.max_epochs": int, "trainer.max_steps": int, "trainer.gradient_clip_val": float}
PLACES = "model, optim, batch or tokenizer"
RANGE = re.compile(r"(log:)?([^\[\]{}(),'\"]*?)\.\.([^\[\]{}(),'\"]*)")
MOST_WHOLE = 2**53  # above it a float skips some
DIGITS = 4  # of a number drawn between two ends: as many as anybody can type


@dataclass(frozen=True, slots=True)
class Axis:
    """One setting of a search: `values` listed, or a number from `low` to `high`, both included.

    `log`: each factor of ten is as likely as the next. `whole`: whole numbers.
    """

    name: str
    values: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False

    @property
    def listed(self) -> Sequence[Any] | None:
        """Every value there is, or None for numbers between two ends that are not whole."""
        between = range(int(self.low), int(self.high) + 1) if self.whole else None
        return self.values or between

    def draw(self, random: Random) -> Any:
        """A value, each as likely as the others."""
        if self.listed and not self.log:
            return random.choice(self.listed)
        if not self.log:
            return self.rounded(random.uniform(self.low, self.high))
        half = 0.5 if self.whole else 0.0  # the ends, too, own what is rounded to them
        return self.rounded(math.exp(random.uniform(math.log(self.low - half), math.log(self.high + half))))

    def rounded(self, value: float) -> float | int:
        """A number that lies between the ends, whole or of few digits."""
        near = round(value) if self.whole else float(f"{value:.{DIGITS}g}")
        near = min(max(near, self.low), self.high)
        return int(near) if self.whole else near


def is_range(text: Any) -> bool:
    """Whether a text is meant as two ends."""
    return isinstance(text, str) and RANGE.fullmatch(text.strip()) is not None


def make_axis(name: str, given: Any) -> Axis:
    """The axis of a setting from a list of values, or a text such as `1e-4..1e-2`, `log:1e-4..1e-2` or `1..4`.

    Raises:
        ValueError: not a setting, or one that all runs of a search share; values or ends that it cannot have.
    """
    one = _searchable(name)
    if is_range(given):
        return _between(one, given)
    values = given if isinstance(given, list) else [given]
    require(
        len(values) > 1,
        f"search gives {name} {count_values(values)}: two at least can be searched, such as {name}=VALUE,VALUE",
    )
    made = tuple(_one_value(one, value) for value in values)
    for at, value in enumerate(made):
        require(value not in made[:at], f"{name} is given {show(value)} twice: name each value once")
    return Axis(name, made)


def _searchable(name: str) -> Setting:
    """The setting `name`, where the runs of a search may differ in it."""
    if name in FLAGS:
        return Setting(name, FLAGS[name], None, Facts(""))
    one = settings(RunConfig).get(name)
    if one and (name.startswith(SEARCHED) or name == "data.max_length") and one.kind is not str:
        return replace(one, kind=int) if name == "batch.tokens" else one
    if one or name.startswith("trainer."):
        remedy = "seeds=5 runs each setting with five" if name == "seed" else f"choose one of {PLACES}"
        raise ValueError(f"{name} cannot be searched, as all runs share data, hardware and limits: {remedy}")
    near = nearest_setting(name, RunConfig)
    raise ValueError(f"{name} is not a setting: {f'did you mean {near}?' if near else f'choose one of {PLACES}'}")


def _one_value(one: Setting, value: Any) -> Any:
    if one.name == "batch.tokens" and isinstance(value, str):
        return value  # auto; the section itself checks it
    made = convert(one.name, one.kind, value, one.default)
    limits = " and ".join(one.facts.limits())
    require(
        made is None or not limits or one.facts.allows(made),
        f"{one.name}={show(made)} is out of range: it must be {limits}; the default is {show(one.default)}",
    )
    return to_plain(made)


def _between(one: Setting, text: str) -> Axis:
    match, (inner, _), name = RANGE.fullmatch(text.strip()), unwrap(one.kind), one.name
    assert match is not None, "it was seen to be a range"
    require(
        inner in (int, float),
        f"{name}={text} is a range, but {name} is not a number: list its values, such as {name}=VALUE,VALUE",
    )
    log, ends = bool(match[1]), [match[2].strip(), match[3].strip()]
    try:
        low, high = (float(_one_value(one, end)) for end in ends)
    except ValueError as error:
        raise ValueError(f"{name}={text} has an end that {name} cannot have: {error}") from error
    require(low < high, f"{name}={text} ends where it begins or below: write {name}={ends[1]}..{ends[0]}")
    require(
        inner is float or high <= MOST_WHOLE,
        f"{name}={text} ends above {MOST_WHOLE:,}, up to which whole numbers can be drawn: choose a lower end",
    )
    require(
        not log or low > 0,
        f"{name}={text} begins at {low:g}, but factors have no zero: begin above it, or remove log:",
    )
    return Axis(name, low=low, high=high, log=log, whole=inner is int)


def count_values(values: list[Any]) -> str:
    """`1 value`, `2 values`."""
    return f"{len(values)} value{'' if len(values) == 1 else 's'}"


@section()
class TuneConfig:
    """All settings of `manyheads tune`. The sections are those of a training run, shared by all trials."""

    search: Any = setting(dict, f"what varies; typed as settings with several values: {EXAMPLE}")
    method: Method = setting(
        Method.auto, "auto: grid where all values are listed, else random; tpe, gp, cmaes: Optuna's"
    )
    trials: int = setting(0, f"settings tried; 0: all of a grid, else {USUAL}", ge=0, le=MOST)
    seeds: int = setting(1, "runs of each setting, with the seeds from seed upwards; their mean counts", ge=1, le=100)
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
    slurm: ArrayConfig = setting(ArrayConfig, "the jobs that hardware=slurm writes", needs="slurm")
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
        """The training run of one setting, resumed if it was begun; a ValueError where values do not go together."""
        resume = Resume.auto if output else Resume.never
        data = self.data
        if seed not in (None, self.seed) and data.split_seed is None:
            data = replace(data, split_seed=self.seed)  # carved-out rows are the same for all seeds, those of test too
        return _run(self, setting, seed, data=to_plain(data), output=output, linear=False, resume=resume.name)

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


Equal = StrEnum("Equal", "parameters flops tokens")


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
    equal: Equal = setting(Equal.parameters, "what all rows have in common: the solver picks a width or steps")
    tolerance: float = setting(0.01, "largest relative difference from the first row's budget", gt=0.0, le=0.1)
    seconds: float = setting(30.0, "most training time of a run", gt=0.0)
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
    slurm: ArrayConfig = setting(ArrayConfig, "the jobs that hardware=slurm writes", needs="slurm")
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
        """The training run of one row, before the solver; a ValueError where a setting or the model refuses a value."""
        return _run(self, variant.changes, seed, output="")


def _run(config: TuneConfig | AblateConfig, changes: dict[str, Any], seed: int | None, **own: Any) -> RunConfig:
    """The run of the settings that `config` shares with it, of those it has of its own, and of changes by their dotted
    names. It never reads the test split."""
    known = {one.name for one in fields(RunConfig)} - {"slurm"}
    plain = {name: value for name, value in to_plain(config).items() if name in known} | own
    plain |= {"seed": config.seed if seed is None else seed, "test": False}
    for name, value in changes.items():
        section, key = held(plain, name)
        section[key] = value
    return from_plain(RunConfig, plain)
