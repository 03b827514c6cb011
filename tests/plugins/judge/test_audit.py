"""The page before training: what was planted in the data is found, and nothing else; personal data is not shown."""

import csv
import json
import random
import re
from dataclasses import replace
from errno import ENOSPC
from itertools import combinations
from pathlib import Path
from time import process_time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from manyheads.cli import main as cli
from manyheads.config import Terms
from manyheads.data.class_names import split_names
from manyheads.data.rows import Rows
from manyheads.linear.fit import choose_terms
from manyheads.linear.near_repeats import near_repeats
from manyheads.plugins.judge import audit_report, row_facts
from manyheads.plugins.judge.audit_report import Suspects, sentences, suspects_sections, write_suspects
from manyheads.plugins.judge.row_facts import (
    is_card,
    is_iban,
    learning_curve,
    likely_wrong,
    masked,
    out_of_fold,
    personal,
    rows_by_script,
)

GOOD = ["a", "fine", "good", "lovely", "warm", "film", "with", "charm", "and", "wit", "that", "delights"]
BAD = ["an", "awful", "bad", "dull", "cold", "film", "with", "gloom", "and", "noise", "that", "annoys"]


def rows_of(texts, labels=None, sets=None):
    return Rows(list(texts), None, labels or [0] * len(texts), "x.csv", range(2, len(texts) + 2), sets=sets)


def reviews(n, seed=0):
    """Texts and labels, no text twice."""
    draw = random.Random(seed)
    labels = [at % 2 for at in range(n)]
    return [f"{' '.join(draw.choices((BAD, GOOD)[label], k=9))} {at}" for at, label in enumerate(labels)], labels


def test_planted_labels_are_found():
    texts, labels = reviews(200)
    planted = [3, 50, 51, 120, 199]
    wrong = [1 - label if at in planted else label for at, label in enumerate(labels)]
    rows = rows_of(texts, wrong)
    probabilities_nC = out_of_fold(rows, 2, 5, 0)
    assert sorted(likely_wrong(rows, probabilities_nC)[:5]) == planted
    assert out_of_fold(rows_of(texts[:6], [0, 0, 0, 0, 0, 1]), 2, 5, 0) is None


def test_planted_labels_are_found_where_no_spaces_stand_between_words():
    draw, letters = random.Random(0), ("我喜欢这部电影很好看精彩感动", "我讨厌这部电影很难看无聊失望")
    labels = [at % 2 for at in range(240)]
    texts = ["".join(draw.choices(letters[label], k=20)) for label in labels]
    planted = [3, 50, 51, 120, 199]
    rows = rows_of(texts[:200], [1 - label if at in planted else label for at, label in enumerate(labels[:200])])
    assert sorted(likely_wrong(rows, out_of_fold(rows, 2, 5, 0))) == planted
    more = learning_curve(rows_of(texts[:200], labels[:200]), rows_of(texts[200:], labels[200:]), 2, 0)
    assert more["accuracy"][-1]["value"] == 1


def test_no_label_is_wrong_where_one_class_has_the_most_votes_of_all_rows() -> None:
    rows = Rows(["a film"] * 4, None, [1] * 4, "x", range(4))
    assert likely_wrong(rows, np.full((4, 2), 0.5)) == []


def test_planted_labels_are_found_where_there_are_no_words(tmp_path: Path, capsys):
    """By the terms that a run chooses, which reads runs of characters where words tell less."""
    draw, labels = random.Random(0), [at % 2 for at in range(240)]
    texts = ["".join(draw.choices(("\U0001f600\U0001f389", "\U0001f622\U0001f494")[one], k=12)) for one in labels]
    planted = [3, 50, 51, 120, 199]
    wrong = [1 - label if at in planted else label for at, label in enumerate(labels)]
    rows = rows_of(texts[:200], wrong[:200])
    terms = choose_terms(rows, 2, None, rows_of(texts[200:], labels[200:]))
    assert terms is Terms.both
    probabilities_nC = out_of_fold(rows, 2, 5, 0, terms)
    assert sorted(np.argsort(probabilities_nC[np.arange(200), wrong[:200]])[:5].tolist()) == planted
    with (tmp_path / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        lines = [(text, "ab"[label]) for text, label in zip(texts, labels, strict=True)]
        csv.writer(file).writerows([("text", "label"), *lines])
    assert cli.main(["audit", f"data.path={tmp_path}/rows.csv", f"output={tmp_path}/out"]) == 0
    said = capsys.readouterr().out
    assert "train: 0 of 192 labels may be wrong: a linear model disagrees" in said
    assert "a linear model has an accuracy of 1.000" in said


def test_why_no_wrong_label_is_looked_for(tmp_path: Path, capsys):
    for name, texts, why in (
        ("few", [f"film {at}" for at in range(30)], "a class has fewer rows than there are folds (20)"),
        (
            "none",
            ["".join(random.Random(at).choices("\U0001f600\U0001f622", k=9)) for at in range(60)],
            "the texts hold nothing that a linear model counts",
        ),
    ):
        with (tmp_path / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            labels = ["ab"[at // 2 % 2] for at in range(len(texts))]
            csv.writer(file).writerows([("text", "label"), *zip(texts, labels, strict=True)])
        folds = 20 if name == "few" else 2
        said = ["audit", f"data.path={tmp_path}/{name}.csv", f"output={tmp_path}/{name}", f"folds={folds}"]
        assert cli.main(said) == 0
        assert f"wrong labels: not looked for: {why}" in capsys.readouterr().out


def test_rows_of_a_group_are_asked_of_one_model(monkeypatch):
    asked = []
    monkeypatch.setattr(
        row_facts, "assign_folds", lambda rows, *how: asked.append(rows.groups) or np.arange(200) % 5 + 1
    )
    texts, labels = reviews(200)
    out_of_fold(replace(rows_of(texts, labels), groups=np.arange(200) // 4), 2, 5, 0)
    assert asked[0].tolist() == [at // 4 for at in range(200)]


def test_a_class_of_one_row_hides_no_wrong_labels(tmp_path: Path, capsys):
    texts, labels = reviews(200)
    wrong = ["ab"[1 - label if at == 50 else label] for at, label in enumerate(labels)]
    with (tmp_path / "train.csv").open("w", newline="", encoding="utf-8") as file:
        rows = [(text, label, "train") for text, label in zip(texts, wrong, strict=True)]
        others = [(f"{text} more", "ab"[label], "validation") for text, label in zip(texts[:20], labels, strict=False)]
        csv.writer(file).writerows([("text", "label", "split"), ("a lonely film", "alone", "train"), *rows, *others])
    assert cli.main(["audit", f"data.path={tmp_path}/train.csv", f"output={tmp_path}/out"]) == 0
    said = capsys.readouterr().out
    assert "of 200 labels may be wrong" in said
    assert "wrong labels: alone not checked, with fewer rows than there are folds" in said
    with (tmp_path / "out/suspects.csv").open(newline="", encoding="utf-8") as file:
        first = next(csv.DictReader(file))
    assert (first["text"], first["label"], first["likelier"]) == (texts[50], "b", "a")


def test_planted_labels_of_several_are_found():
    texts, labels = reviews(200)
    sets = [((0,), (1,))[label] for label in labels]
    sets[7], sets[8] = (0,), (1,)  # their texts have the other
    rows = rows_of(texts, [one[0] for one in sets], sets)
    assert {7, 8} <= {*likely_wrong(rows, out_of_fold(rows, 2, 5, 0))}
    # rows without a label are no rare class
    unlabelled = rows_of(texts, [2, 2, *(one[0] for one in sets[2:])], [(), (), *sets[2:]])
    assert out_of_fold(unlabelled, 2, 5, 0) is not None
    assert out_of_fold(rows_of(texts[:8], [1] * 4 + [0] * 4, [(0, 1)] * 4 + [(0,)] * 4), 2, 5, 0) is None


def test_the_page_names_the_labels_that_the_file_names(tmp_path: Path):
    rows = rows_of(["one", "two", "three"], [0, 1, 2], [(0,), (1,), ()])
    suspects = Suspects(rows, np.array([[0.9, 0.8], [0.2, 0.4], [0.1, 0.7]]), [1, 0, 2])
    write_suspects(tmp_path / "suspects.csv", suspects, ["a", "b"])
    with (tmp_path / "suspects.csv").open(newline="") as file:
        lines = [*csv.DictReader(file)]
    in_file = [(one["label"], one["likelier"]) for one in lines]
    shares = [(float(one["p_label"]), float(one["p_likelier"])) for one in lines]
    (section,) = suspects_sections(suspects, ["a", "b"])
    assert in_file == [("b", "no label"), ("a", "a|b"), ("no label", "b")]
    assert [(one.label, one.answer) for one in section.examples] == in_file
    assert shares == [(0.4, 0.6), (0.9, 0.8), (0.3, 0.7)]
    assert [one.place for one in section.examples] == ["60% sure, row 3", "80% sure, row 2", "70% sure, row 4"]


def test_a_class_whose_name_holds_a_bar_has_its_probability(tmp_path: Path):
    rows = rows_of(["one", "two"], [0, 1])
    suspects = Suspects(rows, np.array([[0.2, 0.8], [0.7, 0.3]]), [0, 1])
    write_suspects(tmp_path / "suspects.csv", suspects, ["a|b", "c"])
    with (tmp_path / "suspects.csv").open(newline="") as file:
        lines = [*csv.DictReader(file)]
    assert [float(one["p_label"]) for one in lines] == [0.2, 0.3]
    assert [(one["label"], one["likelier"]) for one in lines] == [("a|b", "c"), ("c", "a|b")]


def test_labels_whose_names_hold_a_bar_have_their_probability_and_are_read_back(tmp_path: Path):
    labels = ["R&D | research", "billing", "R&D"]
    rows = rows_of(["one", "two", "three"], [0, 1, 2], [(0, 1), (1,), ()])
    suspects = Suspects(rows, np.array([[0.2, 0.8, 0.9], [0.7, 0.3, 0.6], [0.4, 0.1, 0.1]]), [0, 1, 2])
    write_suspects(tmp_path / "suspects.csv", suspects, labels)
    with (tmp_path / "suspects.csv").open(newline="") as file:
        lines = [*csv.DictReader(file)]
    assert [float(one["p_label"]) for one in lines] == [0.2, 0.3, 0.6]
    assert [split_names(one["label"]) for one in lines] == [["R&D | research", "billing"], ["billing"], ["no label"]]
    assert [split_names(one["likelier"]) for one in lines] == [
        ["billing", "R&D"],
        ["R&D | research", "R&D"],
        ["no label"],
    ]


def test_a_guess_lies_in_its_interval(monkeypatch):
    texts, labels = reviews(300)
    drawn = np.linspace(0.2, 0.3, 1001)
    monkeypatch.setattr(row_facts, "error_at", lambda *_: np.concatenate([[0.1], drawn[1:]]))
    more = learning_curve(rows_of(texts, labels), rows_of(*reviews(100, 1)), 2, 0)["twice"]
    assert more["low"] <= more["value"] <= more["high"]


def test_no_mistake_among_few_rows_is_no_certainty():
    found = learning_curve(rows_of(*reviews(300)), rows_of(*reviews(30, 1)), 2, 0)
    assert [one["value"] for one in found["accuracy"]][-1] == found["twice"]["value"] == 1
    low = binomtest(30, 30).proportion_ci(method="wilson").low
    assert (found["twice"]["low"], found["twice"]["high"]) == (pytest.approx(low), 1)


def test_near_repeats_are_those_of_the_definition():
    draw = random.Random(1)
    texts = [" ".join(draw.choices(GOOD + BAD, k=30)) for _ in range(60)]
    texts += [text.replace("film", "movie", 1) for text in texts[:20]] + [texts[0].upper(), "x", "y", "xy"]
    train, test = rows_of(texts[:70]), rows_of(texts[70:])

    def runs(text):
        letters = " ".join(text.lower().split())
        return {letters[at : at + 5] for at in range(max(1, len(letters) - 4))}

    found = near_repeats({"train": train, "test": test})
    named = {
        (name, at): text for name, rows in (("train", train), ("test", test)) for at, text in enumerate(rows.texts)
    }
    alike = {
        (later, earlier)
        for earlier, later in combinations(named, 2)
        if named[earlier] != named[later]
        and len(runs(named[earlier]) & runs(named[later])) / len(runs(named[earlier]) | runs(named[later])) >= 0.8
    }
    pairs = {((name, at), (other, there)) for of in found.values() for name, at, other, there, _ in of}
    assert pairs <= alike
    assert {later for later, _ in pairs} == {later for later, _ in alike}
    assert (("test", 10), ("train", 0)) in pairs, "case does not count"
    assert len(pairs) == 21
    assert all(share >= 0.8 for of in found.values() for *_, share in of)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("write to ada.lovelace@example.org now", "e-mail address"),
        ("see https://example.org/a?b=c", "web address"),
        ("call +44 20 7946 0958 today", "telephone number"),
        ("call (212) 555-0142", "telephone number"),
        ("pay DE89 3704 0044 0532 0130 00 please", "IBAN"),
        ("card 4111 1111 1111 1111 expires", "payment card"),
        ("from 192.168.0.1 and on", "IP address"),
    ],
)
def test_personal_data_is_counted_and_masked(text, what):
    assert personal(rows_of([text, "nothing here"])) == {what: 1}
    assert f"[{what}]" in masked(text)[0]


@given(st.text("ab1.+-@ ,é_", max_size=30))
def test_an_address_is_found_wherever_the_plain_pattern_finds_one(text):
    assert masked(text)[0] == re.sub(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", "[e-mail address]", text)


RUNS = [
    "QUJD",
    "a.",
    "ACGGT",
    "1234567890",
    "a@",
    "a@b.",
    "www.",
    "http://",
    "+1",
    "1 ",
    "1-",
    "(1",
    "AB12 ",
    "00",
    "a-",
]


@pytest.mark.parametrize(
    "run", [*RUNS[::3], *(pytest.param(one, marks=pytest.mark.slow) for one in RUNS if one not in RUNS[::3])]
)
def test_a_long_run_of_letters_is_read_once(run):
    """Time grows with the length, not with its square: four times the letters take 16 times as long where it does."""

    def seconds(n):
        text, found = f"{(run * n)[:n]} me@here.org", []
        for _ in range(3):
            start = process_time()
            found.append(masked(text)[0])
            found.append(process_time() - start)
        assert found[0].endswith("]") or "@" in run
        return min(found[1::2])

    assert seconds(80_000) < 10 * seconds(20_000) + 0.05


def test_numbers_that_are_nobodys_are_left_alone():
    texts = ["in 1984 and 2001", "version 1.2.3", "rated 4.5 of 5", "1111 1111 1111 1111", "4111 1111 1111 1112",
             "GB83WEST12345698765432", "999.1.1.1", "12 3456 of 78"]  # fmt: skip
    assert personal(rows_of(texts)) == {}
    assert [masked(text) for text in texts] == [(text, set()) for text in texts]
    assert is_card("4012-8888-8888-1881")
    assert not is_card("4012-8888-8888-1882")
    assert is_iban("GB82WEST12345698765432")
    assert not is_iban("GB82WEST12345698765433")


def test_scripts_are_those_of_most_letters():
    assert rows_by_script(rows_of(["hello", "привет мир ok", "你好", "123", "नमस्ते", "ok then"])) == {
        "Latin": 2,
        "Cyrillic": 1,
        "CJK": 1,
        "no letters": 1,
        "Devanagari": 1,
    }


def test_the_verb(tmp_path: Path, capsys):
    texts, labels = reviews(300)
    labels[5] = 1 - labels[5]
    texts[5] += " bob@example.org"
    texts[40] = texts[41]
    with (tmp_path / "reviews.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label", "place"), *zip(texts, labels, range(300), strict=True)])
    words = ["audit", f"data.path={tmp_path}/reviews.csv", f"output={tmp_path}/out", "data.max_length=11"]
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    found = json.loads((tmp_path / "out/audit.json").read_text())
    assert found["rows"] == {"train": 240, "validation": 30, "test": 30}
    assert found["lengths"]["train"]["cut"] > 0.5
    assert found["curve"]["rows"] == [30, 60, 120, 240]
    assert "1 row seems to hold personal data: e-mail address" in said
    assert sum(of.get("e-mail address", 0) for of in found["personal"].values()) == 1
    page = (tmp_path / "out/audit.html").read_text()
    assert "bob@example.org" not in page + said
    with (tmp_path / "out/suspects.csv").open(newline="", encoding="utf-8") as file:
        suspects = list(csv.DictReader(file))
    assert suspects[0]["label"] != suspects[0]["likelier"]
    assert suspects[0]["place"] == str(int(suspects[0]["row"]) - 2)
    before = page
    assert cli.main(words) == 2
    assert "output=" in capsys.readouterr().err
    assert (tmp_path / "out/audit.html").read_text() == before


def test_an_audit_leaves_all_files_or_none_and_keeps_others_out(python, tmp_path: Path, monkeypatch, capsys):
    texts, labels = reviews(60)
    with (tmp_path / "reviews.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *zip(texts, labels, strict=True)])
    words = ["audit", f"data.path={tmp_path}/reviews.csv", f"output={tmp_path}/out"]

    def full(*_):
        raise OSError(ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(audit_report, "write_suspects", full)
        assert cli.main(words) == 2
    assert "No space left" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["reviews.csv"]
    inspect = audit_report.inspect

    def ask_twice(*given):
        other = python.run("-m", "manyheads", *words)
        assert (other.returncode, "is written by a command in progress" in other.stderr) == (2, True), other.stderr
        return inspect(*given)

    monkeypatch.setattr(audit_report, "inspect", ask_twice)
    assert cli.main(words) == 0
    assert {one.name for one in (tmp_path / "out").iterdir()} == {"audit.html", "audit.json", "suspects.csv"}


@pytest.mark.parametrize("package", ["cleanlab", "datasketch"])
def test_without_the_packages_the_rest_is_said(package, tmp_path, monkeypatch, capsys):
    found = audit_report.find_spec
    monkeypatch.setattr(audit_report, "find_spec", lambda name: None if name == package else found(name))
    words = ["audit", "data=demo", "data.rows=60", f"output={tmp_path}/out"]
    assert cli.main(words) == 0
    assert "pip install -e '.[audit]' in the clone of manyheads" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("value", "said"), [(0.9, "with 80 expect 0.900 (0.500 to 1.000)"), (0.7, "what 80 would give")]
)
def test_more_rows_are_not_said_to_do_harm(value: float, said: str) -> None:
    """A few validation rows may let a falling curve be fitted."""
    curve = {"rows": [10, 20, 40], "accuracy": [{"value": 0.8}] * 3}
    curve["twice"] = {"rows": 80, "value": value, "low": 0.5, "high": 1.0}
    nothing = {"lengths": {}, "scripts": {}, "personal": {}, "agreement": None, "near_repeats": {}}
    found = sentences({**nothing, "suspects": "not asked", "curve": curve})
    assert found[-1].startswith(f"a linear model has an accuracy of 0.800 with 40 training rows; {said}")
