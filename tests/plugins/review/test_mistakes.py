"""The mistakes of a report: which classes are confused, and the most confident mistakes."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import confusion_matrix

from manyheads.data.rows import Rows
from manyheads.evaluation.answered import AnsweredRows, LogitStore, answer_rows
from manyheads.evaluation.evaluation import Setup
from manyheads.evaluation.report import Example, Page, render
from manyheads.inference.folder import load
from manyheads.plugins.review.mistakes import Worst, confusion_section
from tests.core.evaluation.drawn_answers import judged


def worst_mistakes(found: AnsweredRows, n: int = 20) -> list[Example]:
    worst = Worst(n)
    worst.add(found)
    return worst.examples()


def answers_of(stored: LogitStore) -> np.ndarray:
    return np.concatenate([one.probabilities_nC for one in stored.answers()])


def test_wrong_cells_show_their_surest_rows_and_no_others() -> None:
    scores, stored = judged()
    section, likely, labels = confusion_section(scores, stored), answers_of(stored), np.array(stored.rows.labels)
    answers = likely.argmax(1)
    counts = confusion_matrix(labels, answers)
    groups = {one.key: one for one in section.groups}
    assert len(groups) == 6
    for label, (name, *links) in enumerate(section.table.rows):
        assert name == f"class {label}"
        for answer, link in enumerate(links):
            assert link.text == str(counts[label, answer])
            assert link.share == pytest.approx(counts[label, answer] / counts[label].sum())
            assert bool(link.to) is bool(link.title) is (label != answer)
            if link.to:
                of_cell = np.flatnonzero((labels == label) & (answers == answer))
                surest = of_cell[np.argsort(-likely[of_cell, answer], kind="stable")][:5]
                group = groups[link.to]
                assert [one.texts for one in group.examples] == [[f"<b>text {at}</b>"] for at in surest]
                assert group.title.startswith(f"class {label} answered as class {answer}")
    page = render(Page(title="t", subtitle="s", sections=[section]))
    assert "&lt;b&gt;text" in page
    assert "<b>text" not in page


def test_of_many_classes_the_largest_confusions_are_listed() -> None:
    scores, stored = judged(30, 400)
    section = confusion_section(scores, stored)
    assert section.title == "Most frequent confusions"
    counts = confusion_matrix(stored.rows.labels, answers_of(stored).argmax(1))
    np.fill_diagonal(counts, 0)
    assert [int(row[2].text) for row in section.table.rows] == sorted(counts.ravel(), reverse=True)[:20]
    assert [one.key for one in section.groups] == [row[2].to for row in section.table.rows]
    shown = [min(5, int(row[2].text)) for row in section.table.rows]
    assert [len(one.examples) for one in section.groups] == shown


def test_a_matrix_of_twenty_classes_links_to_a_bounded_number_of_rows() -> None:
    section = confusion_section(*judged(20, 4000))
    links = [one for _, *row in section.table.rows for one in row]
    assert len(links) == 400
    assert sum(bool(one.to) for one in links) == len(section.groups) == 40
    assert sum(len(one.examples) for one in section.groups) == 200


def test_mistakes_come_surest_first() -> None:
    logits = torch.tensor([[9.0, 0], [0, 3], [5, 0], [0, 8], [2, 0]])
    judged = AnsweredRows.of(Rows(list("abcde"), None, [0, 0, 1, 0, 1], "x.csv", range(2, 7)), ["no", "yes"], logits)
    mistakes = worst_mistakes(judged)
    of_pair = AnsweredRows.of(Rows(["x"], ["y"], [0], "x.csv", [1234]), ["no", "yes"], logits[1:2])
    assert worst_mistakes(of_pair) == [Example("95.3% sure, row 1,234", ["x", "y"], "no", "yes")]
    assert [(one.texts, one.place, one.label, one.answer) for one in mistakes] == [
        (["d"], "100.0% sure, row 5", "no", "yes"),
        (["c"], "99.3% sure, row 4", "yes", "no"),
        (["b"], "95.3% sure, row 3", "no", "yes"),
        (["e"], "88.1% sure, row 6", "yes", "no"),
    ]
    assert len(worst_mistakes(judged, 2)) == 2
    assert worst_mistakes(AnsweredRows.of(Rows(["a"], None, [0], "x.csv", [2]), ["no", "yes"], logits[:1])) == []


def test_mistakes_of_several_chunks_are_those_of_all_rows() -> None:
    random = np.random.default_rng(0)
    for n_rows in range(1, 60):
        sure = random.integers(1, 9, n_rows) / 4  # many are equally sure
        logits = torch.tensor(np.stack([np.zeros(n_rows), sure], axis=1))
        some = Rows(["x"] * n_rows, None, [0] * n_rows, "x.csv", range(n_rows))
        judged, worst = AnsweredRows.of(some, ["no", "yes"], logits), Worst(5)
        for chunk in np.array_split(np.arange(n_rows), random.integers(1, 6)):
            worst.add(judged.pick(chunk))
        expected = np.argsort(-sure, kind="stable")[:5]
        assert [int(one.place.split()[-1]) for one in worst.examples()] == expected.tolist()


def test_the_worst_mistakes_are_labels_given_with_the_most_confidence(label_folder: Path) -> None:
    sets = [((), (0,), (0, 1), (2,), (1, 2))[at % 5] for at in range(40)]
    texts = [f"{('good', 'bad', 'so so', 'film', 'awful')[at % 5]} {'very ' * (at % 3)}" for at in range(40)]
    rows, names = Rows(texts, None, [0] * 40, "test.csv", range(2, 42), sets=sets), ["bad", "good", "so-so"]
    (found,), worst = answer_rows(load(label_folder), rows, Setup()).answers(), Worst(5)
    worst.add(found)
    sure = np.where(found.given_nC & ~found.marks_nC, found.probabilities_nC, 0).max(1)
    most = sorted(sure[sure > 0], reverse=True)[:5]
    for one, likely in zip(worst.examples(), most, strict=True):
        assert one.answer not in one.label.split(", ")
        said, number = re.fullmatch(r"(.*) sure, row (\d+)", one.place).groups()
        assert said == f"{likely:.1%}"
        assert found.probabilities_nC[int(number) - 2, names.index(one.answer)] == pytest.approx(likely)
