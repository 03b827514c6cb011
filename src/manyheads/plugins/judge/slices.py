"""Where a classifier is good and where it is bad: figures of parts of the rows, each tested against all other rows.

Of parts that were typed, such as texts by their length, each is tested by Fisher's exact test of the rows that are
right, and p-values are corrected for the number of tests: Holm (1979), "A Simple Sequentially Rejective Multiple Test
Procedure". The worst parts are searched by a shallow tree on one half of the rows and tested on the other, as what is
searched among many always looks bad where it was found.

n rows . S slices
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import fisher_exact

from manyheads.data.rows import Rows
from manyheads.errors import UserError
from manyheads.evaluation.answered import AnsweredRows, LogitStore
from manyheads.evaluation.evaluation import Finding
from manyheads.evaluation.intervals import Bools, share_interval
from manyheads.evaluation.logits import join_chunks
from manyheads.evaluation.metrics import chunks, score_answers
from manyheads.evaluation.report import ReportSection, ReportTable
from manyheads.evaluation.statistics import holm
from manyheads.inference.classifier import rows_at_once
from manyheads.linear.near_repeats import both_texts
from manyheads.plugins.judge.outliers import script_of
from manyheads.runs.result_table import Cell, ResultTable
from manyheads.runs.summary import Interval

FEWEST = 30  # rows of a slice that is judged
MOST_VALUES = 20  # of a column, each of which is a slice; others are one slice together, or numbers cut into quarters
MOST_COUNTED = 10_000  # different values of a column
MOST_OF_TREE = MOST_COUNTED // 100  # different values of a column that the tree looks at
PARTS = (0.25, 0.5, 0.75)  # of the rows, at which numbers are cut
CONFIDENCES = (0.5, 0.7, 0.9, 0.99)
SURE = 0.05  # a corrected p-value below it
DEPTH, MOST_SEARCHED, MOST_WORDS = 3, 50_000, 200  # of the tree that finds the worst slices
WORST = 3  # of its leaves that are tested, and slices named on the screen
WORD = re.compile(r"\w+")
LARGEST = float(np.finfo(np.float32).max)  # that the tree takes
OTHER, NOTHING = "(other)", "(empty)"


@dataclass(slots=True)
class Cut:
    """One way to cut the rows: `masks` says which of the slices `names` each row of a chunk is in `(n, S)`."""

    by: str
    names: list[str]
    masks: Callable[[AnsweredRows], Bools]


def slices(config: Any, stored: LogitStore) -> Finding:
    """The slices that the settings name."""
    return find_slices(stored, config.slices, config.seed)


def find_slices(stored: LogitStore, slices: Sequence[str], seed: int = 0) -> Finding:
    """Figures and tests of the `slices` that are named; `seed` draws the rows by which the worst are found.

    Raises:
        UserError: a column has too many values.
    """
    names, notes = [one for one in slices if one != "worst"], list[str]()
    if stored.multi and "confidence" in names:
        names.remove("confidence")
        notes.append("confidence cuts no slices, as rows with any number of labels have no confidence of one answer")
    lines = _score_slices([_cut(by, stored) for by in names], stored)
    if "worst" in slices:
        lines += _worst(stored, seed)
    tested = [line for line in lines if "p" in line]
    for line, p in zip(tested, holm([line["p"] for line in tested]), strict=True):
        line["p_holm"] = p
    bad = []  # significantly worse than the rest; not by confidence, as a model errs where it is unsure
    for line in lines:
        if line["by"] != "confidence" and line.get("p_holm", 1.0) < SURE and line["accuracy"]["value"] < line["rest"]:
            bad.append(line)
    bad.sort(key=lambda one: one["accuracy"]["value"])
    said = []
    for one in bad[:WORST]:
        said.append(
            f"slice: {one['by']} {one['slice']}: accuracy {one['accuracy']['value']:.1%} on {one['n_rows']:,} rows, "
            f"{one['rest']:.1%} on the rest (Holm p = {one['p_holm']:.2g})"
        )
    (table,) = slice_tables({"slices": lines})
    shown = ReportTable(table.columns, table.in_words(), "wwnnnnn")
    return Finding("slices", lines, [ReportSection("Slices", shown, [*notes, *table.notes], long=True)], said)


def _row_chunks(stored: LogitStore) -> Iterator[Rows]:
    """All rows, in chunks that fit into memory."""
    rows, step = stored.rows, rows_at_once(len(stored.names))
    for start in range(0, len(rows), step):
        yield rows.pick(np.arange(start, min(start + step, len(rows))))


def _cut(by: str, stored: LogitStore) -> Cut:
    """The cut that the settings name `by`."""
    kind, _, column = by.partition(":")
    if kind == "label":
        return Cut(by, stored.names, lambda answered: answered.marks_nC)
    if kind == "confidence":
        names = [f"{low:g} to {high:g}" for low, high in pairwise([0.0, *CONFIDENCES, 1.0])]

        def by_confidence(answered: AnsweredRows) -> Bools:
            return _one_hot(np.digitize(answered.probabilities_nC.max(1), CONFIDENCES), len(names))

        return Cut(by, names, by_confidence)
    if kind == "length":
        counted = Counter[float]()
        for rows in _row_chunks(stored):
            counted.update(n_characters(rows))
        return _cut_numbers(by, counted, n_characters, "characters")

    def values(rows: Rows) -> list[str]:
        if kind == "script":
            return [script_of(text) for text in rows.texts]
        return cells_of(rows, column)

    counted = _count_values(by, stored, values)
    numbers = as_numbers(counted.keys() - {NOTHING}) if kind == "column" and len(counted) > MOST_VALUES else None
    if numbers is None:
        return _cut_values(by, counted, values)
    of_numbers = Counter[float]()
    for name, number in numbers.items():
        of_numbers[number] += counted[name]
    empty = NOTHING if NOTHING in counted else ""
    return _cut_numbers(by, of_numbers, lambda rows: [numbers.get(name, np.nan) for name in values(rows)], "", empty)


def _cut_values(by: str, counted: Counter[str], values: Callable[[Rows], list[str]]) -> Cut:
    """A slice for each of the most frequent values, and one for all others."""
    names = [name for name, _ in counted.most_common(MOST_VALUES)]
    slice_of = {name: index for index, name in enumerate(names)}
    other = len(names)
    if len(counted) > len(names):
        names.append(OTHER)

    def masks(answered: AnsweredRows) -> Bools:
        return _one_hot([slice_of.get(value, other) for value in values(answered.rows)], len(names))

    return Cut(by, names, masks)


def _cut_numbers(
    by: str, counted: Counter[float], values: Callable[[Rows], list[Any]], unit: str, empty: str = ""
) -> Cut:
    """Into quarters of the rows, by numbers that were `counted`; fewer slices where many rows have the same number.
    Rows whose value is NaN are the slice `empty`."""
    numbers = np.array(sorted(counted))
    n_up_to = np.cumsum([counted[number] for number in numbers.tolist()])  # rows with this number or a smaller one
    bounds = {float(numbers[np.searchsorted(n_up_to, part * n_up_to[-1])]) for part in PARTS}
    edges = sorted(bounds - {float(numbers[-1])})
    names = ["all"]
    if edges:
        words = [format_bound(edge) for edge in edges]
        between = [f"above {low} to {high}" for low, high in pairwise(words)]
        names = [f"up to {words[0]}", *between, f"above {words[-1]}"]
    names = [f"{name} {unit}".rstrip() for name in names] + [empty] * bool(empty)

    def masks(answered: AnsweredRows) -> Bools:
        values_n = np.array(values(answered.rows), dtype=np.float64)
        slice_n = np.digitize(values_n, edges, right=True)
        return _one_hot(np.where(np.isnan(values_n), len(names) - 1, slice_n), len(names))

    return Cut(by, names, masks)


def _count_values(by: str, stored: LogitStore, values: Callable[[Rows], list[str]]) -> Counter[str]:
    """How many rows have each value."""
    counted = Counter[str]()
    for rows in _row_chunks(stored):
        counted.update(values(rows))
        if len(counted) > MOST_COUNTED:
            raise UserError(
                f"slices={by} has more than {MOST_COUNTED:,} different values in {stored.rows.source}: name a column "
                "that groups rows"
            )
    return counted


def as_numbers(values: Iterable[str]) -> dict[str, float] | None:
    """The values of a column as numbers; None where one of them is none."""
    found = {}
    for value in values:
        try:
            found[value] = float(value)
        except ValueError:
            return None
        if not math.isfinite(found[value]):
            return None
    return found


def format_bound(bound: float) -> str:
    """With all digits of a date or a time in seconds."""
    return f"{bound:.{7 if abs(bound) < 1e6 else 15}g}"


def _one_hot(slice_n: Sequence[int] | np.ndarray, n_slices: int) -> Bools:
    """Which slice each row is in `(n, S)`, by the number of its slice."""
    return np.asarray(slice_n)[:, None] == np.arange(n_slices)


def n_characters(rows: Rows) -> list[int]:
    """Characters of the text, or of both."""
    if rows.pairs is None:
        return [len(text) for text in rows.texts]
    return [len(text) + len(pair) for text, pair in zip(rows.texts, rows.pairs, strict=True)]


def cells_of(rows: Rows, column: str) -> list[str]:
    """The cells of a column that is not read, as texts."""
    assert rows.unread is not None, "evaluate requires the columns"
    cells = rows.unread.columns()[column]
    return [NOTHING if cell is None or cell == "" else str(cell) for cell in cells]


def _score_slices(cuts: list[Cut], stored: LogitStore) -> list[dict[str, Any]]:
    """One line a slice; those of `FEWEST` rows or more have figures."""
    if not cuts:
        return []
    n_classes, multi = len(stored.names), stored.multi

    def columns() -> Iterator[list[np.ndarray]]:
        for answered in stored.answers():
            masks_nS = np.concatenate([cut.masks(answered) for cut in cuts], axis=1)
            yield [answered.labels, answered.answers, answered.right_n, masks_nS]

    labels, answers, right_n, masks_nS = join_chunks(len(stored.rows), columns())

    def columns_of(is_in_n: Bools) -> Iterator[list[np.ndarray]]:
        for some in chunks(len(labels), n_classes):
            yield [labels[some][is_in_n[some]], answers[some][is_in_n[some]]]

    names: list[tuple[str, str]] = []
    for cut in cuts:
        names += [(cut.by, name) for name in cut.names]
    lines = []
    for (by, name), is_in_n in zip(names, masks_nS.T, strict=True):
        n_rows = int(is_in_n.sum())
        line: dict[str, Any] = {"by": by, "slice": name, "n_rows": n_rows}
        if n_rows >= FEWEST:
            slice_labels, slice_answers = join_chunks(n_rows, columns_of(is_in_n))
            figures = score_answers(slice_labels, slice_answers, n_classes)
            shown = ["accuracy"]
            if by != "label" or multi:  # the accuracy of a class is its recall; other classes have no row here
                shown.append("macro_f1")
            if multi:
                shown.append("micro_f1")
            line |= {figure: asdict(figures[figure]) for figure in shown}
            line |= against_rest(n_rows, int(right_n[is_in_n].sum()), len(right_n), int(right_n.sum()))
        lines.append(line)
    return lines


def against_rest(n_rows: int, right: int, n: int, n_right: int) -> dict[str, float]:
    """Compare a slice of `n_rows`, `right` of which are right, with all others of `n` rows, `n_right` of which are.

    Fisher's exact test (Fisher, 1935, "The Design of Experiments"), which assumes that rows are independent.

    Returns:
        The share of right rows among the others, and the two-sided p; nothing where there are no others.
    """
    if n_rows == n:
        return {}
    others, right_others = n - n_rows, n_right - right
    test = fisher_exact([[right, n_rows - right], [right_others, others - right_others]])
    return {"rest": right_others / others, "p": float(test.pvalue)}  # pyright: ignore[reportAttributeAccessIssue]


def _worst(stored: LogitStore, seed: int) -> list[dict[str, Any]]:
    """The leaves of a tree on one half of some rows in which most are wrong, as they are on the other half."""
    from sklearn.tree import DecisionTreeClassifier  # a second, which other slices do not wait for

    n, random = len(stored.rows), np.random.default_rng([seed, 3])
    chosen = np.sort(random.choice(n, min(n, MOST_SEARCHED), replace=False))
    parts, start = list[Bools](), 0
    for answered in stored.answers():
        here = chosen[(chosen >= start) & (chosen < start + len(answered.rows))] - start
        parts.append(answered.right_n[here])
        start += len(answered.rows)
    right_n, rows = np.concatenate(parts), stored.rows.pick(chosen)

    # The tree is fitted to the rows of the first half.
    first_n = random.permutation(len(chosen)) < len(chosen) // 2
    names, values_nF = _features(rows, first_n)
    if min(first_n.sum(), (~first_n).sum()) < 2 * FEWEST or right_n[first_n].all() or not names:
        return []
    tree = DecisionTreeClassifier(max_depth=DEPTH, min_samples_leaf=max(FEWEST, len(chosen) // 100), random_state=0)
    tree.fit(values_nF[first_n], ~right_n[first_n])
    leaf_n = tree.apply(values_nF)
    rules, worse = _rules(tree.tree_, names), list[tuple[float, int]]()
    for leaf in np.unique(leaf_n[first_n]).tolist():
        share = float(right_n[first_n & (leaf_n == leaf)].mean())
        if share < right_n[first_n].mean() and rules[leaf]:
            worse.append((share, leaf))

    # Its worst leaves are judged on the other half.
    lines, held_n = list[dict[str, Any]](), right_n[~first_n]
    for share, leaf in sorted(worse)[:WORST]:
        of_leaf = held_n[leaf_n[~first_n] == leaf]
        line: dict[str, Any] = {"by": "worst", "slice": rules[leaf], "n_rows": len(of_leaf), "where_found": share}
        if len(of_leaf) >= FEWEST:
            line |= {"accuracy": asdict(share_interval(int(of_leaf.sum()), len(of_leaf)))}
            line |= against_rest(len(of_leaf), int(of_leaf.sum()), len(held_n), int(held_n.sum()))
        lines.append(line)
    return lines


class Feature(NamedTuple):
    """What the tree looks at, in words for no and for yes; a number has its name and nothing for yes. `empty` says that
    rows without the number count as the smallest."""

    no: str
    yes: str = ""
    empty: str = ""


def _features(rows: Rows, first_n: Bools) -> tuple[list[Feature], np.ndarray]:
    """What the tree looks at: lengths, words that are neither rare nor everywhere, and values of columns.

    Args:
        first_n: the rows that the words are counted in.

    Returns:
        Each feature in words, and their values `(n, F)`.
    """
    # of each row; no set, whose order is another each time
    words = [dict.fromkeys(WORD.findall(text.lower())) for text in both_texts(rows)]
    counted = Counter[str]()
    for at in np.flatnonzero(first_n).tolist():
        counted.update(words[at].keys())
    n = max(1, int(first_n.sum()))
    usual = [word for word, times in counted.most_common() if 0.01 <= times / n <= 0.5]

    names, columns = [Feature("length")], [np.array(n_characters(rows))]
    for word in usual[:MOST_WORDS]:
        names.append(Feature(f"without '{word}'", f"with '{word}'"))
        columns.append(np.array([word in of_row for of_row in words]))
    for name in rows.unread.columns() if rows.unread else ():
        cells = cells_of(rows, name)
        values = Counter(cells)
        numbers = as_numbers(values.keys() - {NOTHING}) if len(values) > MOST_VALUES else None
        usual_values = [value for value, _ in values.most_common(MOST_VALUES)] if len(values) <= MOST_OF_TREE else []
        if numbers is not None:
            usual_values = [NOTHING] if NOTHING in values else []
            names.append(Feature(name, empty=f" or {NOTHING}" * len(usual_values)))
            smallest = min(numbers.values())
            columns.append(np.clip([numbers.get(cell, smallest) for cell in cells], -LARGEST, LARGEST))
        for value in usual_values:
            names.append(Feature(f"{name} is not {value}", f"{name} is {value}"))
            columns.append(np.array([cell == value for cell in cells]))
    return names, np.stack(columns, axis=1, dtype=np.float32)  # as the tree takes them


def _rules(tree: Any, names: list[Feature]) -> dict[int, str]:
    """The conditions of each leaf of scikit-learn's tree, in words."""
    found: dict[int, str] = {}
    to_visit: list[tuple[int, dict[int, tuple[float, float]]]] = [(0, {})]  # nodes, with the bounds of each feature
    while to_visit:
        node, bounds = to_visit.pop()
        left, right = int(tree.children_left[node]), int(tree.children_right[node])
        if left == right:  # a leaf
            found[node] = ", ".join([_rule(names[feature], *bounds[feature]) for feature in bounds])
            continue
        feature, threshold = int(tree.feature[node]), float(tree.threshold[node])
        low, high = bounds.get(feature, (-math.inf, math.inf))
        to_visit.append((left, bounds | {feature: (low, threshold)}))
        to_visit.append((right, bounds | {feature: (threshold, high)}))
    return found


def _rule(feature: Feature, low: float, high: float) -> str:
    """A feature that is above `low`, up to `high`."""
    if feature.yes:
        return feature.no if low == -math.inf else feature.yes
    if high == math.inf:
        return f"{feature.no} above {format_bound(low)}"
    if low == -math.inf:
        return f"{feature.no} up to {format_bound(high)}{feature.empty}"
    return f"{feature.no} above {format_bound(low)} to {format_bound(high)}"


def slice_tables(document: dict[str, Any]) -> list[ResultTable]:
    """The table of the slices in metrics.json."""
    lines = document["slices"]
    f1, in_words = "macro_f1", "macro F1"
    if any("micro_f1" in line for line in lines):
        f1, in_words = "micro_f1", "micro F1"
    rows = list[list[Cell]]()
    for line in lines:
        figures = [Interval(**line[name]) if name in line else None for name in ("accuracy", f1)]
        rows.append([line["by"], line["slice"], line["n_rows"], *figures, line.get("rest"), line.get("p_holm")])
    note = (
        "p is the chance of so large a difference from the rest if there were none, after Holm's correction; slices of "
        f"fewer than {FEWEST} rows are not judged; the worst were searched on one half of the rows and are judged on "
        "the other"
    )
    columns = ["by", "slice", "rows", "accuracy", in_words, "the rest", "p"]
    formats = {"accuracy": ".3f", in_words: ".3f", "the rest": ".3f", "p": ".2g"}
    return [ResultTable("slices", "figures of parts of the rows, with 95 % intervals", columns, rows, formats, [note])]
