"""Long texts in pieces: all of a text is there, in order, and no piece is too long."""

from itertools import pairwise

import pytest

from manyheads.data.tokens import encode
from manyheads.plugins.language.masks import vocabulary
from manyheads.plugins.language.pieces import WHOLE, held_out, in_pieces, marks_around

TEXTS = ["good", "a very bad film " * 9, "", "so fine the not awful", "good bad fine " * 30]


@pytest.fixture(scope="module")
def tokenizer():
    from tests.conftest import word_tokenizer

    return word_tokenizer()


def rows_of(tokens):
    bounds = tokens.offsets.tolist()
    return [tokens.ids_N[a:b].tolist() for a, b in pairwise(bounds)]


@pytest.mark.parametrize("max_length", [3, 4, 7, 12, 512])
def test_pieces_put_together_are_the_texts(tokenizer, max_length):
    whole = encode(tokenizer, TEXTS, None, None, WHOLE)
    pieces = rows_of(in_pieces(whole, tokenizer, max_length))
    assert all(len(piece) <= max_length for piece in pieces)
    assert all((piece[0], piece[-1]) == (2, 3) for piece in pieces)
    for row in rows_of(whole):
        count = max(1, -(-(len(row) - 2) // (max_length - 2)))
        own, pieces = pieces[:count], pieces[count:]
        assert [one for piece in own for one in piece[1:-1]] == row[1:-1]
        assert max(map(len, own)) - min(map(len, own)) <= 1
    assert pieces == []


def test_marks_are_those_around_a_text(tokenizer):
    before, after = marks_around(tokenizer)
    assert (before.tolist(), after.tolist()) == ([2], [3])


def test_a_part_of_the_texts_is_drawn_the_same_way_every_time(tokenizer):
    tokens = encode(tokenizer, ["a very bad film"] * 50, None, list(range(50)), 12)
    some = held_out(tokens, 60)
    assert len(some) == 10
    assert some.labels.tolist() == held_out(tokens, 60).labels.tolist() == sorted(some.labels.tolist())
    assert some.labels.tolist() != list(range(10))
    assert rows_of(some) == [rows_of(tokens)[0]] * 10
    assert held_out(tokens, 300) is tokens
    assert len(held_out(tokens, 1)) == 1
    tokens.vocabulary = vocabulary(tokenizer, pairs=False)
    assert held_out(tokens, 60).vocabulary is tokens.vocabulary
