"""The optimiser and its learning rate. AdamW: Loshchilov and Hutter (2019); Muon: see muon.py."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from manyheads.config import OptimConfig, Schedule
from manyheads.config.optim import OptimKind
from manyheads.fit.groups import parameter_groups
from manyheads.fit.lazy import LazyAdamW
from manyheads.fit.muon import Muon, apart, hidden_matrices
from manyheads.fit.shards import is_in_parts, part, total_norm

LAZY_FROM = 4_000_000
"""Numbers of an embedding from which it is quicker to find the rows that a batch reads than to update them all: at
30,522 rows of 256 a step takes 7 ms for it instead of 11, at fewer than 16,384 such rows nothing is gained."""


def stepwise(
    model: nn.Module, optim: OptimConfig, n_steps: int, *, loss_is_scaled: bool, lazy: bool = False
) -> dict[str, Any]:
    """What a LightningModule configures: the optimiser, and its rate a step. With fp16 a fused step would clip scaled
    gradients."""
    optimizer = make_optimizer(model, optim, fused=not loss_is_scaled, lazy=lazy)
    schedule = make_schedule(optimizer, optim, n_steps)
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def clip_gradients(model: nn.Module, most: float | None, algorithm: str | None) -> Tensor:
    """Clip by torch itself: Lightning refuses a fused optimiser under autocast, although bf16 scales nothing.

    Of a sparse gradient the rows that it names are clipped.

    Returns:
        The norm of all gradients together before; where a number of them is not finite, nor is this.
    """
    parameters = [p for p in model.parameters() if p.grad is not None]
    tensors = [gradient_values(p) for p in parameters]
    norm = total_norm(tensors, in_parts=any(is_in_parts(p) for p in parameters))
    if most and algorithm == "value":
        for tensor in tensors:
            tensor.clamp_(-most, most)
    elif most:
        factor = (most / (norm + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(tensors, factor)  # pyright: ignore[reportPrivateImportUsage, reportAttributeAccessIssue]
    return norm


def gradient_values(parameter: nn.Parameter) -> Tensor:
    """The gradient itself, or this rank's part of it, or the rows of a sparse one, each named once; what is done to it
    is done to the gradient."""
    assert parameter.grad is not None
    if not parameter.grad.is_sparse:
        return part(parameter.grad)
    parameter.grad = parameter.grad.coalesce()
    return parameter.grad._values()


def make_optimizer(
    model: nn.Module, optim: OptimConfig, *, fused: bool = True, lazy: bool = False
) -> torch.optim.AdamW:
    """AdamW over the groups of `parameter_groups`, or Muon, which takes the matrices of the layers out of them.

    With `lazy` large embeddings are updated row by row. That pays on one CPU, where a step reads and writes ten times
    as many numbers as an embedding has; a GPU does so at once, and several processes add up whole gradients.
    """
    groups = parameter_groups(model, optim)
    embeddings = [m for m in model.modules() if isinstance(m, nn.Embedding)]
    lazy = lazy and optim.beta1**2 < optim.beta2  # else the momentum of a row fades slower than what divides it
    tables = [m for m in embeddings if lazy and m.weight.requires_grad and m.weight.numel() >= LAZY_FROM]
    settings = {"lr": optim.lr, "betas": (optim.beta1, optim.beta2), "eps": optim.eps}
    if optim.kind is OptimKind.muon:
        hidden, factor = hidden_matrices(model), (optim.muon_lr or optim.lr) / optim.lr
        return Muon(apart(groups, hidden, factor), tables, hidden, fused=fused, **settings)
    if tables:
        return LazyAdamW(groups, tables, **settings)
    return torch.optim.AdamW(groups, **settings, fused=fused)


def make_schedule(
    optimizer: torch.optim.Optimizer, optim: OptimConfig, n_steps: int
) -> torch.optim.lr_scheduler.LambdaLR:
    """The schedule as torch wants it: of each group a factor of its peak rate for each optimiser step, zero before it
    thaws."""

    def factor_of(thaws: float) -> Callable[[int], float]:
        return lambda step: rate_factor(step, n_steps, optim) if step >= thaws * n_steps else 0.0

    factors = [factor_of(group.get("thaws", 0.0)) for group in optimizer.param_groups]
    return torch.optim.lr_scheduler.LambdaLR(optimizer, factors)


def rate_factor(step: int, n_steps: int, optim: OptimConfig) -> float:
    """The learning rate of optimiser step `step` (from 0) of `n_steps`, as a share of the peak.

    It rises linearly over the warm-up, then falls to zero after the last step: linearly, along half a cosine
    (Loshchilov and Hutter, 2017), or only over the last `decay_share` of all steps (warm-up, stable, decay:
    Hu et al., 2024, "MiniCPM", section 4).
    """
    n_warmup = round(optim.warmup * n_steps)
    if step < n_warmup:
        return (step + 1) / n_warmup
    left = max(0.0, (n_steps - step) / max(1, n_steps - n_warmup))
    match optim.schedule:
        case Schedule.linear:
            return left
        case Schedule.cosine:
            return 0.5 * (1 - math.cos(math.pi * left))
        case Schedule.wsd:
            return min(1.0, (n_steps - step) / max(1.0, optim.decay_share * n_steps)) if left else 0.0
        case Schedule.constant:
            return 1.0
