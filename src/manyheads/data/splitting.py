"""Carving a split out of another, and shortening one: by class, by seed, equal texts together."""

import random
from collections import defaultdict

from manyheads.data.rows import Rows


def carve(rows: Rows, share: float, seed: int, purpose: str) -> tuple[Rows, Rows]:
    """Split `rows` into the rows kept and a stratified `share` of them; both keep the order of `rows`.

    Equal texts stay on one side, so that no text is in both. A class keeps at least one text. The same rows, share,
    seed and purpose give the same result on every machine.

    Raises:
        ValueError: there are too few rows to carve one out, or no two of a class.
    """
    carved: set[int] = set()
    groups_by_class = _groups(rows)
    wanted = _wanted({label: sum(map(len, groups)) for label, groups in groups_by_class.items()}, share)
    for label, groups in sorted(groups_by_class.items()):
        random.Random(f"{seed} {purpose} {label}").shuffle(groups)  # noqa: S311 - a draw, not a secret
        carved.update(_first_groups(groups, wanted[label]))
    if not carved:
        largest = max(groups_by_class.values(), key=len, default=[])
        if len(largest) < 2:
            raise ValueError(_too_few(rows, len(groups_by_class), purpose))
        carved.update(largest[0])
    everything = range(len(rows))
    return rows.pick([i for i in everything if i not in carved]), rows.pick([i for i in everything if i in carved])


def _too_few(rows: Rows, n_classes: int, purpose: str) -> str:
    if n_classes > 2:
        return (
            f"{rows.source} has {n_classes:,} labels, each of one text alone, so that nothing can be learnt from them: "
            "check data.label, the column of the label"
        )
    return (
        f"{rows.source} has {len(rows)} rows, too few to carve a {purpose} split out: "
        "give a file for each split, or more rows"
    )


def _wanted(sizes: dict[int, int], share: float) -> dict[int, int]:
    """Rows to carve out of each class: its share, rounded. Where classes are so small that this is less than half of
    what is wanted in all, those that would give none give a row each, as many as are wanted, the largest first."""
    wanted = {label: round(share * size) for label, size in sizes.items()}
    n_lacking = round(share * sum(sizes.values())) - sum(wanted.values())
    if n_lacking > sum(wanted.values()):
        without = [label for label in sorted(sizes, key=lambda label: (-sizes[label], label)) if not wanted[label]]
        wanted |= dict.fromkeys(without[:n_lacking], 1)
    return wanted


def shorten(rows: Rows, n_rows: int, seed: int) -> Rows:
    """At most `n_rows` rows drawn by `seed`, one of every class first where they fit."""
    if n_rows == 0 or len(rows) <= n_rows:
        return rows
    order = list(range(len(rows)))
    random.Random(f"{seed} rows").shuffle(order)  # noqa: S311 - a draw, not a secret
    first_of_class: dict[int, int] = {}
    for index in order:
        first_of_class.setdefault(rows.labels[index], index)
    chosen = dict.fromkeys([*first_of_class.values(), *order])
    return rows.pick(sorted(list(chosen)[:n_rows]))


def _groups(rows: Rows) -> dict[int, list[list[int]]]:
    """Indices of equal texts, by the class of the first of them."""
    by_content: dict[object, list[int]] = defaultdict(list)
    for index, content in enumerate(rows.contents()):
        by_content[content].append(index)
    by_class: dict[int, list[list[int]]] = defaultdict(list)
    for group in by_content.values():
        by_class[rows.labels[group[0]]].append(group)
    return by_class


def _first_groups(groups: list[list[int]], wanted: int) -> list[int]:
    """Rows of as many groups as fit into `wanted`, the last group never among them."""
    taken: list[int] = []
    for group in groups[:-1]:
        if len(taken) + len(group) <= wanted:
            taken += group
    return taken
