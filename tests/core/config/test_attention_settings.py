"""Settings of attention that cannot go together end in one sentence; those that can reach each layer."""

import pytest

from manyheads import plugin
from manyheads.cli.compose import compose
from manyheads.config import ModelConfig
from manyheads.config.conversion import from_plain, to_plain
from manyheads.config.sentences import one_of


def complaint(*words: str) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - every test compares the whole sentence
        compose("train", list(words))
    return str(caught.value)


def test_without_projections_the_heads_must_fill_the_vector():
    assert complaint("model.project=false", "model.d_k=16") == (
        "model.project=false cuts x into heads, but model.n_heads=4 x model.d_k=16 (d_v=32) is not model.d_model=128: "
        "choose d_k = d_v = d_model / n_heads"
    )


def test_without_projections_no_keys_can_be_shared():
    assert complaint("model.project=false", "model.n_kv_heads=2") == (
        "model.n_kv_heads=2 shares keys and values, but model.project=false has none to share: remove model.n_kv_heads"
    )


def test_without_w_o_the_contexts_must_fill_the_vector():
    assert complaint("model.project_output=false", "model.d_v=16") == (
        "model.project_output=false puts 4 contexts of model.d_v=16 side by side, which is not model.d_model=128: "
        "choose d_v = d_model / n_heads"
    )


def test_parameter_free_rotary_with_an_odd_width():
    assert complaint(
        "model.project=false",
        "model.positions=rotary",
        "model.n_heads=1",
        "model.d_model=33",
        "model.d_k=33",
        "model.d_v=33",
    ).startswith("model.d_k=33 is odd, but model.positions=rotary")


def test_the_first_token_sees_nothing_under_a_causal_mask():
    assert complaint("model.causal=true", "model.pooling=first") == (
        "model.pooling=first reads the first token, which sees itself alone under model.causal=true: "
        "choose model.pooling=mean, or model.causal=false"
    )


@pytest.mark.parametrize("word", ["model.scores=[dot,cosine,general]", "model.windows=[8,8,0]"])
def test_no_more_layers_are_listed_than_there_are(word):
    name = word.partition("=")[0]
    assert complaint(word) == f"{name} lists 3 layers, but model.n_layers=2: list one value a layer at the most"


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        (
            "model.scores=[dot,cos]",
            f"model.scores=cos is not a choice: choose {one_of(plugin.names('score'))}",
        ),
        ("model.scores=dot", "model.scores=dot is not a list: write it in brackets, such as model.scores=[dot]"),
        ("model.windows=8", "model.windows=8 is not a list: write it in brackets, such as model.windows=[8]"),
        (
            "model.windows=[-1]",
            "model.windows=[-1] is out of range: it must be at least 0; the default is an empty list",
        ),
        (
            "model.windows=[wide]",
            "model.windows=wide has the wrong type: it must be a whole number; the default is an empty list",
        ),
        ("model.scale=0", "model.scale=0.0 is out of range: it must be above 0.0; the default is null"),
    ],
)
def test_a_wrong_value_is_one_sentence(word, sentence):
    assert complaint(word) == sentence


def test_a_pattern_is_repeated_over_the_layers():
    model = compose(
        "train", ["model.n_layers=5", "model.windows=[8,8,0]", "model.scores=[additive,dot]", "model.window=3"]
    ).model
    assert [model.window_of(layer) for layer in range(5)] == [8, 8, 0, 8, 8]
    assert [model.score_of(layer) for layer in range(3)] == ["additive", "dot", "additive"]
    assert from_plain(ModelConfig, to_plain(model)) == model


def test_without_a_pattern_all_layers_are_alike():
    model = compose("train", ["model.window=3", "model.score=general"]).model
    assert {model.window_of(layer) for layer in range(2)} == {3}
    assert {model.score_of(layer) for layer in range(2)} == {"general"}
