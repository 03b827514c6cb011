"""Tensors of which each rank holds a part: their parts, and how they become whole again and are parted anew.

A plain tensor passes through all of it unchanged, so whoever saves, clips or averages need not ask how a run is spread.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.tensor import DTensor, distribute_tensor


def is_in_parts(tensor: Tensor) -> bool:
    return isinstance(tensor, DTensor)


def part(tensor: Tensor) -> Tensor:
    """What this rank holds of `tensor`, which may be nothing; what is done to it is done to the tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(nest: Any) -> Any:
    """Dicts, lists and tuples with whole tensors in place of parts, on every rank. All ranks call it at once."""
    if isinstance(nest, DTensor):
        return nest.full_tensor()
    if isinstance(nest, dict):
        return {key: whole(value) for key, value in nest.items()}
    if isinstance(nest, list | tuple):
        return type(nest)(whole(value) for value in nest)
    return nest


def parted(tensor: Tensor, like: Tensor) -> Tensor:
    """A whole tensor, which each rank has, held as `like` is: where that is in parts, and of the same shape, in parts.

    No rank waits for another.
    """
    if not isinstance(like, DTensor) or tensor.shape != like.shape:
        return tensor
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def put_weights(module: nn.Module, weights: dict[str, Tensor]) -> None:
    """Load whole weights into a module that may hold its own in parts."""
    own = module.state_dict()
    module.load_state_dict({name: parted(value, own.get(name, value)) for name, value in weights.items()})


def put_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load the whole state of an optimiser whose parameters may be in parts."""
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    moments = {
        number: {name: parted(value, parameters[number]) if isinstance(value, Tensor) else value for name, value in its}
        for number, its in ((number, its.items()) for number, its in state["state"].items())
    }
    optimizer.load_state_dict({**state, "state": moments})


def total_norm(gradients: Iterable[Tensor], *, in_parts: bool) -> Tensor:
    """The norm of all gradients together, the same on every rank; of those in parts each rank gives its own `part`."""
    norm = nn.utils.get_total_norm(gradients)
    if not in_parts:
        return norm
    everyones = [torch.empty_like(norm) for _ in range(dist.get_world_size())]
    dist.all_gather(everyones, norm)
    return torch.linalg.vector_norm(torch.stack(everyones))
