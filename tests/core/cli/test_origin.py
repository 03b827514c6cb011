"""`init_from=`: what the weights bring, what may be typed with it, and what is said of mistakes."""

import json
import re
import shutil

import pytest

from manyheads.cli.compose import compose
from manyheads.runs.config_file import read_run, save_run


def train(folder, *words):
    return compose("train", [f"init_from={folder}", *words])


def test_the_shape_and_the_tokenizer_come_along(model_folder, tmp_path):
    run = train(model_folder)
    assert (run.model.n_heads, run.model.d_k, run.model.d_v, run.model.d_ff) == (2, 4, 6, 24)
    assert run.tokenizer.path == str(model_folder / "model" / "tokenizer.json")
    assert run.init_from == str(model_folder)
    save_run(run, tmp_path / "config.yaml")
    assert read_run(tmp_path / "config.yaml") == run


def test_presets_of_finetuning_are_implied_and_may_be_others(model_folder):
    run = train(model_folder)
    assert run.optim == compose("train", ["optim=finetune"]).optim
    assert run.model.dropout == compose("train", ["model=from_weights"]).model.dropout
    assert train(model_folder, "optim=scratch").optim == compose("train").optim
    assert train(model_folder, "model=from_weights", "optim.lr=0.5").optim.lr == 0.5


def test_what_is_no_part_of_the_weights_may_be_typed(model_folder):
    run = train(model_folder, "model.pooling=max", "model.dropout=0.3", "model.pooler=tanh", "data.max_length=9")
    assert (run.model.pooling, run.model.dropout, run.data.max_length) == ("max", 0.3, 9)
    assert train(model_folder, "model.d_v=6").model.d_v == 6
    own = model_folder / "model"
    assert train(model_folder, f"tokenizer.path={own}").tokenizer.path == str(own)


def test_a_relative_folder_counts_from_anywhere(model_folder, monkeypatch):
    monkeypatch.chdir(model_folder)
    assert train("model").init_from == str(model_folder / "model")


def test_texts_may_be_longer_where_positions_have_no_end(model_folder):
    assert train(model_folder).data.max_length == 12
    assert train(model_folder, "data.max_length=40").data.max_length == 40


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("model.n_layers=4", r"model.n_layers=4, but the weights of init_from=\S+ have 2: remove it"),
        ("model.windows=[8,4]", r"model.windows=\[8, 4\], but the weights of \S+ have \[\]: remove it"),
        ("model.positions=rotary", "model.positions=rotary, but the weights of .* have sinusoidal"),
        ("model=mini", "model=mini is a shape of its own, but init_from"),
        ("tokenizer.vocab_size=99", "tokenizer.vocab_size=99 does nothing with init_from"),
        ("tokenizer.path=other.json", "tokenizer.path=other.json, but the weights of .* know the ids of their own"),
        ("optim.freeze=3", r"optim.freeze=3 is more than the model.n_layers=2"),
    ],
)
def test_what_the_weights_fix_is_refused_in_a_sentence(model_folder, word, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        train(model_folder, word)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("/no/such/folder", "init_from=/no/such/folder is neither a folder nor an id"),
        ("a/b/c", "init_from=a/b/c is neither a folder nor an id"),
        ("", "init_from= is empty"),
        ("a" * 300, "is neither a folder nor an id"),
    ],
)
def test_what_is_not_there_is_said(name, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        train(name)


def test_folders_that_are_not_whole_are_refused(model_folder, tmp_path):
    with pytest.raises(ValueError, match=r"has no config\.json"):
        train(tmp_path)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ValueError, match="is a file: name a run"):
        train(file)
    shutil.copytree(model_folder, tmp_path / "run")
    (tmp_path / "run" / "model" / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match=r"is no whole model, as \S+ has no tokenizer.json"):
        train(tmp_path / "run")


@pytest.mark.parametrize("changed", [{"vocab_size": 10**12}, {"model": {"d_ff": 262144, "n_layers": 60}}])
def test_sizes_beyond_the_weights_are_refused_before_memory_is_asked_for(changed, model_folder, tmp_path):
    shutil.copytree(model_folder / "model", tmp_path / "model")
    settings = json.loads((tmp_path / "model" / "config.json").read_text())
    changed = changed | {"model": settings["model"] | changed.get("model", {})}
    (tmp_path / "model" / "config.json").write_text(json.dumps(settings | changed))
    with pytest.raises(
        ValueError,
        match=r"^init_from=\S+ is no whole model, as \S+ holds [\d,]+ numbers, but .* has at least [\d,]+: copy",
    ):
        train(tmp_path)
