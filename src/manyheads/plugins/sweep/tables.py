"""What the runs of a sweep come to: intervals, paired tests without assumptions on distributions, tables, and what a
search leaves behind beside its runs: report.html and trials.csv.

No ranking of settings by importance is made: of a few dozen trials such numbers are mostly noise.

S seeds . n rows, or pairs
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manyheads.config.figures import is_share, lower_is_better
from manyheads.config.sentences import format_list
from manyheads.evaluation.intervals import fold_interval, holm, seed_interval
from manyheads.evaluation.report import Page, Section, Table, installed_versions, value_sections, write_page
from manyheads.plugins.sweep.config import TuneConfig
from manyheads.plugins.sweep.journal import Outcome, State
from manyheads.plugins.sweep.record import Figures, Measured, Record, machine_words
from manyheads.runs.files import replace_file
from manyheads.runs.summary import NETWORK, Interval, words_of
from manyheads.terminal import Sheet

MOST_LINES = 20  # on the screen


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


@dataclass(frozen=True, slots=True)
class Ranked:
    """A setting and its runs; `low` and `high` are the 95 % interval of `mean`.

    Of several seeds it is `seed_interval`, with runs as the units: where the mean of many more seeds lies; of `folds`
    `fold_interval`. Of a single run it is the interval over the rows of the validation split, where the run came to its
    end. `share`: the figure lies between 0 and 1.
    """

    trial: int
    setting: dict[str, Any]
    runs: list[Outcome]
    n_seeds: int
    folds: bool = False
    share: bool = True

    @property
    def values(self) -> list[float]:
        return [one.value for one in self.runs if one.counts and one.value is not None]

    @property
    def mean(self) -> float | None:
        return fmean(self.values) if self.values else None

    @property
    def deviation(self) -> float | None:
        return stdev(self.values) if len(self.values) > 1 else None

    @property
    def interval(self) -> tuple[float, float] | None:
        each = [one.figure for one in self.runs if one.counts and one.figure is not None]
        if self.n_seeds == 1:
            found = each[0] if each else None
        elif len(each) < 2:
            found = None
        elif self.folds:
            found = fold_interval(each, 1 / (self.n_seeds - 1), share=self.share)
        else:
            found = seed_interval(each, share=self.share)
        return (found.low, found.high) if isinstance(found, Interval) else None

    @property
    def shown(self) -> float | None:
        """Its mean, or the figure at which it was given up."""
        pruned = [run.value for run in self.runs if run.state is State.pruned]
        return self.mean if self.values else pruned[0] if pruned else None


def rank(outcomes: Sequence[Outcome], seeds: range, metric: str, *, folds: bool = False) -> list[Ranked]:
    """Best first: settings of which every seed came to a figure, then those of which some did, then those given up.

    What was drawn again is left out.
    """
    runs: dict[int, list[Outcome]] = {}
    for one in outcomes:
        if one.state is not State.again and one.seed in seeds:
            runs.setdefault(one.trial, []).append(one)
    sign = 1 if lower_is_better(metric) else -1

    def place(one: Ranked) -> tuple[int, float, int]:
        n_values = len(one.values)
        group = 0 if n_values == one.n_seeds else 1 if n_values else 2 if one.shown is not None else 3
        return group, sign * (one.shown or 0.0), one.trial

    return sorted(
        (Ranked(number, of[0].setting, of, len(seeds), folds, is_share(metric)) for number, of in runs.items()),
        key=place,
    )


def sheet_of_search(config: TuneConfig, ranked: Sequence[Ranked], most: int | None = None) -> Sheet:
    """One line a setting, best first; of more than `most` the best, and how many are left out."""
    metric, several = words_of(config.checkpoint.metric), ["sd"] if config.n_runs > 1 else []
    columns = ["trial", *short_names(config.search), metric, *several, "95 %", "steps", "minutes"]
    lines = [_line(config, one) for one in ranked[:most]]
    left = len(ranked) - len(lines)
    why = {one.trial: dict.fromkeys(run.why for run in one.runs if run.why) for one in ranked[:most]}
    reasons = [f"trial {number}: {'; '.join(said)}" for number, said in why.items() if said]
    notes = [_note(config), *([f"{left} more are in trials.csv."] if left else []), *reasons]
    return _sheet(f"{len(ranked)} settings by validation {metric} of the {NETWORK}", columns, lines, notes)


def write_results(
    folder: Path, config: TuneConfig, ranked: Sequence[Ranked], outcomes: Sequence[Outcome], command: str
) -> list[str]:
    """Write report.html and trials.csv, each file whole; returns their names."""
    write_csv(folder / "trials.csv", config, outcomes)
    write_page(folder / "report.html", page_of(config, ranked, command))
    return ["report.html", "trials.csv"]


def page_of(config: TuneConfig, ranked: Sequence[Ranked], command: str) -> Page:
    """The report."""
    sheet = sheet_of_search(config, ranked)
    kinds = "n" * len(sheet.columns)
    kinds = kinds[:-1] + "w" if sheet.columns[-1] == "remarks" else kinds
    sections = [Section(sheet.title, Table(sheet.columns, sheet.lines, kinds, own=0), sheet.notes, long=True)]
    if command:
        sections.append(Section("Train the best setting, and judge it on the test split", command=command))
    spaces = {name: given if isinstance(given, str) else ", ".join(map(format_list, given))
              for name, given in config.search.items()}  # fmt: skip
    rules = {
        "method": config.chosen.name,
        "prune": config.prune.name,
        "seeds": config.seeds,
        "folds": config.data.folds,
    }
    rules |= {"minutes": config.minutes}
    sections += value_sections({"Searched": spaces, "How": rules, "Versions": installed_versions()})
    subtitle = f"{len(ranked)} settings, {config.n_runs} run(s) each"
    return Page(title="A search for settings", subtitle=subtitle, sections=sections)


def write_csv(path: Path, config: TuneConfig, outcomes: Sequence[Outcome]) -> None:
    """Every run in the order of its trial."""
    figures = [config.checkpoint.metric, "low", "high", "epochs", "steps", "seconds", "why"]
    with replace_file(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["trial", "seed", *config.search, "state", *figures])
        for one in outcomes:
            setting = [format_list(one.setting[name]) for name in config.search]
            values = [one.value, one.low, one.high, one.epochs, one.steps, round(one.seconds, 1), one.why]
            table.writerow([one.trial, one.seed, *setting, one.state.name, *values])


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
        both = runs.keys() & first.keys() if row in others else ()
        accuracies = [run.accuracy for run in runs.values()]
        mean = f"{fmean(accuracies):.4f}" if runs else ""
        deviation = f"{stdev(accuracies):.4f}" if len(runs) > 1 else ""
        against = [_points([runs[seed].accuracy - first[seed].accuracy for seed in both]), adjusted.get(row, "")]
        budget = _budget_cells(record, record.at(name, row), runs)
        lines.append([row, *budget, mean, deviation, *against, speed, _remarks(record, runs)])
    columns = [_axis(record), *_budget_columns(record), "accuracy", "sd", "to first", "p", "tokens/s"]
    return _sheet(f"{name}: {record.vary}, equal {record.equal}", columns, lines, _notes(record, name))


def sheet_over_sets(record: Record) -> Sheet:
    """Mean difference to the first row over all runs of all data, and its p with runs as the units."""
    p_values: dict[str, float | None] = {}
    means: dict[str, list[float]] = {}
    for row in record.rows[1:]:
        pairs = [
            (runs[seed].accuracy, first[seed].accuracy)
            for name in record.sets
            for runs, first in [(_runs(record, name, row), _runs(record, name, record.rows[0]))]
            for seed in runs.keys() & first.keys()
        ]
        means[row] = [own - its for own, its in pairs]
        p_values[row] = runs_differ(*zip(*pairs, strict=True)) if pairs else None
    adjusted = _adjusted(p_values)
    lines = [[row, _points(means.get(row, [])), adjusted.get(row, "")] for row in record.rows]
    n_runs = len(record.sets) * len(record.seeds)
    note = (
        f"Mean difference to the first row in points of accuracy over {len(record.sets)} sets x {len(record.seeds)} "
        f"seeds. p: exact sign-flip test with runs as the units, paired by set and seed, {_holm_words(record)}; "
        f"of {n_runs} pairs it is {2 / 2**n_runs:.2g} at the least before that."
    )
    return Sheet(f"all sets: {record.vary}, equal {record.equal}", [_axis(record), "to first", "p"], lines, [note])


def short_names(names: Iterable[str]) -> list[str]:
    """Without their sections, where that leaves them apart."""
    short = [name.rpartition(".")[2] for name in names]
    return short if len(set(short)) == len(short) else list(names)


def _sheet(title: str, columns: list[str], lines: list[list[str]], notes: list[str]) -> Sheet:
    """The last cell of each line is a remark, whose column is left out where there is none."""
    if any(line[-1] for line in lines):
        return Sheet(title, [*columns, "remarks"], lines, notes)
    return Sheet(title, columns, [line[:-1] for line in lines], notes)


def _line(config: TuneConfig, one: Ranked) -> list[str]:
    value, deviation = ("" if figure is None else f"{figure:.4f}" for figure in (one.shown, one.deviation))
    between = "" if one.interval is None else f"{one.interval[0]:.3f}-{one.interval[1]:.3f}"
    steps = max((run.steps for run in one.runs), default=0)
    minutes = sum(run.seconds for run in one.runs) / 60
    setting = [format_list(one.setting[name]) for name in config.search]
    figures = [value, *([deviation] if config.n_runs > 1 else []), between, f"{steps:,}", f"{minutes:.1f}"]
    return [str(one.trial), *setting, *figures, _search_remarks(config, one)]


def _search_remarks(config: TuneConfig, one: Ranked) -> str:
    states, n_values = [run.state for run in one.runs], len(one.values)
    of = f"{config.n_runs} {'folds' if config.data.folds else 'seeds'}"
    said = [f"{n_values} of {of}"] if 0 < n_values < config.n_runs else []
    late = states.count(State.late)
    said += ["stopped by minutes" if config.seeds == 1 else f"{late} stopped by minutes"] if late else []
    said += ["given up"] if State.pruned in states else []
    said += [state.name for state in (State.failed, State.broken) if state in states]
    return ", ".join(said)


def _note(config: TuneConfig) -> str:
    metric = words_of(config.checkpoint.metric)
    best = f"the network's {metric} of its best epoch on the validation split; the test split is not read"
    if config.data.folds:
        spread = (
            f"Mean and standard deviation over {config.data.folds} folds of the network's {metric} on the fold, which "
            "its model has not seen; the test split is not read. 95 %: of the mean, with the variance of Nadeau and "
            "Bengio (2003)."
        )
    elif config.seeds > 1:
        seeds = f"seeds {config.seed} to {config.seed + config.seeds - 1}"
        spread = f"Mean and standard deviation over the {seeds}, of {best}. 95 %: of the mean, Student's t over seeds."
    else:
        spread = f"{metric.capitalize()}: {best}. 95 %: over the rows of the split."
    return f"{spread} The best of many is partly luck: expect less on new texts."


def _axis(record: Record) -> str:
    return ", ".join(short_names(record.vary.split(", ")))


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


def _adjusted(p_values: Mapping[str, float | None]) -> dict[str, str]:
    known = {row: p for row, p in p_values.items() if p is not None}
    shown = [f"{p:.3f}" if p >= 0.001 else "<0.001" for p in holm(list(known.values()))]
    return dict(zip(known, shown, strict=True))


def _points(differences: Sequence[float]) -> str:
    return f"{100 * fmean(differences):+.2f}" if differences else ""


def _budget_columns(record: Record) -> list[str]:
    lever = ["steps"] if record.equal == "tokens" else _moved_widths(record)
    return [*lever, "off by", "parameters", "FLOPs/token"]


def _moved_widths(record: Record) -> list[str]:
    """d_ff, and d_model where it is not the same everywhere."""
    n_widths = len({one.width["d_model"] for one in record.measured})
    return ["d_ff"] if n_widths == 1 else ["d_model", "d_ff"]


def _budget_cells(record: Record, measured: Measured, runs: dict[str, Figures]) -> list[str]:
    if record.equal == "tokens":
        lever = [f"{fmean(run.steps for run in runs.values()):,.0f}" if runs else ""]
    else:
        lever = [str(measured.width[name]) for name in _moved_widths(record)]
    figures = f"{measured.difference:+.2%}", f"{measured.parameters:,}", f"{measured.flops_per_token:,.0f}"
    return [*lever, *figures]


def _machines(record: Record, name: str) -> list[str]:
    """What the runs of the table were made on, in their order."""
    own = machine_words(record.machine)
    found = [run.machine or own for row in record.rows for run in _runs(record, name, row).values()]
    return list(dict.fromkeys(found)) or [own]


def _remarks(record: Record, runs: dict[str, Figures]) -> str:
    n_seeds = len(record.seeds)
    said = [f"{len(runs)} of {n_seeds} seeds"] if len(runs) < n_seeds else []
    stopped = [run.steps for run in runs.values() if run.stopped]
    said += [f"{len(stopped)} stopped by the limit, after {min(stopped)} steps"] if stopped else []
    diverged = sum(run.diverged for run in runs.values())
    said += [f"{diverged} diverged"] if diverged else []
    return ", ".join(said)


def _notes(record: Record, name: str) -> list[str]:
    by_width = "d_ff (of recurrent layers d_model) is chosen so that"
    within = f"within {record.tolerance:.0%}"
    chosen = {
        "parameters": f"{by_width} all rows have as many parameters as the first, {within}, and take the same steps",
        "flops": f"{by_width} a token costs as many operations as in the first row, {within}; all take the same steps",
        "tokens": f"steps are chosen so that all rows read as many tokens as the first, {within}",
    }[record.equal]
    seeds, machines = ", ".join(map(str, record.seeds)), _machines(record, name)
    made_on = (
        f"Runs of {len(machines)} machines or versions, whose tokens/s do not compare: {'; '.join(machines)}."
        if len(machines) > 1
        else f"Speed: {machines[0]}."
    )
    return [
        f"Accuracy: of the network alone, by its weights at the end of training, on {record.n_rows[name]:,} validation "
        f"rows, mean and standard deviation over the seeds {seeds}; the test split is not read. Equal {record.equal}: "
        f"{chosen}.",
        f"p: exact sign-flip test over rows, each counted by how many seeds answer it right, {_holm_words(record)}; "
        "the trained models are given: chance of training shows in sd.",
        made_on,
    ]


def _holm_words(record: Record) -> str:
    n_others = len(record.rows) - 1
    return f"adjusted for {n_others} comparisons (Holm)" if n_others > 1 else "of one comparison"
