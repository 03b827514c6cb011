"""The parameters of a network in groups, each with its own rate: low layers of trained weights need the smallest steps.

Layer-wise rates: Howard and Ruder (2018), "Universal Language Model Fine-tuning", section 3.2, there called
discriminative; frozen layers that thaw from the top: section 3.3.
"""

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from manyheads.config import OptimConfig


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a parameter learns: the peak of its rate, and from which share of all steps on."""

    lr: float
    thaws: float = 0.0


def parameter_groups(network: nn.Module, optim: OptimConfig) -> list[dict[str, Any]]:
    """The parameters that learn, by pace; of each pace first the matrices of layers, which decay, then the vectors
    (biases, norms) and embeddings, which do not."""
    tables = {id(module.weight) for module in network.modules() if isinstance(module, nn.Embedding)}
    n_layers, slow = len(_numbers(network)), _slowness(network, optim)
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
    n_layers = len(_numbers(network))
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


def _slowness(network: nn.Module, optim: OptimConfig) -> dict[str, float]:
    """What the rate of a table is divided by, for its vectors to change at that of the layers when they are read."""
    embeddings = getattr(network, "embeddings", None)
    if optim.fast_words or embeddings is None:
        return {}
    return {"embeddings.words.weight": embeddings.scale}


def _numbers(network: nn.Module) -> set[str]:
    """Of the encoder's layers."""
    start = "encoder.layers."
    return {name.split(".")[2] for name, _ in network.named_parameters() if name.startswith(start)}
