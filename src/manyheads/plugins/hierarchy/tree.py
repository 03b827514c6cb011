"""A tree of labels: classes are its leaves, and what is above them are nodes.

n rows . C classes . G nodes of a level
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from manyheads.config.sentences import format_value, list_names
from manyheads.data.class_names import ClassLookup
from manyheads.data.opening import named_table
from manyheads.errors import UserError
from manyheads.plugins.hierarchy.config import typed_levels

NO_NODE = -1
MOST_LEVELS = 64


def label_lines(data: Any, names: Sequence[str]) -> list[list[str]]:
    """The nodes from the top to each label, which is the last one.

    Raises:
        UserError: two labels are one path, none has levels, or the file of parents is missing, broken or not a tree.
    """
    if data.parents:
        return _lines_by_file(data, names)
    lines: list[list[str]] = []
    known: dict[str, str] = {}
    for name in names:
        parts = [part.strip() for part in name.split(data.hierarchy) if part.strip()] or [name]
        lines.append([data.hierarchy.join(parts[:end]) for end in range(1, len(parts) + 1)])
        other = known.setdefault(lines[-1][-1], name)
        if other != name:
            raise UserError(
                f"{typed_levels(data)}: the labels '{format_value(other)}' and '{format_value(name)}' are one path: "
                "write them alike"
            )
    if all(len(line) == 1 for line in lines):
        raise UserError(
            f"{typed_levels(data)} is between no levels of the labels, which are {list_names([*names])}: name another "
            "sign, or remove it"
        )
    return lines


def _lines_by_file(data: Any, names: Sequence[str]) -> list[list[str]]:
    table, where = named_table("data.parents", data.parents, ("label", "parent")), typed_levels(data)
    known, parents = ClassLookup(names, any_case=True), dict[str, str]()
    for row, *cells in zip(table.numbers, table.column("label"), table.column("parent"), strict=True):
        label, parent = map(known.find, cells)
        if parents.setdefault(label, parent) != parent:
            raise UserError(
                f"{where}, row {row:,}: the parent of '{format_value(label)}' is '{format_value(parent)}', but above "
                f"'{format_value(parents[label])}': give it one"
            )
    if not any(parents.get(name) for name in names):
        raise UserError(f"{where} has no parent of any of the labels, which are {list_names([*names])}: give some")
    lines = []
    for name in names:
        line = [name]
        while parent := parents.get(line[0], ""):
            if parent in line:
                raise UserError(f"{where}: '{format_value(parent)}' is above itself: a label is no part of its parts")
            line.insert(0, parent)
        lines.append(line)
    return lines


def finder(data: Any) -> Callable[..., dict[str, list[str]]] | None:
    """The hook `Section.coarse`: labels that have others below them stand for the classes there."""

    def find(names: list[str], *, multi: bool) -> dict[str, list[str]]:
        if multi:
            raise UserError(
                f"{typed_levels(data)} is for rows of one class, but these have any number of labels: remove it"
            )
        lines = label_lines(data, names)
        nodes, below = {node for line in lines for node in line[:-1]}, defaultdict[str, list[str]](list)
        for name, line in zip(names, lines, strict=True):
            if line[-1] not in nodes:
                for node in line[:-1]:
                    below[node].append(name)
        spelled = {name: below[line[-1]] for name, line in zip(names, lines, strict=True) if line[-1] in nodes}
        return below | spelled

    return find if typed_levels(data) else None


def kept_lines(data: Any, splits: Any) -> dict[str, Any]:
    """The hook `Section.keep`: the nodes above each class, in the order of the classes."""
    if not typed_levels(data):
        return {}
    return {"hierarchy": [line[:-1] for line in label_lines(data, splits.labels)]}


class Tree:
    """The tree of a model. Levels that all classes share, which say nothing of a text, are left out.

    Args:
        labels: the classes.
        above: the nodes above each class, the topmost first, as config.json has them.

    Attributes:
        lines: of each node its name after those above it, from the top.
        depth: how many levels there are.
        node_CD: the node of each class at each level; a class that ends above a level counts there as itself.

    Raises:
        UserError: `above` is no such list.
    """

    def __init__(self, labels: Sequence[str], above: Any) -> None:
        are_lists = isinstance(above, list) and all(isinstance(line, list) for line in above)
        if not are_lists or len(above) != len(labels) or not all(type(one) is str for line in above for one in line):
            raise UserError("kept.hierarchy in config.json is not a list of the nodes above each class")
        if max(map(len, above)) > MOST_LEVELS:
            raise UserError(f"a class has {max(map(len, above))} levels above it: at most {MOST_LEVELS} are possible")
        ways = [(*line, label) for line, label in zip(above, labels, strict=True)]
        while len(ways) > 1 and min(map(len, ways)) > 1 and len({way[0] for way in ways}) == 1:
            ways = [way[1:] for way in ways]
        self.depth = max(map(len, ways))
        ids: dict[tuple[str, ...], int] = {}  # by the way from the top: nodes of one name may be several
        for way in ways:
            for end in range(self.depth):
                ids.setdefault(way[: end + 1], len(ids))
        self.lines = [[*way] for way in ids]
        self.node_CD = np.array([[ids[way[: end + 1]] for end in range(self.depth)] for way in ways])

    def level(self, at: int) -> tuple[int, Any]:
        """How many nodes a level has, from 0, and which of them, from 0, each class belongs to `(C,)`."""
        nodes_G, of_C = np.unique(self.node_CD[:, at], return_inverse=True)
        return len(nodes_G), of_C.reshape(-1)

    def deepest(self, probabilities_nC: Any, sure: float) -> tuple[Any, Any]:
        """The deepest node of each row whose probability, the sum of those of its classes, is at least `sure`, and that
        probability `(n,)`: from the top to the likeliest node below, and so on; `NO_NODE` and 0 where none is. With
        `sure` of 0 it is the likeliest class."""
        at_n = np.arange(len(probabilities_nC))
        if not sure:
            likeliest_n = probabilities_nC.argmax(1)
            return self.node_CD[likeliest_n, -1], probabilities_nC[at_n, likeliest_n]
        node_n, probability_n, is_sure_n = np.full(len(at_n), NO_NODE), np.zeros(len(at_n)), np.ones(len(at_n), bool)
        is_below_nC = np.ones(probabilities_nC.shape, dtype=bool)
        for level in range(self.depth):
            _, of_C = self.level(level)
            sums_nC = np.where(is_below_nC, sums(probabilities_nC, of_C)[:, of_C], -1.0)
            likeliest_n = sums_nC.argmax(1)
            sum_n, chosen_n = sums_nC[at_n, likeliest_n], self.node_CD[likeliest_n, level]
            is_sure_n &= sum_n >= sure
            node_n, probability_n = np.where(is_sure_n, (chosen_n, sum_n), (node_n, probability_n))
            is_below_nC &= self.node_CD[:, level] == chosen_n[:, None]
        return node_n.astype(np.int64), probability_n


def sums(probabilities_nC: Any, of_C: Any) -> Any:
    """The sums `(n, G)` of the probabilities of the classes of each node; `of_C` are the nodes of the classes."""
    order_C = np.argsort(of_C, kind="stable")
    starts_G = np.searchsorted(of_C[order_C], np.arange(of_C.max() + 1))
    return np.add.reduceat(probabilities_nC[:, order_C], starts_G, axis=1)
