"""The model that tells hidden words, beside a classifier's names and BERT's own head."""

import pytest
import torch

from manyheads.config import ModelConfig
from manyheads.config.conversion import from_plain
from manyheads.layout import Packed, Padded
from manyheads.nn import assemble
from manyheads.plugins.language.networks import assemble_masked
from tests.registry import of_plugin

SMALL = {"n_layers": 2, "n_heads": 2, "d_model": 16, "d_k": 8, "d_v": 8, "d_ff": 24, "dropout": 0.0}
SIZES = {"vocab_size": 40, "max_length": 12}
BERT = {"positions": "learned", "segments": "always", "placement": "post", "norm_eps": 1e-12}


def small(**more):
    return from_plain(ModelConfig, SMALL | more)


RECURRENT = [{"encoder": one} for one in of_plugin("language", "encoder")[:1]]


def built(model, **more):
    torch.manual_seed(0)
    return assemble_masked(model, **SIZES, **more).eval()


@pytest.mark.parametrize(
    "more",
    [{}, {"segments": "always"}, *RECURRENT, {"d_embedding": 8}],
)
@pytest.mark.parametrize("n_segments", [0, 2])
def test_embeddings_and_encoder_are_those_of_a_classifier(more, n_segments):
    if more.get("encoder"):
        more = more | {"positions": "none"}
    masked = built(small(**more), n_segments=n_segments)
    classifier = assemble(small(**more), **SIZES, n_classes=3, n_segments=n_segments)
    ours = {name: value.shape for name, value in masked.state_dict().items() if not name.startswith("head.")}
    theirs = {name: value.shape for name, value in classifier.state_dict().items()}
    assert ours == {name: shape for name, shape in theirs.items() if name.startswith(("embeddings.", "encoder."))}


def test_the_head_is_that_of_bert():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=12, layer_norm_eps=1e-12,
    )  # fmt: skip
    torch.manual_seed(1)
    theirs = transformers.BertForMaskedLM(config).eval().cls.predictions
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter)
    head = built(small(**BERT)).head
    with torch.no_grad():
        head.project.load_state_dict(theirs.transform.dense.state_dict())
        head.norm.load_state_dict(theirs.transform.LayerNorm.state_dict())
        head.bias.copy_(theirs.bias)
    x = torch.randn(5, 16)
    torch.testing.assert_close(head(x, theirs.decoder.weight), theirs(x), rtol=1e-5, atol=1e-5)


def test_words_that_are_hidden_in_both_texts_do_not_match():
    """Were the masks ids of their own, no two would be the same."""
    masked = built(small(matches=True), n_segments=2)
    with torch.no_grad():
        masked.embeddings.matches.weight.normal_()
        masked.embeddings.words.weight[30:33] = masked.embeddings.words.weight[4]
    ids, segments = torch.tensor([2, 4, 8, 3, 4, 8, 4, 3]), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    places, layout = torch.tensor([1, 4, 6]), Packed.of_lengths([8])
    found = masked(ids, layout, segments, places)
    torch.testing.assert_close(found, masked(ids.index_copy(0, places, torch.arange(30, 33)), layout, segments, places))
    padded = masked(ids[None], Padded(torch.ones(1, 8, dtype=torch.bool)), segments[None], places)
    torch.testing.assert_close(padded, found, rtol=1e-5, atol=1e-5)


def test_the_head_sees_the_chosen_places_alone_and_they_see_their_text_alone():
    masked, layout = built(small()), Packed.of_lengths([5, 3, 7])
    ids, every = torch.randint(40, (15,)), torch.arange(15)
    whole, some = masked(ids, layout, None, every), torch.tensor([1, 6, 14])
    torch.testing.assert_close(masked(ids, layout, None, some), whole[some])
    alone = masked(ids[5:8], Packed.of_lengths([3]), None, torch.tensor([1]))
    torch.testing.assert_close(alone, whole[[6]], rtol=1e-4, atol=1e-5)


def test_words_are_read_and_told_by_one_table():
    masked = built(small())
    assert masked.head.bias.shape == (40,)
    assert not any(value.shape == (40, 16) for name, value in masked.named_parameters() if name.startswith("head."))
    logits = masked(torch.randint(40, (6,)), Packed.of_lengths([6]), None, torch.tensor([2]))
    logits[0, 39].backward()
    gradient = masked.embeddings.words.weight.grad
    assert gradient is not None
    assert gradient[39].abs().sum() > 0


def test_the_first_loss_is_that_of_an_even_guess():
    masked, ids = built(small()), torch.randint(40, (400,))
    logits = masked(ids, Packed.of_lengths([10] * 40), None, torch.arange(400))
    assert torch.nn.functional.cross_entropy(logits, torch.randint(40, (400,))) < 1.25 * torch.log(torch.tensor(40.0))
