"""What needs no training of ours: the bar a Transformer has to clear before anyone believes in it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from manyheads.data.rows import Rows
from manyheads.judge.scores import Answers, Interval, change_of_answers, score_answers

POINTS = 100  # of a share
MAJORITY = "most frequent class"
NETWORK, LINEAR, BOTH = "network", "linear model", "both"
"""What the models of a run are called in tables, reports and files: see `predictions.logits_by_model`."""


@dataclass(slots=True)
class Baseline:
    """One baseline's answers on one split, judged. `lead` is how much better the model answers the same rows, figure by
    figure, with paired intervals."""

    name: str
    scores: Answers
    lead: Answers | None = None


def judge_baselines(
    rows: Rows,
    n_classes: int,
    answers: Mapping[str, Sequence[int]],
    model: Sequence[int] | None = None,
    *,
    n_resamples: int = 1000,
    seed: int = 0,
) -> list[Baseline]:
    """Cheap models' `answers` to `rows`, by their names, judged with the resamples of `score(..., seed=seed)`, and the
    lead of a `model` whose answers are given."""
    draws: dict[str, Any] = {"n_resamples": n_resamples, "seed": seed}
    judged = []
    for name, given in answers.items():
        lead = None if model is None else change_of_answers(rows.labels, given, [model], n_classes, **draws)[0]
        judged.append(Baseline(name, score_answers(rows.labels, given, n_classes, **draws), lead))
    return judged


def strongest(baselines: Sequence[Any], figure: str) -> Any:
    """The baseline with the highest `figure`, of equals the last: a lead is one over it. None: there are none."""
    return max(reversed(baselines), key=lambda one: getattr(one.scores, figure).value, default=None)


def lead_words(lead: Interval, name: str) -> str:
    """How far a model is ahead of the baseline `name`, in points of a share, and how sure that is."""
    value, low, high = (POINTS * one for one in (lead.value, lead.low, lead.high))
    between = f"95 % interval {low:.1f} to {high:.1f}"
    if low > 0:
        return f"beats the {name} by {value:.1f} points ({between})"
    if high < 0:
        return f"falls short of the {name} by {-value:.1f} points ({between})"
    return f"cannot be told from the {name}: {value:+.1f} points ({between})"


def majority(rows: Rows) -> int:
    """The most frequent class of `rows`, of equals the first."""
    counts = Counter(rows.labels)
    return max(sorted(counts), key=lambda label: counts[label])
