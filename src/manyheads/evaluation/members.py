"""What each member of a classifier reaches alone, and what figures cannot say.

What figures cannot say: where rows are few, and where the model was chosen on the rows that it is judged on.

The rule: fewer than 100 judged rows leave a share of them open by ten points and more to either side; fewer than ten
rows of a class say little about it; and what was chosen on fewer than 100 validation rows, or for a label on fewer than
ten that have it, is partly luck.

A classifier, each of its members alone, and cheap models on the same rows, judged.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from manyheads.config.fields import listed, show
from manyheads.data.rows import Rows
from manyheads.evaluation.answers import (
    LINEAR,
    MAJORITY,
    Baseline,
    Predictions,
    judge_baselines,
    logits_by_model,
    majority,
)
from manyheads.evaluation.multilabel import (
    MOST_FREQUENT,
    LabelAnswered,
    LabelBaseline,
    LabelScores,
    always,
    judge_labels,
    label_baselines,
    most_frequent,
    scores_of,
)
from manyheads.evaluation.scores import Scores, score, share_interval
from manyheads.evaluation.summary import linear_words
from manyheads.inference.classifier import TextClassifier
from manyheads.linear.model import LinearBaseline

FEW_ROWS = 100
FEW_OF_CLASS = 10
MOST_NAMED = 5


def few_rows(judged: Rows, split: str, names: Sequence[str], validation: Rows | None = None) -> list[str]:
    """One warning, or none.

    Args:
        split: what the judged rows are called.
        names: of the classes or labels; none where rows are answered by texts.
        validation: the rows on which the model was chosen, where they are known.
    """
    said, n = [], len(judged)
    if n < FEW_ROWS:
        middle = share_interval(n // 2, n)
        points = 50 * (middle.high - middle.low)
        said.append(f"{split} has {_rows(n)}: a share of them is known to ±{points:.0f} points at worst")
    counts = rows_of_class(judged, len(names))
    none = [show(names[label]) for label in range(len(names)) if not counts[label]]
    few = [f"{show(names[label])} ({counts[label]})" for label in range(len(names)) if 0 < counts[label] < FEW_OF_CLASS]
    if none:
        said.append(f"{split} has no row of {_some(none)}, of which it says nothing")
    if few:
        what = "their own figures, and what they add to macro F1, may be chance"
        said.append(f"{split} has fewer than {FEW_OF_CLASS} rows of {_some(few)}: {what}")
    if validation is not None and len(validation) < FEW_ROWS:
        said.append(f"what was chosen on the {_rows(len(validation))} of validation is partly luck")
    if validation is not None and validation.sets is not None:
        had = rows_of_class(validation, len(names))
        tuned = [f"{show(names[label])} ({had[label]})" for label in range(len(names)) if had[label] < FEW_OF_CLASS]
        where = f"fewer than {FEW_OF_CLASS} validation rows that have the label"
        said += [f"the thresholds of {_some(tuned)} were tuned on {where}"] if tuned else []
    return [f"few rows: {'; '.join(said)}"] if said else []


def rows_of_class(rows: Rows, n_classes: int) -> list[int]:
    """How many rows have each class or label."""
    ids = rows.labels if rows.sets is None else [label for one in rows.sets for label in one]
    counts = Counter(ids)
    return [counts[label] for label in range(n_classes)]


def chosen_here(split: str, *, linear: bool, multi: bool, classes: bool = True) -> str:
    """What was chosen on the rows of `split`, where it is validation: its figures flatter the model.

    Args:
        linear: a linear model answers, too.
        multi: rows have any number of labels.
        classes: rows are answered by classes or labels.
    """
    if split != "validation":
        return ""
    what = ["epoch", *(["share", "temperatures"] if linear else []), *(["thresholds"] if multi else [])]
    was, lead = "were" if len(what) > 1 else "was", " and lead" if classes else ""
    return (
        f"{_and(what)} {was} chosen on these validation rows: figures{lead} flatter the model, expect less of new texts"
    )


def learnt_here(split: str) -> str:
    """That the rows were learnt from."""
    return "the model learnt from these training rows: the figures say nothing of new texts" if split == "train" else ""


def _rows(n: int) -> str:
    return f"{n:,} row{'s' * (n != 1)}"


def _some(names: list[str]) -> str:
    more = len(names) - MOST_NAMED
    return listed(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _and(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


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
    classifier: TextClassifier,
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
    classifier: TextClassifier,
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


def said_of(classifier: TextClassifier, baseline: LinearBaseline | None) -> str:
    """What the linear model beside the network is, in a sentence."""
    words = linear_words(baseline.linear.terms_name if baseline else "", classifier.share)
    return "".join(f"{name.capitalize()}: {said}." for name, said in words.items())
