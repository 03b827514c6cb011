"""Every setting as a typed field of a dataclass, one file a section. Standard library only.

The names below are imported on first use: the settings of a plugin import those of core that they widen, which ask for
them in turn.
"""

from typing import TYPE_CHECKING, Any

from manyheads.plugin import resolve

if TYPE_CHECKING:
    from manyheads.config.data import Balance as Balance
    from manyheads.config.data import BatchConfig as BatchConfig
    from manyheads.config.data import Cutting as Cutting
    from manyheads.config.data import DataConfig as DataConfig
    from manyheads.config.data import Long as Long
    from manyheads.config.data import MergeLabels as MergeLabels
    from manyheads.config.data import OnBadRow as OnBadRow
    from manyheads.config.data import Predictions as Predictions
    from manyheads.config.data import TokenizerConfig as TokenizerConfig
    from manyheads.config.data import TokenizerKind as TokenizerKind
    from manyheads.config.inference import EvaluateConfig as EvaluateConfig
    from manyheads.config.inference import InferenceHardware as InferenceHardware
    from manyheads.config.inference import Member as Member
    from manyheads.config.inference import OnBadText as OnBadText
    from manyheads.config.inference import PredictConfig as PredictConfig
    from manyheads.config.inference import ReportConfig as ReportConfig
    from manyheads.config.inference import ReportFormat as ReportFormat
    from manyheads.config.inference import RunsConfig as RunsConfig
    from manyheads.config.inference import TextColumns as TextColumns
    from manyheads.config.inference import run_data as run_data
    from manyheads.config.model import ModelConfig as ModelConfig
    from manyheads.config.model import PairKind as PairKind
    from manyheads.config.model import Placement as Placement
    from manyheads.config.model import Pooler as Pooler
    from manyheads.config.model import Segments as Segments
    from manyheads.config.model import Terms as Terms
    from manyheads.config.run import Resume as Resume
    from manyheads.config.run import RunConfig as RunConfig
    from manyheads.config.training import Accelerator as Accelerator
    from manyheads.config.training import CheckpointConfig as CheckpointConfig
    from manyheads.config.training import GuardConfig as GuardConfig
    from manyheads.config.training import HardwareConfig as HardwareConfig
    from manyheads.config.training import LoggerConfig as LoggerConfig
    from manyheads.config.training import Nonfinite as Nonfinite
    from manyheads.config.training import OptimConfig as OptimConfig
    from manyheads.config.training import Precision as Precision
    from manyheads.config.training import Schedule as Schedule
    from manyheads.config.training import Strategy as Strategy

FILES = ("data", "model", "training", "run", "inference")  # each imports those before it alone, so that train, which
# is asked for first, makes none of the settings of other verbs


def __getattr__(name: str) -> Any:
    for file in FILES if name[:1].isupper() or name == "run_data" else ():
        module = resolve(f"manyheads.config.{file}:")
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module 'manyheads.config' has no attribute {name!r}")
