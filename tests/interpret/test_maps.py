"""Maps against the textbook formula on the same weights, alone and packed, with the model left as it was."""

import math

import numpy as np
import pytest
import torch

from manyheads.config import ModelConfig, Normaliser, Positions, Score
from manyheads.interpret.maps import answer, layer_maps, overheard
from manyheads.layout import Packed, Padded
from manyheads.nn import assemble
from manyheads.nn.attention import attend

IDS = torch.tensor([2, 6, 9, 11, 7, 3])


def model(**shape):
    torch.manual_seed(3)
    shape = {"n_layers": 2, "n_heads": 2, "d_model": 16, "d_k": 4, "d_v": 6, "d_ff": 24} | shape
    made = assemble(ModelConfig(**shape), vocab_size=15, n_classes=3, max_length=16, n_segments=0)
    for one in made.parameters():  # weights far from even
        torch.nn.init.normal_(one, std=0.5) if one.dim() > 1 else None
    return made.eval()


def test_maps_are_softmax_of_q_and_k_over_the_root_of_d_k():
    made = model(positions=Positions.none)
    logits_C, calls = answer(made, IDS, None, None)
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


@pytest.mark.parametrize("score", Score)
@pytest.mark.parametrize("normaliser", Normaliser)
@torch.inference_mode()
def test_maps_are_those_of_attend_and_rows_sum_to_one(score, normaliser):
    made = model(score=score, normaliser=normaliser, window=2, causal=score is Score.dot)
    _, calls = answer(made, IDS, None, None)
    for call in calls:
        found, one = layer_maps(call), call.attention
        q, k, v = one.queries_keys_values(call.x, None, call.layout, call.layout)
        near = torch.arange(6)[:, None] - torch.arange(6)
        keep = (near.abs() <= 2) & ((near >= 0) | (not one.causal))
        context_1HLV, weights_1HLM = attend(
            *(each.transpose(0, 1)[None] for each in (q, k, v)),
            keep,
            score=one.score,
            normalise=one.normalise,
            return_weights=True,
        )
        torch.testing.assert_close(found.weights_HLM, weights_1HLM[0].detach())
        torch.testing.assert_close(call.context, context_1HLV[0].transpose(0, 1).flatten(1).detach())
        assert found.error < 1e-5
        assert not found.weights_HLM[:, ~keep].any()
        if normaliser is not Normaliser.sigmoid:
            torch.testing.assert_close(found.weights_HLM.sum(-1), torch.ones(2, 6))


def test_a_text_has_the_same_maps_alone_packed_and_padded():
    made, other = model(positions=Positions.alibi), torch.tensor([2, 5, 3])
    _, alone = answer(made, IDS, None, None)
    padded_BL = torch.zeros(2, 9, dtype=torch.long)
    padded_BL[0, :3], padded_BL[1, :6] = other, IDS
    keep_BL = torch.arange(9) < torch.tensor([[3], [6]])
    for ids, layout in [(torch.cat([other, IDS]), Packed.of_lengths([3, 6])), (padded_BL, Padded(keep_BL))]:
        with torch.no_grad(), overheard(made) as calls:
            made(ids, layout)
        for one, both in zip(alone, calls, strict=True):
            found = layer_maps(both, document=1)
            assert found.weights_HLM.shape == (2, 6, 6)  # no row and no column of padding
            torch.testing.assert_close(found.weights_HLM, layer_maps(one).weights_HLM)
            assert found.error < 1e-5
            assert layer_maps(both, document=0).weights_HLM.shape == (2, 3, 3)


def test_chosen_heads_alone_are_kept():
    _, calls = answer(model(n_heads=4), IDS, None, None)
    found = layer_maps(calls[1], [3, 1])
    torch.testing.assert_close(found.weights_HLM, layer_maps(calls[1]).weights_HLM[[3, 1]])
    assert found.heads == [3, 1]


def test_the_model_is_left_as_it_was():
    made = model().train()
    before = made.state_dict()
    with torch.no_grad(), overheard(made) as calls:
        made(IDS, Packed.of_lengths([6]))
    assert [call.layer for call in calls] == [0, 1]
    assert all(one.training for one in made.modules())
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in made.modules())
    assert all(torch.equal(value, before[name]) for name, value in made.state_dict().items())


def test_the_check_sees_a_wrong_map():
    _, calls = answer(model(), IDS, None, None)
    calls[1].context = calls[1].context + 0.01
    assert layer_maps(calls[1]).error == pytest.approx(0.01, rel=1e-2)


def test_half_precision_is_compared_with_what_it_computed():
    _, calls = answer(model(), IDS, None, torch.bfloat16)
    found = layer_maps(calls[0])
    assert calls[0].context.dtype == torch.bfloat16
    assert found.weights_HLM.dtype == torch.float32
    assert 1e-5 < found.error < 0.1
