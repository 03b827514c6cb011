"""Every score against a NumPy transcription of its formula, pair by pair; chunks against the whole."""

import numpy as np
import pytest
import torch
from torch import Tensor

from manyheads import plugin
from manyheads.nn import scores
from manyheads.nn.attention import Score, attend, make_score, share_heads
from manyheads.nn.scores import Distance
from tests.registry import of_core

B, L, M, H, G, K = 2, 3, 5, 4, 2, 6
KINDS = of_core("score")
SUMS = [kind for kind in KINDS if plugin.find("score", kind).facts.get("is_sum")]


def fresh(kind: str, scale: float | None = None, n_kv_heads: int = G) -> Score:
    score = make_score(kind, n_heads=H, n_kv_heads=n_kv_heads, d_k=K, scale=scale).double()
    for parameter in score.parameters():
        torch.nn.init.normal_(parameter)
    return score


def compared(score: Score, q_BLHK: Tensor, k_BMGK: Tensor) -> Tensor:
    q, k = score.project(q_BLHK, k_BMGK)
    return score(q.transpose(1, 2), share_heads(k.transpose(1, 2), H))


def tokens(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    return torch.randn(B, L, H, K, dtype=dtype), torch.randn(B, M, G, K, dtype=dtype)


def by_hand(kind: str, score: Score, q: np.ndarray, k: np.ndarray, head: int) -> float:
    """g(q, k) of two vectors, as the papers write it."""
    weights = {name: parameter.detach().numpy() for name, parameter in score.named_parameters()}
    group = head // (H // G)
    match kind:
        case "scaled_dot":
            return q @ k / np.sqrt(K)
        case "dot":
            return q @ k
        case "cosine":
            return np.exp(weights["log_scale_H"][head]) * (q @ k) / np.linalg.norm(q) / np.linalg.norm(k)
        case "general":
            return q @ weights["weight_HKK"][head] @ k
        case "distance":
            return -((q - k) ** 2).sum()
        case "additive":
            W, U = weights["query_weight_HKK"][head].T, weights["key_weight_GKK"][group].T
            return weights["v_HK"][head] @ np.tanh(W @ q + U @ k)
        case "concat":
            W = weights["weight_H2KK"][head].T
            return weights["v_HK"][head] @ np.tanh(W @ np.concatenate([q, k]))
    raise AssertionError(f"score {kind} has no formula here to be compared with: write it")


@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_score_is_its_formula_for_every_pair(kind, scale):
    score = fresh(kind, scale)
    q, k = tokens()
    got = compared(score, q, k).detach().numpy()
    for b, head, i, j in np.ndindex(B, H, L, M):
        expected = by_hand(kind, score, q[b, i, head].numpy(), k[b, j, head // (H // G)].numpy(), head)
        if scale is not None and kind != "cosine":  # whose factor is learned and only starts there
            expected *= scale * (np.sqrt(K) if kind == "scaled_dot" else 1)
        assert got[b, head, i, j] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_score_that_says_so_is_a_plain_product_of_what_it_projects(kind):
    score = fresh(kind)
    q, k = score.project(*tokens())
    q_BHLK, k_BHMK = q.transpose(1, 2), share_heads(k.transpose(1, 2), H)
    products = q_BHLK @ k_BHMK.transpose(-2, -1)
    is_plain = score.dot_scale is not None and torch.allclose(score(q_BHLK, k_BHMK), products * score.dot_scale)
    assert is_plain == (kind in ("scaled_dot", "dot", "cosine", "general"))


@pytest.mark.parametrize("kind", KINDS)
def test_attention_with_a_score_passes_gradcheck(kind):
    score = fresh(kind)
    q, k = (x[:1].clone().requires_grad_() for x in tokens())
    v_BGMV = torch.randn(1, G, M, 2, dtype=torch.float64, requires_grad=True)
    keep = torch.rand(1, 1, L, M) > 0.3

    def attended(q: Tensor, k: Tensor, v: Tensor, *parameters: Tensor) -> Tensor:
        q, k = score.project(q, k)
        return attend(q.transpose(1, 2), k.transpose(1, 2), v, keep, score=score)

    assert torch.autograd.gradcheck(attended, (q, k, v_BGMV, *score.parameters()))


@pytest.mark.parametrize("kind", SUMS)
@pytest.mark.parametrize("chunk", [1, 2 * B * H * M * K])
def test_sums_in_chunks_are_the_sums_at_once(monkeypatch, kind, chunk):
    score = fresh(kind)
    inputs = [x.requires_grad_() for x in tokens()]
    whole = compared(score, *inputs)
    toward = torch.randn_like(whole)
    learns = [*inputs, *score.parameters()]
    expected = torch.autograd.grad(whole, learns, toward)
    monkeypatch.setattr(scores, "CHUNK", chunk)
    chunked = compared(score, *inputs)
    torch.testing.assert_close(chunked, whole)
    torch.testing.assert_close(torch.autograd.grad(chunked, learns, toward), expected)
    with torch.inference_mode():
        torch.testing.assert_close(compared(score, *tokens()).shape, whole.shape)


@pytest.mark.parametrize("kind", SUMS)
def test_what_is_kept_for_the_backward_pass_does_not_grow_with_the_width(monkeypatch, kind):
    """Of L · M · H scores, L · M · H · d_k numbers would be kept by the formula as it stands."""
    n, width = 64, 32
    score = make_score(kind, n_heads=1, n_kv_heads=1, d_k=width)
    for parameter in score.parameters():
        torch.nn.init.normal_(parameter)
    q, k = torch.randn(1, n, 1, width, requires_grad=True), torch.randn(1, n, 1, width, requires_grad=True)
    kept: dict[int, int] = {}

    def note(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes() // x.element_size()
        return x

    monkeypatch.setattr(scores, "CHUNK", n * width * 4)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        projected = score.project(q, k)
        score(*(x.transpose(1, 2) for x in projected)).sum()
    assert sum(kept.values()) < n * n + 12 * n * width


@pytest.mark.parametrize("kind", KINDS)
def test_scores_in_bf16_are_near_those_in_float32(kind):
    score = fresh(kind).float()
    q, k = tokens(torch.float32)
    exact = compared(score, q, k)
    with torch.autocast("cpu", torch.bfloat16):
        near = compared(score, q, k)
    torch.testing.assert_close(near.float(), exact, atol=0.15, rtol=0.05)


@pytest.mark.parametrize("offset", [0.0, 2.0])
def test_the_distance_in_bf16_is_that_of_the_rounded_vectors(offset):
    """It is the difference of numbers as large as d_k, which bf16 rounds to quarters and more."""
    q, k = (torch.randn(1, 1, 64, 64) + offset).bfloat16(), (torch.randn(1, 1, 64, 64) + offset).bfloat16()
    exact = -(q.double().unsqueeze(3) - k.double().unsqueeze(2)).square().sum(-1)
    with torch.autocast("cpu", torch.bfloat16):
        near = Distance()(q, k)
        itself = Distance()(q, q).diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(near.double(), exact, rtol=1e-5, atol=1e-3)
    assert itself.abs().max() < 1e-3
    assert Distance()(q, k).dtype == torch.bfloat16, "as the values, where nothing casts"


def test_the_cosine_looks_at_directions_alone():
    score = fresh("cosine")
    q, k = tokens()
    torch.testing.assert_close(compared(score, 7 * q, 0.1 * k), compared(score, q, k))
    nothing = compared(score, torch.zeros_like(q), k)
    assert torch.equal(nothing, torch.zeros_like(nothing))


def test_concat_is_additive_with_its_matrix_cut_in_two():
    additive, concat = fresh("additive", n_kv_heads=H), fresh("concat", n_kv_heads=H)
    with torch.no_grad():
        both = torch.cat([additive.query_weight_HKK, additive.key_weight_GKK], dim=1)
        concat.weight_H2KK.copy_(both)
        concat.v_HK.copy_(additive.v_HK)
    q, k = torch.randn(B, L, H, K, dtype=torch.float64), torch.randn(B, M, H, K, dtype=torch.float64)
    torch.testing.assert_close(compared(concat, q, k), compared(additive, q, k))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n_queries", "n_keys"), [(0, 3), (3, 0), (0, 0)])
def test_no_queries_or_no_keys_are_no_scores(kind, n_queries, n_keys):
    score = fresh(kind)
    q, k = (torch.randn(B, n, heads, K, dtype=torch.float64) for n, heads in ((n_queries, H), (n_keys, G)))
    assert compared(score, q, k).shape == (B, H, n_queries, n_keys)
