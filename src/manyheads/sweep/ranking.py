"""The settings of a search from the best down, and their table.

The settings of a search from the best down, each with the mean of its runs.

What a search came to as a table.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from manyheads.config import Metric, TuneConfig
from manyheads.config.fields import show
from manyheads.runs.atomic import replace_file
from manyheads.sweep.journal import Outcome, State
from manyheads.terminal import Sheet


@dataclass(frozen=True, slots=True)
class Ranked:
    """A setting and its runs; `low` and `high` are the 95 % interval of `mean`.

    Of several seeds that is Student's, with runs as the units: where the mean of many more seeds lies. Of a single run
    it is the interval over the rows of the validation split, where the run came to its end.
    """

    trial: int
    setting: dict[str, Any]
    runs: list[Outcome]
    n_seeds: int

    @property
    def values(self) -> list[float]:
        return [one.value for one in self.runs if one.counts and one.value is not None]

    @property
    def is_whole(self) -> bool:
        """Whether every seed came to a figure."""
        return len(self.values) == self.n_seeds

    @property
    def mean(self) -> float | None:
        return fmean(self.values) if self.values else None

    @property
    def deviation(self) -> float | None:
        return stdev(self.values) if len(self.values) > 1 else None

    @property
    def interval(self) -> tuple[float, float] | None:
        if self.n_seeds == 1:
            low, high = self.runs[0].low, self.runs[0].high
            return None if low is None or high is None else (low, high)
        if len(self.values) < 2:
            return None
        mean, half = fmean(self.values), half_width(self.values)
        return mean - half, mean + half


def half_width(values: Sequence[float]) -> float:
    """Half the 95 % interval of the mean of a few values, by Student's t."""
    from scipy.special import stdtrit

    n = len(values)
    return float(stdtrit(n - 1, 0.975)) * stdev(values) / n**0.5


def rank(outcomes: Sequence[Outcome], seeds: range, metric: Metric) -> list[Ranked]:
    """Best first: settings of which every seed came to a figure, then those of which some did, then the rest.

    What was drawn again is left out.
    """
    runs: dict[int, list[Outcome]] = {}
    for one in outcomes:
        if one.state is not State.again and one.seed in seeds:
            runs.setdefault(one.trial, []).append(one)
    made = [Ranked(number, of[0].setting, of, len(seeds)) for number, of in runs.items()]
    sign = 1 if metric is Metric.loss else -1

    def place(one: Ranked) -> tuple[int, float, int]:
        pruned = [run.value for run in one.runs if run.state is State.pruned and run.value is not None]
        group = 0 if one.is_whole else 1 if one.values else 2 if pruned else 3
        value = one.mean if one.mean is not None else pruned[0] if pruned else 0.0
        return group, sign * value, one.trial

    return sorted(made, key=place)


def best_of(ranked: Sequence[Ranked]) -> Ranked | None:
    """The first, if it has a figure."""
    return ranked[0] if ranked and ranked[0].values else None


MOST_LINES = 20  # on the screen


def sheet_of(config: TuneConfig, ranked: Sequence[Ranked], most: int | None = None) -> Sheet:
    """One line a setting, best first; of more than `most` the best, and how many are left out."""
    metric, names = config.checkpoint.metric, short_names(list(config.search))
    several = ["sd"] if config.seeds > 1 else []
    columns = ["trial", *names, words(metric), *several, "95 %", "steps", "minutes", "remarks"]
    lines = [_line(config, one) for one in ranked[:most]]
    if not any(line[-1] for line in lines):
        columns, lines = columns[:-1], [line[:-1] for line in lines]
    left = len(ranked) - len(lines)
    notes = [_note(config), *([f"{left} more are in trials.csv."] if left else []), *_reasons(ranked[:most])]
    return Sheet(f"{len(ranked)} settings by validation {words(metric)}", columns, lines, notes)


def write_csv(path: Path, config: TuneConfig, outcomes: Sequence[Outcome]) -> None:
    """Every run in the order of its trial."""
    columns = [
        "trial",
        "seed",
        *config.search,
        "state",
        config.checkpoint.metric.name,
        "low",
        "high",
        "epochs",
        "steps",
    ]
    with replace_file(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow([*columns, "seconds", "why"])
        for one in outcomes:
            setting = [shown_setting(one.setting[name]) for name in config.search]
            figures = ["" if value is None else value for value in (one.value, one.low, one.high)]
            counts = [one.epochs, one.steps, round(one.seconds, 1), one.why]
            table.writerow([one.trial, one.seed, *setting, one.state.name, *figures, *counts])


def words(metric: Metric) -> str:
    return metric.name.replace("_", " ").replace("f1", "F1")


def short_names(names: Sequence[str]) -> list[str]:
    """Without their sections, where that leaves them apart."""
    short = [name.rpartition(".")[2] for name in names]
    return short if len(set(short)) == len(short) else list(names)


def shown_setting(value: Any) -> str:
    return f"[{', '.join(map(show, value))}]" if isinstance(value, list) else show(value)


def _line(config: TuneConfig, one: Ranked) -> list[str]:
    pruned = [run.value for run in one.runs if run.state is State.pruned and run.value is not None]
    value = one.mean if one.mean is not None else pruned[0] if pruned else None
    several = [_figure(one.deviation)] if config.seeds > 1 else []
    between = "" if one.interval is None else f"{one.interval[0]:.3f}-{one.interval[1]:.3f}"
    steps = max((run.steps for run in one.runs), default=0)
    minutes = sum(run.seconds for run in one.runs) / 60
    setting = [shown_setting(one.setting[name]) for name in config.search]
    figures = [_figure(value), *several, between, f"{steps:,}", f"{minutes:.1f}"]
    return [str(one.trial), *setting, *figures, _remarks(config, one)]


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _remarks(config: TuneConfig, one: Ranked) -> str:
    n_values = len(one.values)
    said = [f"{n_values} of {config.seeds} seeds"] if config.seeds > 1 and 0 < n_values < config.seeds else []
    late = sum(run.state is State.late for run in one.runs)
    said += ["stopped by minutes" if config.seeds == 1 else f"{late} stopped by minutes"] if late else []
    said += ["given up"] if any(run.state is State.pruned for run in one.runs) else []
    said += [state.name for state in (State.failed, State.broken) if any(run.state is state for run in one.runs)]
    return ", ".join(said)


def _reasons(ranked: Sequence[Ranked]) -> list[str]:
    """What went wrong, a line a setting."""
    found = {one.trial: dict.fromkeys(run.why for run in one.runs if run.why) for one in ranked}
    return [f"trial {number}: {'; '.join(why)}" for number, why in found.items() if why]


def _note(config: TuneConfig) -> str:
    metric = words(config.checkpoint.metric)
    best = f"the network's {metric} of its best epoch on the validation split; the test split is not read"
    if config.seeds > 1:
        seeds = f"seeds {config.seed} to {config.seed + config.seeds - 1}"
        spread = f"Mean and standard deviation over the {seeds}, of {best}. 95 %: of the mean, Student's t over seeds."
    else:
        spread = f"{metric.capitalize()}: {best}. 95 %: over the rows of the split."
    chosen = "The best of many is partly luck: expect less on new texts."
    return f"{spread} {chosen}"
