"""Every knob as a typed dataclass, one file a section. Standard library only."""

from manyheads.config.data import BatchConfig, DataConfig, OnBadRow, Source, TokenizerConfig, TokenizerKind
from manyheads.config.explain import Claim, ExplainConfig
from manyheads.config.hardware import Accelerator, HardwareConfig, LoggerConfig, LoggerKind, Precision, Strategy
from manyheads.config.model import Activation, ModelConfig, Norm, Normaliser, Placement, Pooling, Positions, Score
from manyheads.config.optim import CheckpointConfig, Metric, OptimConfig, Schedule
from manyheads.config.run import EvaluateConfig, InferenceHardware, LookConfig, PredictConfig, RunConfig
from manyheads.config.task import Task

__all__ = [
    "Accelerator",
    "Activation",
    "BatchConfig",
    "CheckpointConfig",
    "Claim",
    "DataConfig",
    "EvaluateConfig",
    "ExplainConfig",
    "HardwareConfig",
    "InferenceHardware",
    "LoggerConfig",
    "LoggerKind",
    "LookConfig",
    "Metric",
    "ModelConfig",
    "Norm",
    "Normaliser",
    "OnBadRow",
    "OptimConfig",
    "Placement",
    "Pooling",
    "Positions",
    "Precision",
    "PredictConfig",
    "RunConfig",
    "Schedule",
    "Score",
    "Source",
    "Strategy",
    "Task",
    "TokenizerConfig",
    "TokenizerKind",
]
