"""Optimiser, schedule, parameter groups and the moving average of weights.

AdamW: Loshchilov and Hutter (2019). Layer-wise rates: Howard and Ruder (2018), "Universal Language Model Fine-tuning",
section 3.2, there called discriminative. The average of the weights over the last steps generalises better than the
weights of the last step.
"""

import math
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn

from manyheads.config import OptimConfig, Schedule
from manyheads.nn.embeddings import Embeddings
from manyheads.training.strategies import part, shard_like, whole

EVERY = 10  # steps between two updates of the average: weights of neighbouring steps are nearly the same


def parameter_groups(network: nn.Module, optim: OptimConfig) -> list[dict[str, Any]]:
    """The groups of trainable parameters: for each learning rate the matrices, which have weight decay, then vectors
    (biases, norms) and embeddings, which have none."""
    n_layers = _n_layers(network)
    tables: set[Tensor] = set()
    slow: dict[Tensor, float] = {}
    for module in network.modules():
        if isinstance(module, nn.Embedding):
            tables.add(module.weight)
        if isinstance(module, Embeddings) and optim.scale_embedding_lr:
            slow[module.words.weight] = module.scale  # words are multiplied by it when read, and so are their changes
    found: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            decays = parameter.ndim >= 2 and parameter not in tables
            below = max(0, n_layers - depth(name, n_layers))  # the last layer
            lr = optim.lr * optim.layer_decay**below / slow.get(parameter, 1.0)
            found.setdefault((lr, decays), []).append(parameter)
    rates = list(dict.fromkeys(lr for lr, _ in found))
    groups = []
    for lr in rates:
        for decays in (True, False):
            # With a single rate both groups are there, even if one is empty.
            if (lr, decays) in found or len(rates) == 1:
                weight_decay = optim.weight_decay if decays else 0.0
                groups.append({"params": found.get((lr, decays), []), "lr": lr, "weight_decay": weight_decay})
    return groups


def freeze(network: nn.Module, optim: OptimConfig) -> None:
    """Freeze the embeddings and the first `optim.freeze` layers; skips most of backward."""
    if not optim.freeze:
        return
    n_layers = _n_layers(network)
    for name, parameter in network.named_parameters():
        if depth(name, n_layers) <= optim.freeze:
            parameter.requires_grad_(False)


def depth(name: str, n_layers: int) -> int:
    """The depth of a parameter: 0 for embeddings and what all layers of an encoder read, i for layer i from 1, n_layers
    for the final norm, and one more for pooling and head."""
    room, _, rest = name.partition(".")
    if room == "embeddings":
        return 0
    if room != "encoder":
        return n_layers + 1
    within = rest.split(".")  # such as "layers.3.attention.before.weight"
    if within[0] == "layers":
        return int(within[1]) + 1
    return n_layers if within[0] == "norm" else 0


def _n_layers(network: nn.Module) -> int:
    """The number of layers of the encoder."""
    layers = set()
    for name, _ in network.named_parameters():
        if name.startswith("encoder.layers."):
            layers.add(name.split(".")[2])
    return len(layers)


def clip_gradients(model: nn.Module, most: float | None, algorithm: str | None) -> Tensor:
    """Clip the gradients in place; returns their total norm before, which is non-finite if any element is.

    Lightning's own clipping refuses a fused optimiser with autocast, although bf16 needs no loss scaling.

    Args:
        most: the largest norm, or with `algorithm` "value" the largest element; None: they are not clipped.
    """
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norm = whole(nn.utils.get_total_norm(gradients))
    tensors = [part(gradient) for gradient in gradients]
    if most and algorithm == "value":
        for tensor in tensors:
            tensor.clamp_(-most, most)
    elif most:
        factor = (most / (norm + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(tensors, factor)  # pyright: ignore[reportPrivateImportUsage, reportAttributeAccessIssue]
    return norm


def make_optimizer(model: nn.Module, optim: OptimConfig, *, fused: bool = True) -> torch.optim.AdamW:
    """AdamW over the groups of `parameter_groups`."""
    betas = optim.beta1, optim.beta2
    return torch.optim.AdamW(parameter_groups(model, optim), lr=optim.lr, betas=betas, eps=optim.eps, fused=fused)


def make_schedule(
    optimizer: torch.optim.Optimizer, optim: OptimConfig, n_steps: int
) -> torch.optim.lr_scheduler.LambdaLR:
    """The schedule as torch wants it: a factor of the peak rate for each optimiser step."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_factor(step, n_steps, optim))


def rate_factor(step: int, n_steps: int, optim: OptimConfig) -> float:
    """The learning rate of optimiser step `step` (from 0) of `n_steps`, as a share of the peak.

    It rises linearly over the warm-up, then falls to zero after the last step: linearly, along half a cosine
    (Loshchilov and Hutter, 2017), or only over the last `decay_share` of all steps, at most those after the warm-up
    (warm-up, stable, decay: Hu et al., 2024, "MiniCPM", section 4).
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
            if not left:
                return 0.0
            n_falling = min(optim.decay_share * n_steps, n_steps - n_warmup)
            return min(1.0, (n_steps - step) / max(1.0, n_falling))
        case Schedule.constant:
            return 1.0


class EMACallback(Callback):
    """Keeps an exponential moving average of the weights over about the last `steps` optimiser steps, and validates and
    saves it in their place.

    Polyak and Juditsky (1992), "Acceleration of Stochastic Approximation by Averaging"; Izmailov et al. (2018),
    "Averaging Weights Leads to Wider Optima". It reaches back over at most a fifth of the steps so far, so that a short
    run forgets its beginning. Training itself continues from its own weights. It comes after `KeepBest`, which writes
    the weights that were validated before they are exchanged back.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._mean: list[Tensor] = []
        self._seen = 0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._mean:
            weights = zip(self._mean, _weights(pl_module), strict=True)
            self._mean = [shard_like(mean.to(pl_module.device), weight) for mean, weight in weights]

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step % EVERY == 0:
            self._update(trainer, pl_module)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._update(trainer, pl_module)
        self._exchange(pl_module)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._exchange(pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._update(trainer, pl_module)
        for weight, mean in zip(_weights(pl_module), self._mean, strict=False):  # empty if there was no step
            weight.copy_(mean)

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self._mean, "seen": self._seen}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._mean, self._seen = state_dict["mean"], state_dict["seen"]

    @torch.no_grad()
    def _update(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Include the weights of the last step in the average, as those of all steps since the last update."""
        step, n_new = trainer.global_step, trainer.global_step - self._seen
        if not n_new:
            return
        self._seen, weights = step, _weights(pl_module)
        if not self._mean:
            self._mean = [weight.clone() for weight in weights]
        share = min(1.0, n_new / min(self.steps, step / 5))
        for mean, weight in zip(self._mean, weights, strict=True):
            mean.lerp_(weight, share)

    def _exchange(self, module: pl.LightningModule) -> None:
        """Exchange weights and average, one tensor at a time: a copy of all would take as much memory again."""
        for weight, mean in zip(_weights(module), self._mean, strict=False):
            own = weight.clone()
            weight.copy_(mean)
            mean.copy_(own)


def _weights(module: pl.LightningModule) -> list[Tensor]:
    return [parameter.detach() for parameter in module.parameters()]
