"""What the runs of a comparison come to: paired tests and tables.

Is a row of the table better than the first, or was it luck? Paired tests without assumptions on distributions.

n pairs . S seeds

What the runs of a record come to: one table a set of data, and one over all of them.

S seeds . n rows

The tables on the screen, and as Markdown between the markers of a document.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from string import ascii_uppercase

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manyheads.runs.atomic import replace_file
from manyheads.sweep.record import Figures, Measured, Record, machine_words, read_record
from manyheads.terminal import Sheet, as_text, console, markdown, print_sheet


def sign_flip(differences: ArrayLike) -> float:
    """The exact two-sided p of whole-numbered paired differences `(n,)`: how often signs tossed by a fair coin give
    a sum at least as far from zero (Fisher, 1935, "The Design of Experiments", section 21).

    The distribution of the sum over all 2^n tosses is built by n convolutions, so nothing is sampled. With
    differences of -1, 0 and 1 this is the exact sign test.
    """
    given_n = np.asarray(differences)
    sizes_n = np.abs(given_n).astype(np.int64)
    assert np.array_equal(sizes_n, np.abs(given_n)), "the sums are counted, so differences are whole numbers"
    total = int(sizes_n.sum())
    if total == 0:
        return 1.0
    chance = np.zeros(2 * total + 1)  # of each sum, from -total to total
    chance[total] = 1.0
    for size in sizes_n[sizes_n > 0].tolist():
        chance = (np.roll(chance, size) + np.roll(chance, -size)) / 2  # what is rolled over the edge is zero
    reached = abs(int(given_n.sum()))
    tails = chance[total + reached :].sum() * (2 if reached else 1)
    return float(min(1.0, tails if reached else 1.0))


def rows_differ(right_Sn: NDArray[np.bool_], first_Sn: NDArray[np.bool_]) -> float:
    """p that models which are equally good on average over their S seeds answer n rows so differently.

    Each row counts once: in how many of the seeds it was answered right. Rows are the units that are drawn, the
    trained models are given: chance of training is not in this p (`runs_differ` has it).
    """
    assert right_Sn.shape == first_Sn.shape, "the same rows and seeds"
    return sign_flip(right_Sn.sum(0, dtype=np.int64) - first_Sn.sum(0, dtype=np.int64))


def runs_differ(accuracies: Sequence[float], first: Sequence[float]) -> float:
    """p of paired runs (the same data and seed), by their accuracies to a hundredth of a point.

    Runs are the units, so the chance of training is in it; of few pairs p cannot be small: 2 / 2^n at the least.
    """
    assert len(accuracies) == len(first)
    return sign_flip(np.rint((np.asarray(accuracies) - np.asarray(first)) * 10_000))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p values adjusted for there being several.

    Holm (1979), "A Simple Sequentially Rejective Multiple Test Procedure".
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for place, at in enumerate(sorted(range(len(p_values)), key=lambda at: p_values[at])):
        highest = max(highest, min(1.0, (len(p_values) - place) * p_values[at]))
        adjusted[at] = highest
    return adjusted


def sheets(record: Record) -> list[Sheet]:
    """The tables of all data that has a finished run, and the one over several."""
    begun = [name for name in record.sets if any(_runs(record, name, row) for row in record.rows)]
    made = [sheet_of_set(record, name) for name in begun]
    return [*made, sheet_over_sets(record)] if len(begun) == len(record.sets) > 1 else made


def sheet_of_set(record: Record, name: str) -> Sheet:
    """One line a row of the comparison; p is adjusted (Holm) for their number."""
    first = _runs(record, name, record.rows[0])
    others = {row: _runs(record, name, row) for row in record.rows[1:]}
    adjusted = _adjusted({row: _p_of_rows(runs, first) for row, runs in others.items()})
    lines = []
    for row, runs in {record.rows[0]: first, **others}.items():
        speed = f"{fmean(run.tokens_per_s for run in runs.values()):,.0f}" if runs else ""
        against = [_points(runs, first), adjusted.get(row, "")] if row in others else ["", ""]
        accuracy = _mean_and_deviation([run.accuracy for run in runs.values()])
        budget = _budget_cells(record, record.at(name, row), runs)
        lines.append([row, *budget, *accuracy, *against, speed, _remarks(record, name, runs)])
    columns = [_axis(record), *_budget_columns(record), "accuracy", "sd", "to first", "p", "tokens/s", "remarks"]
    if not any(line[-1] for line in lines):
        columns, lines = columns[:-1], [line[:-1] for line in lines]
    return Sheet(f"{name}: {record.vary}, equal {record.equal}", columns, lines, _notes(record, name))


def sheet_over_sets(record: Record) -> Sheet:
    """Mean difference to the first row over all runs of all data, and its p with runs as the units."""
    p_values: dict[str, float | None] = {}
    means: dict[str, list[float]] = {}
    for row in record.rows:
        pairs = [
            (runs[seed].accuracy, first[seed].accuracy)
            for name in record.sets
            for runs, first in [(_runs(record, name, row), _runs(record, name, record.rows[0]))]
            for seed in runs.keys() & first.keys()
        ]
        means[row] = [own - its for own, its in pairs]
        if row != record.rows[0]:
            p_values[row] = runs_differ(*zip(*pairs, strict=True)) if pairs else None
    adjusted = _adjusted(p_values)
    lines = [
        [row, f"{100 * fmean(means[row]):+.2f}" if means[row] and row in p_values else "", adjusted.get(row, "")]
        for row in record.rows
    ]
    n_runs = len(record.sets) * len(record.seeds)
    note = (
        f"Mean difference to the first row in points of accuracy over {len(record.sets)} sets x {len(record.seeds)} "
        f"seeds. p: exact sign-flip test with runs as the units, paired by set and seed, {_holm_words(p_values)}; "
        f"of {n_runs} pairs it is {2 / 2**n_runs:.2g} at the least before that."
    )
    return Sheet(f"all sets: {record.vary}, equal {record.equal}", [_axis(record), "to first", "p"], lines, [note])


def _axis(record: Record) -> str:
    return ", ".join(name.rpartition(".")[2] for name in record.vary.split(", "))


def _runs(record: Record, name: str, row: str) -> dict[str, Figures]:
    """The finished runs of the seeds that are asked for, in their order."""
    measured = record.at(name, row)
    return {str(seed): measured.runs[str(seed)] for seed in record.seeds if str(seed) in measured.runs}


def _p_of_rows(runs: dict[str, Figures], first: dict[str, Figures]) -> float | None:
    """Only of rows whose seeds are all there."""
    if not runs or runs.keys() != first.keys():
        return None
    right_Sn, first_Sn = (
        np.array([[bit == "1" for bit in run.right] for run in side.values()]) for side in (runs, first)
    )
    return rows_differ(right_Sn, first_Sn)


def _adjusted(p_values: dict[str, float | None]) -> dict[str, str]:
    known = {row: p for row, p in p_values.items() if p is not None}
    shown = [f"{p:.3f}" if p >= 0.001 else "<0.001" for p in holm(list(known.values()))]
    return dict(zip(known, shown, strict=True))


def _mean_and_deviation(values: Sequence[float]) -> list[str]:
    if not values:
        return ["", ""]
    return [f"{fmean(values):.4f}", f"{stdev(values):.4f}" if len(values) > 1 else ""]


def _points(runs: dict[str, Figures], first: dict[str, Figures]) -> str:
    both = runs.keys() & first.keys()
    return f"{100 * fmean(runs[seed].accuracy - first[seed].accuracy for seed in both):+.2f}" if both else ""


def _budget_columns(record: Record) -> list[str]:
    lever = {"tokens": ["steps"], "seconds": ["steps", "seconds"]}.get(record.equal, _moved_widths(record))
    return [*lever, "off by", "parameters", "FLOPs/token"]


def _moved_widths(record: Record) -> list[str]:
    """d_ff, and d_model where it is not the same everywhere."""
    n_widths = len({one.width["d_model"] for one in record.measured})
    return ["d_ff"] if n_widths == 1 else ["d_model", "d_ff"]


def _budget_cells(record: Record, measured: Measured, runs: dict[str, Figures]) -> list[str]:
    steps = f"{fmean(run.steps for run in runs.values()):,.0f}" if runs else ""
    difference = measured.difference
    if record.equal == "seconds":
        seconds = fmean(run.seconds for run in runs.values()) if runs else record.seconds
        difference = seconds / record.seconds - 1
        lever = [steps, f"{seconds:.2f}"]
    elif record.equal == "tokens":
        lever = [steps]
    else:
        lever = [str(measured.width[name]) for name in _moved_widths(record)]
    return [*lever, f"{difference:+.2%}", f"{measured.parameters:,}", f"{measured.flops_per_token:,.0f}"]


def _machines(record: Record, name: str) -> list[str]:
    """What the runs of the table were made on, in their order."""
    own = machine_words(record.machine)
    found = [run.machine or own for row in record.rows for run in _runs(record, name, row).values()]
    return list(dict.fromkeys(found)) or [own]


def _remarks(record: Record, name: str, runs: dict[str, Figures]) -> str:
    n_seeds = len(record.seeds)
    said = [f"{len(runs)} of {n_seeds} seeds"] if len(runs) < n_seeds else []
    stopped = [run.steps for run in runs.values() if run.stopped]
    said += [f"{len(stopped)} stopped by the limit, after {min(stopped)} steps"] if stopped else []
    diverged = sum(run.diverged for run in runs.values())
    said += [f"{diverged} diverged"] if diverged else []
    for letter, one in zip(ascii_uppercase[1:], _machines(record, name)[1:], strict=False):
        seeds = [seed for seed, run in runs.items() if run.machine == one]
        said += [f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)} on {letter}"] if seeds else []
    return ", ".join(said)


def _notes(record: Record, name: str) -> list[str]:
    by_width = "d_ff, and d_model where d_ff alone cannot, is chosen so that"
    within = f"within {record.tolerance:.0%}"
    chosen = {
        "parameters": f"{by_width} all rows have as many parameters as the first, {within}, and take the same steps",
        "flops": f"{by_width} a token costs as many operations as in the first row, {within}; all take the same steps",
        "tokens": f"steps are chosen so that all rows read as many tokens as the first, {within}",
        "seconds": f"every run trains for {record.seconds:g} s; its learning rate falls with the time that has passed",
    }[record.equal]
    seeds = ", ".join(map(str, record.seeds))
    p = _holm_words(dict.fromkeys(record.rows[1:]))
    machines = _machines(record, name)
    lettered = "; ".join(f"{letter}: {one}" for letter, one in zip(ascii_uppercase, machines, strict=False))
    made_on = (
        f"Runs of {len(machines)} machines or versions, whose tokens/s do not compare: {lettered}."
        if len(machines) > 1
        else f"Speed: {machines[0]}."
    )
    return [
        f"Accuracy: of the weights at the end of training, on {record.n_rows[name]:,} validation rows, mean and "
        f"standard deviation over the seeds {seeds}; the test split is not read. Equal {record.equal}: {chosen}.",
        f"p: exact sign-flip test over rows, each counted by how many seeds answer it right, {p}; the trained models "
        "are given: chance of training shows in sd.",
        made_on,
    ]


def _holm_words(p_values: dict[str, float | None]) -> str:
    return f"adjusted for {len(p_values)} comparisons (Holm)" if len(p_values) > 1 else "of one comparison"


MARKER = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def show(record: Record, path: Path) -> None:
    """Print every table and where the figures lie."""
    for sheet in sheets(record):
        print_sheet(sheet)
    console().print(as_text(path), soft_wrap=True)


def fill_document(document: Path, results: Path) -> list[str]:
    """Put the tables of `results`/NAME.json between `<!-- table: NAME -->` and `<!-- end -->` of a Markdown document.

    Returns:
        The names that were filled.

    Raises:
        ValueError: a marker names a file that is not there or holds no results.
    """
    filled: list[str] = []

    def tables(match: re.Match[str]) -> str:
        name = match[2]
        path = results / f"{name}.json"
        if not path.is_file():
            raise ValueError(f"{document} asks for the table {name}, but {path} does not exist: run it first")
        filled.append(name)
        made = sheets(read_record(path))
        return f"{match[1]}{chr(10).join(markdown(sheet) + chr(10) for sheet in made)}{match[3]}"

    text = MARKER.sub(tables, document.read_text(encoding="utf-8"))
    with replace_file(document) as part:
        part.write_text(text, encoding="utf-8")
    return filled
