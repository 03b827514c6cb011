"""A document's logits are its own: whatever travels beside it, however it is laid out, and what they depend on."""

from itertools import product
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from manyheads import layout, plugin
from manyheads.config import PairKind, Placement
from manyheads.layout import Packed, Padded
from manyheads.nn import Classifier, assemble

POSITIONS, POOLINGS, PLACEMENTS, PAIRS = (
    *(plugin.names("positions"), plugin.names("pooling")),
    *([one.name for one in choice] for choice in (Placement, PairKind)),
)
EVERY = list(product(POSITIONS, POOLINGS, PLACEMENTS, PAIRS))
VOCAB, N_CLASSES, LONGEST = 30, 3, 9
Document = tuple[list[int], list[int]]
FURTHER = [
    {},
    *({"matches": True}, {"segments": "always"}, {"pooler": "tanh"}, {"d_embedding": 5}),
    *({"window": 1}, {"windows": [0, 2]}, {"n_kv_heads": 1}, {"qk_norm": True}),
    *({kind: name} for kind in ("score", "normaliser", "norm") for name in plugin.names(kind)),
]
tokens_strategy = st.integers(0, 2) | st.integers(0, VOCAB - 1)  # the first ones often twice in a row
documents_strategy = st.lists(
    st.lists(st.tuples(tokens_strategy, st.integers(0, 1)), max_size=LONGEST), min_size=1, max_size=5
)


@pytest.fixture(scope="module")
def build(small):
    built: dict[tuple[str, ...], Classifier] = {}

    def classifier(
        positions: str, pooling: str, placement: str, pair: str = "joint", n_segments: int = 2, **further: Any
    ) -> Classifier:
        key = positions, pooling, placement, pair, str(n_segments), str(further)
        if key not in built:
            torch.manual_seed(0)
            model = small(positions=positions, pooling=pooling, placement=placement, pair=pair, **further)
            fresh = assemble(
                model, vocab_size=VOCAB, n_classes=N_CLASSES, max_length=LONGEST, n_segments=n_segments
            ).eval()
            for parameter in fresh.parameters():  # biases and norms away from zero and one
                parameter.data += 0.1 * torch.randn_like(parameter)
            built[key] = fresh
        return built[key]

    return classifier


def flatten(documents: list[Document]) -> tuple[Tensor, Tensor]:
    ids, segments = ([token for document in documents for token in document[which]] for which in (0, 1))
    return torch.tensor(ids, dtype=torch.int64), torch.tensor(segments, dtype=torch.int64)


def packed_logits(classifier: Classifier, documents: list[Document]) -> Tensor:
    ids, segments = flatten(documents)
    return classifier(ids, Packed.of_lengths([len(ids) for ids, _ in documents]), segments)


def filled_logits(classifier: Classifier, documents: list[Document]) -> Tensor:
    """With a tail behind the last document, as many tokens get one."""
    with patch.object(layout, "FILL_FROM", 0):
        return packed_logits(classifier, documents)


def padded_logits(classifier: Classifier, documents: list[Document], extra: int) -> Tensor:
    """With garbage ids and segments behind the end of each document."""
    lengths = torch.tensor([len(ids) for ids, _ in documents])
    keep_BL = torch.arange(int(lengths.max()) + extra) < lengths[:, None]
    ids, segments = torch.randint(VOCAB, keep_BL.shape), torch.randint(2, keep_BL.shape)
    ids[keep_BL], segments[keep_BL] = flatten(documents)
    return classifier(ids, Padded(keep_BL), segments)


@torch.no_grad()
def assert_logits_are_its_own(classifier: Classifier, documents: list[Document], extra: int, order: list[int]) -> None:
    alone = torch.cat([packed_logits(classifier, [document]) for document in documents])
    assert alone.isfinite().all()
    with torch.enable_grad():  # where other kernels serve
        trained = packed_logits(classifier, documents), filled_logits(classifier, documents)
    for logits in (
        *trained,
        packed_logits(classifier, documents),
        filled_logits(classifier, documents),
        padded_logits(classifier, documents, 0),
        padded_logits(classifier, documents, extra),
    ):
        torch.testing.assert_close(logits, alone, atol=1e-5, rtol=0)
    reordered = [documents[at] for at in order]
    torch.testing.assert_close(packed_logits(classifier, reordered), alone[order], atol=1e-5, rtol=0)


@given(
    st.sampled_from(EVERY),
    st.sampled_from(FURTHER),
    documents_strategy,
    st.integers(0, 20),
    st.randoms(use_true_random=False),
)
@example(("none", "mean", "pre", "compare"), {}, [[(6, 0), (4, 0), (4, 0)], [(5, 1)]], 3, Random(0))
def test_logits_of_any_documents_are_their_own(build, combination, further, tokens, extra, random):
    documents = [([token for token, _ in document], [segment for _, segment in document]) for document in tokens]
    order = random.sample(range(len(documents)), len(documents))
    assert_logits_are_its_own(build(*combination, **further), documents, extra, order)


@pytest.mark.parametrize(("pooling", "pair"), list(product(POOLINGS, PAIRS)))
def test_an_empty_document_gets_the_logits_of_a_zero_vector(build, pooling, pair):
    classifier = build("rotary", pooling, "pre", pair)
    for documents in ([([], [])], [([], []), ([], [])], [([4, 5], [0, 1]), ([], [])]):
        torch.testing.assert_close(packed_logits(classifier, documents)[-1], classifier.head.bias)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_order_of_words_matters_by_positions_alone(build, positions, placement):
    ids, order = torch.randperm(VOCAB)[:8], torch.tensor([1, 0, 2, 3, 5, 4, 6, 7])
    layout, classifier = Packed.of_lengths([8]), build(positions, "mean", placement)
    with torch.no_grad():
        encoded, reordered = classifier.encode(ids[order], layout), classifier.encode(ids, layout)[order]
    if positions == "none":
        torch.testing.assert_close(encoded, reordered, atol=1e-5, rtol=1e-5)
    else:
        assert (encoded - reordered).abs().max() > 1e-2


@pytest.mark.parametrize(
    "pooling", [name for name, part in plugin.parts("pooling").items() if not part.facts.get("reads_first")]
)
def test_a_bag_of_words_is_all_that_a_model_without_positions_sees(build, pooling):
    ids, order = torch.randperm(VOCAB)[:8], torch.randperm(8)
    layout, classifier = Packed.of_lengths([8]), build("none", pooling, "pre")
    torch.testing.assert_close(classifier(ids[order], layout), classifier(ids, layout), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("pair", PAIRS)
def test_segments_change_the_logits(build, pair):
    classifier = build("rotary", "mean", "pre", pair)
    first, second = (packed_logits(classifier, [([4, 5, 6], segments)]) for segments in ([0, 0, 1], [0, 1, 1]))
    assert (first - second).abs().max() > 1e-3
