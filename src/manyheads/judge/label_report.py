"""What report.html says of a classifier that gives any number of labels: how good it is, beside what, where it errs."""

from collections.abc import Sequence

from manyheads.judge.baselines import lead_words
from manyheads.judge.label_answers import LabelAnswered, worst_labels
from manyheads.judge.label_baselines import TFIDF, LabelBaseline
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
    scores: LabelScores, found: LabelAnswered, baselines: Sequence[LabelBaseline] = (), *, tuned_here: bool = False
) -> Sections:
    """Scores and answers of one split, and `baselines` on the same rows; `tuned_here`: so were the thresholds."""
    too_good = " Thresholds were tuned on these very rows: others will be answered less well." if tuned_here else ""
    said = Html(f"<p class=verdict>{shown(label_verdict(scores, baselines) + too_good)}</p>")
    return Sections(
        [
            tile_row({WORDS[name]: getattr(scores, name) for name in LARGE}),
            said,
            *comparison(scores, baselines, "micro_f1", WORDS["micro_f1"]),
        ],
        [_per_label(scores), figure_table(scores, WORDS), *worst(worst_labels(found))],
    )


def label_verdict(scores: LabelScores, baselines: Sequence[LabelBaseline]) -> str:
    """One sentence a hurried reader can repeat; it says so where a bag of words wins."""
    f1 = scores.micro_f1
    said = f"micro F1 is {f1.value:.3f} on {scores.n_rows:,} rows (95 % interval {f1.low:.3f} to {f1.high:.3f})"
    rival = next((one for one in baselines if one.name == TFIDF), None) or next(iter(baselines), None)
    return f"{said}." if rival is None else f"{said}; it {lead_words(rival.lead.micro_f1, rival.name)}."


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
