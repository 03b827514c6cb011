"""What the run computes on and where its figures are logged."""

from dataclasses import dataclass
from enum import Enum

from manyheads.config.knobs import check_ranges, knob, require


class Accelerator(Enum):
    auto = "auto"
    cpu = "cpu"
    gpu = "gpu"


class Strategy(Enum):
    auto = "auto"
    ddp = "ddp"
    fsdp = "fsdp"


class Precision(Enum):
    auto = "auto"
    fp32 = "fp32"
    bf16 = "bf16"
    fp16 = "fp16"


class Compile(Enum):
    auto = "auto"
    never = "never"
    always = "always"


@dataclass(kw_only=True, slots=True)
class HardwareConfig:
    """Processors of the run."""

    accelerator: Accelerator = knob(Accelerator.auto, "auto takes the GPUs, else the CPU")
    devices: int = knob(1, "GPUs, or CPU processes, of each node; 0: all GPUs there are", at_least=0, at_most=1024)
    nodes: int = knob(1, "machines", at_least=1, at_most=4096)
    strategy: Strategy = knob(
        Strategy.auto, "ddp: each device holds all weights; fsdp: its share of them; auto: ddp where there are several"
    )
    precision: Precision = knob(Precision.auto, "auto: bf16 where the processor computes in it, else fp32")
    threads: int = knob(0, "CPU threads of a process; 0: torch decides", at_least=0, at_most=1024)
    timeout: int = knob(600, "seconds without an answer after which a process is given up", at_least=1, at_most=604_800)
    compile: Compile = knob(Compile.never, "compile the layers; auto: on a GPU, where the run is long enough")
    recompute: bool = knob(
        False, "keep only the input of each layer and compute it again for the gradient: slower, in far less memory"
    )

    def __post_init__(self) -> None:
        check_ranges(self, "hardware.")
        in_parts = self.strategy is Strategy.fsdp
        require(
            not (in_parts and self.precision is Precision.fp16),
            "hardware.precision=fp16 cannot stand beside hardware.strategy=fsdp, where a device sees its share of a "
            "gradient alone: use hardware.precision=bf16, or hardware.strategy=ddp",
        )
        require(
            not (in_parts and self.compile is Compile.always),
            "hardware.compile=always cannot stand beside hardware.strategy=fsdp, which gathers weights between the "
            "layers: leave it away, or use hardware.strategy=ddp",
        )


class LoggerKind(Enum):
    csv = "csv"
    tensorboard = "tensorboard"
    wandb = "wandb"


@dataclass(kw_only=True, slots=True)
class LoggerConfig:
    """metrics.csv is always written; another logger may be added to it."""

    kind: LoggerKind = knob(LoggerKind.csv, "csv alone, or csv and one more")
    every: int = knob(50, "steps between two logged lines", at_least=1)
    project: str = knob("manyheads", "project name of a hosted logger")

    def __post_init__(self) -> None:
        check_ranges(self, "logger.")
