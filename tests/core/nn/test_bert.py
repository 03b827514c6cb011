"""The BERT presets: their published sizes, and the same numbers as torch's layers over embeddings by hand."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from manyheads.cli.compose import compose
from manyheads.config import RunConfig
from manyheads.layout import Packed
from manyheads.nn import Classifier, assemble
from manyheads.nn.cost import count_parameters

N_CLASSES = 2
PUBLISHED = {  # of the checkpoints of Turc et al. (2019) and Devlin et al. (2019), pooler included
    "tiny": (2, 128, 4_385_920),
    "mini": (4, 256, 11_170_560),
    "small": (4, 512, 28_763_648),
    "medium": (8, 512, 41_373_184),
    "base": (12, 768, 109_482_240),
}


def build(run: RunConfig, vocab_size: int) -> Classifier:
    return assemble(run.model, vocab_size=vocab_size, n_classes=N_CLASSES, max_length=run.data.max_length)


@pytest.mark.parametrize("name", PUBLISHED)
def test_sizes_are_the_published_ones(name):
    n_layers, d_model, n_parameters = PUBLISHED[name]
    run = compose("train", [f"model=bert_{name}"])
    model = run.model
    assert (model.n_layers, model.d_model, model.d_ff, model.d_k) == (n_layers, d_model, 4 * d_model, 64)
    assert model.n_heads * model.d_k == model.n_heads * model.d_v == d_model
    assert (run.tokenizer.vocab_size, run.data.max_length) == (30_522, 512)
    with torch.device("meta"):  # shapes alone: nothing is allocated
        classifier = build(run, run.tokenizer.vocab_size)
    assert classifier.head.weight.is_meta
    assert count_parameters(classifier) - count_parameters(classifier.head) == n_parameters


def test_a_typed_vocabulary_and_other_presets_win():
    assert compose("train", ["model=bert_mini", "tokenizer.vocab_size=500"]).tokenizer.vocab_size == 500
    assert compose("train", ["model=bert_mini", "debug=fast"]).tokenizer.vocab_size == 500
    assert compose("train", ["model=bert_mini", "model.pooling=mean"]).model.pooling == "mean"


def by_hand(classifier: Classifier, ids: Tensor, segments: Tensor, torchs_layer: Any) -> Tensor:
    """Logits of one document: LN(word + position + segment), layers, tanh of the first token, head."""
    embeddings, d_model = classifier.embeddings, classifier.embeddings.words.embedding_dim
    words_LD = embeddings.words.weight[ids] * math.sqrt(d_model)  # BERT stores them so
    x_LD = words_LD + embeddings.positions.weight[: len(ids)] + embeddings.segments.weight[segments]
    x_LD = F.layer_norm(x_LD, (d_model,), embeddings.norm.weight, embeddings.norm.bias, eps=1e-12)
    for layer in classifier.encoder.layers:
        x_LD = torchs_layer(layer, "gelu", 1e-12).eval()(x_LD[None])[0]
    dense = classifier.pooling.dense
    return classifier.head(torch.tanh(dense.weight @ x_LD[0] + dense.bias))


@torch.no_grad()
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("name", ["tiny", "mini"])
def test_logits_are_those_of_torchs_layers(torchs_layer, name, pairs):
    run = compose("train", [f"model=bert_{name}"])
    classifier = build(run, 100).double().eval()
    for parameter in classifier.parameters():  # biases and norms away from zero and one
        parameter += 0.1 * torch.randn_like(parameter)
    lengths = [5, 1, 17]
    ids, segments = torch.randint(100, (sum(lengths),)), torch.randint(2, (sum(lengths),))
    logits = classifier(ids, Packed.of_lengths(lengths), segments if pairs else None)
    segments = segments if pairs else torch.zeros_like(ids)  # a single text is the first of a pair
    parts = zip(ids.split(lengths), segments.split(lengths), strict=True)
    expected = torch.stack([by_hand(classifier, *part, torchs_layer) for part in parts])
    torch.testing.assert_close(logits, expected, atol=1e-9, rtol=1e-7)
