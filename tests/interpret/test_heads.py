"""Heads are found, silenced and watched as a hand on the weights would do it."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from manyheads.inference.folder import load
from manyheads.interpret.maps import Head, heads, silent, with_silence, without_head
from manyheads.layout import Packed
from manyheads.nn import Classifier

IDS_N = torch.tensor([2, 5, 9, 10, 3, 2, 6, 3, 2, 11, 12, 7, 8, 5, 3])
LAYOUT = Packed.of_lengths([5, 3, 7])


@pytest.fixture
def classifier(model_folder: Path) -> Classifier:
    return load(model_folder).network


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
