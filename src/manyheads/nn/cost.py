"""What a classifier costs: parameters, and floating-point operations of a token."""

from torch import nn

from manyheads.config import Activation, ModelConfig


def count_parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def flops_per_token(model: ModelConfig, length: float) -> float:
    """Operations of one forward pass for one token of a text of `length` tokens, matrix products alone.

    A product with an m x n matrix is 2 m n operations; attention adds 2 length (d_k + d_v) a head. A backward
    pass costs twice as much again (Kaplan et al., 2020, "Scaling Laws", section 2.1).
    """
    heads, kv_heads = model.n_heads, model.kv_heads
    projections = model.d_model * (heads * model.d_k + kv_heads * (model.d_k + model.d_v) + heads * model.d_v)
    is_gated = model.activation in (Activation.geglu, Activation.swiglu)
    feed_forward = model.d_model * model.d_ff * (3 if is_gated else 2)
    attention = heads * length * (model.d_k + model.d_v)
    return 2 * model.n_layers * (projections + feed_forward + attention)
