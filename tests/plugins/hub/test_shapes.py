"""config.json of a folder becomes a shape of ours, or one sentence."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from manyheads.config import ModelConfig
from manyheads.config.facts import settings_where
from manyheads.plugins.hub.families import FAMILIES, ConfigFile, read_config
from manyheads.plugins.hub.shapes import PINNED, read_shape, weight_files

MODERN = {
    "model_type": "modernbert",
    "hidden_size": 4,
    "num_hidden_layers": 6,
    "num_attention_heads": 2,
    "intermediate_size": 6,
    "vocab_size": 9,
}
SIZES = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 6}
SIZES |= {"dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 6}


def complaint(folder: Path) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared by the caller
        read_shape(folder)
    return str(caught.value).replace(str(folder), "FOLDER")


def test_a_folder_is_read_whole(by_hand):
    shape = read_shape(by_hand(hidden_dropout_prob=0.3))
    assert (shape.family, shape.max_length, shape.vocab_size, shape.n_segments) == ("bert", 8, 9, 2)
    model = shape.config()
    assert (model.n_layers, model.n_heads, model.d_k, model.d_ff, model.dropout) == (1, 2, 2, 6, 0.3)
    assert (model.pooling, model.pooler.name, model.segments.name) == ("first", "tanh", "always")


@pytest.mark.parametrize("kind", FAMILIES)
def test_every_setting_of_a_model_is_said_or_free(kind):
    """So that no default of ours, now or later, makes another model of what a folder holds."""
    said = read_config(kind, ConfigFile(SIZES)).model.keys() | PINNED.keys()
    optional = {"rotary_base", "rotary_base_window"}  # of rotary positions alone
    optional |= {"bidirectional", "pooling_options"}  # of recurrent encoders, and of a pooling that may be typed
    free = {*settings_where(ModelConfig, weights="free"), *settings_where(ModelConfig, weights="default")}
    assert {one.name for one in fields(ModelConfig)} - free - said <= optional
    assert ("rotary_base" in said) == (kind == "modernbert")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"model_type": "gpt2"},
            "model_type=gpt2 is none that manyheads reads: bert, distilbert, roberta, xlm-roberta, camembert, electra, "
            "modernbert or deberta-v2",
        ),
        ({"model_type": ["bert"]}, "model_type=['bert'] is none that manyheads reads: bert, "),
        (
            MODERN | {"layer_types": [[], {}, 1, 2, 3, 4]},
            "but it must name sliding_attention or full_attention for each of 6 layers",
        ),
        ({"hidden_size": "4"}, "hidden_size=4, but it must be a whole number from 1 to 2147483648"),
        ({"hidden_size": True}, "hidden_size=true, but it must be a whole number from 1 to 2147483648"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers=1000000000, but it must be a whole number from 1 to 1000"),
        ({"num_attention_heads": 3}, "num_attention_heads=3, but it must divide hidden_size=4"),
        (
            {"hidden_act": "silu"},
            "hidden_act=silu, but manyheads has gelu or relu there, so this model cannot be read",
        ),
        (
            {"position_embedding_type": "relative_key"},
            "position_embedding_type=relative_key, but manyheads has no such option, so this model cannot be read",
        ),
        ({"is_decoder": True}, "is_decoder=true, but manyheads has no such option, so this model cannot be read"),
        (
            {"auto_map": {"AutoModel": "code.Model"}},
            "auto_map={'AutoModel': 'code.Model'}, but manyheads reads no such model: use one without",
        ),
        ({"type_vocab_size": 3}, "type_vocab_size=3, but a pair has two segments, so this model cannot be read"),
        (
            {"hidden_dropout_prob": 1.5},
            "model.dropout=1.5 is out of range: it must be at least 0.0 and below 1.0; the default is 0.2",
        ),
        (
            {"hidden_size": 2**15},
            "describes a model of at least 4,295,655,424 numbers, but its weights are",
        ),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_what_cannot_be_read_is_one_sentence(by_hand, settings: dict[str, Any], said: str):
    assert said in complaint(by_hand(**settings))
    assert "\n" not in complaint(by_hand(**settings))


def test_what_is_no_folder_of_a_model(by_hand, tmp_path):
    assert complaint(tmp_path).startswith("init_from=FOLDER has no config.json: name a run, ")
    assert "is not a folder" in complaint(tmp_path / "none")
    folder = by_hand()
    (folder / "model.safetensors").unlink()
    assert complaint(folder) == (
        "init_from=FOLDER has no weights that manyheads reads: it needs model.safetensors or pytorch_model.bin"
    )


def test_windows_of_modernbert_repeat_every_few_layers(by_hand):
    folder = by_hand(**MODERN)
    model = read_shape(folder).config()
    assert [model.window_of(layer) for layer in range(6)] == [0, 64, 64, 0, 64, 64]
    assert [model.rotary_base_of(layer) for layer in range(3)] == [160_000.0, 10_000.0, 10_000.0]
    kinds = ["sliding_attention"] * 5 + ["full_attention"]
    ropes = {"full_attention": {"rope_theta": 7.0, "rope_type": "default"}, "sliding_attention": None}
    model = read_shape(by_hand(**MODERN, layer_types=kinds, local_attention=10, rope_parameters=ropes)).config()
    assert [model.window_of(layer) for layer in range(6)] == [5] * 5 + [0]
    assert [model.rotary_base_of(layer) for layer in (4, 5)] == [10_000.0, 7.0]
    yarn = {"full_attention": {"rope_type": "yarn"}}
    assert "plain rotary positions alone" in complaint(by_hand(**MODERN, rope_parameters=yarn))


def test_pooling_of_sentence_transformers_is_taken(by_hand):
    folder = by_hand()
    (folder / "1_Pooling").mkdir()
    for content, pooling in (
        ({"pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "first"),
        ({"pooling_mode": "max"}, "max"),
    ):
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(content))
        model = read_shape(folder).config()
        assert (model.pooling, model.pooler.name) == (pooling, "none")


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/x.safetensors", "weights.bin", 7])
def test_an_index_names_files_beside_it_alone(by_hand, name):
    folder = by_hand()
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": name}}))
    assert "it must name weights in its folder" in complaint(folder)


def test_weights_in_parts_are_found(by_hand):
    folder = by_hand()
    parts = [folder / f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    (folder / "model.safetensors").rename(parts[0])
    index = {"weight_map": {"x": parts[0].name, "y": parts[1].name, "z": parts[0].name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert f"names {parts[1].name}, not in its folder" in complaint(folder)
    parts[1].touch()
    assert weight_files(folder) == parts
