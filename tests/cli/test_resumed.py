"""`resume=FOLDER` goes on by the settings of the run in it."""

import os

import pytest

from manyheads.cli.compose import compose
from manyheads.config import DataConfig, ModelConfig, OptimConfig, Resume, RunConfig
from manyheads.runs.config_file import save_run


@pytest.fixture
def folder(tmp_path):
    save_run(RunConfig(seed=7, model=ModelConfig(n_heads=3), data=DataConfig(rows=50)), tmp_path / "config.yaml")
    return tmp_path


def test_the_settings_are_those_of_the_folder(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    for word in (f"resume={folder}", f"resume={folder.name}"):
        run = compose("train", [word, "trainer.max_steps=9", "checkpoint.every=5"])
        assert (run.output, run.resume) == (str(folder), Resume.must)
        assert (run.seed, run.model.n_heads, run.data.rows) == (7, 3, 50)
        assert (run.trainer["max_steps"], run.checkpoint.every) == (9, 5)


@pytest.mark.parametrize(
    ("budget", "settled", "word", "limits"),
    [
        ("", (8, 700), "trainer.max_epochs=40", (40, 1500)),
        ("", (30, 700), "trainer.max_steps=900", (30, 900)),
        ("20ktok", (-1, 90), "trainer.max_epochs=40", (40, -1)),
        ("20ktok", (-1, 90), "checkpoint.every=5", (-1, 90)),
        ("", (8, 700), "checkpoint.every=5", (8, 700)),
    ],
)
def test_a_limit_that_is_typed_frees_the_run_of_those_that_nobody_typed(budget, settled, word, limits, tmp_path):
    """What its config.yaml holds are the steps that its budget, or its data, came to."""
    trainer = dict(zip(("max_epochs", "max_steps"), settled, strict=True))
    optim = OptimConfig() if budget else OptimConfig(few=50, few_epochs=30, steps_per_class=50)
    save_run(RunConfig(budget=budget, optim=optim, trainer=trainer), tmp_path / "config.yaml")
    run = compose("train", [f"resume={tmp_path}", word])
    assert (run.trainer["max_epochs"], run.trainer["max_steps"]) == limits


@pytest.mark.parametrize("word", ["model=tiny", "output=elsewhere", "experiment=many_heads"])
def test_what_would_do_nothing_is_refused(word, folder):
    with pytest.raises(ValueError, match=rf"^{word} does nothing with resume=.*: remove it$"):
        compose("train", [f"resume={folder}", word])


@pytest.mark.parametrize("word", ["resume=nowhere", "resume="])
def test_a_folder_that_is_no_run(word):
    sentence = rf"^{word} is neither never, auto or must nor the folder of a run with its config.yaml$"
    with pytest.raises(ValueError, match=sentence):
        compose("train", [word])


def test_the_words_themselves():
    assert compose("train", ["resume=auto"]).resume is Resume.auto
    assert compose("train", []).resume is Resume.never
    with pytest.raises(ValueError, match="resume=x is a setting of train, not of predict"):
        compose("predict", ["run=a", "resume=x"])


@pytest.mark.parametrize("place", ["/other/place", "..", "inside/../../beside"])
def test_a_stranger_does_not_say_where_to_write(place, folder):
    where = os.path.join(folder, place)
    save_run(RunConfig(data=DataConfig(cache=where)), folder / "config.yaml")
    with pytest.raises(
        ValueError, match=r"is a place outside of that folder to write to: type data\.cache=.* if it is"
    ):
        compose("train", [f"resume={folder}"])
    assert compose("train", [f"resume={folder}", "data.cache="]).data.cache == ""
    typed = compose("train", [f"resume={folder}", f"data.cache={where}"])
    assert typed.data.cache == os.path.abspath(where)


def test_a_cache_within_the_folder_is_its_own(folder):
    save_run(RunConfig(data=DataConfig(cache=str(folder / "cache"))), folder / "config.yaml")
    assert compose("train", [f"resume={folder}"]).data.cache == str(folder / "cache")
