"""What the tests of the blocks share: one seed and small models."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from manyheads.config import (
    ModelConfig,
    PairKind,
    Placement,
    Pooler,
    Segments,
)
from manyheads.config.conversion import choices_of
from manyheads.config.facts import settings

CHOICES = {"placement": Placement, "pooler": Pooler, "pair": PairKind, "segments": Segments}

Kept = tuple[Tensor, Tensor, Tensor]  # output, logarithm of the sum, state of the generator

SMALL: dict[str, Any] = {
    "n_layers": 2,
    "n_heads": 2,
    "d_model": 12,
    "d_k": 4,
    "d_v": 5,
    "d_ff": 16,
    "dropout": 0.0,
    "dropout_tokens": 0.0,
}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.default_generator.manual_seed(0)  # `torch.manual_seed` looks for devices, which takes a hundred times as long


@pytest.fixture(scope="session")
def choices():
    """The names of each setting that is a choice."""
    return {name: choices_of(one) for name, one in settings(ModelConfig).items()}


@pytest.fixture(scope="session")
def small():
    """A small ModelConfig without dropout, with any field overridden, choices by name; n_heads * d_k is not d_model."""

    def build(**fields: Any) -> ModelConfig:
        chosen = {name: CHOICES[name][value] if name in CHOICES else value for name, value in fields.items()}
        return ModelConfig(**(SMALL | chosen))

    return build


@pytest.fixture(scope="session")
def torchs_layer():
    """torch's layer of an encoder or decoder with the weights of ours, pre-norm or post-norm as ours is."""

    def build(ours: Any, activation: str = "relu", eps: float = 1e-5) -> nn.Module:
        attention, thought = ours.attention.block, ours.feed_forward.block
        is_pre = not isinstance(ours.attention.before, nn.Identity)
        sides = [child.before if is_pre else child.after for child in ours.children()]
        copies = {"self_attn": attention, "linear1": thought.widen, "linear2": thought.narrow}
        copies |= {f"norm{at}": norm for at, norm in enumerate(sides, start=1)}
        kind = nn.TransformerEncoderLayer
        if hasattr(ours, "cross_attention"):
            copies["multihead_attn"], kind = ours.cross_attention.block, nn.TransformerDecoderLayer
        shape = attention.output.out_features, attention.n_heads, thought.narrow.in_features
        made = {"layer_norm_eps": eps, "batch_first": True, "norm_first": is_pre, "dtype": thought.widen.weight.dtype}
        theirs = kind(*shape, 0.0, activation, **made)
        for name, module in copies.items():
            weights = module.state_dict()
            names = {"in_proj_": "project.", "out_proj.": "output."} if name.endswith("attn") else {"": ""}
            for new, old in names.items():
                for part in ("weight", "bias"):
                    theirs.get_parameter(f"{name}.{new}{part}").data.copy_(weights[f"{old}{part}"])
        return theirs

    return build


@pytest.fixture(scope="session")
def _varlen_kernels() -> None:
    """torch's attention of variable length for the CPU, which torch itself does not have: formulas, text by text."""
    import torch.nn.attention.varlen  # it declares what is registered here

    def texts(cuts_q: Tensor, cuts_k: Tensor) -> Iterator[tuple[slice, slice]]:
        for first, last, begin, end in zip(cuts_q, cuts_q[1:], cuts_k, cuts_k[1:], strict=False):
            if last > first or end > begin:  # else the batch has been filled up
                yield slice(int(first), int(last)), slice(int(begin), int(end))

    def weights(q: Tensor, k: Tensor, scale: float | None, reach: list[int] | None) -> Tensor:
        left, right = reach or (-1, -1)
        ahead = torch.arange(k.size(0)) - torch.arange(q.size(0))[:, None]
        keep = (ahead >= -left if left >= 0 else ahead == ahead) & (ahead <= right if right >= 0 else ahead == ahead)
        scores = torch.einsum("lhk,mhk->hlm", q.float(), k.float()) * (scale or q.size(-1) ** -0.5)
        return scores.masked_fill(~keep, -torch.inf).softmax(-1)

    def forward(q, k, v, cuts_q, cuts_k, max_q, max_k, is_causal=False, scale=None, reach=None, *rest) -> Kept:
        assert cuts_q.dtype == cuts_k.dtype == torch.int32
        assert int(cuts_q.diff().max()) <= max_q
        assert int(cuts_k.diff().max()) <= max_k
        out = torch.full_like(q, torch.nan)  # what belongs to no text is never written
        for of_q, of_k in texts(cuts_q, cuts_k):
            w = weights(q[of_q], k[of_k], scale, reach)
            out[of_q] = torch.einsum("hlm,mhk->lhk", w, v[of_k].float()).to(q.dtype)
        return out, torch.zeros(q.size(1), q.size(0)), torch.zeros(2, dtype=torch.uint64)

    def backward(toward, q, k, v, out, lse, cuts_q, cuts_k, max_q, max_k, is_causal, rng, scale=None, reach=None):
        dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
        for of_q, of_k in texts(cuts_q, cuts_k):
            w, g = weights(q[of_q], k[of_k], scale, reach), toward[of_q].float()
            dw = torch.einsum("lhk,mhk->hlm", g, v[of_k].float())
            ds = w * (dw - (w * dw).sum(-1, keepdim=True)) * (scale or q.size(-1) ** -0.5)
            dq[of_q] = torch.einsum("hlm,mhk->lhk", ds, k[of_k].float()).to(q.dtype)
            dk[of_k] = torch.einsum("hlm,lhk->mhk", ds, q[of_q].float()).to(q.dtype)
            dv[of_k] = torch.einsum("hlm,lhk->mhk", w, g).to(q.dtype)
        return dq, dk, dv

    torch.library.register_kernel("torch_attn::_varlen_attn", "cpu", forward)
    torch.library.register_kernel("torch_attn::_varlen_attn_backward", "cpu", backward)


@pytest.fixture
def flash_on_cpu(_varlen_kernels, monkeypatch):
    """Attention takes the way through torch's kernel of variable length, as on a GPU."""
    from manyheads.layout import Packed
    from manyheads.nn import kernels

    def fits(q, k, v, queries, keys) -> bool:
        return all(isinstance(one, Packed) and one.longest > 0 for one in (queries, keys))

    monkeypatch.setattr(kernels, "_flash_fits", fits)
