"""The sections of the report: each shows its figures, and nothing where there is nothing."""

import re

import numpy as np

from manyheads.evaluation.answers import LINEAR, MAJORITY, Baseline, Mistake
from manyheads.evaluation.report import (
    FIGURES,
    all_figures,
    comparison,
    confusion,
    data_notes,
    learning_curves,
    named_values,
    per_class,
    tiles,
    worst,
)
from manyheads.evaluation.scores import Answers, Interval, Scores, score


def scored(n_classes: int = 3) -> Scores:
    random = np.random.default_rng(0)
    names = [f"class {at}" for at in range(n_classes)]
    return score(random.integers(n_classes, size=90), random.dirichlet(np.ones(n_classes), 90), names, n_resamples=5)


def baseline(name: str, accuracy: float) -> Baseline:
    figure = Interval(accuracy, accuracy - 0.02, accuracy + 0.02)
    return Baseline(name, Answers(figure, figure, figure, figure, figure))


def words(piece: str) -> str:
    return re.sub("<[^>]*>", " ", piece)


def test_tiles_and_figures_are_those_of_the_scores() -> None:
    scores = scored()
    assert f"<b>{scores.accuracy.value:.3f}</b>" in tiles(scores)
    said = words(all_figures(scores))
    for name, title in FIGURES.items():
        figure = getattr(scores, name)
        assert f"{title}  {figure.value:.4f}  {figure.low:.4f}  {figure.high:.4f}" in said


def test_models_are_compared_best_first() -> None:
    scores = scored()
    scores.accuracy = Interval(0.5, 0.4, 0.6)
    (section,) = comparison(
        {"both": scores, MAJORITY: baseline(MAJORITY, 0.2).scores, LINEAR: baseline(LINEAR, 0.9).scores}, "a < b"
    )
    said = words(section)
    assert said.index(LINEAR) < said.index("both (this model)") < said.index(MAJORITY)
    assert section.count("class=own") == 1
    assert "a &lt; b" in section
    assert list(comparison({"network": scores})) == []


def test_few_classes_are_a_picture_many_a_table_too() -> None:
    assert "Most frequent confusions" not in confusion(scored())
    many = scored(30)
    said = confusion(many)
    assert "Most frequent confusions" in said
    most = max(many.confusion[true][answer] for true in range(30) for answer in range(30) if true != answer)
    first = re.search(r'<tr><td class="name">(.*?)</td><td class="name">(.*?)</td><td class="n">(\d+)', said)
    assert first is not None
    assert int(first[3]) == most


def test_every_class_has_its_line() -> None:
    scores = scored()
    said = words(per_class(scores))
    for one in scores.per_class:
        assert f"{one.name}  {one.precision:.3f}  {one.recall:.3f}  {one.f1:.3f}" in said
    assert sum(one.support for one in scores.per_class) == 90


def test_the_worst_mistakes_keep_their_texts_apart() -> None:
    mistakes = [Mistake(7, "<first>", "second & last", "a", "b", 0.987), Mistake(1234, "", None, "b", "a", 0.5)]
    (section,) = worst(mistakes)
    assert "&lt;first&gt;" in section
    assert "second &amp; last" in section
    assert "98.7% sure, row 7" in section
    assert "50.0% sure, row 1,234" in section
    assert section.count('class="text second"') == 1


def test_what_is_empty_yields_nothing() -> None:
    assert list(worst([])) == list(data_notes([])) == list(named_values("x", {})) == list(learning_curves([])) == []


def test_notes_values_and_curves_are_shown() -> None:
    assert "<li>a &lt;b&gt;</li>" in next(data_notes(["a <b>"]))
    assert "<dt>lr</dt><dd>0.1</dd>" in next(named_values("Settings", {"lr": 0.1}))
    curves = [{"step": 1.0, "train_loss": 2.0}, {"step": 2.0, "train_loss": 1.0}]
    assert next(learning_curves(curves)).count("<img") == 1
