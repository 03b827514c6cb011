"""AdamW and its learning rate. AdamW: Loshchilov and Hutter (2019)."""

import math
from typing import Any

import torch
from torch import nn

from manyheads.config import OptimConfig, Schedule


def stepwise(model: nn.Module, optim: OptimConfig, n_steps: int, *, loss_is_scaled: bool) -> dict[str, Any]:
    """What a LightningModule configures: AdamW, and its rate a step. With fp16 a fused step would clip the scaled
    gradients."""
    optimizer = make_optimizer(model, optim, fused=not loss_is_scaled)
    schedule = make_schedule(optimizer, optim, n_steps)
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def clip_gradients(model: nn.Module, most: float | None, algorithm: str | None) -> None:
    """Clip by torch itself: Lightning refuses a fused optimiser under autocast, although bf16 scales nothing."""
    if not most:
        return
    if algorithm == "value":
        torch.nn.utils.clip_grad_value_(model.parameters(), most)
    else:
        torch.nn.utils.clip_grad_norm_(model.parameters(), most)


def make_optimizer(model: nn.Module, optim: OptimConfig, *, fused: bool = True) -> torch.optim.AdamW:
    """AdamW; matrices of the layers decay, vectors (biases, norms) and embeddings do not."""
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    parameters = [p for p in model.parameters() if p.requires_grad]
    decaying = [p for p in parameters if p.ndim >= 2 and id(p) not in embeddings]
    steady = [p for p in parameters if p.ndim < 2 or id(p) in embeddings]
    groups = [{"params": decaying, "weight_decay": optim.weight_decay}, {"params": steady, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=optim.lr, betas=(optim.beta1, optim.beta2), eps=optim.eps, fused=fused)


def make_schedule(
    optimizer: torch.optim.Optimizer, optim: OptimConfig, n_steps: int
) -> torch.optim.lr_scheduler.LambdaLR:
    """The schedule as torch wants it: a factor of the peak rate for each optimiser step."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_factor(step, n_steps, optim))


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
