"""Bytes from one process to others: sent as tensors, never as pickles. Where there is no group, there is but one."""

import torch
from torch import Tensor
from torch import distributed as dist


def gathered(content: bytes, group: dist.ProcessGroup | None) -> list[bytes]:
    """What each rank gives, in their order, on rank 0; elsewhere nothing. All ranks call it."""
    if group is None:
        return [content]
    size = torch.tensor([len(content)])
    sizes = [torch.empty_like(size) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, size, group=group)
    sent = torch.zeros(int(max(sizes)), dtype=torch.uint8)
    sent[: len(content)] = _tensor(content)
    everyones = [torch.empty_like(sent) for _ in sizes] if dist.get_rank(group) == 0 else []
    dist.gather(sent, everyones or None, group=group, group_dst=0)
    return [one[: int(n)].numpy().tobytes() for one, n in zip(everyones, sizes, strict=False)]


def from_first(content: bytes, group: dist.ProcessGroup | None) -> bytes:
    """What rank 0 gives, on every rank, which waits for it. All ranks call it."""
    if group is None:
        return content
    size = torch.tensor([len(content)])
    dist.broadcast(size, group=group, group_src=0)
    sent = _tensor(content) if dist.get_rank(group) == 0 else torch.empty(int(size), dtype=torch.uint8)
    dist.broadcast(sent, group=group, group_src=0)
    return sent.numpy().tobytes()


def _tensor(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)
