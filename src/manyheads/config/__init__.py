"""Every knob as a typed dataclass, one file a section. Standard library only."""

from manyheads.config.ablate import AblateConfig, Equal
from manyheads.config.data import BatchConfig, DataConfig, OnBadRow, Source, TokenizerConfig, TokenizerKind
from manyheads.config.explain import Claim, ExplainConfig
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
    Pooling,
    Positions,
    Score,
    Segments,
)
from manyheads.config.optim import CheckpointConfig, Metric, OptimConfig, Schedule
from manyheads.config.run import EvaluateConfig, InferenceHardware, LookConfig, PredictConfig, Resume, RunConfig
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
    "DataConfig",
    "EncoderKind",
    "Equal",
    "EvaluateConfig",
    "ExplainConfig",
    "GenerateConfig",
    "GuardConfig",
    "HardwareConfig",
    "InferenceHardware",
    "LoggerConfig",
    "LoggerKind",
    "LookConfig",
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
    "Pooling",
    "Positions",
    "Precision",
    "PredictConfig",
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
    "TokenizerConfig",
    "TokenizerKind",
    "TuneConfig",
]
