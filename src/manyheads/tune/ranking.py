"""The settings of a search from the best down, each with the mean of its runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from manyheads.config import Metric
from manyheads.tune.outcome import Outcome, State


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
