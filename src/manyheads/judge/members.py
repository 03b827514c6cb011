"""A classifier, each of its members alone, and cheap models on the same rows, judged."""

from collections.abc import Callable
from typing import Any, NamedTuple

from manyheads.data.rows import Rows
from manyheads.judge.baselines import LINEAR, MAJORITY, Baseline, judge_baselines, majority
from manyheads.judge.label_answers import LabelAnswered, judge_labels, scores_of
from manyheads.judge.label_baselines import MOST_FREQUENT, LabelBaseline, always, label_baselines, most_frequent
from manyheads.judge.label_scores import LabelScores
from manyheads.judge.predictions import Predictions, logits_by_model
from manyheads.judge.scores import Scores, score
from manyheads.judge.summary import linear_words
from manyheads.judge.warn import rows_of_class
from manyheads.ship.deliverable import Deliverable
from manyheads.ship.linear import LinearBaseline


class Members(NamedTuple):
    """What the model `answered`; the scores of it, of its members and of the linear model, by their names, its own
    first; and cheap models, the linear model among them."""

    answered: Predictions
    scores: dict[str, Scores]
    baselines: list[Baseline]


class LabelMembers(NamedTuple):
    """The same where rows have any number of labels."""

    answered: LabelAnswered
    scores: dict[str, LabelScores]
    baselines: list[LabelBaseline]


def judge_members(
    classifier: Deliverable,
    rows: Rows,
    baseline: LinearBaseline | None,
    frequent: int | None = None,
    *,
    tokens: int = 8192,
    progress: Callable[[int], None] = lambda n_rows: None,
    **draws: Any,
) -> Members:
    """All of them on `rows`.

    Args:
        baseline: the linear model of the run.
        frequent: the class that most training rows have; None: that of these rows.
        draws: `n_resamples` and `seed` of the intervals.
    """
    logits = logits_by_model(classifier, rows, baseline, tokens=tokens, progress=progress)
    found = {name: Predictions(rows, classifier.labels, logits_nC) for name, logits_nC in logits.items()}
    answered = next(iter(found.values()))
    scores = {name: score(rows.labels, one.probabilities_nC.numpy(), one.names, **draws) for name, one in found.items()}
    cheap = {MAJORITY: [majority(rows) if frequent is None else frequent] * len(rows)}
    cheap |= {LINEAR: found[LINEAR].answers} if LINEAR in found else {}
    beside = judge_baselines(rows, len(classifier.labels), cheap, answered.answers, **draws)
    return Members(answered, scores, beside)


def judge_label_members(
    classifier: Deliverable,
    rows: Rows,
    baseline: LinearBaseline | None,
    frequent: int | None = None,
    *,
    tokens: int = 8192,
    progress: Callable[[int], None] = lambda n_rows: None,
    **draws: Any,
) -> LabelMembers:
    """The same; arguments as of `judge_members`."""
    found = judge_labels(classifier, rows, baseline, tokens=tokens, progress=progress)
    answered, n_labels = next(iter(found.values())), len(classifier.labels)
    label = most_frequent(rows_of_class(rows, n_labels)) if frequent is None else frequent
    cheap = {MOST_FREQUENT: always(label, len(rows), n_labels)}
    cheap |= {LINEAR: found[LINEAR].given_nC} if LINEAR in found else {}
    scores = {name: scores_of(one, **draws) for name, one in found.items()}
    return LabelMembers(answered, scores, label_baselines(answered.marks_nC, cheap, answered.given_nC, **draws))


def said_of(classifier: Deliverable, baseline: LinearBaseline | None) -> str:
    """What the linear model beside the network is, in a sentence."""
    words = linear_words(baseline.linear.terms_name if baseline else "", classifier.share)
    return "".join(f"{name.capitalize()}: {said}." for name, said in words.items())
