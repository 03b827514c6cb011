"""What the settings of a run ask of its rows, refused by one sentence before torch is imported."""

from typing import Any

from manyheads.config import Balance, DataConfig, Long, PairKind, RunConfig
from manyheads.config.sentences import list_names
from manyheads.data.class_names import ClassLookup
from manyheads.data.rows import Splits
from manyheads.errors import UserError

SHOWN = 12  # class names in a sentence
BYTES_JUDGED, BYTES_CONFUSED = 20, 16  # of an answer, as logits and probabilities; of a cell, as a number and in a list
BYTES_MARKED = 73  # of an answer, where a row has any number of labels
BYTES_MOVED, BYTES_SQUARED = 120, 648  # there by the model and two baselines: of what an answer moves; of two labels


def check_rows(run: RunConfig, splits: Splits) -> None:
    """What settings say of classes and pairs of texts must be in the data."""
    pairs = splits.train.pairs is not None
    check_class_names(run.optim.class_weights, splits.labels)
    check_balance(run.batch.balance, run.optim.class_weights, multi=splits.multi)
    if run.model.pair is PairKind.cross and not pairs:
        raise UserError(
            "model.pair=cross compares two texts, but the data has no second text: name its column by data.text_pair, "
            "or use model.pair=joint"
        )
    check_long(run.data, pairs=pairs)


def check_long(data: DataConfig, *, pairs: bool) -> None:
    """`data.long=windows` reads one text a row."""
    if data.long is Long.windows and pairs:
        raise UserError(
            "data.long=windows reads a long text in parts, but the data has pairs of texts: use data.long=both, or "
            "leave the second text out by data.text_pair="
        )


def check_memory(splits: Splits, memory: int) -> None:
    """Judging by classes must fit into `memory`, in bytes: all answers to the rows of the larger split and, where a row
    has one class, the table of confusions, else what they move the figures by: of each row, or the squares."""
    judged, n_classes = max(splits.test or splits.validation, splits.validation, key=len), len(splits.labels)
    per_class = BYTES_JUDGED * len(judged) + BYTES_CONFUSED * n_classes
    per_label = BYTES_MARKED * len(judged) + min(BYTES_MOVED * len(judged), BYTES_SQUARED * n_classes)
    n_bytes = n_classes * (per_label if splits.multi else per_class)
    if n_bytes > memory:
        raise UserError(
            f"judging {len(judged):,} rows ({judged.source}) by {n_classes:,} classes takes {n_bytes / 1e9:,.0f} GB, "
            f"but this machine has {memory / 1e9:,.0f} GB: join rare classes in the data, or read fewer rows by "
            "data.rows"
        )


def check_balance(balance: Balance, choice: Any, *, multi: bool) -> None:
    """`batch.balance` draws rows by their one class, which `optim.class_weights` do not make up for, too."""
    if multi and balance is not Balance.none:
        raise UserError(
            f"batch.balance={balance.name} draws rows by their class, but rows of this data have any number of "
            "labels: remove it, or weigh labels by optim.class_weights=balanced"
        )
    if choice == "balanced" and balance is not Balance.none:
        raise UserError(
            f"batch.balance={balance.name} and optim.class_weights=balanced would both make up for rare classes: "
            "remove one of them"
        )


def check_class_names(choice: Any, names: list[str]) -> None:
    """`optim.class_weights` must name classes of the data, if it names any."""
    known, choice = ClassLookup(names, any_case=True), choice if isinstance(choice, dict) else {}
    named = {name: known.find(name) for name in choice}
    if unknown := [name for name, of_class in named.items() if of_class not in names]:
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        raise UserError(
            f"optim.class_weights names the class {unknown[0]!r}, which is not in the data: "
            f"the classes are {', '.join(names[:SHOWN])}{more}"
        )
    if len({*named.values()}) < len(named):
        twice = [name for name, of_class in named.items() if [*named.values()].count(of_class) > 1]
        raise UserError(f"optim.class_weights names one class by {list_names(twice[:2])}: give it one weight")
