"""What report.html says of a classifier: how good it is, beside what, and where it errs."""

from collections.abc import Sequence

from manyheads.judge.baselines import TFIDF, Baseline, lead_words
from manyheads.judge.markup import Html, shown
from manyheads.judge.predictions import Mistake
from manyheads.judge.report import Sections
from manyheads.judge.scores import Scores
from manyheads.judge.sections import all_figures, comparison, confusion, per_class, tiles, worst


def class_sections(scores: Scores, baselines: Sequence[Baseline] = (), mistakes: Sequence[Mistake] = ()) -> Sections:
    """Scores of one split, `baselines` and `mistakes` of the same."""
    said = Html(f"<p class=verdict>{shown(verdict(scores, baselines))}</p>")
    return Sections(
        [tiles(scores), said, *comparison(scores, baselines)],
        [confusion(scores), per_class(scores), all_figures(scores), *worst(mistakes)],
    )


def verdict(scores: Scores, baselines: Sequence[Baseline]) -> str:
    """One sentence a hurried reader can repeat; it says so where a bag of words wins."""
    accuracy = scores.accuracy
    right = (
        f"{accuracy.value:.1%} of {scores.n_rows:,} rows are answered right "
        f"(95 % interval {accuracy.low:.1%} to {accuracy.high:.1%})"
    )
    rival = next((one for one in baselines if one.name == TFIDF), None) or next(iter(baselines), None)
    if rival is None:
        return f"{right}."
    if rival.lead is not None:
        return f"{right}; on the same rows it {lead_words(rival.lead.accuracy, rival.name)}."
    points = 100 * (accuracy.value - rival.scores.accuracy.value)
    how = f"{abs(points):.1f} points {'more' if points >= 0 else 'fewer'} than {rival.name} reaches"
    other = rival.scores.accuracy
    apart = accuracy.low > other.high or accuracy.high < other.low
    return f"{right}, {how}{'' if apart else '; the two intervals overlap'}."
