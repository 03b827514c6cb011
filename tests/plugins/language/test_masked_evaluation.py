"""What guesses at hidden words are worth."""

import pytest

from manyheads.plugins.language.evaluation import score_masked
from manyheads.plugins.language.predictors import Guessed


def test_texts_in_which_nothing_is_hidden_are_one_sentence():
    with pytest.raises(ValueError, match="too few and short to hide a word in them"):
        score_masked([Guessed(0, 0, 0.0)])
