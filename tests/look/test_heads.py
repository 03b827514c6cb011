"""Heads are found, silenced and watched as a hand on the weights would do it."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from manyheads.layout import Packed
from manyheads.look.heads import Head, heads, silent, watched, with_silence, without_head
from manyheads.nn import Classifier
from manyheads.nn.attention import attend
from manyheads.ship.deliverable import load

IDS_N = torch.tensor([2, 5, 9, 10, 3, 2, 6, 3, 2, 11, 12, 7, 8, 5, 3])
LAYOUT = Packed.of_lengths([5, 3, 7])


@pytest.fixture
def classifier(model_folder: Path) -> Classifier:
    return load(model_folder).classifier


def logits(classifier: Classifier, ids_N: Tensor = IDS_N) -> Tensor:
    with torch.inference_mode():
        return classifier(ids_N, LAYOUT)


def test_heads_are_counted_from_one(classifier: Classifier) -> None:
    assert heads(classifier) == [Head(1, 1), Head(1, 2), Head(2, 1), Head(2, 2)]
    assert str(Head(2, 1)) == "2.1"


@pytest.mark.parametrize("head", [Head(1, 1), Head(1, 2), Head(2, 2)])
def test_a_silent_head_is_one_without_columns_in_the_output(classifier: Classifier, head: Head) -> None:
    whole = logits(classifier)
    with without_head(classifier, head):
        ours = logits(classifier)
    torch.testing.assert_close(logits(classifier), whole, rtol=0, atol=0)
    output = classifier.encoder.layers[head.layer - 1].attention.block.output
    d_v = output.in_features // 2
    with torch.no_grad():
        output.weight[:, d_v * (head.head - 1) : d_v * head.head] = 0.0
    torch.testing.assert_close(ours, logits(classifier))
    assert (ours - whole).abs().max() > 1e-3


def test_silent_tokens_are_those_of_an_edited_embedding(classifier: Classifier) -> None:
    silence_N = torch.zeros_like(IDS_N, dtype=torch.bool)
    silence_N[[1, 9, 13]] = True  # the id 5 twice, and 11
    whole = logits(classifier)
    with with_silence(classifier):
        torch.testing.assert_close(logits(classifier), whole, rtol=0, atol=0)
        ours = logits(classifier, silent(IDS_N, silence_N))
    table = classifier.embeddings.words.weight
    with torch.no_grad():
        table[[5, 11]] = 0.0
    torch.testing.assert_close(ours, logits(classifier))
    assert (ours - whole).abs().max() > 1e-3
    with pytest.raises(IndexError):
        logits(classifier, silent(IDS_N, silence_N))  # the marks mean nothing any more


def test_what_is_watched_is_the_formula_and_the_answer_stays(classifier: Classifier) -> None:
    seen: dict[int, Tensor] = {}
    whole = logits(classifier)
    with watched(classifier, seen.__setitem__):
        torch.testing.assert_close(logits(classifier), whole, rtol=0, atol=0)
    assert list(seen) == [1, 2]
    first = classifier.encoder.layers[0].attention
    with torch.inference_mode():
        x_ND = first.before(classifier.embeddings(IDS_N, LAYOUT))
        q, k, v = first.block.queries_keys_values(x_ND, None, LAYOUT, LAYOUT)
    start = 0
    for row, length in enumerate(LAYOUT.lengths_B.tolist()):
        of_row = slice(start, start + length)
        start += length
        alone = (one[of_row].transpose(0, 1)[None] for one in (q, k, v))
        _, weights_1HLM = attend(*alone, return_weights=True)
        torch.testing.assert_close(seen[1][row, :, :length, :length], weights_1HLM[0])
    assert not seen[1][1, :, 3:].any()
    assert not seen[1][1, :, :, 3:].any()
