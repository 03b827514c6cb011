"""Embeddings against their sum, one token at a time."""

import math

import pytest
import torch
from torch import nn

from manyheads.layout import Packed
from manyheads.nn import LearnedPositions
from manyheads.nn.embeddings import Embeddings

LAYOUT = Packed.of_lengths([2, 3])
IDS, SEGMENTS = torch.tensor([5, 1, 5, 0, 7]), torch.tensor([0, 1, 0, 0, 1])


def embeddings(n_segments: int = 0, norm: nn.Module | None = None, **dropouts: float) -> Embeddings:
    return Embeddings(
        vocab_size=9,
        d_model=16,
        positions=LearnedPositions(max_length=4, d_model=16),
        n_segments=n_segments,
        norm=norm or nn.Identity(),
        dropout=dropouts.get("dropout", 0.0),
        dropout_tokens=dropouts.get("dropout_tokens", 0.0),
    )


@pytest.mark.parametrize("n_segments", [0, 2])
@pytest.mark.parametrize("norm", [nn.Identity(), nn.LayerNorm(16)])
def test_a_vector_is_word_times_root_of_d_model_plus_position_plus_segment(n_segments, norm):
    block = embeddings(n_segments, norm)
    got = block(IDS, LAYOUT, SEGMENTS if n_segments else None)
    for token, (word, position, segment) in enumerate(zip(IDS, [0, 1, 0, 1, 2], SEGMENTS, strict=True)):
        by_hand = math.sqrt(16) * block.words.weight[word] + block.positions.weight[position]
        if n_segments:
            by_hand = by_hand + block.segments.weight[segment]
        torch.testing.assert_close(got[token], norm(by_hand))


def test_the_table_of_segments_is_read_by_type_ids():
    """Segments are 0 and 1 of the first and second text, plus 2 where the type id is the other one."""
    block = embeddings(2)
    by_type = [block(IDS, LAYOUT, torch.full_like(IDS, type_id)) for type_id in (0, 1)]
    torch.testing.assert_close(block(IDS, LAYOUT, torch.full_like(IDS, 3)), by_type[0])
    torch.testing.assert_close(block(IDS, LAYOUT, torch.full_like(IDS, 2)), by_type[1])


def test_token_dropout_silences_whole_words_and_leaves_their_place():
    block = embeddings(2, dropout_tokens=0.25)
    layout = Packed.of_lengths([4] * 500)
    ids, segments = torch.randint(9, (2000,)), torch.randint(2, (2000,))
    place = block.positions(layout.positions) + block.segments(segments)
    words = block(ids, layout, segments) - place
    silenced = words.abs().amax(-1) < 1e-5
    assert abs(silenced.double().mean() - 0.25) < 0.04
    torch.testing.assert_close(words[~silenced], (block.words(ids) * 4 / 0.75)[~silenced], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(block.eval()(ids, layout, segments), block.words(ids) * 4 + place)


def test_embedding_dropout_silences_single_numbers_when_training():
    block = embeddings(dropout=0.5)
    assert 0.3 < (block(IDS, LAYOUT) == 0).double().mean() < 0.7
    assert (block.eval()(IDS, LAYOUT) != 0).all()
