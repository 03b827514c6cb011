"""`attend` against torch's scaled_dot_product_attention and a float64 NumPy transcription of the formula."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from manyheads.nn.attention import attend, attention_weights, share_heads, softmax

B, L, M, H, K, V = 2, 3, 5, 4, 6, 7


def queries_keys_values(n_kv_heads: int = H, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    q_BHLK, k_BGMK, v_BGMV = torch.randn(B, H, L, K), torch.randn(B, n_kv_heads, M, K), torch.randn(B, n_kv_heads, M, V)
    return q_BHLK.to(dtype), k_BGMK.to(dtype), v_BGMV.to(dtype)


def some_keep() -> Tensor:
    keep = torch.rand(B, H, L, M) > 0.4
    keep[..., 0] = True
    return keep


def numpy_softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def test_attend_is_the_formula_for_every_document_and_head():
    q, k, v = queries_keys_values()
    context, weights = attend(q, k, v), attention_weights(q, k)
    for b, h in np.ndindex(B, H):
        W = numpy_softmax(q[b, h].numpy() @ k[b, h].numpy().T / np.sqrt(K))
        np.testing.assert_allclose(weights[b, h].numpy(), W, atol=1e-14)
        np.testing.assert_allclose(context[b, h].numpy(), W @ v[b, h].numpy(), atol=1e-14)


@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_attend_equals_torchs_attention(n_kv_heads, masked, biased):
    q, k, v = (x.requires_grad_() for x in queries_keys_values(n_kv_heads))
    keep = some_keep() if masked else None
    bias = torch.randn(H, L, M, dtype=torch.float64) if biased else None
    mask = torch.zeros(B, H, L, M, dtype=torch.float64) if bias is None else bias.expand(B, H, L, M)
    mask = mask if keep is None else mask.masked_fill(~keep, -math.inf)
    theirs = F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=n_kv_heads != H)
    ours = attend(q, k, v, keep, bias=bias)
    torch.testing.assert_close(ours, theirs)
    toward = torch.randn_like(theirs)
    torch.testing.assert_close(
        torch.autograd.grad(ours, (q, k, v), toward), torch.autograd.grad(theirs, (q, k, v), toward)
    )


def test_attend_in_single_precision_stays_near_the_double_precision_formula():
    q, k, v = queries_keys_values()
    context = attend(q.float(), k.float(), v.float(), some_keep())
    assert context.dtype == torch.float32
    torch.manual_seed(0)
    q, k, v = queries_keys_values()
    expected = attend(q, k, v, some_keep())
    torch.testing.assert_close(context, expected.float(), atol=1e-6, rtol=1e-5)


def test_rows_of_weights_sum_to_one_and_are_zero_where_nothing_is_kept():
    q, k, v = (x.requires_grad_() for x in queries_keys_values())
    keep, bias = some_keep(), torch.randn(H, L, M, dtype=torch.float64)
    keep[0, :, 1] = False
    context, weights = attend(q, k, v, keep, bias=bias), attention_weights(q, k, keep, bias=bias)
    torch.testing.assert_close(weights.sum(-1), keep.any(-1).double())
    assert (weights >= 0).all()
    assert (weights[~keep] == 0).all()
    assert (context[0, :, 1] == 0).all()
    for gradient in torch.autograd.grad(context.square().sum(), (q, k, v)):
        assert gradient.isfinite().all()
    assert torch.equal(attend(q, k[:, :, :0], v[:, :, :0]), torch.zeros(B, H, L, V, dtype=torch.float64))
    assert attention_weights(q, k[:, :, :0]).shape == (B, H, L, 0)


@pytest.mark.parametrize("kept", ["everything", "some", "nothing for one query"])
def test_attend_passes_gradcheck(kept):
    q, k, v = (torch.randn(1, 2, 3, 2, dtype=torch.float64, requires_grad=True) for _ in range(3))
    bias = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)
    keep = None if kept == "everything" else torch.tensor([[1, 0, 1], [1, 1, 0], [0, 0, 1]]).bool()
    if keep is not None and kept == "nothing for one query":
        keep[2] = False
    assert torch.autograd.gradcheck(lambda q, k, v, bias: attend(q, k, v, keep, bias=bias), (q, k, v, bias))


def test_the_scores_of_unit_gaussians_have_mean_zero_and_variance_d_k():
    n_samples, d_k = 200_000, 16
    products = (torch.randn(n_samples, d_k) * torch.randn(n_samples, d_k)).sum(-1)
    assert abs(products.mean()) < 0.05
    assert abs(products.var() / d_k - 1) < 0.03
    keys = torch.randn(1, 1, 400, d_k)
    logs = attention_weights(torch.randn(1, 1, 400, d_k), keys).log()
    assert abs((logs - logs.mean(-1, keepdim=True)).var() - 1) < 0.1, "divided by the root of d_k the variance is 1"


def test_neither_a_constant_nor_scores_of_thousands_matter():
    q, k, v = queries_keys_values()
    torch.testing.assert_close(attend(q, k, v), attend(q, k, v, bias=torch.full((H, L, 1), 50.0, dtype=torch.float64)))
    q, k, v, keep = q.float() * 1e3, k.float() * 1e3, v.float(), some_keep()
    assert attend(q, k, v, keep).isfinite().all()
    torch.testing.assert_close(attention_weights(q, k, keep).sum(-1), torch.ones(B, H, L))


def test_dropout_silences_weights_and_scales_the_others_up():
    n_keys, dropout = 1000, 0.3
    q, k = torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, n_keys, 4)
    context = attend(q, k, torch.eye(n_keys)[None, None], dropout=dropout)
    survives = context > 0
    assert abs(survives.double().mean() - (1 - dropout)) < 0.05
    torch.testing.assert_close(context[survives], torch.full_like(context[survives], 1 / n_keys / (1 - dropout)))


def test_softmax_where_all_is_kept_is_the_plain_softmax():
    scores = torch.randn(3, 4)
    torch.testing.assert_close(softmax(scores, torch.ones(3, 4).bool()), scores.softmax(-1))


def test_neighbouring_query_heads_share_a_key_head():
    x_BGMK = torch.randn(B, 2, M, K)
    shared = share_heads(x_BGMK, 6)
    for head in range(6):
        assert torch.equal(shared[:, head], x_BGMK[:, head // 3])
