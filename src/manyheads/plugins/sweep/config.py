"""All settings of `tune`, `curve` and `ablate`: what varies, and what all runs share: sections of `RunConfig`.

`config.run(...)` is the training run of one setting, share or row.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Any, get_type_hints

from manyheads.config.conversion import from_plain, mapping_of, section_and_key, to_plain
from manyheads.config.data import BatchConfig, DataConfig, TokenizerConfig
from manyheads.config.facts import field_of, nearest_setting, require, section, setting, settings
from manyheads.config.model import ModelConfig
from manyheads.config.plugins import recorded
from manyheads.config.run import Resume, RunConfig
from manyheads.config.sentences import format_list, format_value
from manyheads.config.training import CheckpointConfig, GuardConfig, HardwareConfig, LoggerConfig, OptimConfig
from manyheads.errors import UserError
from manyheads.plugin import Shared
from manyheads.plugins.sweep.axes import Axis, count_values, make_axis
from manyheads.runs.result_table import is_table_file

COMPARED = ("model.", "optim.", "batch.")  # what may vary in `ablate`: all rows of a table see the same tokens
WIDTHS = ("model.d_ff", "model.d_model")  # what its solver may set
USUAL = 20  # trials of a search without an end of its own
MOST = 10_000
STORAGE = "storage.journal"  # of the jobs of a search that names none
EXAMPLE = "optim.lr=1e-4,3e-4,1e-3, or a range, such as optim.lr=log:1e-4..1e-2"
Method = StrEnum("Method", "auto grid random tpe gp cmaes")
Prune = StrEnum("Prune", "never median halving")
OF_OPTUNA = (Method.tpe, Method.gp, Method.cmaes)


@section(opening="search")
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
    task: str = field_of(RunConfig, "task")
    seed: int = setting(0, "the first seed of the runs, and that of what is drawn", ge=0, lt=2**31)
    init_from: str = field_of(RunConfig, "init_from")
    output: str = setting(
        "",
        "folder of the search, resumed if there is one; empty: outputs/tune-<what varies>; or a table such as x.tex",
        path=True,
    )
    budget: str = field_of(RunConfig, "budget")
    data: DataConfig = field_of(RunConfig, "data")
    tokenizer: TokenizerConfig = field_of(RunConfig, "tokenizer")
    batch: BatchConfig = field_of(RunConfig, "batch")
    model: ModelConfig = field_of(RunConfig, "model")
    optim: OptimConfig = field_of(RunConfig, "optim")
    checkpoint: CheckpointConfig = setting(CheckpointConfig, "the weights kept; its metric is what is compared")
    guard: GuardConfig = field_of(RunConfig, "guard")
    hardware: HardwareConfig = field_of(RunConfig, "hardware")
    logger: LoggerConfig = field_of(RunConfig, "logger")
    trainer: dict[str, Any] = field_of(RunConfig, "trainer")

    def __post_init__(self) -> None:
        require(
            "max_time" not in self.trainer,
            f"trainer.max_time={format_value(self.trainer.get('max_time'))} is decided elsewhere: set minutes",
        )
        for name, value, usual in (("seeds", self.seeds, 1), ("minutes", self.minutes, 0)):
            require(
                not self.data.folds or value == usual,
                f"{name}={format_value(value)} does nothing with data.folds={self.data.folds}, of which each has a "
                "run of each setting, to its end: remove one of them",
            )
        self._check_count(self.axes())
        self.run({})

    def axes(self) -> list[Axis]:
        """What varies, in order.

        Raises:
            UserError: nothing does, or a value that its setting cannot have.
        """
        require(isinstance(self.search, dict), f"search={format_value(self.search)} holds no settings: type {EXAMPLE}")
        require(bool(self.search), f"nothing is searched: give a setting several values, such as {EXAMPLE}")
        return [make_axis(str(name), given) for name, given in self.search.items()]

    @property
    def size(self) -> int | None:
        """How many settings there are; None where a number is drawn between two ends."""
        size = 1
        for axis in self.axes():
            if axis.listed is None:
                return None
            size *= len(axis.listed)
        return size

    @property
    def chosen(self) -> Method:
        """The method, that of auto resolved."""
        if self.method is not Method.auto:
            return self.method
        tries_all = self.size is not None and self.trials in (0, self.size)
        return Method.grid if tries_all else Method.random

    @property
    def n_trials(self) -> int:
        """How many settings are tried."""
        if self.trials:
            return self.trials
        size = self.size
        if size is not None and (size < USUAL or self.chosen is Method.grid):
            return size
        return USUAL

    @property
    def n_runs(self) -> int:
        """Runs of each setting: one for each seed or, with folds, for each of these, with a seed of its own, too."""
        return self.data.folds or self.seeds

    @property
    def needs_optuna(self) -> bool:
        return self.method in OF_OPTUNA or self.prune is not Prune.never or bool(self.storage)

    def run(self, setting: dict[str, Any], seed: int | None = None, output: str = "") -> RunConfig:
        """The training run of one setting, resumed if it was begun; a UserError where values do not go together. With
        folds it is judged on one of them, for the first seed the first."""
        data, of_fold = self.data, False
        if data.folds and seed is not None:
            data, of_fold = replace(data, fold=1 + seed - self.seed), True
        own = {"linear": False, "test": of_fold} | _resumable(data, self.seed, seed, output)
        return _run(self, setting, seed, own)

    def _check_count(self, axes: list[Axis]) -> None:
        ranges = [axis for axis in axes if axis.listed is None]
        if self.method is Method.grid and ranges:
            name = ranges[0].name
            raise UserError(
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


@section(opening="curve")
class CurveConfig:
    """All settings of `manyheads curve`. The sections are those of a training run, shared by all runs."""

    shares: list[float] = setting(
        lambda: [0.1, 0.2, 0.5, 1.0], "shares of the training rows that are learnt from, by class", gt=0.0, le=1.0
    )
    seeds: int = setting(3, "runs of each share, with the seeds from seed upwards, which draw the rows, too",
                         ge=1, le=100)  # fmt: skip
    jobs: int = field_of(TuneConfig, "jobs")
    test: bool = setting(True, "judge on the test split; false: on validation, which chose the weights")
    seed: int = setting(0, "the first seed of the runs, and that of carved-out splits", ge=0, lt=2**31)
    init_from: str = field_of(RunConfig, "init_from")
    output: str = setting(
        "", "folder of the curve, resumed if there is one; empty: outputs/curve; or a table such as x.tex", path=True
    )
    budget: str = field_of(RunConfig, "budget")
    data: DataConfig = field_of(RunConfig, "data")
    tokenizer: TokenizerConfig = field_of(RunConfig, "tokenizer")
    batch: BatchConfig = field_of(RunConfig, "batch")
    model: ModelConfig = field_of(RunConfig, "model")
    optim: OptimConfig = field_of(RunConfig, "optim")
    checkpoint: CheckpointConfig = setting(CheckpointConfig, "the weights kept; its metric is what is drawn")
    guard: GuardConfig = field_of(RunConfig, "guard")
    hardware: HardwareConfig = field_of(RunConfig, "hardware")
    logger: LoggerConfig = field_of(RunConfig, "logger")
    trainer: dict[str, Any] = field_of(RunConfig, "trainer")

    def __post_init__(self) -> None:
        require(
            len(self.shares) > 1 and sorted({*self.shares}) == self.shares,
            f"shares={format_list(self.shares)}: a curve needs two shares or more, each larger than the one before, "
            "such as shares=[0.25,0.5,1]",
        )
        require(
            self.data.train_share == 1.0,
            f"data.train_share={self.data.train_share:g} does nothing here: name the shares by shares=[0.25,0.5,1]",
        )
        self.run({})

    minutes = 0.0  # a curve has no limit of time

    @property
    def n_trials(self) -> int:
        """How many shares there are."""
        return len(self.shares)

    def run(self, setting: dict[str, Any], seed: int | None = None, output: str = "") -> RunConfig:
        """The run of one share, resumed if it was begun."""
        own = {"test": self.test} | _resumable(self.data, self.seed, seed, output)
        return _run(self, setting, seed, own)


Equal = StrEnum("Equal", "parameters flops tokens")


@dataclass(frozen=True, slots=True)
class Variant:
    """One row of the table: its name, which is its values, and the settings in which it differs from the others."""

    name: str
    changes: dict[str, Any]


@section(opening="table")
class AblateConfig:
    """All settings of `manyheads ablate`. The sections are those of a training run, the same for all rows."""

    search: Any = setting(dict, "what varies, all combinations; typed as settings with several values: model.score=a,b")
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
        "",
        "results file, <output>.json, continued; empty: outputs/ablate/<what varies>.json; or a table such as x.tex",
        path=True,
    )
    data: DataConfig = field_of(RunConfig, "data")
    tokenizer: TokenizerConfig = field_of(RunConfig, "tokenizer")
    batch: BatchConfig = field_of(RunConfig, "batch")
    model: ModelConfig = setting(ModelConfig, "the encoder classifier of all rows, but for what varies")
    optim: OptimConfig = field_of(RunConfig, "optim")
    hardware: HardwareConfig = setting(HardwareConfig, "processor: one device")
    trainer: dict[str, Any] = field_of(RunConfig, "trainer")

    def __post_init__(self) -> None:
        require(
            not (self.sets and (self.data.path or self.data.hub)),
            f"sets={format_list(self.sets)} and data.{'path' if self.data.path else 'hub'}="
            f"{format_value(self.data.path or self.data.hub)} both name data: give one of them",
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
        if self.search:
            return list(self.search)
        return [self.vary] if isinstance(self.vary, str) else list(self.vary)

    @property
    def vary_name(self) -> str:
        return ", ".join(self.varied)

    def variants(self) -> list[Variant]:
        """The rows of the table, in order.

        Raises:
            UserError: nothing varies, not a setting that may, fewer than two values, or the same twice.
        """
        self._check_names()
        values = self.values if isinstance(self.values, list) else [self.values]
        if self.search:
            axes = [make_axis(str(name), given) for name, given in self.search.items()]
            for axis in axes:
                ends = f"{axis.name}={self.search[axis.name]}"
                require(bool(axis.values), f"{ends} is a range, but values are compared: write {axis.name}=VALUE,VALUE")
            values = [list(combination) for combination in product(*(axis.values for axis in axes))]
        require(
            len(values) > 1,
            f"values={format_list(values)} holds {count_values(values)}: a comparison needs two at least, such as "
            f"vary={format_list(self.vary)} values=[...,...]",
        )
        variants: dict[str, Variant] = {}
        for value in values:
            each = [value] if isinstance(self.vary, str) and not self.search else value
            require(
                isinstance(each, list) and len(each) == len(self.varied),
                f"values holds {format_value(value)}, but vary names {len(self.varied)} settings: give each value as "
                f"a list of {len(self.varied)}, in the order of vary",
            )
            name = ", ".join(map(format_list, each))
            require(name not in variants, f"values holds {name} twice: name each value once")
            variants[name] = Variant(name, dict(zip(self.varied, each, strict=True)))
        return list(variants.values())

    def _check_names(self) -> None:
        require(
            bool(self.vary or self.search),
            "nothing varies: give a setting several values, such as model.score=dot,cosine, or an experiment such as "
            "experiment=ablate_scores",
        )
        require(isinstance(self.search, dict), f"search={format_value(self.search)} holds no settings: type {EXAMPLE}")
        named = f"vary={format_list(self.vary)}" if self.vary else f"values={format_list(self.values)}"
        require(
            not ((self.vary or self.values) and self.search),
            f"{named} and several values of {', '.join(self.search)} both say what varies: remove one of them",
        )
        known = [name for name in settings(RunConfig) if name.startswith(COMPARED)]
        for name in self.varied:
            typed = f"{name}={format_value(self.search[name])}" if self.search else f"vary={format_value(name)}"
            is_option = str(name).startswith(COMPARED) and mapping_of(str(name), settings(RunConfig))
            if name in known or is_option:
                continue
            require(
                name not in settings(RunConfig),
                f"{typed} cannot vary, as all rows share data, hardware and seeds: "
                f"choose a setting of model, optim or batch",
            )
            near = nearest_setting(str(name), RunConfig)
            remedy = f"did you mean {near}?" if near in known else f"choose one such as {', '.join(known[:3])}"
            raise UserError(f"{typed} is not a setting: {remedy}")

    def run(self, variant: Variant, seed: int | None = None) -> RunConfig:
        """The training run of one row, before the solver; a UserError where a setting or the model refuses a value."""
        return _run(self, variant.changes, seed, {"output": ""})


def share_search(config: TuneConfig) -> Shared:
    """Jobs of `tune` share a folder, and in it a storage unless one is named."""
    folder = Path(config.output) if config.output and not is_table_file(config.output) else None
    words = () if config.storage or folder is None else (f"storage={folder / STORAGE}",)
    return Shared(folder, "folder: add output=FOLDER", words=words, processes=config.jobs)


def share_table(config: AblateConfig) -> Shared:
    """Jobs of `ablate` share a results file."""
    file = Path(config.output.removesuffix(".json")) if config.output and not is_table_file(config.output) else None
    return Shared(file, "results file: add output=FILE", is_folder=False)


def _resumable(data: DataConfig, first: int, seed: int | None, output: str) -> dict[str, Any]:
    """Settings of a run in a folder of its own. Rows that are carved out are those of the first seed in all runs."""
    if seed not in (None, first) and data.split_seed is None:
        data = replace(data, split_seed=first)
    resume = Resume.auto if output else Resume.never
    return {"data": to_plain(data), "output": output, "resume": resume.name}


def _run(
    config: TuneConfig | CurveConfig | AblateConfig, changes: dict[str, Any], seed: int | None, own: dict[str, Any]
) -> RunConfig:
    """The run that has the settings which `config` shares with `RunConfig`, then its `own`, then the `changes` by their
    dotted names. It reads no test split unless `own` says so."""
    kinds, kinds_of_run = get_type_hints(type(config)), get_type_hints(RunConfig)
    plain: dict[str, Any] = {}
    for name, value in to_plain(config).items():
        if kinds[name] == kinds_of_run.get(name):  # a section of another kind is the search's
            plain[name] = value
    plain |= {"seed": config.seed if seed is None else seed, "test": False, "plugins": recorded()} | own
    for name, value in changes.items():
        section, key = section_and_key(plain, name)
        section[key] = value
    return from_plain(RunConfig, plain)
