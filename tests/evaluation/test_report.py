"""report.html: says what it is given, fetches nothing, runs nothing."""

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from manyheads.evaluation.answers import LINEAR, MAJORITY, Baseline, Mistake
from manyheads.evaluation.report import (
    Report,
    class_sections,
    dotted,
    installed_versions,
    render,
    verdict,
    write_report,
)
from manyheads.evaluation.scores import Answers, Interval, Scores, score

EVIL = "<script>alert(1)</script> \"on\" & 'x' <img src=http://evil.example/x onerror=alert(1)> \x00\x1b\u202e"
VOID = {"meta", "img", "br"}


def scored(n_classes: int = 3, names: list[str] | None = None) -> Scores:
    random = np.random.default_rng(0)
    labels = random.integers(n_classes, size=100)
    return score(
        labels,
        random.dirichlet(np.ones(n_classes), 100),
        names or [f"class {at}" for at in range(n_classes)],
        n_resamples=5,
    )


def baseline(name: str, accuracy: float) -> Baseline:
    figure = Interval(accuracy, accuracy - 0.02, accuracy + 0.02)
    lead = Interval(0.9 - accuracy, 0.89 - accuracy, 0.91 - accuracy)
    return Baseline(name, Answers(figure, figure, figure, figure, figure), Answers(lead, lead, lead, lead, lead))


class Reader(HTMLParser):
    """Collects tags, attributes and text; checks that every tag is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text, self.open = "", []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def full() -> Report:
    mistakes = [Mistake(7, EVIL, None, EVIL, "b", 0.9), Mistake(1234, "x" * 5000, EVIL, "b", EVIL, 0.8)]
    return Report(
        title=f"title {EVIL}",
        subtitle=EVIL,
        sections=class_sections(
            {"network": scored(3, [EVIL, "b", "$c$"])}, [baseline(MAJORITY, 0.2), baseline(LINEAR, 0.5)], mistakes
        ),
        curves=[{"step": 1.0, "train_loss": 1.0, "validation_accuracy": 0.5}],
        facts={"parameters": EVIL},
        notes=[EVIL],
        config={"model": {"n_heads": 4, "flags": {}}, "data": {"path": EVIL}},
        versions={"torch": EVIL},
    )


def test_texts_stay_texts() -> None:
    read = Reader(render(full()))
    assert "script" not in read.tags
    assert not [name for name, _ in read.attributes if name.startswith("on")]
    assert read.text.count("<script>alert(1)</script>") >= 10
    assert not re.search("[\x00\x1b\u202e]", read.text)


def test_nothing_is_fetched() -> None:
    read = Reader(render(full()))
    assert {"link", "iframe", "object", "base", "form", "a"}.isdisjoint(read.tags)
    sources = [value or "" for name, value in read.attributes if name in ("src", "href", "srcset", "data", "action")]
    assert len(sources) == 4
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert "url(" not in render(full())
    policy = dict(read.attributes)["content"] or "".join(value or "" for _, value in read.attributes)
    assert "default-src 'none'" in render(full()), policy


def test_everything_given_is_said() -> None:
    text = Reader(render(full())).text
    for words in (
        "Worst mistakes",
        "and 4,400 more characters",
        "row 1,234",
        "Notes on the data",
        "model.n_heads",
        "Learning curves",
        "Can its confidence be trusted?",
        LINEAR,
    ):
        assert words in text


def test_what_is_empty_is_left_out() -> None:
    text = Reader(render(Report(title="t", subtitle="s", sections=class_sections({"network": scored()})))).text
    for words in ("Worst mistakes", "Notes", "Settings", "Learning curves", "Beside"):
        assert words not in text


def test_many_classes_show_their_confusions_as_a_table() -> None:
    text = Reader(render(Report(title="t", subtitle="s", sections=class_sections({"network": scored(30)})))).text
    assert "Most frequent confusions" in text
    assert "Most frequent confusions" not in Reader(render(full())).text


def test_the_page_appears_whole(tmp_path: Path) -> None:
    write_report(tmp_path / "report.html", full())
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == render(full())
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("rival", "words"),
    [
        (0.80, "beats the linear model by 10.0 points (95 % interval 9.0 to 11.0)."),
        (0.95, "falls short of the linear model by 5.0 points (95 % interval -6.0 to -4.0)."),
        (0.89, "cannot be told from the linear model: +1.0 points (95 % interval 0.0 to 2.0)."),
        (0.20, "beats the most frequent class by 60.0 points (95 % interval 59.0 to 61.0)."),
    ],
)
def test_the_verdict_is_of_the_strongest_rival(rival: float, words: str) -> None:
    scores = scored()
    scores.accuracy = Interval(0.9, 0.88, 0.92)
    said = verdict(scores, [baseline(MAJORITY, 0.3), baseline(LINEAR, rival)])
    assert (
        said
        == f"90.0% of 100 rows are answered right (95 % interval 88.0% to 92.0%); on the same rows the model {words}"
    )


def test_warnings_stand_above_the_figures() -> None:
    page = render(
        Report(title="t", subtitle="s", sections=class_sections({"network": scored()}), warnings=["few <rows>"])
    )
    assert page.index("Few &lt;rows&gt;.") < page.index('class="tiles"')


def test_settings_are_shown_as_they_are_typed() -> None:
    assert dict(dotted({"a": {"b": True, "c": None}, "d": {}, "e": [1]})) == {
        "a.b": "true",
        "a.c": "null",
        "d": "{}",
        "e": "[1]",
    }


def test_versions_name_what_is_installed() -> None:
    assert {"python", "torch", "manyheads"} <= set(installed_versions())
