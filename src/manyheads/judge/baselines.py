"""What needs no training of ours: the bar a Transformer has to clear before anyone believes in it."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

from manyheads.data.rows import Rows
from manyheads.judge.scores import Answers, Interval, change_of_answers, score_answers
from manyheads.ship.linear import LinearBaseline

POINTS = 100  # of a share
MAJORITY = "most frequent class"
TFIDF = "TF-IDF + logistic regression"


@dataclass(slots=True)
class Baseline:
    """One baseline's answers on one split, judged; `seconds` is answering. `lead` is how much better the
    model answers the same rows, figure by figure, with paired intervals."""

    name: str
    scores: Answers
    seconds: float
    lead: Answers | None = None


def judge_baselines(
    train: Rows,
    rows: Rows,
    n_classes: int,
    model: Sequence[int] | None = None,
    linear: LinearBaseline | None = None,
    *,
    n_resamples: int = 1000,
    seed: int = 0,
) -> list[Baseline]:
    """The most frequent class of `train`, and the `linear` model where training fitted one, judged on `rows` with the
    resamples of `score(..., seed=seed)`, and where the answers of a `model` to these rows are given, its lead."""
    answers: dict[str, Callable[[], list[int]]] = {MAJORITY: lambda: majority_baseline(train, rows)}
    if linear is not None:
        answers[TFIDF] = lambda: linear.logits(rows.texts, rows.pairs).argmax(-1).tolist()
    judged = []
    for name, answer in answers.items():
        started = perf_counter()
        given = answer()
        seconds = perf_counter() - started
        scores = score_answers(rows.labels, given, n_classes, n_resamples=n_resamples, seed=seed)
        lead = None
        if model is not None:
            lead = change_of_answers(rows.labels, given, [model], n_classes, n_resamples=n_resamples, seed=seed)[0]
        judged.append(Baseline(name, scores, seconds, lead))
    return judged


def lead_words(lead: Interval, name: str) -> str:
    """How far a model is ahead of the baseline `name`, in points of a share, and how sure that is."""
    value, low, high = (POINTS * one for one in (lead.value, lead.low, lead.high))
    between = f"95 % interval {low:.1f} to {high:.1f}"
    if low > 0:
        return f"beats {name} by {value:.1f} points ({between})"
    if high < 0:
        return f"falls short of {name} by {-value:.1f} points ({between})"
    return f"cannot be told from {name}: {value:+.1f} points ({between})"


def majority_baseline(train: Rows, rows: Rows) -> list[int]:
    """The most frequent class of `train` (of equals the first), for every row."""
    counts = Counter(train.labels)
    return [max(sorted(counts), key=lambda label: counts[label])] * len(rows)
