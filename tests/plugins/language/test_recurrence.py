"""Settings of a recurrent encoder: what it could only ignore, and what it cannot do, is one sentence."""

import pytest

from manyheads.cli.compose import compose
from tests.registry import of_plugin


def complaint(*words: str) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - every test compares the whole sentence
        compose("train", list(words))
    return str(caught.value)


@pytest.mark.parametrize("kind", of_plugin("language", "encoder"))
def test_both_kinds_and_one_way_reading_can_be_chosen(kind):
    model = compose("train", [f"model.encoder={kind}", "model.bidirectional=false", "model.d_model=33"]).model
    assert (model.encoder, model.bidirectional, model.has_heads) == (kind, False, False)


def test_the_preset_attends_over_a_recurrent_encoder():
    model = compose("train", ["model=rnn_attention"]).model
    assert (model.encoder, model.score, model.pooling) == ("gru", "additive", "attention")
    assert compose("train", ["model=rnn_attention", "model.score=general"]).model.score == "general"


@pytest.mark.parametrize(
    "word",
    [
        "model.n_kv_heads=2",
        "model.scores=[dot, general]",
        "model.window=4",
        "model.windows=[0, 2]",
        "model.causal=true",
        "model.project_output=false",
        "model.pair=cross",
    ],
)
def test_what_is_of_self_attention_is_not_silently_ignored(word):
    said = word.replace("[dot, general]", "['dot', 'general']")
    assert complaint("model.encoder=gru", word) == (
        f"{said} is of self-attention, which model.encoder=gru does not have: "
        "remove it, or use model.encoder=transformer"
    )


def test_positions_that_enter_self_attention_are_refused_and_added_ones_are_not():
    assert complaint("model.encoder=lstm", "model.positions=rotary") == (
        "model.positions=rotary enters self-attention, which model.encoder=lstm does not have: "
        "use model.positions=none (it reads in order), sinusoidal or learned"
    )
    for positions in ("none", "sinusoidal", "learned"):
        compose("train", ["model.encoder=lstm", f"model.positions={positions}"])


def test_an_odd_width_cannot_be_read_both_ways():
    assert complaint("model.encoder=gru", "model.d_model=33") == (
        "model.d_model=33 is odd, but model.encoder=gru reads both ways with half of it each: "
        "use an even width such as model.d_model=34, or model.bidirectional=false"
    )


def test_reading_one_way_is_of_recurrent_encoders():
    assert complaint("model.bidirectional=false") == (
        "model.bidirectional=false is of recurrent encoders, but model.encoder=transformer: "
        "choose model.causal=true, or model.encoder=gru"
    )


def test_the_first_token_of_a_one_way_encoder_has_read_nothing():
    assert complaint("model.encoder=gru", "model.bidirectional=false", "model.pooling=first") == (
        "model.pooling=first reads the first token, which has seen itself alone under "
        "model.bidirectional=false: choose model.pooling=attention, or model.bidirectional=true"
    )


def test_sizes_of_a_preset_that_a_recurrent_encoder_has_not_are_no_mistake():
    compose("train", ["model=small", "model.encoder=gru"])


@pytest.mark.parametrize(
    "word", ["model.score=general", "model.normaliser=sparsemax", "model.scale=2.0", "model.dropout_attention=0.1"]
)
def test_settings_of_attention_need_pooling_by_attention_where_a_class_is_asked_for(word):
    assert complaint("model.encoder=gru", word) == (
        f"{word} is of attention, which model.encoder=gru with model.pooling=mean does not have: "
        "choose model.pooling=attention"
    )
    compose("train", ["model.encoder=gru", word, "model.pooling=attention"])
    compose("train", ["model.encoder=gru", word, "task=seq2seq", "data=dates"])
