"""Time and memory of a piece of work, measured so that pieces can be compared."""

import platform
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Work = Callable[[], object]


def median_seconds(works: Mapping[str, Work], repeats: int) -> dict[str, float]:
    """Median seconds of each work on one core. They take turns, so that a slow moment falls on all alike.

    What is counted is the processor's time, which other programs on the machine do not take from us.
    """
    seconds: dict[str, list[float]] = {name: [] for name in works}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for turn in range(repeats + 1):
            for name, work in works.items():
                started = process_time()
                work()
                if turn:  # the first warms up
                    seconds[name].append(process_time() - started)
    finally:
        torch.set_num_threads(threads)
    return {name: median(taken) for name, taken in seconds.items()}


def peak_bytes(work: Work) -> int:
    """Most bytes of tensors that `work` makes and holds at one time; scratch inside a kernel is not seen."""
    with _Allocations() as seen:
        work()
    return seen.peak


def processor() -> str:
    """What the figures were timed on, as the machine names it."""
    listing = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*: (.+)", listing.read_text()) if listing.exists() else None
    return named[1] if named else platform.processor() or platform.machine()


class _Allocations(TorchDispatchMode):
    """Follows every storage that an operation returns until it is freed, backward passes included."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {one.untyped_storage()._cdata for one in _tensors((args, kwargs))}
        returned = func(*args, **(kwargs or {}))
        self.live = {key: held for key, held in self.live.items() if not held[0].expired()}
        for one in _tensors(returned):
            storage = one.untyped_storage()
            if storage._cdata not in given and storage._cdata not in self.live:
                self.live[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.peak = max(self.peak, sum(size for _, size in self.live.values()))
        return returned


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [one for one in tree_leaves(tree) if isinstance(one, torch.Tensor)]
