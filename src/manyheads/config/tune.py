"""All settings of `manyheads tune`: what varies, how its values are chosen, and the run that all trials share."""

import math
import re
from dataclasses import dataclass, fields
from enum import Enum
from random import Random
from typing import Any

from manyheads.config.data import BatchConfig, DataConfig, TokenizerConfig
from manyheads.config.facts import Setting, check_ranges, nearest_setting, require, setting, settings
from manyheads.config.fields import convert, from_plain, show, to_plain, unwrap
from manyheads.config.model import ModelConfig, Task
from manyheads.config.run import Resume, RunConfig, default_trainer
from manyheads.config.training import (
    CheckpointConfig,
    GuardConfig,
    HardwareConfig,
    LoggerConfig,
    OptimConfig,
    PretrainConfig,
)

SECTIONS = ("model.", "optim.", "batch.", "tokenizer.")  # the rows of train and validation stay the same
FLAGS: dict[str, type] = {
    "trainer.max_epochs": int,
    "trainer.max_steps": int,
    "trainer.gradient_clip_val": float,
}
PLACES = "model, optim, batch or tokenizer"
RANGE = re.compile(r"(log:)?([^\[\]{}(),'\"]*?)\.\.([^\[\]{}(),'\"]*)")
DIGITS = 4  # of a number drawn between two ends: as many as anybody can type
USUAL = 20  # trials of a search without an end of its own
MOST = 10_000
EXAMPLE = "optim.lr=1e-4,3e-4,1e-3, or a range, such as optim.lr=log:1e-4..1e-2"


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
    def listed(self) -> tuple[Any, ...] | None:
        """Every value there is, or None for numbers between two ends that are not whole."""
        if self.values:
            return self.values
        return tuple(range(int(self.low), int(self.high) + 1)) if self.whole else None

    def draw(self, random: Random) -> Any:
        """A value, each as likely as the others."""
        if self.values:
            return random.choice(self.values)
        if self.whole and not self.log:
            return random.randint(int(self.low), int(self.high))
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
    kind, one = _searchable(name)
    if is_range(given):
        return _between(name, given, kind, one)
    values = given if isinstance(given, list) else [given]
    require(
        len(values) > 1,
        f"search gives {name} {len(values)} value{'' if len(values) == 1 else 's'}: two at least can be searched, such "
        f"as {name}=VALUE,VALUE",
    )
    made = tuple(_one_value(name, kind, value, one) for value in values)
    for at, value in enumerate(made):
        require(value not in made[:at], f"{name} is given {show(value)} twice: name each value once")
    return Axis(name, made)


def _searchable(name: str) -> tuple[Any, Setting | None]:
    """The type of a setting that may be searched, and the setting where it is none of Lightning's."""
    if name in FLAGS:
        return FLAGS[name], None
    known = settings(RunConfig)
    if name in known and (name.startswith(SECTIONS) or name == "data.max_length") and known[name].kind is not str:
        one = known[name]
        inner, _ = unwrap(one.kind)
        return (int if inner is Any and isinstance(one.default, int) else one.kind), one
    if name in known or name.startswith("trainer."):
        remedy = "seeds=5 runs each setting with five" if name == "seed" else f"choose one of {PLACES}"
        raise ValueError(f"{name} cannot be searched, as all runs share data, hardware and limits: {remedy}")
    near = nearest_setting(name, RunConfig)
    raise ValueError(f"{name} is not a setting: {f'did you mean {near}?' if near else f'choose one of {PLACES}'}")


def _one_value(name: str, kind: Any, value: Any, one: Setting | None) -> Any:
    if kind is int and one is not None and one.kind is Any and isinstance(value, str):
        return value  # batch.tokens=auto; the section itself checks it
    default = one.default if one is not None else None
    made = convert(name, kind, value, default)
    words = one.facts.limits() if one is not None and made is not None else []
    require(
        one is None or not words or one.facts.allows(made),
        f"{name}={show(made)} is out of range: it must be {' and '.join(words)}; the default is {show(default)}",
    )
    return _plain(made)


def _plain(value: Any) -> Any:
    """Choices by their names."""
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value.name if isinstance(value, Enum) else value


def _between(name: str, text: str, kind: Any, one: Setting | None) -> Axis:
    match = RANGE.fullmatch(text.strip())
    assert match is not None, "it was seen to be a range"
    inner, _ = unwrap(kind)
    require(
        inner in (int, float),
        f"{name}={text} is a range, but {name} is not a number: list its values, such as {name}=VALUE,VALUE",
    )
    log, ends = bool(match[1]), [match[2].strip(), match[3].strip()]
    try:
        low, high = (float(_one_value(name, kind, end, one)) for end in ends)
    except ValueError as error:
        raise ValueError(f"{name}={text} has an end that {name} cannot have: {error}") from error
    require(low < high, f"{name}={text} ends where it begins or below: write {name}={ends[1]}..{ends[0]}")
    require(
        not log or low > 0,
        f"{name}={text} begins at {low:g}, but factors have no zero: begin above it, or remove log:",
    )
    return Axis(name, low=low, high=high, log=log, whole=inner is int)


class Method(Enum):
    auto = "auto"
    grid = "grid"
    random = "random"
    tpe = "tpe"
    gp = "gp"
    cmaes = "cmaes"


class Prune(Enum):
    never = "never"
    median = "median"
    halving = "halving"


OF_OPTUNA = (Method.tpe, Method.gp, Method.cmaes)


@dataclass(kw_only=True, slots=True)
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
    task: Task = setting(Task.classify, "what a text is answered with: a class, or another text")
    seed: int = setting(0, "the first seed of the runs, and that of what is drawn", ge=0, lt=2**31)
    init_from: str = setting(
        "",
        "trained weights to begin with: a run, a folder of BERT's family, or its id on the Hugging Face hub",
        verbatim=True,
        may_be_empty=False,
    )
    teacher: str = setting(
        "", "run folder, or its model/, whose predictions of the training rows are learned, too", path=True
    )
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
        check_ranges(self, "")
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
        return self.method in OF_OPTUNA or self.prune is not Prune.never

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
        for name, value in setting.items():
            section, _, key = name.partition(".")
            plain[section][key] = value
        return from_plain(RunConfig, plain)

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
