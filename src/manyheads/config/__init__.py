"""Every knob as a typed dataclass, one file a section. Standard library only."""

from manyheads.config.ablate import AblateConfig, Equal
from manyheads.config.choices import Terms
from manyheads.config.data import (
    BatchConfig,
    Cutting,
    DataConfig,
    Long,
    OnBadRow,
    Source,
    TokenizerConfig,
    TokenizerKind,
)
from manyheads.config.explain import Claim, ExplainConfig
from manyheads.config.export import ExportConfig, Format, Members
from manyheads.config.generate import GenerateConfig
from manyheads.config.guard import GuardConfig, Nonfinite
from manyheads.config.hardware import Accelerator, HardwareConfig, LoggerConfig, LoggerKind, Precision, Strategy
from manyheads.config.model import (
    Activation,
    EncoderKind,
    ModelConfig,
    Norm,
    Normaliser,
    PairKind,
    Placement,
    Pooler,
    Pooling,
    Positions,
    Score,
    Segments,
)
from manyheads.config.optim import CheckpointConfig, Metric, OptimConfig, Schedule
from manyheads.config.pretrain import Hide, PretrainConfig
from manyheads.config.run import (
    EvaluateConfig,
    InferenceHardware,
    LookConfig,
    PredictConfig,
    Resume,
    RunConfig,
    TextColumns,
    run_data,
)
from manyheads.config.slurm import SlurmConfig
from manyheads.config.task import Task
from manyheads.config.tune import Method, Prune, TuneConfig

__all__ = [
    "AblateConfig",
    "Accelerator",
    "Activation",
    "BatchConfig",
    "CheckpointConfig",
    "Claim",
    "Cutting",
    "DataConfig",
    "EncoderKind",
    "Equal",
    "EvaluateConfig",
    "ExplainConfig",
    "ExportConfig",
    "Format",
    "GenerateConfig",
    "GuardConfig",
    "HardwareConfig",
    "Hide",
    "InferenceHardware",
    "LoggerConfig",
    "LoggerKind",
    "Long",
    "LookConfig",
    "Members",
    "Method",
    "Metric",
    "ModelConfig",
    "Nonfinite",
    "Norm",
    "Normaliser",
    "OnBadRow",
    "OptimConfig",
    "PairKind",
    "Placement",
    "Pooler",
    "Pooling",
    "Positions",
    "Precision",
    "PredictConfig",
    "PretrainConfig",
    "Prune",
    "Resume",
    "RunConfig",
    "Schedule",
    "Score",
    "Segments",
    "SlurmConfig",
    "Source",
    "Strategy",
    "Task",
    "Terms",
    "TextColumns",
    "TokenizerConfig",
    "TokenizerKind",
    "TuneConfig",
    "run_data",
]
