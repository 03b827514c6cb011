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
from typing import Any

import numpy as np

from manyheads.data.rows import Rows
from manyheads.data.texts import script_of
from manyheads.errors import UserError
from manyheads.evaluation.answered import AnsweredRows, LogitStore
from manyheads.evaluation.evaluation import Finding
from manyheads.evaluation.intervals import Bools, share_interval
from manyheads.evaluation.logits import join_chunks
from manyheads.evaluation.metrics import chunks, score_answers
from manyheads.evaluation.report import ReportSection, ReportTable
from manyheads.evaluation.statistics import holm
from manyheads.inference.classifier import rows_at_once

FEWEST = 30  # rows of a slice that is judged
MOST_VALUES, MOST_DIFFERENT = 20, 10_000  # values of a column that are slices; that are counted
PARTS = (0.25, 0.5, 0.75)  # of the rows, at which lengths are cut
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
    multi, notes = next(iter(stored.models.values())) is not None, list[str]()
    names = [one for one in slices if one != "worst"]
    if multi and "confidence" in names:
        names.remove("confidence")
        notes.append("confidence cuts no slices, as rows with any number of labels have no confidence of one answer")
    lines = _score_slices([_cut(by, stored) for by in names], stored)
    if "worst" in slices:
        lines += _worst(stored, seed)
    correct_p_values(lines)
    bad = sorted((one for one in lines if _is_bad(one)), key=lambda one: one["accuracy"]["value"])
    said = []
    for one in bad[:WORST]:
        said.append(
            f"slice: {one['by']} {one['slice']}: accuracy {one['accuracy']['value']:.1%} on {one['n_rows']:,} rows, "
            f"{one['rest']:.1%} on the rest (Holm p = {one['p_holm']:.2g})"
        )
    return Finding("slices", lines, [_section(lines, notes)], said)


def _is_bad(line: dict[str, Any]) -> bool:
    """Significantly worse than the rest. Slices by confidence do not count: a model errs where it is unsure."""
    return line["by"] != "confidence" and line.get("p_holm", 1.0) < SURE and line["accuracy"]["value"] < line["rest"]


def chunks_of_rows(rows: Rows, step: int) -> Iterator[Rows]:
    """Some rows after others."""
    return (rows.pick(np.arange(at, min(at + step, len(rows)))) for at in range(0, len(rows), step))


def _cut(by: str, stored: LogitStore) -> Cut:
    """The cut that is named so in the settings."""
    kind, _, column = by.partition(":")
    if kind == "label":
        return Cut(by, stored.names, lambda found: found.marks_nC)
    if kind == "confidence":
        bounds = [0.0, *CONFIDENCES, 1.0]
        names = [f"{low:g} to {high:g}" for low, high in pairwise(bounds)]
        return Cut(
            by, names, lambda found: _of_ids(np.digitize(found.probabilities_nC.max(1), CONFIDENCES), len(names))
        )
    if kind == "length":
        return _cut_numbers(by, stored, n_characters, "characters")
    values = scripts_of_rows if kind == "script" else lambda rows: cells_of(rows, column)
    counted = _counted(by, stored, values)
    if kind == "column" and len(counted) > MOST_VALUES and (numbers := _numbers(counted)) is not None:
        return _cut_numbers(by, stored, lambda rows: [numbers[one] for one in values(rows)], "", counted)
    names = [name for name, _ in counted.most_common(MOST_VALUES)]
    at = {name: index for index, name in enumerate(names)}
    if len(counted) > len(names):
        names.append(OTHER)
    return Cut(by, names, lambda found: _of_ids([at.get(one, len(at)) for one in values(found.rows)], len(names)))


def _cut_numbers(
    by: str, stored: LogitStore, values: Callable[[Rows], list[Any]], unit: str, known: Counter[str] | None = None
) -> Cut:
    """Into quarters of the rows."""
    counted = Counter[float]()
    if known is None:
        for some in chunks_of_rows(stored.rows, rows_at_once(len(stored.names))):
            counted.update(values(some))
    else:
        for name, n in known.items():
            counted[float(name)] += n
    numbers = np.array(sorted(counted))
    ends = np.cumsum([counted[one] for one in numbers.tolist()])
    bounds = sorted({float(numbers[np.searchsorted(ends, part * ends[-1])]) for part in PARTS} - {float(numbers[-1])})
    edges, names = list(map(_shown, bounds)), ["all"]
    if edges:
        between = [f"above {low} to {high}" for low, high in pairwise(edges)]
        names = [f"up to {edges[0]}", *between, f"above {edges[-1]}"]
    names = [f"{one} {unit}".rstrip() for one in names]
    return Cut(by, names, lambda found: _of_ids(np.digitize(values(found.rows), bounds, right=True), len(names)))


def _counted(by: str, stored: LogitStore, values: Callable[[Rows], list[str]]) -> Counter[str]:
    counted = Counter[str]()
    for some in chunks_of_rows(stored.rows, rows_at_once(len(stored.names))):
        counted.update(values(some))
        if len(counted) > MOST_DIFFERENT:
            raise UserError(
                f"slices={by} has more than {MOST_DIFFERENT:,} different values in {stored.rows.source}: name a column "
                "that groups rows"
            )
    return counted


def _numbers(counted: Counter[str]) -> dict[str, float] | None:
    """Of a column that holds nothing else."""
    try:
        found = {one: float(one) for one in counted}
    except ValueError:
        return None
    return found if all(map(np.isfinite, found.values())) else None


def _shown(bound: float) -> str:
    """With all digits of a date or a time in seconds."""
    return f"{bound:.{7 if abs(bound) < 1e6 else 15}g}"


def _of_ids(ids: Iterable[int] | np.ndarray, n_slices: int) -> Bools:
    return np.asarray(ids)[:, None] == np.arange(n_slices)


def n_characters(rows: Rows) -> list[int]:
    """Characters of the text, or of both."""
    pairs = rows.pairs if rows.pairs is not None else [""] * len(rows)
    return [len(text) + len(pair) for text, pair in zip(rows.texts, pairs, strict=True)]


def scripts_of_rows(rows: Rows) -> list[str]:
    """The writing system of each text."""
    return [script_of(text) for text in rows.texts]


def cells_of(rows: Rows, column: str) -> list[str]:
    """The cells of a column that is not read, as texts."""
    assert rows.unread is not None, "evaluate requires the columns"
    columns = rows.unread.columns()
    return [NOTHING if one is None or one == "" else str(one) for one in columns[column]]


def _score_slices(cuts: list[Cut], stored: LogitStore) -> list[dict[str, Any]]:
    """One line a slice; those of `FEWEST` rows or more have figures."""
    if not cuts:
        return []
    names = [(cut.by, name) for cut in cuts for name in cut.names]
    n_classes, multi = len(stored.names), next(iter(stored.models.values())) is not None
    columns = (
        [found.labels, found.answers, found.right_n, np.concatenate([cut.masks(found) for cut in cuts], axis=1)]
        for found in stored.answers()
    )
    labels, answers, right_n, masks_nS = join_chunks(len(stored.rows), columns)
    lines = []
    for (by, name), of_slice in zip(names, masks_nS.T, strict=True):
        n_rows = int(of_slice.sum())
        line: dict[str, Any] = {"by": by, "slice": name, "n_rows": n_rows}
        if n_rows >= FEWEST:
            parts = ([one[at][of_slice[at]] for one in (labels, answers)] for at in chunks(len(labels), n_classes))
            of_labels, of_answers = join_chunks(n_rows, parts)
            figures = score_answers(of_labels, of_answers, n_classes)
            shown = ["accuracy"]
            if by != "label" or multi:  # the accuracy of a class is its recall; other classes have no row here
                shown.append("macro_f1")
            if multi:
                shown.append("micro_f1")
            line |= {one: asdict(figures[one]) for one in shown}
            line |= against_rest(n_rows, int(right_n[of_slice].sum()), len(right_n), int(right_n.sum()))
        lines.append(line)
    return lines


def against_rest(n_rows: int, right: int, n: int, n_right: int) -> dict[str, float]:
    """The share of right rows among all others, and Fisher's test; nothing where there are no others."""
    from scipy.stats import fisher_exact

    if n_rows == n:
        return {}
    others, right_others = n - n_rows, n_right - right
    test = fisher_exact([[right, n_rows - right], [right_others, others - right_others]])
    return {"rest": right_others / others, "p": float(test.pvalue)}  # pyright: ignore[reportAttributeAccessIssue]


def correct_p_values(lines: list[dict[str, Any]]) -> None:
    """Add Holm's `p_holm` to the lines with a `p`."""
    tested = [line for line in lines if "p" in line]
    for line, p in zip(tested, holm([line["p"] for line in tested]), strict=True):
        line["p_holm"] = p


def _worst(stored: LogitStore, seed: int) -> list[dict[str, Any]]:
    """The leaves of a tree on one half of some rows in which most are wrong, as they are on the other half."""
    from sklearn.tree import DecisionTreeClassifier

    n, random = len(stored.rows), np.random.default_rng([seed, 3])
    chosen = np.sort(random.choice(n, min(n, MOST_SEARCHED), replace=False))
    right, start = list[Bools](), 0
    for found in stored.answers():
        here = chosen[(chosen >= start) & (chosen < start + len(found.rows))] - start
        right.append(found.right_n[here])
        start += len(found.rows)
    right_n, some = np.concatenate(right), stored.rows.pick(chosen)
    first_n = random.permutation(len(chosen)) < len(chosen) // 2
    names, values_nF = _features(some, first_n)
    least = max(FEWEST, len(chosen) // 100)
    if min(first_n.sum(), (~first_n).sum()) < 2 * FEWEST or right_n[first_n].all() or not names:
        return []
    tree = DecisionTreeClassifier(max_depth=DEPTH, min_samples_leaf=least, random_state=0)
    tree.fit(values_nF[first_n], ~right_n[first_n])
    leaf_n = tree.apply(values_nF)
    rules, found = _rules(tree.tree_, names), list[tuple[float, int]]()
    for leaf in np.unique(leaf_n[first_n]).tolist():
        share = float(right_n[first_n & (leaf_n == leaf)].mean())
        if share < right_n[first_n].mean() and rules[leaf]:
            found.append((share, leaf))
    lines, held_n = list[dict[str, Any]](), right_n[~first_n]
    for share, leaf in sorted(found)[:WORST]:
        of_leaf = held_n[leaf_n[~first_n] == leaf]
        line: dict[str, Any] = {"by": "worst", "slice": rules[leaf], "n_rows": len(of_leaf), "where_found": share}
        if len(of_leaf) >= FEWEST:
            line |= {"accuracy": asdict(share_interval(int(of_leaf.sum()), len(of_leaf)))}
            line |= against_rest(len(of_leaf), int(of_leaf.sum()), len(held_n), int(held_n.sum()))
        lines.append(line)
    return lines


def _features(rows: Rows, first_n: Bools) -> tuple[list[tuple[str, str]], np.ndarray]:
    """The features of the tree, each in words for no and for yes, and their values `(n, F)`: lengths, words that are
    neither rare nor everywhere, and values of columns."""
    texts = list(rows.texts) if rows.pairs is None else list(map("{} {}".format, rows.texts, rows.pairs))
    words = [dict.fromkeys(WORD.findall(text.lower())) for text in texts]  # no set, whose order is another each time
    counted = Counter[str]()
    for at in np.flatnonzero(first_n).tolist():
        counted.update(words[at].keys())
    n = max(1, int(first_n.sum()))
    usual = [word for word, times in counted.most_common() if 0.01 <= times / n <= 0.5][:MOST_WORDS]
    names = [("length", "")] + [(f"without '{word}'", f"with '{word}'") for word in usual]
    columns = [np.array(n_characters(rows)), *(np.array([word in one for one in words]) for word in usual)]
    for name in rows.unread.columns() if rows.unread else ():
        cells = cells_of(rows, name)
        values = Counter(cells)
        if len(values) > MOST_VALUES and (numbers := _numbers(values)) is not None:
            names.append((name, ""))
            columns.append(np.clip([numbers[one] for one in cells], -LARGEST, LARGEST))
        elif len(values) <= MOST_DIFFERENT // 100:
            for value, _ in values.most_common(MOST_VALUES):
                names.append((f"{name} is not {value}", f"{name} is {value}"))
                columns.append(np.array([one == value for one in cells]))
    return names, np.stack(columns, axis=1, dtype=np.float32)  # as the tree takes them


def _rules(tree: Any, names: list[tuple[str, str]]) -> dict[int, str]:
    """The conditions of each leaf, in words."""
    found, open_ = dict[int, str](), [(0, dict[int, tuple[float, float]]())]
    while open_:
        node, within = open_.pop()
        left, right = int(tree.children_left[node]), int(tree.children_right[node])
        if left == right:
            found[node] = ", ".join(_rule(*names[feature], *bounds) for feature, bounds in within.items())
            continue
        feature, bound = int(tree.feature[node]), float(tree.threshold[node])
        low, high = within.get(feature, (-math.inf, math.inf))
        open_ += [(left, within | {feature: (low, bound)}), (right, within | {feature: (bound, high)})]
    return found


def _rule(no: str, yes: str, low: float, high: float) -> str:
    if yes:
        return no if low == -math.inf else yes
    if low == -math.inf or high == math.inf:
        return f"{no} above {_shown(low)}" if high == math.inf else f"{no} up to {_shown(high)}"
    return f"{no} above {_shown(low)} to {_shown(high)}"


def _section(lines: list[dict[str, Any]], notes: list[str]) -> ReportSection:
    f1, in_words = "macro_f1", "macro F1"
    if any("micro_f1" in line for line in lines):
        f1, in_words = "micro_f1", "micro F1"
    rows = []
    for one in lines:
        shown = []
        for name in ("accuracy", f1):
            of = one.get(name)
            shown.append("" if of is None else f"{of['value']:.3f} ({of['low']:.3f} to {of['high']:.3f})")
        tested = [f"{one['rest']:.3f}", f"{one['p_holm']:.2g}"] if "p_holm" in one else ["", ""]
        rows.append([one["by"], one["slice"], f"{one['n_rows']:,}", *shown, *tested])
    notes = [
        *notes,
        "p is the chance of so large a difference from the rest if there were none, after Holm's correction; slices of "
        f"fewer than {FEWEST} rows are not judged; the worst were searched on one half of the rows and are judged on "
        "the other",
    ]
    table = ReportTable(["by", "slice", "rows", "accuracy", in_words, "the rest", "p"], rows, "wwnnnnn")
    return ReportSection("Where is it good, where bad?", table, notes, long=True)
