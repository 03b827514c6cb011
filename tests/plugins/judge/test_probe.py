"""The verb `probe`: what is changed, who fails, and files that are no tests."""

import json
import re
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from manyheads.config import Accelerator, InferenceHardware, run_data
from manyheads.data.rows import Rows
from manyheads.evaluation.intervals import share_interval
from manyheads.inference.folder import load
from manyheads.plugins.judge.config import ProbeConfig
from manyheads.plugins.judge.probe import probe
from manyheads.plugins.judge.probe_tests import CHANGES, BehaviourTest, accents, cases_of, read_tests
from tests.conftest import WORDS

CPU = InferenceHardware(accelerator=Accelerator.cpu)
LABELS = ["bad", "good", "so-so"]
TEXTS = [" ".join(f"{WORDS[(at * step + at // 7) % len(WORDS)]}" for step in range(1, 3 + at % 6)) for at in range(40)]


def tried(folder: Path, tests: Any = None, **typed: Any) -> dict[str, Any]:
    place = folder.parent
    (place / "texts.csv").write_text("text,label\n" + "".join(f'"{text}",good\n' for text in TEXTS))
    if tests is not None:
        (place / "tests.yaml").write_text(yaml.safe_dump(tests, allow_unicode=True))
        typed["tests"] = str(place / "tests.yaml")
    data = run_data(path=str(place / "texts.csv"))
    return probe(ProbeConfig(run=str(folder), data=data, hardware=CPU, **typed))


def test_every_failure_is_one_that_predict_shows(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = load(run)
    words_of = {"good": "bad", "film": "so"}
    words = {"how": ["good", "bad", "so"], "what": ["film", "good good good"]}
    found = tried(
        run,
        [
            {"name": "stays", "change": {"replace": words_of}},
            {"name": "falls", "change": {"append": " film so"}, "label": "bad", "expect": "up"},
            {"name": "is good", "template": "{how} {what}", "words": words, "label": "good"},
        ],
        examples=1000,
    )
    assert found == json.loads((run / "model" / "probe" / "texts-all" / "probe.json").read_text())
    before = [model.predict([text])[0] for text in TEXTS]
    swapped = [" ".join(words_of.get(one, one) for one in text.split()) for text in TEXTS]
    n_swapped = sum(old != new for old, new in zip(TEXTS, swapped, strict=True))
    stays = [old.label != model.predict([new])[0].label for old, new in zip(before, swapped, strict=True)]
    rises = [model.predict([f"{text} film so"])[0].probabilities["bad"] for text in TEXTS]
    falls = [new - old.probabilities["bad"] < -0.1 for old, new in zip(before, rises, strict=True)]
    made = [f"{how} {what}" for how, what in product(*words.values())]
    is_good = [model.predict([text])[0].label != "good" for text in made]
    assert [any(one) for one in (stays, falls, is_good)] == [True] * 3
    out = capsys.readouterr().out
    of_tests = zip(found["tests"], (stays, falls, is_good), (TEXTS, TEXTS, made), (n_swapped, 40, 6), strict=True)
    for test, fails, texts, n in of_tests:
        assert (test["n"], test["n_failed"]) == (n, sum(fails))
        expected = share_interval(sum(fails), n)
        assert test["rate"] == {"value": expected.value, "low": expected.low, "high": expected.high}
        assert sorted(one["texts"][0] for one in test["failures"]) == sorted(np.array(texts)[fails])
        assert f"{test['name']}: {sum(fails)} of {n} texts fail" in out
    page = (run / "model" / "probe" / "texts-all" / "report.html").read_text()
    assert "the answer is good" in page


def test_by_default_small_changes_are_tried(run: Path) -> None:
    found = tried(run, rows=30, output=str(run.parent / "out"))
    assert [(one["name"], one["n"]) for one in found["tests"]] == [
        ("typo", 28), ("lower", 0), ("upper", 30), ("punctuation", 30), ("spaces", 30), ("accents", 0)
    ]  # fmt: skip
    assert found == tried(run, rows=30)
    with pytest.raises(ValueError, match="out exists and is not empty: name a new folder"):
        tried(run, output=str(run.parent / "out"))
    assert tried(run, rows=30, output=str(run.parent / "out"), overwrite=True) == found


@given(st.text(max_size=60), st.integers(0, 99))
@example("²²A¹", 0)
def test_a_typo_moves_two_letters_within_a_word(text: str, seed: int) -> None:
    changed = CHANGES["typo"](text, np.random.default_rng(seed))
    assert sorted(changed) == sorted(text)
    apart = [at for at, (old, new) in enumerate(zip(text, changed, strict=True)) if old != new]
    assert len(apart) in (0, 2)
    assert bool(apart) == any(word.isalpha() and len({*word[1:-1]}) > 1 for word in re.findall(r"[^\W\d_]{4,}", text))
    if apart:
        assert apart[1] == apart[0] + 1
        assert all(text[at].isalpha() for at in (apart[0] - 1, apart[1] + 1))


@pytest.mark.parametrize(
    ("change", "text", "expected"),
    [
        ("punctuation", "Is it?", "Is it"), ("punctuation", "It is ", "It is."), ("punctuation", "!", "!."),
        ("punctuation", "", ""), ("accents", "Ça va, Zoë? й", "Ca va, Zoe? и"), ("spaces", "a b", "a  b"),
        ("typo", "你好世界", "你世好界"), ("typo", "x²²y", "x²²y"), ("typo", "abc 1234 _____", "abc 1234 _____"),
        ({"replace": {"Ann": "Eve", "Ann Lee": "Bob"}}, "Ann Lee met Anna, Ann.", "Bob met Anna, Eve."),
        ({"append": "!"}, "oh", "oh!"),
    ],
)  # fmt: skip
def test_changes(change: Any, text: str, expected: str) -> None:
    rows = Rows([text], None, [0], "here", [2])
    cases = cases_of(BehaviourTest("one", change), rows, ProbeConfig(run="x"))
    assert [(one.place, one.changed) for one in cases] == ([("row 2", expected)] if text != expected else [])


def test_of_a_pair_the_first_text_is_changed() -> None:
    rows = Rows(["one", "Two"], ["a", "B"], [0, 0], "here", [1, 2])
    (case,) = cases_of(BehaviourTest("low", "lower"), rows, ProbeConfig(run="x"))
    assert (case.texts, case.after) == (["Two", "B"], ["two", "B"])


NAMED = {"name": "t", "label": "good"}


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        ("a: b", "holds no list of tests"),
        ("[]", "holds no list of tests"),
        ("- &a {name: *a}", "tests.yaml cannot be read as plain YAML"),
        ("- !!python/object/apply:os.getcwd []", "cannot be read as plain YAML"),
        ([{"change": "typo"}], "test 1: give it a name"),
        ([{"name": "t", "chnage": "typo"}], "chnage is no part of a test: choose name, change"),
        ([{"name": "t"}], "give it a template, or a change of texts of the data"),
        ([{"name": "t", "template": "x"}], "give it the label of its texts, or a change"),
        ([{"name": "t", "change": "shout"}], "change=shout is no change: choose typo, lower"),
        ([{"name": "t", "change": {"append": ""}}], "is no change"),
        ([{"name": "t", "change": {"replace": {"a": 1}}}], "is no change"),
        ([{"name": "t", "change": {"replace": {"a": "b"}, "append": "c"}}], "is no change"),
        ([{"name": "t", "change": ["typo"]}], "is no change"),
        ([{**NAMED, "change": "typo"}], "a change, a label and expect .up or down. go together"),
        ([{**NAMED, "change": "typo", "expect": "left"}], "expect=left is not up or down"),
        ([{"name": "t", "label": "nice", "template": "x"}], "label 'nice' is no class of the run: choose bad, good"),
        ([{"name": "t", "label": True, "template": "x"}], "label must be text: put it in quotes"),
        ([{**NAMED, "template": "{a}"}], "the template names a, but words"),
        ([{**NAMED, "template": "{a}", "words": {"a": [True]}}], "words must be lists of texts"),
        ([{**NAMED, "template": "{a}", "words": {"a": []}}], "words must be lists of texts"),
        ([{**NAMED, "template": "{a}{b}", "words": dict.fromkeys("ab", ["x"] * 101)}], "makes 10,201 texts"),
        ([{"name": "t", "change": "typo"}] * 2, "has two tests called 't'"),
        ('- {name: t, template: "x \\ud800", label: bad}\n', "test 1, 't': it holds half a character"),
        ('- {name: t, change: {replace: {a: "\\udfff"}}}\n', "test 1, 't': it holds half a character"),
    ],
)  # fmt: skip
def test_what_is_no_test_is_one_sentence(tmp_path: Path, tests: Any, said: str) -> None:
    path = tmp_path / "tests.yaml"
    path.write_text(tests if isinstance(tests, str) else yaml.dump(tests, Dumper=_Plain))
    with pytest.raises(ValueError, match=said) as caught:
        read_tests(path, LABELS)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"tests={path}")


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def test_a_template_makes_what_the_run_reads(run: Path) -> None:
    with pytest.raises(ValueError, match="the template of 't' must make single texts, without a tab"):
        tried(run, [{**NAMED, "template": "one\ttwo"}])
    with pytest.raises(ValueError, match=r"tests=none.yaml does not exist: name a YAML file of tests"):
        probe(ProbeConfig(run=str(run), tests="none.yaml", hardware=CPU))


@pytest.fixture
def run(model_folder: Path, tmp_path: Path) -> Path:
    import shutil

    shutil.copytree(model_folder, tmp_path / "run")
    return tmp_path / "run"


def test_many_marks_on_a_letter_are_taken_away_in_no_time() -> None:
    text = "e" + "\u0301\u0323" * 75_000 + " cafe\u0301"
    began = perf_counter()
    assert len(accents(text, np.random.default_rng(0))) == len("e cafe")
    assert perf_counter() - began < 10
