"""Rows of evaluate and predict dealt among processes, answers gathered.

What a model offers where several processes answer together, and what it is offered: see inference/sharing.py.

One finished model in several processes: the first is the program, the others compute some of its batches.

What is read, written and said is the first one's alone, as if it were one process. It hands on the tokens of some
rows; each process computes, of the batches that one would compute alone, those dealt to it; and the first joins what
was found by the numbers of the rows. All of it travels by gloo, as safetensors, also where models are on GPUs.
"""

import atexit
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor

from manyheads.data.batches import Planned
from manyheads.data.tokens import Tokens, Windows
from manyheads.distributed.heartbeat import Lost
from manyheads.distributed.ranks import Ranks, meeting_place

Part = tuple[int, int]  # (1, 3) is the second of three: each third batch, beginning with the second
WHOLE: Part = (0, 1)


def dealt(plan: Sequence[Planned], part: Part) -> Sequence[Planned]:
    """The batches of a part. Neighbours are of like length, so parts are of like size."""
    return plan[part[0] :: part[1]]


class Answers(Protocol):
    """A model that can answer a part of the batches that it would compute alone."""

    def found(self, encoded: Tokens, asked: dict[str, Any], part: Part = WHOLE) -> dict[str, Tensor]:
        """What it finds for the rows of that part: `rows`, their numbers `(m,)` in any order, and tensors that belong
        to them, in their order. `asked` are numbers by name."""
        ...


class Crew(Protocol):
    """Processes that hold the same model."""

    def found(self, model: Answers, encoded: Tokens, asked: dict[str, Any]) -> dict[str, Tensor]:
        """What all of them together find for all rows, each of which is in `rows` once."""
        ...


FOREVER = timedelta(days=3650)  # how long the others wait for the first, whose input may be somebody who types


@contextmanager
def joined(ranks: Ranks, timeout: float) -> Iterator["Shares"]:
    """This process among the others while the block lasts; leaving it, the first lets the others go.

    Args:
        timeout: seconds in which all must have come, and within which their shares of some rows must be done.

    Raises:
        Lost: a process ended, or is late.
    """
    seconds = timedelta(seconds=timeout)
    with _heard(timeout):
        if not dist.is_initialized():
            place = "tcp://{}:{}".format(*meeting_place())
            dist.init_process_group("gloo", place, seconds, world_size=ranks.n_ranks, rank=ranks.rank)
            atexit.register(_left)
        asking, answering = (dist.new_group(timeout=one, backend="gloo") for one in (FOREVER, seconds))
    shares = Shares(ranks, timeout, asking, answering)
    try:
        yield shares
    finally:
        if ranks.is_first and not shares.busy:
            shares.hand_on(b"")
        dist.destroy_process_group(shares.asking)
        dist.destroy_process_group(shares.answering)
        shares.asking = shares.answering = None


def _left() -> None:
    """Close the connections of all groups: at the end of a process their threads would abort it."""
    if dist.is_initialized():
        dist.destroy_process_group()


@dataclass(slots=True)
class Shares:
    """The processes, over two groups: `asking`, in which the others wait for the first, and `answering`. `busy` is the
    first from handing something on until all have answered."""

    ranks: Ranks
    timeout: float
    asking: Any
    answering: Any
    busy: bool = False

    def found(self, model: Answers, encoded: Tokens, asked: dict[str, Any]) -> dict[str, Tensor]:
        """What all find of all rows, each of which is in `rows` once; said by the first process.

        Raises:
            Lost: a process ended, or is late.
        """
        self.busy = True
        words = torch.frombuffer(bytearray(json.dumps(asked).encode()), dtype=torch.uint8)
        self.hand_on(save({**_named(encoded), "asked": words}))
        parts = self.gathered(save(model.found(encoded, asked, self.part)))
        self.busy = False
        found = [load(one) for one in parts]
        joint = {name: torch.cat([one[name] for one in found]) for name in found[0]}
        assert torch.equal(joint["rows"].sort().values, torch.arange(len(encoded))), "every row is answered once"
        return joint

    def help(self, opened: Callable[[], Answers]) -> None:
        """Answer this process's part of all that the first hands on, until it has no more.

        A mistake that `opened` finds is left to the first to say: it opens the same.
        """
        model, mistake = None, None
        try:
            model = opened()
        except ValueError as error:
            mistake = error
        while message := self.hand_on():
            if model is None:
                raise ValueError(str(mistake)) from mistake
            sent = load(message)
            asked = json.loads(sent["asked"].numpy().tobytes())
            self.gathered(save(model.found(_tokens(sent), asked, self.part)))

    @property
    def part(self) -> tuple[int, int]:
        return self.ranks.rank, self.ranks.n_ranks

    def hand_on(self, message: bytes = b"") -> bytes:
        """What the first process hands on, which gives its `message`; nothing: it has no more."""
        with _heard(self.timeout):
            size = torch.tensor(len(message))
            dist.broadcast(size, 0, group=self.asking)
            content = torch.frombuffer(bytearray(message or bytes(int(size))), dtype=torch.uint8) if size else None
            if content is not None:
                dist.broadcast(content, 0, group=self.asking)
        return message if content is None or self.ranks.is_first else content.numpy().tobytes()

    def gathered(self, message: bytes) -> list[bytes]:
        """The messages of all, by rank; said by the first process."""
        first, own = self.ranks.is_first, torch.frombuffer(bytearray(message), dtype=torch.uint8)
        with _heard(self.timeout):
            sizes = [torch.zeros((), dtype=torch.int64) for _ in range(self.ranks.n_ranks)]
            dist.all_gather(sizes, torch.tensor(len(message)), group=self.answering)
            padded = torch.zeros(max(map(int, sizes)), dtype=torch.uint8)
            padded[: len(own)] = own
            into = [torch.empty_like(padded) for _ in sizes] if first else None
            dist.gather(padded, into, 0, group=self.answering)
        return [one[: int(size)].numpy().tobytes() for one, size in zip(into or [], sizes, strict=first)]


@contextmanager
def _heard(timeout: float) -> Iterator[None]:
    """Say what a lost connection means, in one sentence.

    Raises:
        Lost: a process ended, or is late.
    """
    try:
        yield
    except RuntimeError as lost:
        why = (
            f"another process of this command has ended, or gave no answer for hardware.timeout={timeout:g} seconds: "
            "see what it said, or use hardware.devices=1"
        )
        print(why, file=sys.stderr, flush=True)
        raise Lost(why) from lost


def _named(encoded: Tokens, prefix: str = "") -> dict[str, Tensor]:
    """The parts that a model reads, by name."""
    parts = {f"{prefix}ids": encoded.ids_N, f"{prefix}offsets": encoded.offsets}
    if encoded.segments_N is not None:
        parts[f"{prefix}segments"] = encoded.segments_N
    if encoded.windows is not None:
        parts |= {f"{prefix}bounds": encoded.windows.bounds, f"{prefix}firsts": encoded.windows.firsts}
    return parts if encoded.targets is None else parts | _named(encoded.targets, "target_")


def _tokens(named: dict[str, Tensor], prefix: str = "") -> Tokens:
    """The inverse of `_named`; labels are 0."""
    offsets = named[f"{prefix}offsets"]
    targets = _tokens(named, "target_") if not prefix and "target_ids" in named else None
    labels = torch.zeros(len(offsets) - 1, dtype=torch.int64)
    windows = Windows(named["bounds"], named["firsts"]) if not prefix and "bounds" in named else None
    ids, segments = named[f"{prefix}ids"], named.get(f"{prefix}segments")
    return Tokens(ids, offsets, segments, labels, targets=targets, windows=windows)
