"""What figures cannot say: where rows are few, and where the model was chosen on the rows that it is judged on.

The rule: fewer than 100 judged rows leave a share of them open by ten points and more to either side; fewer than ten
rows of a class say little about it; and what was chosen on fewer than 100 validation rows, or for a label on fewer than
ten that have it, is partly luck.
"""

from collections import Counter
from collections.abc import Sequence

from manyheads.config.plain import listed, show
from manyheads.data.rows import Rows
from manyheads.judge.scores import share_interval

FEW_ROWS = 100
FEW_OF_CLASS = 10
MOST_NAMED = 5


def few_rows(judged: Rows, split: str, names: Sequence[str], validation: Rows | None = None) -> list[str]:
    """One warning, or none.

    Args:
        split: what the judged rows are called.
        names: of the classes or labels; none where rows are answered by texts.
        validation: the rows on which the model was chosen, where they are known.
    """
    said, n = [], len(judged)
    if n < FEW_ROWS:
        middle = share_interval(n // 2, n)
        points = 50 * (middle.high - middle.low)
        said.append(f"{split} has {_rows(n)}: a share of them is known to ±{points:.0f} points at worst")
    counts = rows_of_class(judged, len(names))
    none = [show(names[label]) for label in range(len(names)) if not counts[label]]
    few = [f"{show(names[label])} ({counts[label]})" for label in range(len(names)) if 0 < counts[label] < FEW_OF_CLASS]
    if none:
        said.append(f"{split} has no row of {_some(none)}, of which it says nothing")
    if few:
        what = "their own figures, and what they add to macro F1, may be chance"
        said.append(f"{split} has fewer than {FEW_OF_CLASS} rows of {_some(few)}: {what}")
    if validation is not None and len(validation) < FEW_ROWS:
        said.append(f"what was chosen on the {_rows(len(validation))} of validation is partly luck")
    if validation is not None and validation.sets is not None:
        had = rows_of_class(validation, len(names))
        tuned = [f"{show(names[label])} ({had[label]})" for label in range(len(names)) if had[label] < FEW_OF_CLASS]
        where = f"fewer than {FEW_OF_CLASS} validation rows that have the label"
        said += [f"the thresholds of {_some(tuned)} were tuned on {where}"] if tuned else []
    return [f"few rows: {'; '.join(said)}"] if said else []


def rows_of_class(rows: Rows, n_classes: int) -> list[int]:
    """How many rows have each class or label."""
    ids = rows.labels if rows.sets is None else [label for one in rows.sets for label in one]
    counts = Counter(ids)
    return [counts[label] for label in range(n_classes)]


def chosen_here(split: str, *, linear: bool, multi: bool, classes: bool = True) -> str:
    """What was chosen on the rows of `split`, where it is validation: its figures flatter the model.

    Args:
        linear: a linear model answers, too.
        multi: rows have any number of labels.
        classes: rows are answered by classes or labels.
    """
    if split != "validation":
        return ""
    what = ["epoch", *(["share", "temperatures"] if linear else []), *(["thresholds"] if multi else [])]
    was, lead = "were" if len(what) > 1 else "was", " and lead" if classes else ""
    return (
        f"{_and(what)} {was} chosen on these validation rows: figures{lead} flatter the model, expect less of new texts"
    )


def learnt_here(split: str) -> str:
    """That the rows were learnt from."""
    return "the model learnt from these training rows: the figures say nothing of new texts" if split == "train" else ""


def _rows(n: int) -> str:
    return f"{n:,} row{'s' * (n != 1)}"


def _some(names: list[str]) -> str:
    more = len(names) - MOST_NAMED
    return listed(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _and(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
