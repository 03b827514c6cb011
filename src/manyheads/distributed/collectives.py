"""Messages between the processes of a run, and their joint decisions.

Bytes go as tensors, never as pickles. Where there is no group, there is one process.

A decision that one rank took alone, to stop or to save, would leave the others waiting for it in the next step. So
between two optimiser steps each rank casts its votes, a few whole numbers, and reads the result of those cast a step
before: their largest, the same on every rank. By then all have arrived, since a step ends only when all ranks have
given their gradients. The numbers go by gloo from memory to memory, so no GPU is waited for.
"""

from collections.abc import Mapping
from datetime import timedelta

import torch
from torch import Tensor
from torch import distributed as dist

TOPICS: tuple[str, ...] = (
    "signal",  # the number of a signal that came
    "late",  # 1 where the time limit is reached
    "save",  # 1 where a checkpoint is due by the clock of rank 0
)


def destroy_groups() -> None:
    """Close the connections of all groups, whose threads might otherwise abort the process when it ends."""
    if dist.is_initialized():
        dist.destroy_process_group()


def gathered(content: bytes, group: dist.ProcessGroup | None) -> list[bytes]:
    """The content of each rank, by rank, on rank 0; empty elsewhere. All ranks call it."""
    if group is None:
        return [content]
    size = torch.tensor([len(content)])
    sizes = [torch.empty_like(size) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, size, group=group)
    sent = torch.zeros(int(max(sizes)), dtype=torch.uint8)
    sent[: len(content)] = _tensor(content)
    if dist.get_rank(group) > 0:
        dist.gather(sent, None, group=group, group_dst=0)
        return []
    received = [torch.empty_like(sent) for _ in sizes]  # all as long as the longest
    dist.gather(sent, received, group=group, group_dst=0)
    return [tensor[: int(n_bytes)].numpy().tobytes() for tensor, n_bytes in zip(received, sizes, strict=True)]


def from_first(content: bytes, group: dist.ProcessGroup | None) -> bytes:
    """The content of rank 0, on every rank, which waits for it. All ranks call it."""
    if group is None:
        return content
    size = torch.tensor([len(content)])
    dist.broadcast(size, group=group, group_src=0)
    sent = torch.empty(int(size), dtype=torch.uint8)
    if dist.get_rank(group) == 0:
        sent = _tensor(content)
    dist.broadcast(sent, group=group, group_src=0)
    return sent.numpy().tobytes()


def _tensor(content: bytes) -> Tensor:
    if not content:  # which frombuffer refuses
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


class Votes:
    """The largest number that any rank has put for each topic, read one step later; in a single process at once.

    Args:
        timeout: seconds after which a rank stops waiting for the others.

    Attributes:
        group: made by `join`, for other messages of the ranks, too; None in a single process.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.group: dist.ProcessGroup | None = None
        self._mine = dict.fromkeys(TOPICS, 0)
        self._under_way: tuple[dist.Work, Tensor] | None = None

    def join(self, n_ranks: int) -> None:
        """Make the group of all ranks, each of which calls this, once the process group is there."""
        if n_ranks > 1:
            group = dist.new_group(backend="gloo", timeout=timedelta(seconds=self.timeout))
            assert isinstance(group, dist.ProcessGroup)
            self.group = group

    def put(self, mine: Mapping[str, int]) -> None:
        """Add these numbers, by topic, to the votes that are cast next."""
        for topic, number in mine.items():
            self._mine[topic] = max(self._mine[topic], number)

    def cast(self) -> dict[str, int]:
        """Cast the votes; returns the outcome of those cast before."""
        mine, self._mine = self._mine, dict.fromkeys(TOPICS, 0)
        if self.group is None:
            return mine
        outcome = self._counted()
        numbers = torch.tensor([mine[topic] for topic in TOPICS])
        work = dist.all_reduce(numbers, dist.ReduceOp.MAX, group=self.group, async_op=True)
        assert work is not None
        self._under_way = work, numbers
        return outcome

    def settle(self) -> dict[str, int]:
        """Cast the votes and wait for their outcome, and that of the votes before: used where no step follows."""
        before = self.cast()
        after = self._counted()
        return {topic: max(before[topic], after[topic]) for topic in TOPICS}

    def _counted(self) -> dict[str, int]:
        if self._under_way is None:
            return dict.fromkeys(TOPICS, 0)
        work, numbers = self._under_way
        work.wait()
        self._under_way = None
        return dict(zip(TOPICS, numbers.tolist(), strict=True))
