"""The settings of a search, ranked by their validation figures: the table on the screen, report.html, search.json and
trials.csv.

No ranking of settings by importance is made: with a few dozen trials such numbers are mostly noise.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from manyheads.config.figures import limits_of, lower_is_better
from manyheads.config.sentences import format_list
from manyheads.evaluation.intervals import SHARE, fold_interval, seed_interval
from manyheads.evaluation.report import Page, ReportSection, ReportTable, installed_versions, value_sections, write_page
from manyheads.plugins.sweep.config import TuneConfig
from manyheads.plugins.sweep.outcomes import Outcome, RunState
from manyheads.runs.files import replace_file, write_json
from manyheads.runs.result_table import Cell, ResultTable
from manyheads.runs.summary import NETWORK, Interval, words_of

MOST_LINES = 20  # on the screen


@dataclass(frozen=True, slots=True)
class Ranked:
    """A setting and its runs, one for each of `n_seeds` seeds, or of as many `folds`.

    Attributes:
        limits: the least and the most that the figure can be.
    """

    trial: int
    setting: dict[str, Any]
    runs: list[Outcome]
    n_seeds: int
    folds: bool = False
    limits: tuple[float, float] = SHARE

    @property
    def values(self) -> list[float]:
        return [one.value for one in self.runs if one.counts and one.value is not None]

    @property
    def deviation(self) -> float | None:
        return stdev(self.values) if len(self.values) > 1 else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The ends of the 95 % interval of the mean: `seed_interval`, with runs as the units, for where the mean of
        many more seeds lies; of folds `fold_interval`. Of a single run that came to its end it is the interval over
        the rows of the validation split."""
        figures = [one.figure for one in self.runs if one.counts and one.figure is not None]
        found: float | Interval | None = None
        if self.n_seeds == 1:
            if figures:
                found = figures[0]
        elif len(figures) > 1 and self.folds:
            found = fold_interval(figures, 1 / (self.n_seeds - 1), limits=self.limits)
        elif len(figures) > 1:
            found = seed_interval(figures, limits=self.limits)
        return (found.low, found.high) if isinstance(found, Interval) else None

    @property
    def shown(self) -> float | None:
        """Its mean, or the figure at which it was given up."""
        if self.values:
            return fmean(self.values)
        for run in self.runs:
            if run.state is RunState.pruned:
                return run.value
        return None


def rank(outcomes: Sequence[Outcome], seeds: range, metric: str, *, folds: bool = False) -> list[Ranked]:
    """Best first: settings of which every seed came to a figure, then those of which some did, then those given up.

    What was drawn again is left out.
    """
    runs: dict[int, list[Outcome]] = {}
    for one in outcomes:
        if one.state is not RunState.again and one.seed in seeds:
            runs.setdefault(one.trial, []).append(one)
    ranked = [Ranked(trial, of[0].setting, of, len(seeds), folds, limits_of(metric)) for trial, of in runs.items()]
    sign = 1 if lower_is_better(metric) else -1

    def place(one: Ranked) -> tuple[int, float, int]:
        if len(one.values) == one.n_seeds:
            group = 0
        elif one.values:
            group = 1
        elif one.shown is not None:
            group = 2
        else:
            group = 3
        return group, sign * (one.shown or 0.0), one.trial

    return sorted(ranked, key=place)


def search_table(config: TuneConfig, ranked: Sequence[Ranked], most: int | None = None) -> ResultTable:
    """One line a setting, best first; of more than `most` the best, and how many are left out."""
    metric, rows, notes = words_of(config.checkpoint.metric), list[dict[str, Cell]](), [_how_to_read(config)]
    names = short_names(config.search)
    for one in ranked[:most]:
        value: Cell = one.shown
        if value is not None and one.interval is not None:
            value = Interval(value, min(one.interval[0], value), max(one.interval[1], value))
        settings = [format_list(one.setting[name]) for name in config.search]
        row: dict[str, Cell] = {"trial": one.trial, **dict(zip(names, settings, strict=True)), metric: value}
        if config.n_runs > 1:
            row["sd"] = one.deviation
        row["steps"] = max((run.steps for run in one.runs), default=0)
        rows.append(row | {"minutes": sum(run.seconds for run in one.runs) / 60, "remarks": _remarks(config, one)})
        if why := dict.fromkeys(run.why for run in one.runs if run.why):
            notes.append(f"trial {one.trial}: {'; '.join(why)}")
    if len(ranked) > len(rows):
        notes.insert(1, f"{len(ranked) - len(rows)} more are in trials.csv.")
    title = f"{len(ranked)} settings by validation {metric} of the {NETWORK}"
    bars = "95 % intervals over the rows"
    if config.n_runs > 1:
        bars = f"95 % intervals of the mean over {config.n_runs} {'folds' if config.data.folds else 'seeds'}"
    return table_of_rows("search", title, rows, formats={"minutes": ".1f"}, notes=notes, bars=bars)


def search_tables(document: dict[str, Any]) -> list[ResultTable]:
    """The table that search.json holds."""
    rows: list[list[Cell]] = []
    for row in document["rows"]:
        rows.append([Interval(**cell) if isinstance(cell, dict) else cell for cell in row])
    return [ResultTable(**{**document, "rows": rows})]


def table_of_rows(name: str, title: str, rows: Sequence[Mapping[str, Cell]], **more: Any) -> ResultTable:
    """A table of cells by column, the last of which are remarks, left out where there are none."""
    columns = [*rows[0]] if rows else []
    if columns and not any(row["remarks"] for row in rows):
        columns.remove("remarks")
    return ResultTable(name, title, columns, [[row[column] for column in columns] for row in rows], **more)


def short_names(names: Iterable[str]) -> list[str]:
    """Without their sections, where that leaves them different."""
    short = [name.rpartition(".")[2] for name in names]
    return short if len(set(short)) == len(short) else list(names)


def _remarks(config: TuneConfig, one: Ranked) -> str:
    states, remarks = [run.state for run in one.runs], []
    if 0 < len(one.values) < config.n_runs:
        remarks.append(f"{len(one.values)} of {config.n_runs} {'folds' if config.data.folds else 'seeds'}")
    late = states.count(RunState.late)
    if late:
        remarks.append("stopped by minutes" if config.seeds == 1 else f"{late} stopped by minutes")
    if RunState.pruned in states:
        remarks.append("given up")
    remarks += [state.name for state in (RunState.failed, RunState.broken) if state in states]
    return ", ".join(remarks)


def _how_to_read(config: TuneConfig) -> str:
    metric = words_of(config.checkpoint.metric)
    best = f"the network's {metric} of its best epoch on the validation split; the test split is not read"
    if config.data.folds:
        spread = (
            f"Mean and standard deviation over {config.data.folds} folds of the network's {metric} on the fold, which "
            "its model has not seen; the test split is not read. In brackets: the 95 % interval of the mean, with the "
            "variance of Nadeau and Bengio (2003)."
        )
    elif config.seeds > 1:
        seeds = f"seeds {config.seed} to {config.seed + config.seeds - 1}"
        spread = (
            f"Mean and standard deviation over the {seeds}, of {best}. In brackets: the 95 % interval of the mean, "
            "Student's t over seeds."
        )
    else:
        spread = f"{metric.capitalize()}: {best}. In brackets: the 95 % interval over the rows of the split."
    return f"{spread} The best of many settings is partly chosen by chance: expect a lower figure on new texts."


def write_results(
    folder: Path, config: TuneConfig, table: ResultTable, outcomes: Sequence[Outcome], command: str
) -> list[str]:
    """Write report.html, search.json and trials.csv, each file whole; returns their names."""
    write_csv(folder / "trials.csv", config, outcomes)
    write_json(folder / "search.json", asdict(table))
    write_page(folder / "report.html", search_page(config, table, command))
    return ["report.html", "search.json", "trials.csv"]


def search_page(config: TuneConfig, table: ResultTable, command: str) -> Page:
    """The report; `command` trains the best setting, where one came to a figure."""
    kinds = "".join("w" if name == "remarks" else "n" for name in table.columns)
    shown = ReportTable(table.columns, table.in_words(), kinds, own=0)
    sections = [ReportSection(table.title, shown, table.notes, long=True)]
    if command:
        sections.append(ReportSection("Train the best setting and evaluate it on the test split", command=command))
    searched = {}
    for name, given in config.search.items():
        searched[name] = given if isinstance(given, str) else ", ".join(map(format_list, given))
    how = {
        "method": config.chosen.name,
        "prune": config.prune.name,
        "seeds": config.seeds,
        "folds": config.data.folds,
        "minutes": config.minutes,
    }
    sections += value_sections({"Searched": searched, "How": how, "Versions": installed_versions()})
    subtitle = f"{len(table.rows)} settings, {config.n_runs} run(s) each"
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
