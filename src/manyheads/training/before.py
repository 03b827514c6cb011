"""Settings checked against this machine and the data before the first step.

What this machine lacks and what is not in the data is refused, by a `ValueError` of one sentence, before torch is
imported: standard library only.
"""

from importlib.util import find_spec
from typing import Any

from manyheads.config import (
    Balance,
    DataConfig,
    LoggerConfig,
    Long,
    PairKind,
    RunConfig,
    TuneConfig,
)
from manyheads.data.rows import Splits

SHOWN = 12  # class names in a sentence
BYTES_JUDGED, BYTES_CONFUSED = 20, 16  # of an answer, as logits and probabilities; of a cell, as a number and in a list
BYTES_MARKED, BYTES_DRAWN = 73, 73_000  # where a row has any number of labels: of an answer; of a label, resampled


def check_end(trainer: dict[str, Any]) -> None:
    """Training must end after some epochs or steps: the learning rate falls towards that end."""
    if all(trainer.get(limit) in (None, -1) for limit in ("max_epochs", "max_steps")):
        raise ValueError(
            "trainer.max_epochs=-1 and trainer.max_steps=-1 leave training without an end: set one of them"
        )


def check_logger(logger: LoggerConfig) -> None:
    """The package of each tracker, which has its name, must be installed."""
    for name in logger.trackers():
        if not find_spec(name) and not (name == "tensorboard" and find_spec("tensorboardX")):
            raise ValueError(f"logger={name} needs a package that is not installed: pip install 'manyheads[track]'")


def check_rows(run: RunConfig | TuneConfig, splits: Splits) -> None:
    """What settings say of classes and pairs of texts must be in the data."""
    pairs = splits.train.pairs is not None
    check_class_names(run.optim.class_weights, splits.labels)
    check_balance(run.batch.balance, run.optim.class_weights, multi=splits.multi)
    if run.model.pair is PairKind.cross and not pairs:
        raise ValueError(
            "model.pair=cross compares two texts, but the data has no second text: name its column by data.text_pair, "
            "or use model.pair=joint"
        )
    check_long(run.data, pairs=pairs)


def check_long(data: DataConfig, *, pairs: bool) -> None:
    """`data.long=windows` reads one text a row."""
    if data.long is Long.windows and pairs:
        raise ValueError(
            "data.long=windows reads a long text in parts, but the data has pairs of texts: use data.long=both, or "
            "leave the second text out by data.text_pair="
        )


def check_size(splits: Splits, memory: int) -> None:
    """Judging by classes must fit into `memory`, in bytes: all answers to the rows of the larger split and, where a row
    has one class, the table of confusions, else the figures of each label in every resample."""
    judged, n_classes = max(splits.test or splits.validation, splits.validation, key=len), len(splits.labels)
    per_class = BYTES_JUDGED * len(judged) + BYTES_CONFUSED * n_classes
    n_bytes = n_classes * (BYTES_MARKED * len(judged) + BYTES_DRAWN if splits.multi else per_class)
    if n_bytes > memory:
        raise ValueError(
            f"judging {len(judged):,} rows ({judged.source}) by {n_classes:,} classes takes {n_bytes / 1e9:,.0f} GB, "
            f"but this machine has {memory / 1e9:,.0f} GB: join rare classes in the data, or read fewer rows by "
            "data.rows"
        )


def check_balance(balance: Balance, choice: Any, *, multi: bool) -> None:
    """`batch.balance` draws rows by their one class, which `optim.class_weights` do not make up for, too."""
    if multi and balance is not Balance.none:
        raise ValueError(
            f"batch.balance={balance.name} draws rows by their class, but rows of this data have any number of "
            "labels: remove it, or weigh labels by optim.class_weights=balanced"
        )
    if choice == "balanced" and balance is not Balance.none:
        raise ValueError(
            f"batch.balance={balance.name} and optim.class_weights=balanced would both make up for rare classes: "
            "remove one of them"
        )


def check_class_names(choice: Any, names: list[str]) -> None:
    """`optim.class_weights` must name classes of the data, if it names any."""
    unknown = [name for name in choice if name not in names] if isinstance(choice, dict) else []
    if unknown:
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        raise ValueError(
            f"optim.class_weights names the class {unknown[0]!r}, which is not in the data: "
            f"the classes are {', '.join(names[:SHOWN])}{more}"
        )
