"""Rows to learn from whose label is a node above classes. Standard library and NumPy."""

from typing import Any

import numpy as np

import manyheads.plugin as plugin
from manyheads.config.sentences import format_value, list_names
from manyheads.data.class_names import alike
from manyheads.data.rows import Rows, Splits
from manyheads.errors import UserError
from manyheads.evaluation.further_rows import not_judged
from manyheads.plugins.hierarchy.config import typed_levels
from manyheads.plugins.hierarchy.tree import Tree, kept_lines

LIKELY = "manyheads.plugins.hierarchy.learning:likely_below"  # imports torch


def rows_of_nodes(run: Any, splits: Splits) -> Rows | None:
    """The hook `Section.rows`: the rows whose label is a node, each with equal probabilities of the classes below it,
    unless they are like a row that is judged, or their node is above all classes.

    Raises:
        UserError: the loss of the run knows single classes alone.
    """
    where, rows = typed_levels(run.data), splits.coarse
    if not where:
        return None
    tree = Tree(splits.labels, kept_lines(run.data, splits)["hierarchy"])
    splits.notes.append(f"{where}: {len(splits.labels):,} classes at up to {tree.depth} levels")
    for names in alike({name for line in tree.lines for name in line}, str.casefold):
        if not {*names} <= {*splits.labels}:  # which are compared before
            source, remedy = splits.train.source, "write them alike if they are one"
            splits.notes.append(f"{where}: {source} has levels that differ by case only, {list_names(names)}: {remedy}")
    if rows is None:
        return None
    for name, default in (("objective", "cross_entropy"), ("focal_gamma", 0.0)):
        value = getattr(run.optim, name)
        if value != default:
            raise UserError(
                f"optim.{name}={format_value(value)} knows single classes, but {len(rows):,} rows of {rows.source} "
                "have a label that others are below: remove it, or leave these rows out"
            )
    n_rows = len(rows)
    rows = rows.pick(np.intersect1d(not_judged(run, splits, rows), np.flatnonzero((rows.probabilities == 0).any(1))))
    rows = rows.sample(run.data.rows, run.seed)
    if run.data.train_share < 1:
        rows = rows.sample(max(1, round(run.data.train_share * len(rows))), run.seed)
    splits.notes.append(
        f"{where}: {len(rows):,} of {n_rows:,} rows of {rows.source} whose label is above classes are learnt from, as "
        "any of these"
    )
    if not len(rows):
        return None
    rows.labels = plugin.resolve(LIKELY)(splits, rows)
    rows.any_of = np.ones(len(rows), dtype=bool)
    return rows
