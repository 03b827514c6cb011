"""Optimiser, schedule, parameter groups and the mean of weights: what decays, and at which rate.

AdamW: Loshchilov and Hutter (2019). Layer-wise rates: Howard and Ruder (2018), "Universal Language Model Fine-tuning",
section 3.2, there called discriminative. The mean of the weights
along the end of training is better than where the last step happens to land.
"""

import math
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn

from manyheads.config import OptimConfig, Schedule
from manyheads.nn.embeddings import Embeddings
from manyheads.training.strategies import part, parted, whole

EVERY = 10  # steps between two looks, unless the mean is asked for: neighbouring weights are nearly the same


def parameter_groups(network: nn.Module, optim: OptimConfig) -> list[dict[str, Any]]:
    """The parameters that learn, by their rate; of each rate first the matrices of layers, which decay, then the
    vectors (biases, norms) and embeddings, which do not."""
    tables = {id(module.weight) for module in network.modules() if isinstance(module, nn.Embedding)}
    n_layers = _n_layers(network)
    slow: dict[int, float] = {}
    if optim.scale_embedding_lr:  # so that vectors of words change as fast as the layers
        slow = {id(one.words.weight): one.scale for one in network.modules() if isinstance(one, Embeddings)}
    found: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            decays = parameter.ndim >= 2 and id(parameter) not in tables
            below = max(0, n_layers - depth(name, n_layers))  # the last layer
            lr = optim.lr * optim.layer_decay**below / slow.get(id(parameter), 1.0)
            found.setdefault((lr, decays), []).append(parameter)
    rates = list(dict.fromkeys(lr for lr, _ in found))
    return [
        {
            "params": found.get((lr, decays), []),
            "lr": lr,
            "weight_decay": optim.weight_decay if decays else 0.0,
        }
        for lr in rates
        for decays in (True, False)
        if (lr, decays) in found or len(rates) == 1
    ]


def freeze(network: nn.Module, optim: OptimConfig) -> None:
    """Let what stays as it is have no gradients: that saves most of the way back."""
    n_layers = _n_layers(network)
    for name, parameter in network.named_parameters():
        if depth(name, n_layers) <= optim.freeze and optim.freeze:
            parameter.requires_grad_(False)


def depth(name: str, n_layers: int) -> int:
    """0 for the embeddings, i for layer i from 1, which what stands between the last layer and the pooling shares with
    it, and one more for the pooling and the head."""
    room, _, rest = name.partition(".")
    if room == "embeddings":
        return 0
    if room != "encoder":
        return n_layers + 1
    within = rest.split(".")
    return int(within[1]) + 1 if within[0] == "layers" else n_layers


def _n_layers(network: nn.Module) -> int:
    """Of the encoder."""
    return len({name.split(".")[2] for name, _ in network.named_parameters() if name.startswith("encoder.layers.")})


def clip_gradients(model: nn.Module, most: float | None, algorithm: str | None) -> Tensor:
    """Clip by torch itself: Lightning refuses a fused optimiser under autocast, although bf16 scales nothing. Returns
    the norm of all gradients together before; where a number of them is not finite, nor is this."""
    gradients = [one.grad for one in model.parameters() if one.grad is not None]
    norm, tensors = whole(nn.utils.get_total_norm(gradients)), [part(one) for one in gradients]
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
            n_falling = min(optim.decay_share * n_steps, n_steps - n_warmup)
            return min(1.0, (n_steps - step) / max(1.0, n_falling)) if left else 0.0
        case Schedule.constant:
            return 1.0


class Average(Callback):
    """Validates and keeps an exponential mean of the weights over about the last `steps` optimiser steps.

    Polyak and Juditsky (1992), "Acceleration of Stochastic Approximation by Averaging"; Izmailov et al. (2018),
    "Averaging Weights Leads to Wider Optima". Over a fifth of the way so far at the most, so that a short run
    forgets how it began; training itself goes on from its own weights. Stands behind `KeepBest`, which writes
    what was validated.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._mean: list[Tensor] = []
        self._seen = 0

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self._mean, "seen": self._seen}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._mean, self._seen = state_dict["mean"], state_dict["seen"]

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._mean:
            weights = zip(self._mean, _weights(pl_module), strict=True)
            self._mean = [parted(mean.to(pl_module.device), weight) for mean, weight in weights]

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step % EVERY == 0:
            self._look(trainer, pl_module)

    @torch.no_grad()
    def _look(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Bring the mean up to the last step."""
        step, missed = trainer.global_step, trainer.global_step - self._seen
        if not missed:
            return
        self._seen, weights = step, _weights(pl_module)
        if not self._mean:
            self._mean = [weight.clone() for weight in weights]
        share = min(1.0, missed / min(self.steps, step / 5))
        for mean, weight in zip(self._mean, weights, strict=True):
            mean.lerp_(weight, share)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._look(trainer, pl_module)
        self._exchange(pl_module)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._exchange(pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._look(trainer, pl_module)
        for weight, mean in zip(_weights(pl_module), self._mean, strict=False):  # none, where there was no step
            weight.copy_(mean)

    def _exchange(self, module: pl.LightningModule) -> None:
        """Weights and mean change places, one tensor at a time: a second copy of all would take as much memory."""
        for weight, mean in zip(_weights(module), self._mean, strict=False):
            own = weight.clone()
            weight.copy_(mean)
            mean.copy_(own)


def _weights(module: pl.LightningModule) -> list[Tensor]:
    return [parameter.detach() for parameter in module.parameters()]
