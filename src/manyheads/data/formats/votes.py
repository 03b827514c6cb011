"""What annotators say of each row, and what it weighs: cells of votes, columns of votes or probabilities, weights.

n rows . V different cells . K names in a table . C classes
"""

import json
import re
from typing import Any

import numpy as np

from manyheads.config.sentences import format_value
from manyheads.data.class_names import ClassLookup, normalise_name
from manyheads.data.columns import ColumnRoles
from manyheads.data.rows import Rows
from manyheads.data.table import Coded, RawTable, coded
from manyheads.data.texts import NOT_UTF8, is_encodable

MOST = 1e12  # of a vote or weight, so that squares have sums
PREFIX = "p_"  # of a column of probabilities in what predict writes
JOINED_OTHERWISE = re.compile(r"[^|:,;]+:\s*[\d.]+\s*([,;])(?:[^|:,;]+:\s*[\d.]+\s*\1)*[^|:,;]+:\s*[\d.]+\s*\1?\s*")
TIME = re.compile(r"\s*(\d+([-/.])\d+\2\d+[ T]+)?([01]?\d|2[0-3])(:[0-5]\d){1,2}\s*")
RANGE = f"a number from 0 to {MOST:g}"


def read_row_weights(cells: Any) -> tuple[np.ndarray, dict[int, str]]:
    """The weights in the cells of a column `(n,)`, float64; and by index why a cell is none."""
    weight_n, wrong = read_numbers(cells)
    return weight_n, {row: f"the weight '{format_value(cell)}' is not {RANGE}" for row, cell in wrong.items()}


def read_numbers(cells: Any, most: float = MOST) -> tuple[np.ndarray, dict[int, Any]]:
    """The numbers in the cells of a column `(n,)`, float64; and by index the cells that are none from 0 to `most`."""
    numbers: list[float] = []
    wrong: dict[int, Any] = {}
    for row, cell in enumerate(cells):
        number = number_in(cell)
        if not 0 <= number <= most:
            wrong[row] = cell
        numbers.append(number)
    return np.array(numbers), wrong


def number_in(cell: Any) -> float:
    """The number in a cell; NaN where there is none."""
    if isinstance(cell, str) and "_" in cell:  # which Python reads as nothing between digits
        return float("nan")
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def read_votes(
    table: RawTable, columns: ColumnRoles, known: ClassLookup | None
) -> tuple[Coded, np.ndarray, dict[int, str]]:
    """The name with the most votes of each row; the votes `(n, K)`, float32, for each of its `values`; and by index why
    a row has none that count, as where they are for none of the `known` classes."""
    if columns.key == "votes":
        names, votes_nK, faults = votes_in_cells(coded(table.column(columns.answer)))
    else:
        names, votes_nK, faults = votes_in_columns(table, columns.label_columns)
    if known is not None and known.names:
        names = [known.find(name) for name in names]
        for at, name in enumerate(names):
            if name not in known.names:
                why = f"it has votes for '{format_value(name)}', which has no row in the training split"
                faults |= dict.fromkeys(np.flatnonzero(votes_nK[:, at]).tolist(), why)
    return Coded(votes_nK.argmax(1).astype(np.int32), names), votes_nK, faults


def votes_in_cells(cells: Coded) -> tuple[list[str], np.ndarray, dict[int, str]]:
    """The names in the cells, the votes of each row for each `(n, K)`, and by index why a row has none."""
    at_name: dict[str, int] = {}
    faults: dict[int, str] = {}
    of_values: list[dict[str, float]] = []
    for code, cell in enumerate(cells.values):
        votes, fault = votes_in(cell)
        if fault:
            faults[code] = fault
        of_values.append(votes)
        for name in votes:
            at_name.setdefault(name, len(at_name))
    votes_VK = np.zeros((len(of_values), max(1, len(at_name))), dtype=np.float32)
    for code, votes in enumerate(of_values):
        for name, number in votes.items():
            votes_VK[code, at_name[name]] = number
    filled = [cell for cell in cells.values if cell not in (None, "")]
    if filled and all(isinstance(cell, str) and TIME.fullmatch(cell) for cell in filled):
        why = f"'{filled[0]}' (data.votes) may be a time or votes, as all cells of the column: write votes as "
        faults |= dict.fromkeys(range(len(cells.values)), why + '{"12": 30}, or name another column')
    return [*at_name] or [""], votes_VK[cells.codes], cells.by_row(faults)


def votes_in(cell: Any) -> tuple[dict[str, float], str]:
    """The votes in a cell, by name; and why they do not count, empty: they do.

    They are names and numbers, `spam:3|ham:1` or as an object of JSON; or names alone, each of one vote,
    `spam|spam|ham` or as a list.
    """
    pairs: list[tuple[Any, Any]] = []
    n_numbers = 0
    shown = f"'{format_value(cell)}' (data.votes)"
    if isinstance(cell, str) and cell.strip()[:1] in ("{", "["):
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError):
            return {}, f"{shown} is not JSON"
    if isinstance(cell, str) and (joined := JOINED_OTHERWISE.fullmatch(cell)):
        return {}, f"{shown} joins votes by '{joined[1]}': join them by |"
    if isinstance(cell, str):
        for part in filter(str.strip, cell.split("|")):
            name, _, number = part.rpartition(":")
            try:
                pairs.append((name, float(number)) if ":" in part and "_" not in number else (part, 1))
            except ValueError:  # a colon within a name
                pairs.append((part, 1))
            n_numbers += pairs[-1][0] is not part
        if 0 < n_numbers < len(pairs):
            return {}, f"{shown} has names with numbers, and others without: give each one, or write JSON"
    elif isinstance(cell, dict):
        pairs = [*cell.items()]
    elif isinstance(cell, list):  # of names, or of pairs, as Arrow gives a map
        pairs = [one if isinstance(one, tuple) and len(one) == 2 else (one, 1) for one in cell]
    elif cell is not None:
        pairs = [(cell, 1)]
    votes: dict[str, float] = {}
    for name, number in pairs:
        found, count = normalise_name(name), 0.0 if number is None else number_in(number)
        if not found or isinstance(name, list | dict | tuple):
            return {}, f"{shown} has a vote that names no class"
        if not is_encodable(found):
            return {}, f"{shown} {NOT_UTF8}"
        if not 0 <= count <= MOST:
            return {}, f"{shown} gives '{format_value(found)}' '{format_value(number)}', which is not {RANGE}"
        votes[found] = votes.get(found, 0.0) + count
    if not np.array([*votes.values()], dtype=np.float32).any():  # as they are counted
        return {}, "it has no votes (data.votes)"
    return votes, ""


def votes_in_columns(table: RawTable, columns: list[str]) -> tuple[list[str], np.ndarray, dict[int, str]]:
    """The same of columns of votes, or of probabilities, each called as its class, all or none after `p_`."""
    votes_nK = np.zeros((len(table.numbers), len(columns)), dtype=np.float32)
    faults: dict[int, str] = {}
    for at, column in enumerate(columns):
        votes_nK[:, at], wrong = read_numbers(table.column(column))
        for row, cell in wrong.items():
            faults[row] = f"'{format_value(cell)}' in the column '{format_value(column)}' is not {RANGE}"
    why = "each of its data.label_columns is 0; any number of labels are given by a column labels, joined by |"
    nothing = np.flatnonzero(~votes_nK.any(1)).tolist()
    if all(column.startswith(PREFIX) for column in columns):
        columns = [column.removeprefix(PREFIX) for column in columns]
    return [*map(normalise_name, columns)], votes_nK, dict.fromkeys(nothing, why) | faults


def count_votes(rows: Rows, class_of_name: list[int | None], n_classes: int) -> None:
    """Make probabilities of the classes of what are votes by name, and classes of the likeliest; of equal ones the
    first.

    Args:
        class_of_name: `(K,)`; two names may mean one class.
    """
    votes_nC = np.zeros((len(rows), n_classes), dtype=np.float32)
    for at, label in enumerate(class_of_name):
        if label is not None:
            votes_nC[:, label] += rows.probabilities[:, at]
    rows.voters = votes_nC.sum(1)
    rows.probabilities = votes_nC / rows.voters[:, None]
    rows.labels = votes_nC.argmax(1).astype(np.int32)  # pyright: ignore[reportAttributeAccessIssue]


def describe_votes(rows: Rows) -> str:
    """What a reader of the log should know: how many votes a row has, and how many rows tie."""
    top_n1 = rows.probabilities.max(1, keepdims=True)
    n_tied = int(((rows.probabilities == top_n1).sum(1) > 1).sum())
    first = "; the first of the classes in their order is its label" if n_tied else ""
    votes = f"{float(rows.voters.mean()):.3g}"
    return (
        f"{rows.source}: {votes} {'vote' if votes == '1' else 'votes'} a row, from whose shares a row is learnt; "
        f"{n_tied:,} of {len(rows):,} rows tie{first}"
    )
