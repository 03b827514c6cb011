"""Layers and heads as they are typed."""

import pytest

from manyheads.config import EncoderKind, ModelConfig, PairKind, Pooling
from manyheads.interpret.look import choose

SHAPE = ModelConfig(n_layers=2, n_heads=4)


@pytest.mark.parametrize(
    ("typed", "chosen"),
    [("", [0, 1, 2, 3]), ("2", [1]), ("4,1", [0, 3]), ("2-3", [1, 2]), (" 1 , 3-4 ", [0, 2, 3]), ("[1,2]", [0, 1])],
)
def test_numbers(typed, chosen):
    assert choose(SHAPE, "", typed).heads == chosen
    assert choose(SHAPE, "2", typed).layers == [1]


def test_cross_layers_count_on():
    shape = ModelConfig(n_layers=2, pair=PairKind.cross)
    assert choose(shape, "", "").layers == list(range(2 + shape.n_cross_layers))


@pytest.mark.parametrize(
    ("layers", "heads", "sentence"),
    [
        ("9", "", "layers=9 is out of range: the model has layers 1 to 2"),
        ("0", "", "layers=0 is out of range: the model has layers 1 to 2"),
        ("2-1", "", "layers=2-1 is out of range: the model has layers 1 to 2"),
        ("", "5", "heads=5 is out of range: the model has heads 1 to 4"),
        ("", "2-9", "heads=2-9 is out of range: the model has heads 1 to 4"),
        ("", "all", "heads=all is not understood: count from 1, such as heads=2 or heads=1,3-4"),
        ("1,", "", "layers=1, is not understood: count from 1, such as layers=2 or layers=1,3-4"),
    ],
)
def test_mistakes(layers, heads, sentence):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
        choose(SHAPE, layers, heads)
    assert str(caught.value) == sentence


def test_one_layer_alone():
    with pytest.raises(ValueError, match=r"^layers=2 is out of range: the model has layer 1 alone$"):
        choose(ModelConfig(n_layers=1), "2", "")


def test_recurrent_models_have_no_maps():
    with pytest.raises(ValueError, match=r"^look shows heads of .* model\.encoder=gru, which has none: train one with"):
        choose(ModelConfig(encoder=EncoderKind.gru, pooling=Pooling.attention), "", "")
