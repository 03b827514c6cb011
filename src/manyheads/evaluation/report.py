"""report.html, section by section.

report.html: one file that tells a reader how good a model is. No script, nothing fetched from anywhere.

The sections of report.html, each a function of what it shows; what is empty yields nothing.

What report.html says of a classifier: how good it is, beside what, and where it errs.

What report.html says of a classifier that gives any number of labels: how good it is, beside what, where it errs.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import Any, NamedTuple

from manyheads.config.fields import show
from manyheads.evaluation.answers import Baseline, Mistake, lead_words, strongest
from manyheads.evaluation.multilabel import LabelAnswered, LabelBaseline, LabelScores, worst_labels
from manyheads.evaluation.page import (
    CSS,
    Html,
    excerpt,
    interval_bar,
    pairs_list,
    picture,
    section,
    share_bar,
    shown,
    table,
    two_lines,
)
from manyheads.evaluation.plots import MOST_CELLS_LABELLED, draw_confusion, draw_curves, draw_reliability
from manyheads.evaluation.scores import Interval, Scores
from manyheads.runs.atomic import replace_file
from manyheads.runs.folder import Curve

PACKAGES = ("manyheads", "torch", "lightning", "tokenizers", "safetensors", "datasets", "scikit-learn", "numpy")
# No file or script may be loaded, whatever a text of the data contains.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


class Sections(NamedTuple):
    """What there is to say of one kind of answers: above the learning curves, and below them."""

    first: list[Html]
    rest: list[Html]


def installed_versions() -> dict[str, str]:
    """Python and the packages a figure may depend on, by their metadata: nothing is imported."""
    found = {"python": python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@dataclass(kw_only=True, slots=True)
class Report:
    """Everything the page shows. What is empty is left out.

    Args:
        subtitle: one line, such as `emotion, test split, 2,000 rows`.
        curves: rows of metrics.csv, each with `step`; figures not logged at that step absent.
        facts: name and value, such as parameters or seconds.
        notes: warnings and facts of the data, a sentence each.
        config: nested plain values, shown as dotted keys.
        warnings: what the figures cannot say, a sentence each.
    """

    title: str
    subtitle: str
    sections: Sections
    curves: Sequence[Curve] = ()
    facts: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=installed_versions)


def write_report(path: Path, report: Report) -> None:
    """Write the page, whole or not at all."""
    with replace_file(path) as part:
        part.write_text(render(report), encoding="utf-8", errors="replace")


def render(report: Report) -> str:
    """The page as a string."""
    parts = [
        *warnings_list(report.warnings),
        *report.sections.first,
        *learning_curves(report.curves),
        *report.sections.rest,
        *data_notes(report.notes),
        *named_values("Run", dict(report.facts)),
        *named_values("Settings", dict(dotted(report.config))),
        *named_values("Versions", dict(report.versions)),
    ]
    return page(report.title, report.subtitle, parts)


def page(title: str, subtitle: str, parts: Iterable[Html]) -> str:
    """A whole page of sections under a heading."""
    head = f"<header><h1>{shown(title)}</h1><div class=soft>{shown(subtitle)}</div></header>"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{shown(title)}</title><style>{CSS}</style></head>\n<body><main>\n"
        + "\n".join([head, *parts])
        + "\n</main></body></html>\n"
    )


def dotted(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested values as (dotted key, value as it is typed)."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", show(value)


FIGURES = {
    "accuracy": "accuracy",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "macro_precision": "macro precision",
    "macro_recall": "macro recall",
    "loss": "cross-entropy loss",
    "calibration_error": "calibration error",
}


def tiles(scores: Scores) -> Html:
    shares = {"accuracy": scores.accuracy, "macro F1": scores.macro_f1}
    numbers = {"cross-entropy loss": scores.loss, "calibration error": scores.calibration_error}
    return tile_row(shares | numbers)


def tile_row(figures: dict[str, Interval]) -> Html:
    """Figures large, each with its interval."""
    made = [_tile(name, figure) for name, figure in figures.items()]
    return Html(f'<div class="tiles">{"".join(made)}</div>')


def _tile(name: str, figure: Interval) -> str:
    between = f"95 %: {figure.low:.3f} to {figure.high:.3f}"
    return f'<div class="tile"><span>{name}</span><b>{figure.value:.3f}</b><span>{between}</span></div>'


def comparison(
    models: dict[str, Any], said: str = "", figure: str = "accuracy", words: str = "accuracy"
) -> Iterator[Html]:
    """Figures by the name of the model, the one that answers first: best first by a `figure` that they have beside
    macro F1, its interval as a band, and what is `said` of the models."""
    if len(models) < 2:
        return
    own = next(iter(models))
    judged = sorted(models.items(), key=lambda one: -getattr(one[1], figure).value)
    rows = [
        [
            f"{name} (this model)" if name == own else name,
            two_lines(value),
            interval_bar(value),
            two_lines(one.macro_f1),
        ]
        for name, one in judged
        for value in (getattr(one, figure),)
    ]
    head = ["model", words, "from 0 to 1", "macro F1"]
    made = table(head, rows, "wnbn", own=[name for name, _ in judged].index(own))
    more = [Html(f'<p class="soft">{shown(said)}</p>')] if said else []
    yield section("Beside simpler models, on the same rows", made, *more)


def learning_curves(curves: Sequence[Curve]) -> Iterator[Html]:
    pictures = [picture(png, f"{name} over steps") for name, png in draw_curves(curves).items()]
    if pictures:
        yield section("Learning curves", f'<div class="pictures">{"".join(pictures)}</div>')


def confusion(scores: Scores) -> Html:
    confusions = sorted(
        (
            (count, scores.labels[true], scores.labels[answer], sum(scores.confusion[true]))
            for true in range(len(scores.labels))
            for answer, count in enumerate(scores.confusion[true])
            if count and true != answer
        ),
        key=lambda one: -one[0],
    )[:MOST_CELLS_LABELLED]
    rows = [
        [true, answer, f"{count:,}", f"{count / of:.0%}", share_bar(count / of)]
        for count, true, answer, of in confusions
    ]
    head = ["true class", "answered as", "rows", "of the class", ""]
    small = len(scores.labels) <= MOST_CELLS_LABELLED
    caption = "rows are true classes, columns answers" + ("" if small else "; colour is the share of the class")
    drawn = f'<div class="pictures">{picture(draw_confusion(scores), caption, wide=True)}</div>'
    if small:
        return section("Confusion", drawn)
    return section("Most frequent confusions", table(head, rows, "wwnnb"), drawn, long=True)


def per_class(scores: Scores) -> Html:
    rows = [
        [one.name, f"{one.precision:.3f}", f"{one.recall:.3f}", f"{one.f1:.3f}", share_bar(one.f1), f"{one.support:,}"]
        for one in scores.per_class
    ]
    return section("Classes", table(["class", "precision", "recall", "F1", "", "rows"], rows, "wnnnbn"), long=True)


def all_figures(scores: Scores) -> Html:
    caption = (
        "accuracy of the answers given with a confidence; on the dashed line the model knows how often it is right, "
        "pale bars hold few rows"
    )
    diagram = f'<div class="pictures">{picture(draw_reliability(scores), caption)}</div>'
    trust = section("Can its confidence be trusted?", diagram)
    return Html(figure_table(scores, FIGURES) + trust)


def figure_table(scores: Any, words: dict[str, str]) -> Html:
    """Figures by their names, each with its interval."""
    figures = {said: getattr(scores, name) for name, said in words.items()}
    rows = [[said, *(f"{one:.4f}" for one in (of.value, of.low, of.high))] for said, of in figures.items()]
    return section("All figures with 95 % intervals", table(["figure", "value", "low", "high"], rows, "wnnn"))


def worst(mistakes: Sequence[Mistake]) -> Iterator[Html]:
    """What the model was surest of and had wrong, with its texts."""
    if not mistakes:
        return
    items = [
        f'<li><div class="head"><b>{shown(one.label)}</b> answered as <b class="wrong">{shown(one.answer)}</b>'
        f'<span class="soft">{one.confidence:.1%} sure, row {one.number:,}</span></div>'
        f'<div class="text">{excerpt(one.text)}</div>'
        + ("" if one.pair is None else f'<div class="text second">{excerpt(one.pair)}</div>')
        + "</li>"
        for one in mistakes
    ]
    yield section("Worst mistakes: wrong, and sure of it", f'<ol class="mistakes">{"".join(items)}</ol>', long=True)


def warnings_list(warnings: Sequence[str]) -> Iterator[Html]:
    """What the figures cannot say, above them all."""
    for warning in warnings:
        yield Html(f"<p class=warning>{shown(warning[:1].upper() + warning[1:])}.</p>")


def data_notes(notes: Sequence[str]) -> Iterator[Html]:
    if notes:
        yield section("Notes on the data", f"<ul>{''.join(f'<li>{shown(note)}</li>' for note in notes)}</ul>")


def named_values(title: str, pairs: dict[str, object]) -> Iterator[Html]:
    if pairs:
        yield section(title, pairs_list(pairs), long=True)


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
