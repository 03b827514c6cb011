"""Which rows are train, validation and test where no file says so: carved out by class, dealt to folds, or sampled.

Rows of a group, or of equal texts, stay together. The order is drawn by `random.Random` from a text that names the seed
and the purpose, so that it is the same on every machine.
"""

import random
from collections import Counter, defaultdict
from typing import Any

from manyheads.config.sentences import count_rows
from manyheads.data.rows import Rows, group_ids
from manyheads.errors import UserError


def carve(rows: Rows, share: float, seed: int, purpose: str) -> tuple[Rows, Rows]:
    """Split `rows` into the rows kept and a stratified `share` of them; both keep the order of `rows`.

    Rows of a group stay on one side, or where there are none those of one text, so that no text is in both. A class
    keeps at least one text.

    Args:
        purpose: what the share is for, such as "validation"; it takes part in the draw.

    Raises:
        UserError: there are too few rows to carve one out, or no two of a class.
    """
    import numpy as np

    from manyheads.data.hashes import firsts_by_class, repeats

    # the first row of each group stands for it: classes and draws count these, and the others follow
    later, firsts = repeats(group_ids(rows))
    others: dict[int, list[int]] = defaultdict(list)
    for row, first in zip(later.tolist(), firsts.tolist(), strict=True):
        others[first].append(row)
    by_class = firsts_by_class(rows.labels, later)
    sizes = {label: len(of_class) for label, of_class in by_class.items()}
    for first, more in others.items():
        sizes[int(rows.labels[first])] += len(more)
    wanted = _rows_to_carve(sizes, share)
    is_carved = np.zeros(len(rows), dtype=bool)
    drawn_first: dict[int, int] = {}
    for label, of_class in sorted(by_class.items()):  # one class in memory at a time
        order = shuffled(of_class, f"{seed} {purpose} {label}")
        drawn_first[label] = order[0]
        is_carved[_fill(wanted[label], order, others)] = True
    if not is_carved.any():  # one text at least, of the largest class
        largest = max(by_class, key=lambda label: len(by_class[label]))
        if len(by_class[largest]) < 2:
            raise UserError(_too_few(rows, len(by_class), len(rows) - len(later), purpose))
        first = drawn_first[largest]
        is_carved[[first, *others[first]]] = True
    return rows.pick(np.flatnonzero(~is_carved)), rows.pick(np.flatnonzero(is_carved))


def _rows_to_carve(sizes: dict[int, int], share: float) -> dict[int, int]:
    """Rows to carve out of each class: its share, rounded. Where classes are so small that this is less than half of
    what is wanted in all, those that would give none give a row each, as many as are wanted, the largest first."""
    wanted = {label: round(share * size) for label, size in sizes.items()}
    n_wanted = sum(wanted.values())
    n_lacking = round(share * sum(sizes.values())) - n_wanted
    if n_lacking > n_wanted:
        largest_first = sorted(sizes, key=lambda label: (-sizes[label], label))
        giving_none = [label for label in largest_first if not wanted[label]]
        wanted |= dict.fromkeys(giving_none[:n_lacking], 1)
    return wanted


def _fill(n_wanted: int, order: list[int], others: dict[int, list[int]]) -> list[int]:
    """At most `n_wanted` rows of a class, in whole groups; the last group of the `order` always stays."""
    found: list[int] = []
    for first in order[:-1]:
        if len(found) == n_wanted:
            break
        group = [first, *others.get(first, [])]
        if len(found) + len(group) <= n_wanted:
            found += group
    return found


def _too_few(rows: Rows, n_classes: int, n_groups: int, purpose: str) -> str:
    if n_classes > 2:
        return (
            f"{rows.source} has {n_classes:,} labels, each of one text alone, so that nothing can be learnt from them: "
            "check data.label, the column of the label"
        )
    what, remedy = count_rows(len(rows)), "give a file for each split, or more rows"
    if n_groups < len(rows):
        group = "text" if rows.groups is None else "group"
        what += f" of {n_groups} {group}{'s' * (n_groups != 1)}"
        if rows.groups is None:
            remedy = "check data.text, the column of the text, or give a file for each split"
    return f"{rows.source}: {what} are too few to carve a {purpose} split out of them: {remedy}"


def assign_folds(rows: Rows, n_folds: int, seed: int) -> Any:
    """The fold of each row, from 1: int64 `(n,)`.

    Rows of a group, or of one text, are in one fold: the largest groups come first, each to the fold that has the least
    of their classes. Where all groups are single rows, two folds differ by one row at most, of each class and of all.

    Raises:
        UserError: there are fewer groups than folds.
    """
    import numpy as np

    from manyheads.data.hashes import repeats

    labels = np.asarray(rows.labels).tolist()
    later, firsts = repeats(group_ids(rows))
    order = shuffled(np.delete(np.arange(len(rows)), later), f"{seed} folds")
    groups = {first: [first] for first in order}
    for row, first in zip(later.tolist(), firsts.tolist(), strict=True):
        groups[first].append(row)
    if len(groups) < n_folds:
        what = "texts" if rows.groups is None else "groups"
        raise UserError(f"data.folds={n_folds}, but {rows.source} has {len(groups)} different {what}: use fewer folds")
    sizes = Counter(labels)
    counts = [Counter[int]() for _ in range(n_folds)]  # rows of each class in a fold
    n_rows = [0] * n_folds
    fold_n = np.zeros(len(rows), dtype=np.int64)

    def crowding(fold: int, classes: Counter[int]) -> float:
        """How much of these classes a fold holds already."""
        return sum(n * counts[fold][label] / sizes[label] for label, n in classes.items())

    for group in sorted(groups.values(), key=lambda group: (-len(group), labels[group[0]])):
        classes = Counter(labels[row] for row in group)
        costs = [(crowding(fold, classes), n_rows[fold]) for fold in range(n_folds)]
        least = costs.index(min(costs))
        fold_n[group] = least + 1
        counts[least].update(classes)
        n_rows[least] += len(group)
    return fold_n


def stratified_sample(rows: Rows, n_rows: int, seed: int) -> Rows:
    """At most `n_rows` rows, in their own order: as large a share of each class, one row of every class first where
    they fit. Fewer rows by the same seed are among these. All rows if `n_rows` is 0."""
    import numpy as np

    from manyheads.data.hashes import firsts_by_class

    if n_rows == 0 or len(rows) <= n_rows:
        return rows
    # rows come by the share of their class that is drawn before them, and of equal ones those of larger classes
    share_before_n = np.empty(len(rows))
    class_size_n = np.empty(len(rows))
    for label, of_class in firsts_by_class(rows.labels, np.empty(0, dtype=np.int64)).items():
        share_before_n[shuffled(of_class, f"{seed} rows {label}")] = np.arange(len(of_class)) / len(of_class)
        class_size_n[of_class] = len(of_class)
    return rows.pick(np.sort(np.lexsort((-class_size_n, share_before_n))[:n_rows]))


def shuffled(rows: Any, key: str) -> list[int]:
    """The rows in an order that depends on their number and `key` alone, on every machine."""
    order = [int(row) for row in rows]
    random.Random(key).shuffle(order)  # noqa: S311 - a draw, not a secret
    return order
