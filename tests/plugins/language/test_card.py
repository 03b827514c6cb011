"""The cards of models whose answers are tokens."""

from manyheads.config import ModelConfig
from manyheads.inference.card import write_card
from manyheads.inference.format import Settings


def test_other_tasks_have_cards_of_their_own() -> None:
    card = write_card(Settings(vocab_size=9, task="seq2seq"), n_parameters=7)
    assert "\nA Transformer encoder and decoder of 7 parameters: 2 layers, 4 heads" in card
    assert 'print(translator.generate(["a text"]))' in card
    settings = Settings(vocab_size=9, task="pretrain")
    card = write_card(settings, n_parameters=7, figures={"validation loss": "3.2"})
    assert "A classifier starts from it: `manyheads train init_from=FOLDER`.\n\n## Figures\n" in card
    assert 'print(guesser.fill(["a [MASK] text"]))' in card
    assert card.endswith("Nothing in the folder is code.\n")


def test_it_says_what_the_encoder_is() -> None:
    settings = Settings(vocab_size=9, n_classes=1, model=ModelConfig(encoder="lstm", bidirectional=False))
    words = "A recurrent encoder of 7 parameters that sorts texts into 1 classes: 2 LSTM layers read one way, d_model="
    assert words in write_card(settings, labels=["a"], n_parameters=7)
