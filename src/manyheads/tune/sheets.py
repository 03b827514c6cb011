"""What a search came to as a table."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from manyheads.config import Metric, TuneConfig
from manyheads.config.plain import show
from manyheads.sheet import Sheet
from manyheads.tune.outcome import Outcome, State
from manyheads.tune.ranking import Ranked
from manyheads.whole import replace_file

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
            setting = [shown(one.setting[name]) for name in config.search]
            figures = ["" if value is None else value for value in (one.value, one.low, one.high)]
            counts = [one.epochs, one.steps, round(one.seconds, 1), one.why]
            table.writerow([one.trial, one.seed, *setting, one.state.name, *figures, *counts])


def words(metric: Metric) -> str:
    return metric.name.replace("_", " ").replace("f1", "F1")


def short_names(names: Sequence[str]) -> list[str]:
    """Without their sections, where that leaves them apart."""
    short = [name.rpartition(".")[2] for name in names]
    return short if len(set(short)) == len(short) else list(names)


def shown(value: Any) -> str:
    return f"[{', '.join(map(show, value))}]" if isinstance(value, list) else show(value)


def _line(config: TuneConfig, one: Ranked) -> list[str]:
    pruned = [run.value for run in one.runs if run.state is State.pruned and run.value is not None]
    value = one.mean if one.mean is not None else pruned[0] if pruned else None
    several = [_figure(one.deviation)] if config.seeds > 1 else []
    between = "" if one.interval is None else f"{one.interval[0]:.3f}-{one.interval[1]:.3f}"
    steps = max((run.steps for run in one.runs), default=0)
    minutes = sum(run.seconds for run in one.runs) / 60
    setting = [shown(one.setting[name]) for name in config.search]
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
