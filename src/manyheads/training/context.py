"""What one training has, from its settings to its loggers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from manyheads.config import RunConfig
from manyheads.runs.resume import Start

if TYPE_CHECKING:
    from lightning.pytorch.callbacks import Callback
    from lightning.pytorch.loggers import Logger
    from tokenizers import Tokenizer
    from torch import nn

    from manyheads.data.rows import Splits
    from manyheads.data.tokens import Tokens
    from manyheads.training.build import Network


@dataclass(slots=True, kw_only=True)
class RunContext:
    """One training. `training_run.train` begins it, the steps of pipeline.py fill it in; it does nothing itself.

    Attributes:
        run: the settings, resolved as far as the steps before have resolved them.
        typed: the settings before that.
        splits: the rows.
        start: from scratch, or the checkpoint that the run resumes from.
        began: `perf_counter()` when the run began, less the seconds that it took before it was resumed.
        callbacks: the user's own.
        user_network: the user's own module, in place of the network that the settings describe.
        notes: lines for the head of the log, about what is resumed.
        tokenizer: of the network, or learned from the training rows.
        tokens: token ids by split.
        network: the network, trained in place.
        folder: of the run.
        loggers: those of plugins; metrics.csv is always written.
        files: digests of the files that the network began with, by setting.
    """

    run: RunConfig
    typed: RunConfig
    splits: "Splits"
    start: Start = field(default_factory=Start)
    began: float = 0.0
    callbacks: "Sequence[Callback]" = ()
    user_network: "nn.Module | None" = None
    notes: list[str] = field(default_factory=list)
    tokenizer: "Tokenizer" = field(init=False)
    tokens: "dict[str, Tokens]" = field(init=False)
    network: "Network" = field(init=False)
    folder: Path = field(init=False)
    loggers: "Sequence[Logger]" = ()
    files: dict[str, str] = field(default_factory=dict)
