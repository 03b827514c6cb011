"""The model card."""

from manyheads.config import ModelConfig
from manyheads.ship.card import write_card


def test_it_says_what_how_good_and_how_to_open() -> None:
    card = write_card(
        ModelConfig(), labels=["sad", "glad"], pairs=False, n_parameters=1234, figures={"test accuracy": "0.912"}
    )
    for words in ("1,234 parameters", "sorts texts into 2 classes", "- sad", "| test accuracy | 0.912 |"):
        assert words in card
    assert 'classifier = manyheads.load("this folder")' in card
    assert 'predict(["a text"], ["its pair"])' in write_card(ModelConfig(), labels=["a"], pairs=True, n_parameters=1)


def test_class_names_cannot_write_markdown_of_their_own() -> None:
    card = write_card(ModelConfig(), labels=["<img src=x>", "a\n# title", "[x](y)"], pairs=False, n_parameters=1)
    assert "<img" not in card.replace("\\<img", "")
    assert "\n# title" not in card
    assert "\\[x\\](y)" in card


def test_many_classes_are_cut_short() -> None:
    card = write_card(ModelConfig(), labels=[str(at) for at in range(150)], pairs=False, n_parameters=1)
    assert "- and 50 more, in labels.json" in card
