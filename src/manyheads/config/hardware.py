"""What the run computes on and where its figures are logged."""

from dataclasses import dataclass
from enum import Enum

from manyheads.config.knobs import check_ranges, knob


class Accelerator(Enum):
    auto = "auto"
    cpu = "cpu"
    gpu = "gpu"


class Strategy(Enum):
    auto = "auto"
    ddp = "ddp"


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
    strategy: Strategy = knob(Strategy.auto, "auto: one device alone, several by ddp")
    precision: Precision = knob(Precision.auto, "auto: bf16 where the processor computes in it, else fp32")
    threads: int = knob(0, "CPU threads of a process; 0: torch decides", at_least=0, at_most=1024)
    compile: Compile = knob(Compile.never, "compile the layers; auto: on a GPU, where the run is long enough")
    recompute: bool = knob(
        False, "keep only the input of each layer and compute it again for the gradient: slower, in far less memory"
    )

    def __post_init__(self) -> None:
        check_ranges(self, "hardware.")


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
