"""`resume=FOLDER` continues by the settings of the run in it, `again=FOLDER` trains it once more elsewhere."""

import os
from dataclasses import replace

import pytest
import yaml

from manyheads.cli import main as cli
from manyheads.cli.compose import compose, shown
from manyheads.config import DataConfig, ModelConfig, OptimConfig, Resume, RunConfig
from manyheads.config.conversion import to_plain
from manyheads.runs.config_file import save_run
from tests.registry import SWEEPS


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


def test_a_run_is_trained_again_by_its_settings_and_what_is_typed(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder.parent)
    before = compose("train", [f"resume={folder}"])
    again = compose("train", [f"again={folder.name}", "output=second"])
    fresh = {"resume": Resume.never, "output": str(folder.parent / "second"), "again": str(folder)}
    assert again == replace(before, **fresh)
    assert compose("train", [f"again={folder}"]).output == "", "a new folder"
    changed = compose("train", [f"again={folder}", "model.n_heads=2", "trainer.max_steps=9", "resume=auto", "output=x"])
    assert (changed.model.n_heads, changed.trainer["max_steps"], changed.resume) == (2, 9, Resume.auto)
    assert (changed.seed, changed.data.rows) == (7, 50)
    printed = yaml.safe_load(shown("train", ["--cfg", "job"], [f"again={folder}", "output=second"]))
    assert printed == to_plain(again)


@pytest.mark.parametrize(
    ("saved", "words", "limits"),
    [
        ({"budget": "20ktok"}, [], (-1, 90)),
        ({"budget": "10min"}, ["trainer.max_epochs=40"], (40, -1)),
        ({"optim": OptimConfig(few=50, few_epochs=30, steps_per_class=50)}, [], (-1, 90)),
        ({"optim": OptimConfig(few=50, few_epochs=30, steps_per_class=50)}, ["trainer.max_epochs=40"], (40, 1500)),
    ],
)
def test_what_budget_and_data_came_to_is_kept(saved, words, limits, tmp_path):
    save_run(RunConfig(trainer={"max_epochs": -1, "max_steps": 90}, **saved), tmp_path / "config.yaml")
    run = compose("train", [f"again={tmp_path}", *words])
    assert (run.trainer["max_epochs"], run.trainer["max_steps"]) == limits
    assert (run.budget, run.optim.few_epochs, run.optim.steps_per_class) == ("", 0, 0)
    assert compose("train", [f"again={tmp_path}", "budget=5ktok"]).budget == "5ktok"


def test_folds_have_the_limits_that_were_typed_for_them(tmp_path):
    save_run(RunConfig(budget="5ktok", data=DataConfig(folds=3)), tmp_path / "config.yaml")
    assert compose("train", [f"again={tmp_path}"]).budget == "5ktok"
    save_run(RunConfig(budget="5ktok", data=DataConfig(folds=3, fold=2)), tmp_path / "config.yaml")
    assert compose("train", [f"again={tmp_path}"]).budget == "", "a run of one fold came to steps"


def test_other_data_and_presets_may_be_typed_with_it(folder):
    words = [f"again={folder}"]
    other = compose("train", [*words, "data.path=x.csv"])
    assert (other.data.source, other.data.rows, other.model.n_heads) == ("files", 50, 3)
    hub = compose("train", [*words, "data.hub=imdb"])
    assert (hub.data.source, hub.data.path, hub.data.rows) == ("hub", "", 50)
    small = compose("train", [*words, "model=mini", "hardware=cpu", "optim.lr=0.5"])
    assert (small.model, small.optim.lr, small.data.rows) == (compose("train", ["model=mini"]).model, 0.5, 50)
    assert small.hardware.accelerator.name == "cpu"
    assert compose("train", [*words, "debug=fast"]).trainer["max_epochs"] == 1


@SWEEPS
def test_a_sweep_trains_it_again_with_each_value(folder, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(cli, "call", lambda verb, config: seen.append(config))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "-m", f"again={folder}", "optim.lr=0.1,0.2", "hydra.sweep.dir=there"]) == 0
    assert seen == [
        compose("train", [f"again={folder}", f"optim.lr={lr}", f"output=there/optim.lr={lr}"]) for lr in (0.1, 0.2)
    ]


@SWEEPS
def test_a_sweep_trains_several_runs_again(folder, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(cli, "call", lambda verb, config: seen.append(config))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    save_run(RunConfig(seed=8), tmp_path / "other" / "config.yaml")
    assert cli.main(["train", "-m", f"again={folder},other", "hydra.sweep.dir=there"]) == 0
    places = [(str(folder), 0), (str(tmp_path / "other"), 1)]
    assert seen == [compose("train", [f"again={place}", f"output=there/{at}"]) for place, at in places]
    assert cli.main(["train", "-m", f"again={folder},nowhere"]) == 2


def test_other_weights_bring_their_shape(model_folder, folder):
    run = compose("train", [f"again={folder}", f"init_from={model_folder}"])
    plain = compose("train", [f"init_from={model_folder}"])
    assert (run.init_from, run.tokenizer.path) == (plain.init_from, plain.tokenizer.path)
    assert (run.model.d_model, run.model.n_layers, run.seed) == (plain.model.d_model, plain.model.n_layers, 7)


def test_what_cannot_be_trained_again_is_one_sentence(folder, tmp_path):
    for place in ("nowhere", str(folder / "config.yaml")):
        with pytest.raises(ValueError, match="is not the folder of a run with its config"):
            compose("train", [f"again={place}"])
    with pytest.raises(ValueError, match=r"^again=.* does nothing with resume="):
        compose("train", [f"resume={folder}", f"again={folder}"])
    with pytest.raises(ValueError, match="again=x is a setting of train, not of evaluate"):
        compose("evaluate", ["run=x", "again=x"])
    with pytest.raises(ValueError, match=f"once more write again={folder}, to continue it resume={folder}"):
        compose("train", [str(folder)])


def test_a_stranger_does_not_say_where_tokens_are_kept(folder):
    save_run(RunConfig(data=DataConfig(cache="/other/place")), folder / "config.yaml")
    assert compose("train", [f"again={folder}"]).data.cache == ""


@pytest.mark.parametrize(
    "flag", [[], pytest.param(["-m", "seed=1,2"], marks=SWEEPS), ["--cfg", "job"], ["--info", "all"]]
)
def test_a_folder_without_presets_is_no_folder_of_presets(flag, folder, tmp_path, monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(cli, "call", lambda verb, config: seen.append(config))
    (tmp_path / "mine" / "model").mkdir(parents=True)
    (tmp_path / "mine" / "model" / "wide.yaml").write_text("d_ff: 4096\n")
    (tmp_path / "mine" / "config.yaml").touch()
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    for place, said in (
        (folder, f"is a run and holds no presets: to train it once more write again={folder}"),
        ("mine/model", "holds no presets: name the folder above it, mine"),
        ("empty", "holds no presets: name one that holds presets, such as mine/model/wide.yaml"),
    ):
        assert cli.main(["train", *flag, "--config-dir", str(place)]) == 2
        assert capsys.readouterr().err == f"--config-dir {place} {said}\n"
    assert not seen


def test_of_a_folder_of_presets_none_need_be_chosen(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(cli, "call", lambda verb, config: seen.append(config))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "wide.yaml").write_text("d_ff: 4096\n")
    assert cli.main(["train", "--config-dir", str(tmp_path)]) == 0
    assert seen == [compose("train")]
