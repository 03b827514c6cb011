"""What the runs of a search came to: read from the folder of a run, and the log of its process, once that has ended."""

import math
import signal
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from manyheads.config.figures import lower_is_better
from manyheads.distributed.signals import OUT_OF_TIME
from manyheads.runs.checkpoints import newest_checkpoint, read_progress
from manyheads.runs.files import read_json_or_none
from manyheads.runs.metrics_csv import read_metrics_csv
from manyheads.runs.summary import NETWORK, Interval

DIVERGED = "training diverged"  # begins the sentence of a run whose loss is not finite


class RunState(Enum):
    done = "done"
    late = "late"  # its minutes were up: its best figure so far counts
    pruned = "pruned"
    failed = "failed"  # the setting itself cannot be trained
    broken = "broken"  # killed, or ended by something else: the next start tries again
    again = "again"  # the setting of an earlier trial, whose figures count


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: setting number `trial`, counted from 1, with one seed.

    Attributes:
        value: the network's best validation figure, or, of a fold, its figure on the rows that judge the run.
        low, high: the interval over these rows, known of a run that came to its end.
        epochs, steps: how many were completed.
        seconds: of the whole process.
        why: what went wrong.
    """

    trial: int
    seed: int
    setting: dict[str, Any]
    state: RunState
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
        return self.state in (RunState.done, RunState.late) and self.value is not None

    @property
    def figure(self) -> float | Interval | None:
        """Its value, with its interval where that is known."""
        if self.value is None or self.low is None or self.high is None:
            return self.value
        return Interval(self.value, min(self.low, self.value), max(self.high, self.value))

    @property
    def is_final(self) -> bool:
        """Whether another start leaves it as it is."""
        return self.state is not RunState.broken

    @property
    def plain(self) -> dict[str, Any]:
        return asdict(self) | {"state": self.state.name}

    @classmethod
    def from_plain(cls, values: dict[str, Any]) -> "Outcome":
        made: dict[str, Any] = values | {"state": RunState[values["state"]]}
        return cls(**made)


class Trial(NamedTuple):
    """A run of `tune`: setting `number`, counted from 1, with one seed."""

    number: int
    seed: int
    setting: dict[str, Any]


def mean_value(runs: Iterable[Outcome]) -> float | None:
    """The mean of the figures that count."""
    values = [one.value for one in runs if one.counts and one.value is not None]
    return fmean(values) if values else None


def read_outcome(start: Outcome, code: int, folder: Path, log: Path, metric: str) -> Outcome:
    """The outcome of a process that ended with exit `code`; `start` says which run it was, and how long it took."""
    if code == 0:
        return _finished(start, folder, metric)
    finite = [figure for figure in validations(folder, metric) if math.isfinite(figure)]
    best = None
    if finite:
        best = min(finite) if lower_is_better(metric) else max(finite)
    known = replace(start, **progress_of(folder))
    if start.state is RunState.pruned:
        return replace(known, value=best)
    if code == OUT_OF_TIME and best is not None:
        return replace(known, state=RunState.late, value=best)
    if code == OUT_OF_TIME:
        return replace(known, state=RunState.failed, why="its minutes were up before the first validation")
    if code < 0 or code > 128:
        number = -code if code < 0 else code - 128
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        return replace(known, state=RunState.broken, why=f"killed by {name}")
    why = _last_line(log) or f"exit code {code}"
    state = RunState.failed if DIVERGED in why else RunState.broken
    return replace(known, state=state, why=why)


def trial_folder(output: Path, number: int, seed: int) -> Path:
    """Where a search trains a run; next to it are the log of its process and a file of its settings."""
    return output / "trials" / f"{number:03d}-seed-{seed}"


def progress_of(folder: Path) -> dict[str, int]:
    """The epochs and steps that a run has completed: by its newest checkpoint, or metrics.csv, whose rows count both
    from 0 and may end earlier, or later."""
    epochs, steps = 0, 0
    checkpoint = newest_checkpoint(folder / "checkpoints")
    if checkpoint:
        saved = read_progress(checkpoint)
        epochs, steps = saved["epoch"], saved["step"]
    for row in read_metrics_csv(folder / "metrics.csv"):
        steps = max(steps, int(row["step"]) + 1)
        if "train_loss" in row and "epoch" in row:
            epochs = max(epochs, int(row["epoch"]) + 1)
    return {"epochs": epochs, "steps": steps}


def validations(folder: Path, metric: str) -> list[float]:
    """The figure after each validation so far, in order; empty where there is none yet."""
    name = f"validation_{metric}"
    return [row[name] for row in read_metrics_csv(folder / "metrics.csv") if name in row]


def _finished(start: Outcome, folder: Path, metric: str) -> Outcome:
    """The outcome of a run that came to its end, by its summary.json."""
    summary = read_json_or_none(folder / "summary.json")
    if summary is None:
        return replace(start, state=RunState.broken, why=f"{folder} holds no summary.json")
    value = (summary.get("best") or {}).get("value")
    if value is None:
        return replace(start, state=RunState.failed, why="it made no validation figure")
    split = "test" if summary.get("test") else "validation"
    figures = summary.get("members", {}).get(split, {}).get(NETWORK) or summary[split]
    interval = figures.get(metric) or {}
    if split == "test":  # the rows of a fold, which chose no epoch
        value = interval["value"]
    return replace(
        start,
        state=RunState.done,
        value=value,
        low=interval.get("low"),
        high=interval.get("high"),
        epochs=summary["epochs"],
        steps=summary["steps"],
        seconds=summary["wall_seconds"],
    )


def _last_line(log: Path) -> str:
    """The last line that a process wrote, which is the sentence of a user's mistake."""
    if not log.is_file():
        return ""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""
