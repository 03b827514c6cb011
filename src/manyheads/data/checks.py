"""What the settings of a run ask of its rows, refused by one sentence before torch is imported."""

from typing import Any

from manyheads.config import Balance, DataConfig, Long, RunConfig
from manyheads.config.sentences import list_names
from manyheads.data.class_names import ClassLookup
from manyheads.data.rows import Splits
from manyheads.errors import UserError

BYTES_JUDGED, BYTES_CONFUSED = 20, 16  # of an answer, as logits and probabilities; of a cell, as a number and in a list
BYTES_MARKED = 73  # of an answer, where a row has any number of labels
BYTES_MOVED, BYTES_SQUARED = 120, 648  # there by the model and two baselines: of what an answer moves; of two labels


def check_rows(run: RunConfig, splits: Splits) -> None:
    """What settings say of classes and pairs of texts must be in the data."""
    pairs = splits.train.pairs is not None
    check_class_names(run.optim.class_weights, splits.labels)
    check_balance(run.batch.balance, run.optim.class_weights, multi=splits.multi)
    if run.model.reads_apart and not pairs:
        raise UserError(
            f"model.pair={run.model.pair.name} compares two texts, but the data has no second text: name its column by "
            "data.text_pair, or use model.pair=joint"
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
    """What judging by classes holds must fit into `memory`, in bytes.

    That is all answers to the rows of the larger split and the table of confusions. Where a row has any number of
    labels, instead of that table it is what each answer moves the figures by, or the sums of its squares by two labels.
    """
    n_classes, judged = len(splits.labels), splits.validation
    if splits.test is not None and len(splits.test) >= len(judged):
        judged = splits.test
    if splits.multi:
        n_bytes = BYTES_MARKED * len(judged) + min(BYTES_MOVED * len(judged), BYTES_SQUARED * n_classes)
    else:
        n_bytes = BYTES_JUDGED * len(judged) + BYTES_CONFUSED * n_classes
    n_bytes *= n_classes
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
    if not isinstance(choice, dict):
        return
    known = ClassLookup(names, any_case=True)
    typed_by_class: dict[str, list[str]] = {}
    for typed in choice:
        found = known.find(typed)
        if found not in names:
            raise UserError(
                f"optim.class_weights names the class {typed!r}, which is not in the data: the classes are "
                f"{list_names(names)}"
            )
        typed_by_class.setdefault(found, []).append(typed)
    for several in typed_by_class.values():
        if len(several) > 1:
            raise UserError(f"optim.class_weights names one class by {list_names(several[:2])}: give it one weight")
