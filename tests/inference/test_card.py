"""The model card."""

import pytest

from manyheads.config import EncoderKind, ModelConfig, PairKind
from manyheads.inference.save import judged_card, write_card


def test_it_says_what_how_good_and_how_to_open() -> None:
    card = write_card(
        ModelConfig(), labels=["sad", "glad"], pairs=False, n_parameters=1234, figures={"test accuracy": "0.912"}
    )
    for words in ("1,234 parameters", "sorts texts into 2 classes", "- sad", "| test accuracy | 0.912 |"):
        assert words in card
    assert 'classifier = manyheads.load("this folder")' in card
    assert 'predict(["a text"], ["its pair"])' in write_card(ModelConfig(), labels=["a"], pairs=True, n_parameters=1)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            ModelConfig(),
            "A Transformer encoder of 7 parameters that sorts texts into 1 classes: 2 layers, 4 heads (d_k=",
        ),
        (
            ModelConfig(encoder=EncoderKind.lstm, bidirectional=False),
            "A recurrent encoder of 7 parameters that sorts texts into 1 classes: 2 LSTM layers read one way, d_model=",
        ),
    ],
)
def test_it_says_what_the_encoder_is(model: ModelConfig, words: str) -> None:
    assert words in write_card(model, labels=["a"], pairs=False, n_parameters=7)


def test_it_says_how_pairs_are_read() -> None:
    cards = [
        write_card(ModelConfig(pair=pair), labels=["a", "b"], pairs=True, n_parameters=1)
        for pair in (PairKind.joint, PairKind.cross)
    ]
    assert "sorts pairs of texts into 2 classes" in cards[0]
    assert "sorts pairs of texts, read apart and then across, into 2 classes" in cards[1]


def test_class_names_cannot_write_markdown_of_their_own() -> None:
    card = write_card(ModelConfig(), labels=["<img src=x>", "a\n# title", "[x](y)"], pairs=False, n_parameters=1)
    assert "<img" not in card.replace("\\<img", "")
    assert "\n# title" not in card
    assert "\\[x\\](y)" in card


def test_many_classes_are_cut_short() -> None:
    card = write_card(ModelConfig(), labels=[str(at) for at in range(150)], pairs=False, n_parameters=1)
    assert "- and 50 more, in labels.json" in card


def test_it_says_what_a_linear_model_counts():
    about = {"labels": ["a"], "pairs": False, "n_parameters": 1}
    card = write_card(ModelConfig(), **about, linear=0.25, terms="characters 2-4")
    assert "A linear model of characters 2-4 answers with it: 25% of each probability are its own.\n" in card
    assert "linear model" not in write_card(ModelConfig(), **about, terms="characters 2-4")


def test_what_judging_found_takes_the_place_of_what_was_known_before() -> None:
    before = {"validation accuracy": "0.9"}
    for figures in (before, None):
        card = write_card(ModelConfig(), labels=["a", "b"], pairs=False, n_parameters=7, figures=figures)
        judged = judged_card(card, {"test accuracy": "0.8 (0.7 to 0.9)"}, ["Trained on <x>.", "Few rows."])
        assert "\nTrained on \\<x\\>.\n\nFew rows.\n\n## Figures\n" in judged
        assert "| test accuracy | 0.8 (0.7 to 0.9) |\n\n## Use\n" in judged
        assert "validation accuracy" not in judged
        assert judged.startswith(card[:80])
        assert judged.endswith(card[-200:])
    assert judged_card(judged, {"test accuracy": "0.8 (0.7 to 0.9)"}, []).count("## Figures") == 1
