"""What is typed to the verbs: settings, lists of runs, and figures that must be reached."""

import os
import shlex

import pytest

from manyheads.cli.compose import compose
from manyheads.cli.main import main
from manyheads.cli.overrides import read_overrides
from tests.core.test_require import home, there  # noqa: F401  fixtures


@pytest.mark.parametrize("verb", ["calibrate", "probe", "compare"])
@pytest.mark.parametrize("split", ["tests", ""])
def test_a_split_is_one_of_three(verb, split):
    runs = "runs=[x,y]" if verb == "compare" else "run=x"
    with pytest.raises(ValueError, match=f"^split={split} is not a choice: choose train, validation or test$"):
        compose(verb, [runs, f"split={split}"])


def test_a_setting_of_data_that_is_not_read_is_refused():
    with pytest.raises(ValueError, match=r"^data.rows=5 does nothing here, where evaluate reads the run's own data"):
        compose("probe", ["run=x", "data.rows=5"])


def test_names_that_are_typed():
    assert compose("evaluate", ["run=x", "slices=[column:1e3,length]"]).slices == ["column:1e3", "length"]
    runs = compose("compare", ["runs=[2024,1e3]"]).runs
    assert [os.path.basename(one) for one in runs] == ["2024", "1e3"]


@pytest.mark.parametrize(
    ("line", "word", "remedy"),
    [
        ("audit run", "run", "for local files write data.path=run"),
        ("compare outputs/a outputs/b", "outputs/a", "for these runs write runs=[outputs/a,outputs/b]"),
        ("compare split=test a b c", "a", "for these runs write runs=[a,b,c]"),
        ("compare outputs/a", "outputs/a", "for these runs write runs=[outputs/a,...]"),
    ],
)
def test_a_word_alone_is_answered_with_what_to_type(line, word, remedy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "config.yaml").touch()
    verb, *words = line.split()
    with pytest.raises(ValueError, match=r"^") as said:
        read_overrides(verb, words)
    assert str(said.value) == f"{word} has no value: {remedy}"


def test_paths_of_jobs_that_hold_a_sign_of_equality_are_told_as_paths(tmp_path, monkeypatch):
    """As -m names their folders; the words that are given in turn are read."""
    monkeypatch.chdir(tmp_path)
    jobs = ["sweep/model.n_heads=2,seed=0", "sweep/gone=1"]
    (tmp_path / jobs[0]).mkdir(parents=True)
    (tmp_path / jobs[0] / "config.yaml").touch()
    with pytest.raises(
        ValueError, match=r"^sweep/model.n_heads=2,seed=0 is not a setting: for these runs write "
    ) as said:
        read_overrides("compare", jobs)
    (word,) = shlex.split(str(said.value).partition("write ")[2])
    assert read_overrides("compare", [word]).values["runs"] == jobs


def test_compare_is_a_gate(there, capsys):  # noqa: F811
    two = ["compare", "runs=[run,run/model]", "hardware=cpu"]
    assert main([*two, "output=one", "require=[change.accuracy>=0,accuracy<=1]"]) == 0
    assert main([*two, "output=two", "require=[change.accuracy.low>0]"]) == 3
    assert (there / "two" / "compare.json").is_file()
    assert "change.accuracy.low" in capsys.readouterr().err


def test_a_figure_of_labels_alone_is_refused_before_anything_is_answered(there, capsys):  # noqa: F811
    two = ["compare", "runs=[run,run/model]", "hardware=cpu", "output=never-compared"]
    assert main([*two, "require=[change.micro_precision>0]"]) == 2
    assert "change.micro_precision>0 names no figure" in capsys.readouterr().err
    assert not (there / "never-compared").exists()
