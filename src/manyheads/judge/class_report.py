"""What report.html says of a classifier: how good it is, beside what, and where it errs."""

from collections.abc import Sequence

from manyheads.judge.baselines import Baseline, lead_words, strongest
from manyheads.judge.markup import Html, shown
from manyheads.judge.predictions import Mistake
from manyheads.judge.report import Sections
from manyheads.judge.scores import Scores
from manyheads.judge.sections import all_figures, comparison, confusion, per_class, tiles, worst


def class_sections(
    models: dict[str, Scores], baselines: Sequence[Baseline] = (), mistakes: Sequence[Mistake] = (), said: str = ""
) -> Sections:
    """Scores of one split by the name of the model, the one that answers first; `baselines` and `mistakes` of the same;
    what is `said` of the models."""
    scores = next(iter(models.values()))
    words = Html(f"<p class=verdict>{shown(verdict(scores, baselines))}</p>")
    beside = {**models, **{one.name: one.scores for one in baselines if one.name not in models}}
    return Sections(
        [tiles(scores), words, *comparison(beside, said)],
        [confusion(scores), per_class(scores), all_figures(scores), *worst(mistakes)],
    )


def verdict(scores: Scores, baselines: Sequence[Baseline]) -> str:
    """One sentence a hurried reader can repeat; it says so where a cheap model wins."""
    accuracy = scores.accuracy
    right = (
        f"{accuracy.value:.1%} of {scores.n_rows:,} rows are answered right "
        f"(95 % interval {accuracy.low:.1%} to {accuracy.high:.1%})"
    )
    rival = strongest(baselines, "accuracy")
    if rival is None or rival.lead is None:
        return f"{right}."
    return f"{right}; on the same rows the model {lead_words(rival.lead.accuracy, rival.name)}."
