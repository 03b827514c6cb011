"""The tables of `ablate`, with paired tests that assume no distribution.

S seeds . n rows, or pairs
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manyheads.evaluation.intervals import seed_interval, share_interval
from manyheads.evaluation.statistics import holm
from manyheads.plugins.sweep.ranking import short_names, table_of_rows
from manyheads.plugins.sweep.results_file import Comparison, RowResults, RunFigures, comparison_of, machine_words
from manyheads.runs.result_table import Cell, ResultTable
from manyheads.runs.summary import Interval
from manyheads.terminal import Sheet

FORMATS = {"steps": ",.0f", "off by": "+.2%", "FLOPs/token": ",.0f", "to first": "+.2f", "p": "p", "tokens/s": ",.0f"}


def sign_flip(differences: ArrayLike) -> float:
    """The exact two-sided p of whole-numbered paired differences `(n,)`: how often signs tossed by a fair coin give
    a sum at least as far from zero (Fisher, 1935, "The Design of Experiments", section 21).

    The distribution of the sum over all 2^n tosses is built by n convolutions, so nothing is sampled. With
    differences of -1, 0 and 1 this is the exact sign test.
    """
    given_n = np.asarray(differences)
    sizes_n = np.abs(given_n).astype(np.int64)
    assert np.array_equal(sizes_n, np.abs(given_n)), "the sums are counted, so differences are whole numbers"
    total, reached = int(sizes_n.sum()), abs(int(given_n.sum()))
    if reached == 0:
        return 1.0
    chance = np.zeros(2 * total + 1)  # of each sum, from -total to total
    chance[total] = 1.0
    for size in sizes_n[sizes_n > 0].tolist():
        chance = (np.roll(chance, size) + np.roll(chance, -size)) / 2  # what is rolled over the edge is zero
    return float(min(1.0, 2 * chance[total + reached :].sum()))


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


def sheets(results: Comparison) -> list[Sheet]:
    """The tables for a screen, where an accuracy has no interval."""
    made = []
    for table in tables_of_comparison(results):
        rows = [[cell.value if isinstance(cell, Interval) else cell for cell in row] for row in table.rows]
        made.append(replace(table, rows=rows).as_sheet())
    return made


def result_tables(document: dict[str, Any]) -> list[ResultTable]:
    """The tables of a results file, where an accuracy has its interval."""
    made = []
    for table in tables_of_comparison(comparison_of(document)):
        if "accuracy" in table.columns:
            table = replace(table, notes=[*table.notes, f"In brackets: {table.bars}."])
        made.append(table)
    return made


def tables_of_comparison(results: Comparison) -> list[ResultTable]:
    """The tables of all data that has a finished run, and the one over several."""
    begun = [name for name in results.sets if any(_runs(results, name, row) for row in results.rows)]
    made = [table_of_set(results, name) for name in begun]
    if len(begun) == len(results.sets) > 1:
        made.append(table_over_sets(results))
    return made


def table_of_set(results: Comparison, name: str) -> ResultTable:
    """One line a row of the comparison; p is adjusted (Holm) for their number."""
    first, axis, n_seeds = results.rows[0], _axis(results), len(results.seeds)
    runs_of = {row: _runs(results, name, row) for row in results.rows}
    adjusted = _adjusted({row: _p_of_rows(runs_of[row], runs_of[first]) for row in results.rows[1:]})
    rows = []
    for row, runs in runs_of.items():
        of_seeds = [share_interval(run.right.count("1"), len(run.right)) for run in runs.values()]
        both = [seed for seed in runs if seed in runs_of[first] and row != first]
        cells: dict[str, Cell] = {axis: row} | _budget_cells(results, results.at(name, row), runs)
        cells["accuracy"] = seed_interval(of_seeds) if len(of_seeds) > 1 else next(iter(of_seeds), None)
        cells["sd"] = stdev(run.accuracy for run in runs.values()) if len(runs) > 1 else None
        cells["to first"] = _points([runs[seed].accuracy - runs_of[first][seed].accuracy for seed in both])
        cells["p"] = adjusted.get(row)
        cells["tokens/s"] = fmean(run.tokens_per_s for run in runs.values()) if runs else None
        rows.append(cells | {"remarks": _remarks(results, runs)})
    title = f"{name}: {results.vary}, equal {results.equal}"
    bars = f"95 % intervals of the mean over {n_seeds} seeds" if n_seeds > 1 else "95 % intervals over the rows"
    notes = _how_to_read(results, name)
    return table_of_rows(name, title, rows, formats=FORMATS, notes=notes, bars=bars)


def table_over_sets(results: Comparison) -> ResultTable:
    """Mean difference to the first row over all runs of all data, and its p with runs as the units."""
    p_values: dict[str, float | None] = {}
    differences: dict[str, list[float]] = {}
    for row in results.rows[1:]:
        own, others = list[float](), list[float]()  # accuracies of runs on the same data with the same seed
        for name in results.sets:
            runs, first = _runs(results, name, row), _runs(results, name, results.rows[0])
            for seed in runs.keys() & first.keys():
                own.append(runs[seed].accuracy)
                others.append(first[seed].accuracy)
        differences[row] = [one - other for one, other in zip(own, others, strict=True)]
        p_values[row] = runs_differ(own, others) if own else None
    adjusted = _adjusted(p_values)
    n_runs = len(results.sets) * len(results.seeds)
    note = (
        f"Mean difference to the first row in points of accuracy over {len(results.sets)} sets x {len(results.seeds)} "
        f"seeds. p: exact sign-flip test with runs as the units, paired by set and seed, {_holm_words(results)}; "
        f"of {n_runs} pairs it is {2 / 2**n_runs:.2g} at the least before that."
    )
    rows = [[row, _points(differences.get(row, [])), adjusted.get(row)] for row in results.rows]
    title = f"all sets: {results.vary}, equal {results.equal}"
    return ResultTable("all sets", title, [_axis(results), "to first", "p"], rows, formats=FORMATS, notes=[note])


def _axis(results: Comparison) -> str:
    return ", ".join(short_names(results.vary.split(", ")))


def _runs(results: Comparison, name: str, row: str) -> dict[str, RunFigures]:
    """The finished runs of the seeds that the command names, in their order."""
    of_row = results.at(name, row)
    return {str(seed): of_row.runs[str(seed)] for seed in results.seeds if str(seed) in of_row.runs}


def _p_of_rows(runs: dict[str, RunFigures], first: dict[str, RunFigures]) -> float | None:
    """Only of rows whose seeds are all there."""
    if not runs or runs.keys() != first.keys():
        return None
    right_Sn = np.array([[bit == "1" for bit in run.right] for run in runs.values()])
    first_Sn = np.array([[bit == "1" for bit in run.right] for run in first.values()])
    return rows_differ(right_Sn, first_Sn)


def _adjusted(p_values: Mapping[str, float | None]) -> dict[str, float]:
    known = {row: p for row, p in p_values.items() if p is not None}
    return dict(zip(known, holm(list(known.values())), strict=True))


def _points(differences: Sequence[float]) -> float | None:
    return 100 * fmean(differences) if differences else None


def _budget_cells(results: Comparison, of_row: RowResults, runs: dict[str, RunFigures]) -> dict[str, Cell]:
    """What the solver has set, and what a row then costs."""
    cells: dict[str, Cell] = {}
    if results.equal == "tokens":
        cells["steps"] = fmean(run.steps for run in runs.values()) if runs else None
    else:
        if len({one.width["d_model"] for one in results.measured}) > 1:
            cells["d_model"] = of_row.width["d_model"]
        cells["d_ff"] = of_row.width["d_ff"]
    costs = {"parameters": of_row.parameters, "FLOPs/token": of_row.flops_per_token}
    return cells | {"off by": of_row.difference} | costs


def _machines(results: Comparison, name: str) -> list[str]:
    """What the runs of the table were made on, in their order."""
    own = machine_words(results.machine)
    found = [run.machine or own for row in results.rows for run in _runs(results, name, row).values()]
    return list(dict.fromkeys(found)) or [own]


def _remarks(results: Comparison, runs: dict[str, RunFigures]) -> str:
    remarks = []
    if len(runs) < len(results.seeds):
        remarks.append(f"{len(runs)} of {len(results.seeds)} seeds")
    stopped = [run.steps for run in runs.values() if run.stopped]
    if stopped:
        remarks.append(f"{len(stopped)} stopped by the limit, after {min(stopped)} steps")
    diverged = sum(run.diverged for run in runs.values())
    if diverged:
        remarks.append(f"{diverged} diverged")
    return ", ".join(remarks)


def _how_to_read(results: Comparison, name: str) -> list[str]:
    by_width = "d_ff (of recurrent layers d_model) is chosen so that"
    within = f"within {results.tolerance:.0%}"
    chosen = {
        "parameters": f"{by_width} all rows have as many parameters as the first, {within}, and take the same steps",
        "flops": f"{by_width} a token costs as many operations as in the first row, {within}; all take the same steps",
        "tokens": f"steps are chosen so that all rows read as many tokens as the first, {within}",
    }[results.equal]
    seeds, machines = ", ".join(map(str, results.seeds)), _machines(results, name)
    made_on = f"Speed: {machines[0]}."
    if len(machines) > 1:
        made_on = f"Runs of {len(machines)} machines or versions, whose tokens/s do not compare: {'; '.join(machines)}."
    return [
        f"Accuracy: of the network alone, by its weights at the end of training, on {results.n_rows[name]:,} "
        f"validation rows, mean and standard deviation over the seeds {seeds}; the test split is not read. Equal "
        f"{results.equal}: {chosen}.",
        f"p: exact sign-flip test over rows, each counted by how many seeds answer it right, {_holm_words(results)}; "
        "the trained models are given: chance of training shows in sd.",
        made_on,
    ]


def _holm_words(results: Comparison) -> str:
    n_others = len(results.rows) - 1
    return f"adjusted for {n_others} comparisons (Holm)" if n_others > 1 else "of one comparison"
