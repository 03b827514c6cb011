"""What report.html says of a classifier that gives any number of labels: how good it is, beside what, where it errs."""

from collections.abc import Sequence
from typing import Any

from manyheads.judge.baselines import lead_words, strongest
from manyheads.judge.label_answers import LabelAnswered, worst_labels
from manyheads.judge.label_baselines import LabelBaseline
from manyheads.judge.label_scores import LabelScores
from manyheads.judge.markup import Html, section, share_bar, shown, table
from manyheads.judge.report import Sections
from manyheads.judge.sections import comparison, figure_table, tile_row, worst

WORDS = {
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "accuracy": "rows with all labels right",
    "micro_precision": "micro precision",
    "micro_recall": "micro recall",
    "macro_precision": "macro precision",
    "macro_recall": "macro recall",
    "loss": "loss of a row, in nats",
}
LARGE = ("micro_f1", "macro_f1", "micro_precision", "micro_recall")


def label_sections(
    models: dict[str, LabelScores], found: LabelAnswered, baselines: Sequence[LabelBaseline] = (), said: str = ""
) -> Sections:
    """Scores of one split by the name of the model, the one that answers first; what it `found`, `baselines` on the
    same rows, and what is `said` of the models."""
    scores = next(iter(models.values()))
    words = Html(f"<p class=verdict>{shown(label_verdict(scores, baselines))}</p>")
    beside: dict[str, Any] = {**models, **{one.name: one.scores for one in baselines if one.name not in models}}
    return Sections(
        [
            tile_row({WORDS[name]: getattr(scores, name) for name in LARGE}),
            words,
            *comparison(beside, said, "micro_f1", WORDS["micro_f1"]),
        ],
        [_per_label(scores), figure_table(scores, WORDS), *worst(worst_labels(found))],
    )


def label_verdict(scores: LabelScores, baselines: Sequence[LabelBaseline]) -> str:
    """One sentence a hurried reader can repeat; it says so where a cheap model wins."""
    f1 = scores.micro_f1
    said = f"micro F1 is {f1.value:.3f} on {scores.n_rows:,} rows (95 % interval {f1.low:.3f} to {f1.high:.3f})"
    rival = strongest(baselines, "micro_f1")
    return f"{said}." if rival is None else f"{said}; the model {lead_words(rival.lead.micro_f1, rival.name)}."


def _per_label(scores: LabelScores) -> Html:
    rows = [
        [
            one.name,
            f"{one.precision:.3f}",
            f"{one.recall:.3f}",
            f"{one.f1:.3f}",
            share_bar(one.f1),
            f"{one.support:,}",
            f"{one.threshold:.3f}",
        ]
        for one in scores.per_class
    ]
    head = ["label", "precision", "recall", "F1", "", "rows", "given from"]
    return section("Labels", table(head, rows, "wnnnbnn"), long=True)
