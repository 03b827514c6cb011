"""The model card."""

from collections.abc import Sequence
from typing import Any

import pytest

from manyheads.config import ModelConfig, PairKind, Terms
from manyheads.inference.card import add_results, write_card
from manyheads.inference.format import Settings


def card_of(
    model: ModelConfig | None = None,
    *,
    labels: Sequence[str] = ("a",),
    figures: dict[str, str] | None = None,
    n_parameters: int = 7,
    **facts: Any,
) -> str:
    settings = Settings(vocab_size=9, n_classes=len(labels), model=model or ModelConfig(), **facts)
    return write_card(settings, labels=labels, n_parameters=n_parameters, figures=figures)


def test_it_says_what_how_good_and_how_to_open() -> None:
    card = card_of(labels=["sad", "glad"], n_parameters=1234, figures={"test accuracy": "0.912"})
    for words in ("1,234 parameters", "sorts texts into 2 classes", "- sad", "| test accuracy | 0.912 |"):
        assert words in card
    assert 'classifier = manyheads.load("this folder")' in card
    assert 'predict(["a text"], ["its pair"])' in card_of(pairs=True)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            {},
            "A Transformer encoder of 7 parameters that sorts texts into 1 classes: 2 layers, 4 heads (d_k=",
        ),
    ],
)
def test_it_says_what_the_encoder_is(model: dict[str, Any], words: str) -> None:
    assert words in card_of(ModelConfig(**model))


def test_it_says_how_pairs_are_read() -> None:
    cards = [
        card_of(ModelConfig(pair=pair), labels=["a", "b"], pairs=True) for pair in (PairKind.joint, PairKind.cross)
    ]
    assert "sorts pairs of texts into 2 classes" in cards[0]
    assert "sorts pairs of texts, read apart and then across, into 2 classes" in cards[1]


def test_class_names_cannot_write_markdown_of_their_own() -> None:
    card = card_of(labels=["<img src=x>", "a\n# title", "[x](y)"])
    assert "<img" not in card.replace("\\<img", "")
    assert "\n# title" not in card
    assert "\\[x\\](y)" in card


def test_many_classes_are_cut_short() -> None:
    assert "- and 50 more, in labels.json" in card_of(labels=[str(at) for at in range(150)])


def test_it_says_what_a_linear_model_counts() -> None:
    card = card_of(linear=0.25, terms=Terms.characters)
    terms = Terms.characters.value
    assert f"A linear model of {terms} answers with it: 25% of each probability are its own.\n" in card
    assert "linear model" not in card_of(terms=Terms.characters)


def test_what_judging_found_takes_the_place_of_what_was_known_before() -> None:
    before = {"validation accuracy": "0.9"}
    for figures in (before, None):
        card = card_of(labels=["a", "b"], figures=figures)
        judged = add_results(card, {"test accuracy": "0.8 (0.7 to 0.9)"}, ["Trained on <x>.", "Few rows."])
        assert "\nTrained on \\<x\\>.\n\nFew rows.\n\n## Figures\n" in judged
        assert "| test accuracy | 0.8 (0.7 to 0.9) |\n\n## Use\n" in judged
        assert "validation accuracy" not in judged
        assert judged.startswith(card[:80])
        assert judged.endswith(card[-200:])
    assert add_results(judged, {"test accuracy": "0.8 (0.7 to 0.9)"}, []).count("## Figures") == 1
