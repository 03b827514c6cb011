"""Every knob as a typed dataclass, one file a section. Standard library only."""

from manyheads.config.data import BatchConfig, DataConfig, OnBadRow, Source, TokenizerConfig, TokenizerKind
from manyheads.config.hardware import Accelerator, HardwareConfig, LoggerConfig, LoggerKind, Precision, Strategy
from manyheads.config.model import Activation, ModelConfig, Norm, Placement, Pooling, Positions
from manyheads.config.optim import CheckpointConfig, Metric, OptimConfig, Schedule
from manyheads.config.run import EvaluateConfig, InferenceHardware, PredictConfig, RunConfig

__all__ = [
    "Accelerator",
    "Activation",
    "BatchConfig",
    "CheckpointConfig",
    "DataConfig",
    "EvaluateConfig",
    "HardwareConfig",
    "InferenceHardware",
    "LoggerConfig",
    "LoggerKind",
    "Metric",
    "ModelConfig",
    "Norm",
    "OnBadRow",
    "OptimConfig",
    "Placement",
    "Pooling",
    "Positions",
    "Precision",
    "PredictConfig",
    "RunConfig",
    "Schedule",
    "Source",
    "Strategy",
    "TokenizerConfig",
    "TokenizerKind",
]
