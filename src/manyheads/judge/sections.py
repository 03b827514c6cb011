"""The sections of report.html, each a function of what it shows; what is empty yields nothing."""

from collections.abc import Iterator, Sequence
from typing import Any

from manyheads.judge.curves import Curve
from manyheads.judge.markup import (
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
from manyheads.judge.pictures import MOST_CELLS_LABELLED, draw_confusion, draw_curves, draw_reliability
from manyheads.judge.predictions import Mistake
from manyheads.judge.scores import Interval, Scores

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
