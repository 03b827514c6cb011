"""Two texts read apart: against loops over documents, and against torch's own layers with copied weights."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from manyheads import plugin
from manyheads.layout import Packed, Padded
from manyheads.nn import Classifier, assemble
from manyheads.nn.embeddings import SinusoidalPositions
from manyheads.nn.pairs import comparison, pair_features, split_pairs

CLS, SEP, VOCAB, N_CLASSES, LONGEST = 2, 3, 20, 3, 12
POOLINGS = plugin.names("pooling")
Text = list[int]
FIRSTS: list[Text] = [[5, 6, 7], [8], [9, 10, 11, 12], [13, 5]]
SECONDS: list[Text] = [[6, 6], [14, 15, 16, 17], [], [13, 5]]


def joined(firsts: list[Text], seconds: list[Text]) -> tuple[Tensor, Packed, Tensor]:
    """[CLS] first [SEP] second [SEP], end to end."""
    firsts, seconds = [[CLS, *text, SEP] for text in firsts], [[*text, SEP] for text in seconds]
    ids = [token for pair in zip(firsts, seconds, strict=True) for text in pair for token in text]
    segments = [number for pair in zip(firsts, seconds, strict=True) for number in (0, 1) for _ in pair[number]]
    lengths = [len(first) + len(second) for first, second in zip(firsts, seconds, strict=True)]
    return torch.tensor(ids), Packed.of_lengths(lengths), torch.tensor(segments)


def build(model: Any) -> Classifier:
    classifier = assemble(model, vocab_size=VOCAB, n_classes=N_CLASSES, max_length=LONGEST, n_segments=2).eval()
    for parameter in classifier.parameters():  # biases and norms away from zero and one
        parameter.data += 0.1 * torch.randn_like(parameter)
    return classifier


documents_strategy = st.lists(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1)), max_size=6), min_size=1, max_size=4
)


@given(documents_strategy, st.integers(0, 3))
def test_texts_are_parted_as_a_loop_over_documents_parts_them(documents, extra):
    firsts = [[token for token, segment in document if segment == 0] for document in documents]
    seconds = [
        [token for at, (token, segment) in enumerate(document) if segment == 1 or at == 0] for document in documents
    ]
    lengths = [len(document) for document in documents]
    every = [one for document in documents for one in document]
    ids_N, segments_N = (torch.tensor([one[which] for one in every], dtype=torch.int64) for which in (0, 1))
    ids, pairs = split_pairs(ids_N, Packed.of_lengths(lengths), segments_N)
    assert [part.tolist() for part in ids.split(pairs.layout.lengths_B.tolist())] == firsts + seconds
    assert pairs.exchange(ids).split(pairs.other.lengths_B.tolist())[0].tolist() == seconds[0]
    assert pairs.other.lengths_B.tolist() == [len(text) for text in seconds + firsts]
    assert pairs.layout.longest == pairs.other.longest == max(len(text) for text in firsts + seconds)

    keep_BL = torch.arange(max(lengths) + extra) < torch.tensor(lengths)[:, None]
    ids_BL, segments_BL = torch.full(keep_BL.shape, 99), torch.randint(2, keep_BL.shape)
    ids_BL[keep_BL], segments_BL[keep_BL] = ids_N, segments_N
    ids_BL, padded = split_pairs(ids_BL, Padded(keep_BL), segments_BL)
    assert isinstance(padded.layout, Padded)
    assert [row[kept].tolist() for row, kept in zip(ids_BL, padded.layout.keep_BL, strict=True)] == firsts + seconds
    assert (padded.layout.keep_BL.int().diff(dim=1) <= 0).all(), "tokens come first"
    assert torch.equal(padded.exchange(ids_BL)[0], ids_BL[len(documents)])


def test_features_are_both_vectors_their_distance_and_their_product():
    a_BD, b_BD = torch.randn(2, 3), torch.randn(2, 3)
    expected = [[*a, *b, *(abs(x - y) for x, y in zip(a, b, strict=True)), *(x * y for x, y in zip(a, b, strict=True))]
                for a, b in zip(a_BD.tolist(), b_BD.tolist(), strict=True)]  # fmt: skip
    torch.testing.assert_close(pair_features(torch.cat([a_BD, b_BD])), torch.tensor(expected))


def test_a_comparison_is_of_directions_alone():
    """In NumPy: unit vectors, times D^(1/4); the sum of their products is √D times the cosine; zeros stay zeros."""
    a_BD, b_BD = np.random.default_rng(1).normal(size=(2, 3, 16))
    b_BD[2] = 0
    expected = []
    for a, b in zip(a_BD, b_BD, strict=True):
        u, v = (2 * x / max(np.linalg.norm(x), 1e-12) for x in (a, b))
        expected.append([u @ v, *(u * v), *(u - v), *abs(u - v)])
    found = comparison(torch.from_numpy(np.concatenate([a_BD, 7 * b_BD])))
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)
    cosine = a_BD[0] @ b_BD[0] / np.linalg.norm(a_BD[0]) / np.linalg.norm(b_BD[0])
    assert float(found[0, 0]) == pytest.approx(4 * cosine)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_zeros_and_equal_texts_are_compared(dtype):
    """Zeros have no direction: a pair with them is finite, and so is its gradient, of the size that others have."""
    text_BD = torch.full((3, 8), 300.0)  # whose squares sum to more than fp16 holds
    text_2BD = torch.cat([torch.zeros(2, 8), text_BD[:1], torch.zeros(1, 8), text_BD[:2]]).to(dtype).requires_grad_()
    features = comparison(text_2BD)
    assert features.dtype is dtype
    expected = torch.zeros(3, 25)
    expected[1, 9:17], expected[1, 17:] = -(8**-0.25), 8**-0.25
    expected[2, 0], expected[2, 1:9] = 8**0.5, 8**-0.5
    torch.testing.assert_close(features.float(), expected, atol=0.02, rtol=0.01)
    features.float().sum().backward()
    assert text_2BD.grad.isfinite().all()
    assert text_2BD.grad.abs().max() < 10


@pytest.mark.parametrize("placement", ["pre", "post"])
@torch.no_grad()
def test_texts_that_are_compared_never_see_each_other(small, torchs_layer, placement):
    """The logits are those of torch's layers, which read each text alone; with the texts exchanged the products stay
    and the differences change their sign."""
    classifier = build(small(pair="compare", placement=placement, d_k=6, d_v=6))
    expected = []
    for first, second in zip(FIRSTS, SECONDS, strict=True):
        vectors = [read_alone(classifier, [CLS, *text, SEP], torchs_layer).mean(0) for text in (first, second)]
        expected.append(classifier.head(comparison(torch.stack(vectors)))[0])
    torch.testing.assert_close(classifier(*joined(FIRSTS, SECONDS)), torch.stack(expected), atol=1e-5, rtol=1e-4)
    features, exchanged = classifier.read(*joined(FIRSTS, SECONDS)), classifier.read(*joined(SECONDS, FIRSTS))
    products, differences, distances = features.split([13, 12, 12], -1)
    torch.testing.assert_close(exchanged, torch.cat([products, -differences, distances], -1), atol=1e-5, rtol=0)


@torch.no_grad()
def test_texts_between_which_a_tokenizer_puts_two_marks_are_read_as_alone(small, torchs_layer):
    """<s> first </s></s> second </s>, as RoBERTa writes pairs: a text alone has one </s>."""
    classifier = build(small(pair="compare", d_k=6, d_v=6))
    firsts, seconds = [[5, 6, SEP], [], [8]], [[9], [10, 10], [8]]  # the first says </s> itself
    ids, layout, segments = joined([[*text, SEP] for text in firsts], seconds)
    segments[layout.offsets[:-1] + torch.tensor([len(text) + 2 for text in firsts])] = 4
    expected = []
    for first, second in zip(firsts, seconds, strict=True):
        vectors = [read_alone(classifier, [CLS, *text, SEP], torchs_layer).mean(0) for text in (first, second)]
        expected.append(classifier.head(comparison(torch.stack(vectors)))[0])
    torch.testing.assert_close(classifier(ids, layout, segments), torch.stack(expected), atol=1e-5, rtol=1e-4)
    ids_BL, segments_BL = layout.grid(ids), layout.grid(segments)
    padded = classifier(ids_BL, Padded(layout.keep_BL), segments_BL)
    torch.testing.assert_close(padded, torch.stack(expected), atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_a_last_word_that_is_repeated_is_read_where_a_tokenizer_puts_no_mark_between_texts(small, torchs_layer):
    classifier = build(small(pair="compare", d_k=6, d_v=6))
    vectors = [read_alone(classifier, text, torchs_layer).mean(0) for text in ([CLS, 5, 6, 6], [CLS, 6])]
    ids, segments = torch.tensor([[CLS, 5, 6, 6, 6]]), torch.tensor([[0, 0, 0, 0, 1]])
    expected = classifier.head(comparison(torch.stack(vectors)))
    torch.testing.assert_close(classifier(ids, None, segments), expected, atol=1e-5, rtol=1e-4)


def torchs_attention(ours: Any) -> nn.MultiheadAttention:
    theirs = nn.MultiheadAttention(12, 2, batch_first=True)
    theirs.in_proj_weight.data.copy_(ours.project.weight)
    theirs.in_proj_bias.data.copy_(ours.project.bias)
    theirs.out_proj.load_state_dict(ours.output.state_dict())
    return theirs.eval()


def read_alone(classifier: Classifier, text: Text, torchs_layer: Any) -> Tensor:
    """A text as a model of single texts reads it, by torch's layers: positions from 0, no segments."""
    embeddings = classifier.embeddings
    x_LD = embeddings.words.weight[torch.tensor(text)] * math.sqrt(12)
    x_LD = embeddings.norm(x_LD + SinusoidalPositions(max_length=LONGEST, d_model=12)(torch.arange(len(text))))
    for layer in classifier.encoder.layers:
        x_LD = torchs_layer(layer, "gelu").eval()(x_LD[None])[0]
    return classifier.encoder.norm(x_LD)


def read_across(classifier: Classifier, x_LD: Tensor, other_MD: Tensor, placement: str) -> Tensor:
    """`x_LD` beside its partner; the partner is as it was before this layer."""
    (layer,) = classifier.cross.layers
    looked, thought = layer.attention, layer.feed_forward
    attention = torchs_attention(looked.block)
    q_LD, k_MD = (looked.before(x_LD), looked.before(other_MD)) if placement == "pre" else (x_LD, other_MD)
    x_LD = looked.after(x_LD + attention(q_LD[None], k_MD[None], k_MD[None], need_weights=False)[0][0])
    inner = thought.before(x_LD)
    x_LD = thought.after(x_LD + F.linear(F.gelu(F.linear(inner, *thought.block.widen.parameters())),
                                         *thought.block.narrow.parameters()))  # fmt: skip
    return classifier.cross.norm(x_LD)


@pytest.mark.parametrize("placement", ["pre", "post"])
@torch.no_grad()
def test_logits_are_those_of_torchs_layers_pair_by_pair(small, torchs_layer, placement):
    classifier = build(small(pair="cross", placement=placement, d_k=6, d_v=6))
    expected = []
    for first, second in zip(FIRSTS, SECONDS, strict=True):
        a, b = (read_alone(classifier, [CLS, *text, SEP], torchs_layer) for text in (first, second))
        u, v = (read_across(classifier, *both, placement).mean(0) for both in ((a, b), (b, a)))
        expected.append(classifier.head(torch.cat([u, v, (u - v).abs(), u * v])))
    torch.testing.assert_close(classifier(*joined(FIRSTS, SECONDS)), torch.stack(expected), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("fields", [{"pooling": one} for one in POOLINGS] + [{"pooler": "tanh"}], ids=str)
@torch.no_grad()
def test_both_texts_are_read_alike(small, fields):
    classifier = build(small(pair="cross", positions="learned", **fields))
    features = classifier.read(*joined(FIRSTS, SECONDS))
    a, b, distance, product = features.chunk(4, -1)
    assert distance[3].abs().max() < 1e-6, "the same text twice"
    exchanged = classifier.read(*joined(SECONDS, FIRSTS))
    torch.testing.assert_close(exchanged, torch.cat([b, a, distance, product], -1), atol=1e-5, rtol=0)


@torch.no_grad()
def test_each_text_sees_the_other_one_and_no_third(small):
    classifier = build(small(pair="cross"))
    features = classifier.read(*joined(FIRSTS, SECONDS))
    others = [[*SECONDS[0], 19], *SECONDS[1:]]
    changed = classifier.read(*joined(FIRSTS, others))
    assert (changed[0, :12] - features[0, :12]).abs().max() > 1e-3, "the first text has looked at the second"
    torch.testing.assert_close(changed[1:], features[1:], atol=1e-6, rtol=0)


@torch.no_grad()
def test_without_a_second_text_its_mark_alone_stands_for_it(small, torchs_layer):
    """No token of segment 1 leaves [CLS] alone as the second text."""
    classifier = build(small(pair="cross", d_k=6, d_v=6))
    ids = torch.tensor([CLS, 5, 6, SEP])
    alone = classifier(ids, Packed.of_lengths([4]), torch.zeros(4, dtype=torch.int64))
    a = read_alone(classifier, ids.tolist(), torchs_layer)
    b = read_alone(classifier, [CLS], torchs_layer)
    u, v = (read_across(classifier, *both, "pre").mean(0) for both in ((a, b), (b, a)))
    torch.testing.assert_close(alone[0], classifier.head(torch.cat([u, v, (u - v).abs(), u * v])))


def test_texts_that_are_read_apart_have_no_segments_unless_always(small):
    assert build(small(pair="cross")).embeddings.segments is None
    with_segments = build(small(pair="cross", segments="always"))
    assert with_segments.embeddings.segments is not None
    before = with_segments(*joined(FIRSTS, SECONDS))
    with_segments.embeddings.segments.weight.data[1] += 1
    torch.testing.assert_close(with_segments(*joined(FIRSTS, SECONDS)), before)
