"""Optimiser, schedule, parameter groups and the mean of weights: what decays, at which rate, by AdamW or Muon.

AdamW: Loshchilov and Hutter (2019). Layer-wise rates: Howard and Ruder (2018), "Universal Language Model Fine-tuning",
section 3.2, there called discriminative; frozen layers that thaw from the top: section 3.3. Muon, for the matrices of
the layers: Jordan et al. (2024). The mean of the weights along the end of training is better than where the last step
happens to land.

A, B rows and columns of a block
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn

from manyheads.config import OptimConfig, Schedule
from manyheads.config.training import OptimKind
from manyheads.nn.multihead import MultiHeadAttention
from manyheads.nn.transformer import FeedForward
from manyheads.training.strategies import part, parted, whole

MOMENTUM = 0.95
FACTORS = (3.4445, -4.7750, 2.0315)  # of x, x³ and x⁵: five rounds bring all from 0.01 to 1 near to 1
ROUNDS = 5
AS_ADAMW = 0.2  # the root mean square of a step of AdamW, in steps of its rate
EVERY = 10  # steps between two looks, unless the mean is asked for: neighbouring weights are nearly the same


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a parameter learns: the peak of its rate, and from which share of all steps on."""

    lr: float
    thaws: float = 0.0


def parameter_groups(network: nn.Module, optim: OptimConfig) -> list[dict[str, Any]]:
    """The parameters that learn, by pace; of each pace first the matrices of layers, which decay, then the vectors
    (biases, norms) and embeddings, which do not."""
    tables = {id(module.weight) for module in network.modules() if isinstance(module, nn.Embedding)}
    n_layers, embeddings = _n_layers(network), getattr(network, "embeddings", None)
    slow: dict[str, float] = {}
    if optim.scale_embedding_lr and embeddings is not None:  # so that its vectors change as fast as the layers
        slow["embeddings.words.weight"] = embeddings.scale
    found: dict[tuple[Pace, bool], list[nn.Parameter]] = {}
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            decays = parameter.ndim >= 2 and id(parameter) not in tables
            own = pace(depth(name, n_layers), n_layers, optim)
            own = replace(own, lr=own.lr / slow.get(name, 1.0))
            found.setdefault((own, decays), []).append(parameter)
    paces = list(dict.fromkeys(one for one, _ in found))
    return [
        {
            "params": found.get((one, decays), []),
            "lr": one.lr,
            "weight_decay": optim.weight_decay if decays else 0.0,
            "thaws": one.thaws,
        }
        for one in paces
        for decays in (True, False)
        if (one, decays) in found or len(paces) == 1
    ]


def freeze(network: nn.Module, optim: OptimConfig) -> None:
    """Let what stays frozen to the end have no gradients: that saves most of the way back. What thaws has them, and a
    rate of zero meanwhile, so that processes which add up gradients need not be told when."""
    n_layers = _n_layers(network)
    for name, parameter in network.named_parameters():
        if not optim.thaw and depth(name, n_layers) <= optim.freeze and optim.freeze:
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


def pace(at: int, n_layers: int, optim: OptimConfig) -> Pace:
    """The pace at a depth: the last layer learns at `optim.lr`, each below it at `optim.layer_decay` times that of the
    one above. Of `optim.freeze` layers and the embeddings the k-th from the top thaws after k equal parts of
    `optim.thaw`."""
    if at > n_layers:
        return Pace(optim.lr if optim.head_lr is None else optim.head_lr)
    lr = optim.lr * optim.layer_decay ** (n_layers - at)
    waits = max(0, optim.freeze + 1 - at) if optim.freeze else 0
    return Pace(lr, optim.thaw * waits / (optim.freeze + 1))


def _n_layers(network: nn.Module) -> int:
    """Of the encoder."""
    return len({name.split(".")[2] for name, _ in network.named_parameters() if name.startswith("encoder.layers.")})


class Muon(torch.optim.AdamW):
    """Steps of `hidden` go by their momentum made orthogonal: Jordan et al. (2024), "Muon".

    torch.optim.Muon takes each matrix as one block, and knows no AdamW for the rest and no `found_inf`.

    Each block of a matrix by itself, as queries, keys and values lie in one, of A rows and B columns, by a step of
    0.2 √max(A, B) times the rate, which is as large as one of AdamW: Liu et al. (2025), "Muon is Scalable for LLM
    Training", section 2.2. So one rate serves all weights. Whatever `hidden` does not name is AdamW's. A group holds
    parameters of one kind.

    Args:
        hidden: of each matrix the rows of its blocks.
    """

    found_inf: Tensor | None = None  # one: a step that changes nothing, as of torch's own fused steps

    def __init__(self, groups: list[dict[str, Any]], hidden: dict[Tensor, tuple[int, ...]], **settings: Any) -> None:
        super().__init__(groups, **settings)
        self.hidden = hidden

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        with torch.enable_grad():
            loss = None if closure is None else closure()
        gradients = {matrix: matrix.grad for matrix in self.hidden if matrix.grad is not None}
        for matrix in gradients:
            matrix.grad = None  # so that AdamW leaves it alone
        super().step()
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix in gradients:
                    self._step_matrix(matrix, gradients[matrix], group["lr"], group["weight_decay"])
        for matrix, gradient in gradients.items():
            matrix.grad = gradient
        return loss

    def _step_matrix(self, matrix: Tensor, gradient: Tensor, lr: float, weight_decay: float) -> None:
        """Nothing waits for the device: a step in which `found_inf` is one is made with factors of zero."""
        state, goes = self.state[matrix], torch.ones((), device=matrix.device)
        if not state:
            state["step"], state["momentum"] = torch.zeros(()), torch.zeros_like(matrix)
        state["step"] += 1  # which torch looks for where a state is loaded
        momentum = state["momentum"]
        if self.found_inf is not None:
            goes = goes - self.found_inf.to(matrix.device)
            gradient = torch.where(goes > 0, gradient, momentum)
        momentum.lerp_(gradient, 1 - MOMENTUM)
        ahead = gradient.lerp(momentum, MOMENTUM)  # as Nesterov looks ahead
        matrix.mul_(1 - lr * weight_decay * goes)
        for block_AB, step_AB in zip(matrix.split(self.hidden[matrix]), ahead.split(self.hidden[matrix]), strict=True):
            block_AB.sub_(orthogonal(step_AB) * (AS_ADAMW * lr * max(step_AB.shape) ** 0.5 * goes))


def orthogonal(matrix_AB: Tensor) -> Tensor:
    """U V of the matrix U S V, about: each singular value becomes one between 0.7 and 1.2, tiny ones less.

    A polynomial of the matrix is one of its singular values: Newton and Schulz's iteration with a steeper one
    (Jordan et al., 2024).
    """
    is_tall = matrix_AB.size(0) > matrix_AB.size(1)
    x = matrix_AB.T if is_tall else matrix_AB
    x = x.bfloat16() if x.is_cuda else x
    x = x / x.norm().clamp(min=1e-7)
    a, b, c = FACTORS
    for _ in range(ROUNDS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.T if is_tall else x).to(matrix_AB.dtype)


def hidden_matrices(network: nn.Module) -> dict[Tensor, tuple[int, ...]]:
    """The matrices of attention and feed-forward blocks that learn, each with the rows of its blocks."""
    found: dict[Tensor, tuple[int, ...]] = {}
    for module in network.modules():
        if isinstance(module, MultiHeadAttention):
            if module.project is not None:
                found[module.project.weight] = module.widths
            if isinstance(module.output, nn.Linear):
                found[module.output.weight] = (module.output.out_features,)
        elif isinstance(module, FeedForward):
            rows = module.widen.out_features
            found[module.widen.weight] = (rows // 2, rows // 2) if module.is_gated else (rows,)
            found[module.narrow.weight] = (module.narrow.out_features,)
    return {matrix: blocks for matrix, blocks in found.items() if matrix.requires_grad}


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
    """AdamW over the groups of `parameter_groups`, or Muon, which takes the matrices of the layers out of them."""
    groups = parameter_groups(model, optim)
    settings = {"lr": optim.lr, "betas": (optim.beta1, optim.beta2), "eps": optim.eps}
    if optim.kind is OptimKind.muon:
        hidden, factor = hidden_matrices(model), (optim.muon_lr or optim.lr) / optim.lr
        parted = []
        for group in groups:
            of_muon = [one for one in group["params"] if one in hidden]
            parted.append({**group, "params": [one for one in group["params"] if one not in hidden]})
            if of_muon:
                parted.append({**group, "params": of_muon, "lr": factor * group["lr"]})
        return Muon(parted, hidden, fused=fused, **settings)
    return torch.optim.AdamW(groups, **settings, fused=fused)


def make_schedule(
    optimizer: torch.optim.Optimizer, optim: OptimConfig, n_steps: int
) -> torch.optim.lr_scheduler.LambdaLR:
    """The schedule as torch wants it: of each group a factor of its peak rate for each optimiser step, zero before it
    thaws."""

    def factor(thaws: float, step: int) -> float:
        return rate_factor(step, n_steps, optim) if step >= thaws * n_steps else 0.0

    factors = [partial(factor, group.get("thaws", 0.0)) for group in optimizer.param_groups]
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
        self._own: list[Tensor] = []
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
        if self._mean:
            self._own = [weight.clone() for weight in _weights(pl_module)]
            _put(self._mean, pl_module)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        _put(self._own, pl_module)
        self._own = []

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._look(trainer, pl_module)
        _put(self._mean, pl_module)


def _weights(module: pl.LightningModule) -> list[Tensor]:
    return [parameter.detach() for parameter in module.parameters()]


def _put(weights: list[Tensor], module: pl.LightningModule) -> None:
    """Nothing, where there are none yet."""
    for own, weight in zip(_weights(module), weights, strict=False):
        own.copy_(weight)
