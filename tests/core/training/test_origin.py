"""A network that begins with the weights of a run of ours reads texts as they did."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from manyheads.cli.compose import compose
from manyheads.config import ModelConfig
from manyheads.data.rows import Rows, Splits
from manyheads.data.tokenizer import load_tokenizer
from manyheads.data.tokens import encode
from manyheads.inference.folder import load
from manyheads.layout import Packed
from manyheads.training.build import assemble_network

TEXTS = ["a good film", "so bad", "the awful film is not good"]


def splits(pairs=False):
    rows = Rows(TEXTS, TEXTS[::-1] if pairs else None, [0, 1, 1], "x.csv", [1, 2, 3])
    return Splits(rows, rows, rows, ["x", "y"])


def begun(folder, *words, pairs=False):
    """The network of `train init_from=folder` before its first step, and the tokenizer taken along."""
    run = compose("train", [f"init_from={folder}", *words])
    tokenizer = load_tokenizer(run.tokenizer.path)
    return run, assemble_network(run, splits(pairs), tokenizer).eval(), tokenizer


def read(network, tokenizer, length=12, pairs=None):
    """Vectors of the tokens of `TEXTS` above the last layer."""
    tokens = encode(tokenizer, TEXTS, pairs, None, length)
    layout = Packed(tokens.offsets, int(tokens.lengths.max()))
    segments = None if tokens.segments_N is None else tokens.segments_N.long()
    with torch.no_grad():
        return network.encode(tokens.ids_N.long(), layout, segments)


def test_a_run_of_ours_is_gone_on_from(model_folder):
    run, network, tokenizer = begun(model_folder)
    source = load(model_folder)
    torch.testing.assert_close(read(network, tokenizer), read(source.network, source.tokenizer), rtol=0, atol=0)
    assert (run.model.n_layers, run.model.d_v, run.data.max_length) == (2, 6, 12)
    assert network.head.out_features == 2
    assert Path(run.tokenizer.path) == model_folder / "model" / "tokenizer.json"
    assert run.optim == compose("train", ["optim=finetune"]).optim


def test_model_folders_moved_elsewhere_do(model_folder):
    _, network, tokenizer = begun(model_folder / "model")
    assert torch.isfinite(read(network, tokenizer)).all()


def test_pairs_begin_as_the_texts_they_are_made_of(model_folder):
    """The weights have seen single texts alone: vectors of segments start at zero."""
    _, network, tokenizer = begun(model_folder, pairs=True)
    assert network.state_dict()["embeddings.segments.weight"].count_nonzero() == 0
    source = load(model_folder).network
    tokens = encode(tokenizer, TEXTS, TEXTS, None, 12)
    layout = Packed(tokens.offsets, int(tokens.lengths.max()))
    with torch.no_grad():
        expected = source.encode(tokens.ids_N.long(), layout)
    torch.testing.assert_close(read(network, tokenizer, pairs=TEXTS), expected)


def test_a_table_that_is_added_to_the_words_begins_at_nothing(model_folder):
    """That of words which both texts have: the weights read as before, and go on from there."""
    _, plain, tokenizer = begun(model_folder, "model.matches=false", pairs=True)
    _, network, _ = begun(model_folder, "model.matches=true", pairs=True)
    torch.testing.assert_close(read(network, tokenizer, pairs=TEXTS), read(plain, tokenizer, pairs=TEXTS))
    assert network.state_dict()["embeddings.matches.weight"].shape[0] == 2


def test_single_texts_are_first_texts_to_weights_of_pairs(pair_folder):
    run, network, tokenizer = begun(pair_folder)
    assert run.model.segments.name == "always"
    source = load(pair_folder).network
    torch.testing.assert_close(read(network, tokenizer), read(source, tokenizer))


def test_single_texts_have_no_word_of_another_to_weights_that_mark_these(tmp_path, ship_model):
    shape = ModelConfig(matches=True, n_layers=1, n_heads=2, d_model=16, d_k=4, d_v=6, d_ff=24)
    ship_model(tmp_path / "model", shape=shape, pairs=True)
    _, network, tokenizer = begun(tmp_path)
    source = load(tmp_path).network
    assert source.state_dict()["embeddings.matches.weight"][0].count_nonzero()
    torch.testing.assert_close(read(network, tokenizer), read(source, tokenizer))


def test_fewer_positions_are_the_first_ones(tmp_path, ship_model):
    shape = ModelConfig(positions="learned", n_layers=1, n_heads=2, d_model=16, d_k=4, d_v=6, d_ff=24)
    ship_model(tmp_path / "model", shape=shape)
    run, network, tokenizer = begun(tmp_path, "data.max_length=7")
    assert network.state_dict()["embeddings.positions.weight"].shape[0] == run.data.max_length == 7
    source = load(tmp_path).network
    torch.testing.assert_close(read(network, tokenizer, length=7), read(source, tokenizer, length=7))
    with pytest.raises(ValueError, match=r"data.max_length=13, but the weights of .* know 12 positions"):
        compose("train", [f"init_from={tmp_path}", "data.max_length=13"])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda held: held.pop("encoder.norm.weight"), "has no encoder.norm.weight, which the model needs"),
        (lambda held: held.update({"encoder.more": torch.ones(2)}), "has encoder.more, which the model has no room"),
        (lambda held: held.update({"encoder.norm.bias": torch.ones(2)}), r"encoder.norm.bias is \[2\], but"),
        (lambda held: held["encoder.norm.bias"].fill_(float("nan")), "encoder.norm.bias holds values that are not"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(tmp_path, ship_model, spoil, words):
    ship_model(tmp_path / "model")
    held = load_file(tmp_path / "model" / "model.safetensors")
    spoil(held)
    save_file(held, tmp_path / "model" / "model.safetensors")
    with pytest.raises(ValueError, match=words):
        begun(tmp_path)


def test_a_tokenizer_with_more_ids_than_words_is_refused(tmp_path, ship_model):
    ship_model(tmp_path / "model")
    path = tmp_path / "model" / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["vocab"]["late"] = 99
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"gives 100 ids, but the weights of init_from=.* have 15 words"):
        begun(tmp_path)
