"""All settings of `manyheads ablate`: what varies, a budget held equal, seeds and data."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from manyheads.config.data import BatchConfig, DataConfig, TokenizerConfig
from manyheads.config.facts import check_ranges, nearest_setting, require, setting, settings
from manyheads.config.fields import from_plain, show, to_plain
from manyheads.config.model import ModelConfig
from manyheads.config.run import RunConfig, default_trainer
from manyheads.config.training import HardwareConfig, OptimConfig

SECTIONS = ("model.", "optim.", "batch.")  # what may vary: all rows of a table see the same tokens
WIDTHS = ("model.d_ff", "model.d_model")  # what the solver may set


class Equal(Enum):
    parameters = "parameters"
    flops = "flops"
    tokens = "tokens"
    seconds = "seconds"


@dataclass(frozen=True, slots=True)
class Variant:
    """One row of the table: its name, which is its values, and the settings in which it differs from the others."""

    name: str
    changes: dict[str, Any]


@dataclass(kw_only=True, slots=True)
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
        check_ranges(self, "")
        require(
            not (self.sets and (self.data.path or self.data.hub)),
            f"sets={_shown(self.sets)} and data.{'path' if self.data.path else 'hub'}="
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
        names = self._checked_names()
        values = self.values if isinstance(self.values, list) else [self.values]
        require(
            len(values) > 1,
            f"values={_shown(values)} holds {len(values)} value{'' if len(values) == 1 else 's'}: a comparison needs "
            f"two at least, such as vary={_shown(self.vary)} values=[...,...]",
        )
        variants = [self._variant(names, value) for value in values]
        for at, one in enumerate(variants):
            require(
                one.name not in [before.name for before in variants[:at]],
                f"values holds {one.name} twice: name each value once",
            )
        return variants

    def run(self, variant: Variant, seed: int | None = None) -> RunConfig:
        """The training run of one row, before the solver; it never reads the test split.

        Raises:
            ValueError: a value that its setting or the model refuses.
        """
        sections = ("data", "tokenizer", "batch", "model", "optim", "hardware")
        plain: dict[str, Any] = {name: to_plain(getattr(self, name)) for name in sections}
        plain |= {"trainer": dict(self.trainer), "seed": self.seed if seed is None else seed, "test": False}
        for name, value in variant.changes.items():
            section, _, key = name.partition(".")
            plain[section][key] = value
        return from_plain(RunConfig, plain)

    def _checked_names(self) -> list[str]:
        require(
            bool(self.vary),
            "vary is empty: name the setting to compare, such as vary=model.score values=[scaled_dot,cosine], or an "
            "experiment such as experiment=ablate_scores",
        )
        known = [name for name in settings(RunConfig) if name.startswith(SECTIONS)]
        for name in self.varied:
            if name in known:
                continue
            near = nearest_setting(str(name), RunConfig)
            remedy = f"did you mean {near}?" if near in known else f"choose one such as {', '.join(known[:3])}"
            require(
                name not in settings(RunConfig),
                f"vary={show(name)} cannot vary, as all rows share data, hardware and seeds: "
                f"choose a setting of model, optim or batch",
            )
            raise ValueError(f"vary={show(name)} is not a setting: {remedy}")
        return self.varied

    def _variant(self, names: list[str], value: Any) -> Variant:
        if isinstance(self.vary, str):
            return Variant(_shown(value), {names[0]: value})
        require(
            isinstance(value, list) and len(value) == len(names),
            f"values holds {show(value)}, but vary names {len(names)} settings: give each value as a list of "
            f"{len(names)}, in the order of vary",
        )
        pairs = dict(zip(names, value, strict=True))
        return Variant(", ".join(map(_shown, value)), pairs)


def _shown(value: Any) -> str:
    return f"[{', '.join(map(show, value))}]" if isinstance(value, list) else show(value)
