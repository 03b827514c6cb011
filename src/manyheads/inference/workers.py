"""Several processes that hold the same model and compute its batches together.

The first of them is the program: what is read, written and said is its own, as if it were alone. It hands rows on by
`Workers.run`, and each process computes some of their batches. Everything between processes travels by gloo, as
safetensors, also where the models are on GPUs.
"""

import atexit
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor

from manyheads.data.tokens import Tokens, Windows
from manyheads.distributed.collectives import destroy_groups, from_first, gathered
from manyheads.distributed.heartbeat import PeerLost
from manyheads.distributed.ranks import Ranks, rendezvous
from manyheads.errors import UserError
from manyheads.inference.batching import RowValues, Share, joined

FOREVER = timedelta(days=3650)  # how long the others wait for the first, whose input may be somebody who types


@contextmanager
def work_together(ranks: Ranks, timeout: float) -> Iterator["Workers"]:
    """This process among the others while the block lasts; leaving it, the first lets the others go. `PeerLost` is
    raised where one ended, or has not come, or not done its part of some rows, within `timeout` seconds."""
    seconds = timedelta(seconds=timeout)
    with _heard(timeout):
        if not dist.is_initialized():
            place = "tcp://{}:{}".format(*rendezvous())
            dist.init_process_group("gloo", place, seconds, world_size=ranks.n_ranks, rank=ranks.rank)
            atexit.register(destroy_groups)
        asking, answering = (dist.new_group(timeout=one, backend="gloo") for one in (FOREVER, seconds))
    workers = Workers(ranks, timeout, asking, answering)
    try:
        yield workers
    finally:
        if ranks.is_first and not workers.busy:
            workers.broadcast(b"")
        dist.destroy_process_group(workers.asking)
        dist.destroy_process_group(workers.answering)
        workers.asking = workers.answering = None


@dataclass(slots=True)
class Workers:
    """Processes that hold the same model, over two groups: `asking`, in which the others wait for the first, and
    `answering`. `busy` is the first from handing something on until all have answered."""

    ranks: Ranks
    timeout: float
    asking: Any
    answering: Any
    busy: bool = False

    def run(self, predictor: Any, encoded: Tokens, asked: dict[str, Any]) -> RowValues:
        """What all processes find for all rows, in order; called by the first."""
        self.busy = True
        question = torch.frombuffer(bytearray(json.dumps(asked).encode()), dtype=torch.uint8)
        self.broadcast(save({**to_tensors(encoded), "question": question}))
        own = predictor.run(encoded, self.part, **asked)
        parts = [RowValues(**load(one)) for one in self.gather(save(own._asdict()))]
        self.busy = False
        found = joined([one for one in parts if len(one.rows_m)])
        assert torch.equal(found.rows_m, torch.arange(len(encoded))), "every row is answered once"
        return found

    def serve_requests(self, opened: Callable[[], Any]) -> None:
        """Compute this process's part of every request of the first, until it has no more. A mistake that `opened`
        finds is left to the first to say: it opens the same."""
        try:
            predictor = opened()
        except UserError as error:
            predictor = error
        while message := self.broadcast():
            if isinstance(predictor, UserError):
                raise predictor
            sent = load(message)
            asked = json.loads(sent["question"].numpy().tobytes())
            self.gather(save(predictor.run(to_tokens(sent), self.part, **asked)._asdict()))

    @property
    def part(self) -> Share:
        return self.ranks.rank, self.ranks.n_ranks

    def broadcast(self, message: bytes = b"") -> bytes:
        """The `message` of the first process, in all of them; empty: it has no more."""
        with _heard(self.timeout):
            return from_first(message, self.asking)

    def gather(self, message: bytes) -> list[bytes]:
        """The messages of all, by rank, in the first process; empty in the others."""
        with _heard(self.timeout):
            return gathered(message, self.answering)


@contextmanager
def _heard(timeout: float) -> Iterator[None]:
    """Say in one sentence what a lost connection means, and raise `PeerLost`."""
    try:
        yield
    except RuntimeError as lost:
        why = (
            f"another process of this command has ended, or gave no answer for hardware.timeout={timeout:g} seconds: "
            "see what it said, or use hardware.devices=1"
        )
        print(why, file=sys.stderr, flush=True)
        raise PeerLost(why) from lost


def to_tensors(encoded: Tokens, prefix: str = "") -> dict[str, Tensor]:
    """What a model reads of the tokens, by name."""
    parts = {"ids": encoded.ids_N, "offsets": encoded.offsets, "segments": encoded.segments_N}
    parts |= encoded.windows._asdict() if encoded.windows else {}
    found = {f"{prefix}{name}": tensor for name, tensor in parts.items() if tensor is not None}
    return found if encoded.targets is None else found | to_tensors(encoded.targets, "target_")


def to_tokens(tensors: dict[str, Tensor], prefix: str = "") -> Tokens:
    """The inverse of `to_tensors`; labels are 0."""
    offsets = tensors[f"{prefix}offsets"]
    targets = to_tokens(tensors, "target_") if not prefix and "target_ids" in tensors else None
    labels = torch.zeros(len(offsets) - 1, dtype=torch.int64)
    windows = Windows(tensors["bounds"], tensors["firsts"]) if not prefix and "bounds" in tensors else None
    ids, segments = tensors[f"{prefix}ids"], tensors.get(f"{prefix}segments")
    return Tokens(ids, offsets, segments, labels, targets=targets, windows=windows)
