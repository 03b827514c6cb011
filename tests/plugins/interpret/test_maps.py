"""Maps against the textbook formula on the same weights; heads and tokens silenced as a hand on the weights would do
it; tokens in the letters that were typed."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import processors
from torch import Tensor

from manyheads import plugin
from manyheads.config import ModelConfig, PairKind, TokenizerConfig, TokenizerKind
from manyheads.data.rows import Rows
from manyheads.data.tokenizer import load_tokenizer, train_tokenizer
from manyheads.data.tokens import encode
from manyheads.inference.folder import load
from manyheads.layout import Packed, Padded
from manyheads.nn import Classifier, assemble
from manyheads.nn.attention import attend, attention_weights
from manyheads.plugins.interpret.maps import (
    SPACE,
    Head,
    answer_batch,
    every_head,
    layer_maps,
    only_batch,
    read_words,
    record_attention,
    with_silence,
    without_head,
)

IDS = torch.tensor([2, 6, 9, 11, 7, 3])


def model(**shape):
    torch.manual_seed(3)
    shape = {"n_layers": 2, "n_heads": 2, "d_model": 16, "d_k": 4, "d_v": 6, "d_ff": 24} | shape
    made = assemble(ModelConfig(**shape), vocab_size=15, n_classes=3, max_length=16, n_segments=0)
    for one in made.parameters():  # weights far from even
        torch.nn.init.normal_(one, std=0.5) if one.dim() > 1 else None
    return made.eval()


def answer(made, autocast=None):
    """Logits of the text, and the recorded calls."""
    with (
        torch.inference_mode(),
        record_attention(made) as calls,
        torch.autocast("cpu", autocast, enabled=autocast is not None),
    ):
        logits_1C = made(IDS, Packed.of_lengths([len(IDS)]))
    return logits_1C[0].float(), calls


def test_maps_are_softmax_of_q_and_k_over_the_root_of_d_k():
    made = model(positions="none")
    logits_C, calls = answer(made)
    attention = made.encoder.layers[0].attention
    x_ND = attention.before(made.embeddings(IDS, Packed.of_lengths([6]))).detach().numpy().astype(np.float64)
    weight, bias = (one.detach().numpy().astype(np.float64) for one in attention.block.project.parameters())
    q, k, v = np.split(x_ND @ weight.T + bias, [8, 16], axis=1)
    found = layer_maps(calls[0])
    assert (found.layer, found.heads, found.weights_HLM.shape) == (0, [0, 1], (2, 6, 6))
    for head in range(2):
        own = slice(4 * head, 4 * head + 4)
        powers = np.exp(q[:, own] @ k[:, own].T / math.sqrt(4))
        weights = powers / powers.sum(1, keepdims=True)
        np.testing.assert_allclose(found.weights_HLM[head].numpy(), weights, atol=1e-6)
        context = calls[0].context.detach().numpy()[:, 6 * head : 6 * head + 6]
        np.testing.assert_allclose(weights @ v[:, 6 * head : 6 * head + 6], context, atol=1e-5)
    assert found.error < 1e-5
    torch.testing.assert_close(logits_C, made(IDS, Packed.of_lengths([6]))[0].detach())


@pytest.mark.parametrize("score", plugin.names("score"))
@pytest.mark.parametrize("normaliser", plugin.names("normaliser"))
@torch.inference_mode()
def test_maps_are_those_of_attend_and_rows_sum_to_one(score, normaliser):
    made = model(score=score, normaliser=normaliser, window=2, causal=score == "dot")
    _, calls = answer(made)
    for call in calls:
        found, one = layer_maps(call), call.attention
        q, k, v = one.queries_keys_values(call.x, None, call.layout, call.layout)
        near = torch.arange(6)[:, None] - torch.arange(6)
        keep = (near.abs() <= 2) & ((near >= 0) | (not one.causal))
        q_1HLK, k_1HMK, v_1HMV = (each.transpose(0, 1)[None] for each in (q, k, v))
        weights_1HLM = attention_weights(q_1HLK, k_1HMK, keep, score=one.score, normalise=one.normalise)
        context_1HLV = attend(q_1HLK, k_1HMK, v_1HMV, keep, score=one.score, normalise=one.normalise)
        torch.testing.assert_close(found.weights_HLM, weights_1HLM[0].detach())
        torch.testing.assert_close(call.context, context_1HLV[0].transpose(0, 1).flatten(1).detach())
        assert found.error < 1e-5
        assert not found.weights_HLM[:, ~keep].any()
        if normaliser != "sigmoid":
            torch.testing.assert_close(found.weights_HLM.sum(-1), torch.ones(2, 6))


def test_a_text_has_the_same_maps_alone_packed_and_padded():
    made, other = model(positions="alibi"), torch.tensor([2, 5, 3])
    _, alone = answer(made)
    padded_BL = torch.zeros(2, 9, dtype=torch.long)
    padded_BL[0, :3], padded_BL[1, :6] = other, IDS
    keep_BL = torch.arange(9) < torch.tensor([[3], [6]])
    for ids, layout in [(torch.cat([other, IDS]), Packed.of_lengths([3, 6])), (padded_BL, Padded(keep_BL))]:
        with torch.no_grad(), record_attention(made) as calls:
            made(ids, layout)
        for one, both in zip(alone, calls, strict=True):
            found = layer_maps(both, document=1)
            assert found.weights_HLM.shape == (2, 6, 6)  # no row and no column of padding
            torch.testing.assert_close(found.weights_HLM, layer_maps(one).weights_HLM)
            assert found.error < 1e-5
            assert layer_maps(both, document=0).weights_HLM.shape == (2, 3, 3)


def test_chosen_heads_alone_are_kept():
    _, calls = answer(model(n_heads=4))
    found = layer_maps(calls[1], [3, 1])
    torch.testing.assert_close(found.weights_HLM, layer_maps(calls[1]).weights_HLM[[3, 1]])
    assert found.heads == [3, 1]


def test_the_model_is_left_as_it_was():
    made = model().train()
    before = made.state_dict()
    with torch.no_grad(), record_attention(made) as calls:
        made(IDS, Packed.of_lengths([6]))
    assert [call.layer for call in calls] == [0, 1]
    assert all(one.training for one in made.modules())
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in made.modules())
    assert all(torch.equal(value, before[name]) for name, value in made.state_dict().items())


def test_the_check_sees_a_wrong_map():
    _, calls = answer(model())
    calls[1].context = calls[1].context + 0.01
    assert layer_maps(calls[1]).error == pytest.approx(0.01, rel=1e-2)


def test_half_precision_is_compared_with_what_it_computed():
    _, calls = answer(model(), torch.bfloat16)
    found = layer_maps(calls[0])
    assert calls[0].context.dtype == torch.bfloat16
    assert found.weights_HLM.dtype == torch.float32
    assert 1e-5 < found.error < 0.1


TEXTS_OF_THREE = torch.tensor([2, 5, 9, 10, 3, 2, 6, 3, 2, 11, 12, 7, 8, 5, 3]), Packed.of_lengths([5, 3, 7])


@pytest.fixture
def classifier(model_folder: Path) -> Classifier:
    return load(model_folder).network


def logits(classifier: Classifier) -> Tensor:
    with torch.inference_mode():
        return classifier(*TEXTS_OF_THREE)


def test_heads_are_counted_from_one(classifier: Classifier) -> None:
    assert every_head(classifier) == [Head(1, 1), Head(1, 2), Head(2, 1), Head(2, 2)]
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


def test_silent_tokens_are_those_of_an_edited_embedding(model_folder: Path) -> None:
    predictor = load(model_folder)
    batch = only_batch(predictor, "a good film so good", None)
    whole = answer_batch(predictor, batch)
    good = predictor.tokenizer.token_to_id("good")
    with torch.no_grad(), with_silence(predictor.network, batch, batch.ids_N == good):
        ours = answer_batch(predictor, batch)
    torch.testing.assert_close(answer_batch(predictor, batch), whole, rtol=0, atol=0)
    with torch.no_grad():
        predictor.network.embeddings.words.weight[good] = 0.0
    torch.testing.assert_close(ours, answer_batch(predictor, batch))
    assert (ours - whole).abs().max() > 1e-3


@pytest.mark.parametrize("pair", PairKind)
def test_a_silent_token_keeps_its_match_in_the_other_text(
    ship_model: Callable[..., Path], tmp_path: Path, pair
) -> None:
    """As position and segment: by hand, its vector alone is zero, while `occurs_in_other` sees all ids."""
    shape = ModelConfig(n_layers=1, n_heads=2, d_model=16, d_k=4, d_v=6, d_ff=24, matches=True, pair=pair)
    predictor = load(ship_model(tmp_path / "model", pairs=True, shape=shape))
    torch.nn.init.normal_(predictor.network.embeddings.matches.weight)
    batch = only_batch(predictor, "a good film", "so good")
    silence_N = torch.arange(len(batch.ids_N)) == 2  # "good" of the first text
    calls = []

    def once(words: torch.nn.Module, args: tuple[Tensor], output: Tensor) -> Tensor:
        calls.append(args[0])
        keep_N1 = torch.ones(len(args[0]), 1)
        keep_N1[2] = 0.0  # in either way of reading the first text comes first
        return output * keep_N1

    with torch.no_grad(), with_silence(predictor.network, batch, silence_N):
        ours = answer_batch(predictor, batch)
    with torch.no_grad(), predictor.network.embeddings.words.register_forward_hook(once):
        torch.testing.assert_close(ours, answer_batch(predictor, batch))
    assert torch.equal(calls[0][:4], batch.ids_N[:4])


TYPED = ["The train left, on time", "naïve 爱 🙂 films", "  two  spaces\tand a tab ", "", "so not-so so", "\u2028<b>"]


@pytest.fixture(scope="module", params=TokenizerKind)
def tokenizer(request):
    texts = ["the train left the station on time", "two films and a tab", "so naïve a crew"] * 4
    rows = Rows(texts, None, [0] * len(texts), "x", range(len(texts)))
    return train_tokenizer(rows, TokenizerConfig(kind=request.param, vocab_size=300))


@pytest.mark.parametrize("pair", [None, "left on time"])
def test_ids_are_those_of_training_also_where_they_are_cut(tokenizer, pair):
    for text in TYPED:
        for max_length in (64, 8):
            tokens = encode(tokenizer, [text], None if pair is None else [pair], None, max_length)
            reading = read_words(tokenizer, text, pair, max_length)
            unknown = tokenizer.token_to_id("[UNK]")
            ids = [unknown if one.kind == "unknown" else tokenizer.token_to_id(one.read) for one in reading.words]
            assert ids == tokens.ids_N.tolist()
            assert pair is None or [one.part for one in reading.words] == (tokens.segments_N & 1).tolist()
            assert reading.n_cut == len(read_words(tokenizer, text, pair, 999).words) - len(reading.words)
    assert tokenizer.truncation is None


def test_the_letters_are_those_that_were_typed(tokenizer):
    words = read_words(tokenizer, "The train, LEFT on time", None, 64).words
    assert [words[0].text, words[-1].text] == ["[CLS]", "[SEP]"]
    assert [words[0].kind, words[-1].kind] == ["mark", "mark"]
    inner = words[1:-1]
    assert "".join(one.text for one in inner if one.text != SPACE) == "Thetrain,LEFTontime"
    assert not inner[0].glued
    assert not words[-1].glued
    shown = "".join(one.text if one.glued else f" {one.text}" for one in inner)
    assert shown.replace(SPACE, " ").split() == ["The", "train,", "LEFT", "on", "time"]


def test_words_the_vocabulary_lacks_are_shown_as_typed():
    texts = ["the train left"] * 3
    rows = Rows(texts, None, [0] * 3, "x", range(3))
    tokenizer = train_tokenizer(rows, TokenizerConfig(vocab_size=60))
    words = read_words(tokenizer, "the 🙂 train", None, 64).words
    assert [(one.text, one.kind) for one in words if one.read == "[UNK]"] == [("🙂", "unknown")]


def test_a_prefix_is_shown_as_it_is_read(tmp_path):
    tokenizer = train_tokenizer(Rows(["query: the train"] * 9, None, [0] * 9, "test", range(9)), TokenizerConfig())
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    prefixed = load_tokenizer(tmp_path, prefix="query: ")
    words = read_words(prefixed, "The train", "THE", 64).words
    assert [word.text for word in words if word.kind != "mark"] == ["query", ":", "The", "train", "query", ":", "THE"]


def test_a_pair_is_told_apart(tokenizer):
    reading = read_words(tokenizer, "on time", "on time", 64)
    first = [one.text for one in reading.words if one.part == 0 and not one.kind]
    assert first == [one.text for one in reading.words if one.part == 1 and not one.kind]


def test_a_pair_is_told_apart_also_where_the_tokenizer_gives_both_texts_one_type_id():
    texts = ["the train left on time"] * 3
    tokenizer = train_tokenizer(Rows(texts, None, [0] * 3, "x", range(3)), TokenizerConfig(vocab_size=100))
    marks = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] [SEP] $B [SEP]", special_tokens=marks
    )
    reading = read_words(tokenizer, "the train", "left on time", 64)
    texts = ["".join(one.text for one in reading.words if one.part == part and not one.kind) for part in (0, 1)]
    assert [text.replace(SPACE, "") for text in texts] == ["thetrain", "leftontime"]
    segments_N = encode(tokenizer, ["the train"], ["left on time"], None, 64).segments_N
    assert [one.part for one in reading.words] == (segments_N & 1).tolist()
