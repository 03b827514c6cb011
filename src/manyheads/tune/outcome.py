"""What one run of a search came to, read from its folder."""

import json
import math
import signal
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from manyheads.config import Metric
from manyheads.fit.stop import OUT_OF_TIME
from manyheads.judge.curves import read_curves

DIVERGED = "training diverged"


class State(Enum):
    done = "done"
    late = "late"  # its minutes were up: its best figure so far counts
    pruned = "pruned"
    failed = "failed"  # the setting itself cannot be trained
    broken = "broken"  # killed, or ended by something else: the next start tries again
    again = "again"  # the setting of an earlier trial, whose figures count


COUNTS = (State.done, State.late)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: setting number `trial`, counted from 1, with one seed.

    `value` is the best validation figure, `low` and `high` its interval over the rows of the split, known of a run
    that came to its end. `why` says what went wrong. `seconds` are of the whole process.
    """

    trial: int
    seed: int
    setting: dict[str, Any]
    state: State
    value: float | None = None
    low: float | None = None
    high: float | None = None
    epochs: int = 0
    steps: int = 0
    seconds: float = 0.0
    why: str = ""

    @property
    def counts(self) -> bool:
        """Whether its figure is that of a setting."""
        return self.state in COUNTS and self.value is not None

    @property
    def is_final(self) -> bool:
        """Whether another start leaves it as it is."""
        return self.state is not State.broken


def validations(folder: Path, metric: Metric) -> list[float]:
    """The figure after each validation so far, in order; empty where there is none yet."""
    name = f"validation_{metric.name}"
    return [row[name] for row in read_curves(folder / "metrics.csv") if name in row]


def best_of(figures: list[float], metric: Metric) -> float | None:
    finite = [figure for figure in figures if math.isfinite(figure)]
    return (min if metric is Metric.loss else max)(finite, default=None)


def last_line(log: Path) -> str:
    """The last thing a process said, which in a mistake is its sentence."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    said = [line.strip() for line in lines if line.strip()]
    return said[-1] if said else ""


def read_outcome(start: Outcome, code: int, folder: Path, log: Path, metric: Metric) -> Outcome:
    """The outcome of a process that ended with exit `code`; `start` says which run it was, and how long it took."""
    steps = [int(row["step"]) for row in read_curves(folder / "metrics.csv")]
    known = {"trial": start.trial, "seed": start.seed, "setting": start.setting, "seconds": start.seconds}
    known["steps"] = max(steps, default=0)
    if code == 0:
        return _finished(known, folder, metric)
    if start.state is State.pruned:
        return Outcome(**known, state=State.pruned, value=best_of(validations(folder, metric), metric))
    if code == OUT_OF_TIME:
        figures = validations(folder, metric)
        value = best_of(figures, metric)
        if value is None:
            return Outcome(**known, state=State.failed, why="its minutes were up before the first validation")
        return Outcome(**known, state=State.late, value=value, epochs=len(figures))
    if code < 0 or code > 128:
        number = -code if code < 0 else code - 128
        return Outcome(**known, state=State.broken, why=f"killed by {_signal_name(number)}")
    why = last_line(log) or f"exit code {code}"
    return Outcome(**known, state=State.failed if DIVERGED in why else State.broken, why=why)


def _finished(known: dict[str, Any], folder: Path, metric: Metric) -> Outcome:
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Outcome(**known, state=State.broken, why=f"{folder} holds no summary.json")
    best = summary.get("best") or {}
    if best.get("value") is None:
        return Outcome(**known, state=State.failed, why="it made no validation figure")
    interval = summary["validation"].get(metric.name) or {}
    known["seconds"] = summary["wall_seconds"]
    known["steps"] = summary["steps"]
    return Outcome(
        **known,
        state=State.done,
        value=best["value"],
        low=interval.get("low"),
        high=interval.get("high"),
        epochs=summary["epochs"],
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
