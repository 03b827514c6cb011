"""The copy of a network that answers in bf16: attention without padding against the block whose place it takes."""

from typing import Any

import pytest
import torch
from torch import nn

from manyheads.inference.packed import PackedAttention, PackedBf16Linear, cast_once
from manyheads.layout import Packed
from manyheads.nn.embeddings import Alibi, Rotary
from manyheads.nn.multihead import MultiHeadAttention

pytestmark = pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="the processor multiplies no bf16"
)
SIZES = {"d_model": 16, "n_heads": 2}
LENGTHS = [
    [7],
    [9] * 20,
    [40, 40, 40, 40, 12, 12, 3, 3, 3, 0],
    [2, 30, 2, 30, 1],  # not sorted
    [200, 200, 5],
    [0, 0],
]


def packed(block: nn.Module) -> Any:
    return cast_once(nn.Sequential(block), torch.bfloat16)[0]


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("tail", [1, 64])
def test_contexts_are_those_of_the_block(lengths: list[int], tail: int) -> None:
    torch.manual_seed(0)
    block = MultiHeadAttention(**SIZES)
    layout = Packed.of_lengths(lengths).rounded(tail)
    x_ND = torch.randn(layout.n_tokens + layout.tail, 16)
    fast = packed(block)
    assert isinstance(fast, PackedAttention)
    with torch.inference_mode():
        found, exact = fast(x_ND, layout), block(x_ND, layout)
    assert found.isfinite().all()
    torch.testing.assert_close(found[: layout.n_tokens].float(), exact[: layout.n_tokens], atol=0.02, rtol=0.02)


@pytest.mark.parametrize(
    "other",
    [
        {"score": torch.nn.Identity()},
        {"normaliser": "sigmoid"},
        {"rotary": Rotary(max_length=9, d_k=8)},
        {"alibi": Alibi(n_heads=2)},
        {"window": 2},
        {"causal": True},
        {"qk_norm": True},
        {"n_kv_heads": 1},
        {"d_v": 4},
        {"project": False},
        {"project_output": False},
    ],
    ids=lambda other: next(iter(other)),
)
def test_a_block_that_is_another_formula_stays(other: dict[str, Any]) -> None:
    assert isinstance(packed(MultiHeadAttention(**SIZES, **other)), MultiHeadAttention)


def test_linear_maps_are_packed_once_to_the_same_bits() -> None:
    linear, x = nn.Linear(16, 24), torch.randn(5, 16)
    fast = packed(linear)
    assert isinstance(fast, PackedBf16Linear)
    with torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
        assert torch.equal(fast(x), linear(x))


def test_runs_of_one_length() -> None:
    assert Packed.of_lengths([5, 5, 2, 0, 2, 2]).runs == [(5, 10), (2, 2), (2, 4)]
    assert Packed.of_lengths([0]).runs == Packed.of_lengths([]).runs == []
