"""What report.html says of a classifier that gives any number of labels: how good it is, beside what, where it errs."""

from collections.abc import Iterator, Sequence

from manyheads.judge.baselines import lead_words
from manyheads.judge.label_answers import LabelAnswered, worst_labels
from manyheads.judge.label_baselines import TFIDF, LabelBaseline
from manyheads.judge.label_scores import LabelAnswers, LabelScores
from manyheads.judge.markup import Html, interval_bar, section, share_bar, shown, table, two_lines
from manyheads.judge.report import Sections
from manyheads.judge.sections import tile_row, worst

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
        [tile_row({WORDS[name]: getattr(scores, name) for name in LARGE}), said, *_comparison(scores, baselines)],
        [_per_label(scores), _all_figures(scores), *worst(worst_labels(found))],
    )


def label_verdict(scores: LabelScores, baselines: Sequence[LabelBaseline]) -> str:
    """One sentence a hurried reader can repeat; it says so where a bag of words wins."""
    f1 = scores.micro_f1
    said = f"micro F1 is {f1.value:.3f} on {scores.n_rows:,} rows (95 % interval {f1.low:.3f} to {f1.high:.3f})"
    rival = next((one for one in baselines if one.name == TFIDF), None) or next(iter(baselines), None)
    return f"{said}." if rival is None else f"{said}; it {lead_words(rival.lead.micro_f1, rival.name)}."


def _comparison(scores: LabelScores, baselines: Sequence[LabelBaseline]) -> Iterator[Html]:
    """The model and each baseline, best first, with its interval as a band."""
    if not baselines:
        return
    judged: list[tuple[str, LabelScores | LabelAnswers]] = [("this model", scores)]
    judged += [(one.name, one.scores) for one in baselines]
    judged.sort(key=lambda one: -one[1].micro_f1.value)
    rows = [
        [name, two_lines(one.micro_f1), interval_bar(one.micro_f1), two_lines(one.macro_f1)] for name, one in judged
    ]
    own = next(at for at, (_, one) in enumerate(judged) if one is scores)
    head = ["model", "micro F1", "from 0 to 1", "macro F1"]
    yield section("Beside simpler models, on the same rows", table(head, rows, "wnbn", own=own))


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


def _all_figures(scores: LabelScores) -> Html:
    figures = {words: getattr(scores, name) for name, words in WORDS.items()}
    rows = [[words, f"{of.value:.4f}", f"{of.low:.4f}", f"{of.high:.4f}"] for words, of in figures.items()]
    head = ["figure", "value", "low", "high"]
    return section("All figures with 95 % bootstrap intervals", table(head, rows, "wnnn"))
