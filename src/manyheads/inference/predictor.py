"""What all finished models share: one base, one loop over batches, and one way to deal batches among processes.

Predictors, such as `TextClassifier`, differ in what they make of one batch. `run_batches` plans
the batches, moves them to the device, multiplies in the type asked for and collects the results. With `Workers` the
first of several processes is the program, and the others compute some of its batches: what is read, written and said is
the first one's alone, as if it were one process. Everything between processes travels by gloo, as safetensors, also
where the models are on GPUs.

n rows . m rows of a part . B rows of a batch
"""

import atexit
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import torch
import torch.distributed as dist
from safetensors.torch import load, save
from tokenizers import Tokenizer
from torch import Tensor, nn

from manyheads.config import ModelConfig, PredictConfig
from manyheads.data.batches import ANSWER_ROWS, ANSWER_TOKENS, Batch, Batches, laid_out, plan_evaluation
from manyheads.data.rows import is_blank
from manyheads.data.tokens import Tokens, Windows
from manyheads.distributed.collectives import from_first, gathered, leave
from manyheads.distributed.heartbeat import Lost
from manyheads.distributed.ranks import Ranks, meeting_place
from manyheads.inference.format import ModelFolder, Settings
from manyheads.inference.precision import multiplying_in
from manyheads.nn import Classifier

Part = tuple[int, int]  # (1, 3) is the second of three: every third batch, beginning with the second
WHOLE: Part = (0, 1)
CPU = torch.device("cpu")
NONE = -1  # pads what is found for the rows of one batch to the widest of all
FOREVER = timedelta(days=3650)  # how long the others wait for the first, whose input may be somebody who types

Network = TypeVar("Network", bound=nn.Module)


class Found(NamedTuple):
    """The numbers of some rows `(m,)`, and what was found for them `(m, ...)`, on the CPU."""

    rows_m: Tensor
    values: Tensor


def run_batches(
    answer: Callable[[Batch], Tensor],
    encoded: Tokens,
    *,
    device: torch.device = CPU,
    autocast: torch.dtype | None = None,
    tokens: int = ANSWER_TOKENS,
    rows: int = ANSWER_ROWS,
    part: Part = WHOLE,
    among: Tensor | None = None,
) -> Found:
    """What `answer` finds `(B, ...)` for the batches of `part`, in the order of the rows; batches are the same whatever
    the part.

    Args:
        autocast: the type that matrices are multiplied in; None is fp32.
        tokens, rows: most of a batch. Rows of similar length travel together.
        among: numbers of the rows that are answered; None: all.
    """
    if len(encoded) == 1 and encoded.targets is None:
        # nothing is planned or copied, which would take a tenth of the time of a short text
        segments_N = None if encoded.segments_N is None else encoded.segments_N.long()
        row_1 = torch.zeros(1, dtype=torch.int64)
        _, layout = laid_out(encoded, row_1)
        batches = [Batch(encoded.ids_N.long(), segments_N, layout, encoded.labels, row_1, 1.0)][part[0] :]
    else:
        plan = plan_evaluation(encoded.lengths if among is None else encoded.lengths[among], tokens=tokens, rows=rows)
        plan = plan if among is None else [one._replace(rows=among[one.rows]) for one in plan]
        batches = Batches(encoded, plan[part[0] :: part[1]])  # neighbours are of like length, so parts are of like size
    found: list[Found] = []
    with torch.inference_mode(), multiplying_in(autocast, device):
        for batch in batches:
            moved = batch if device.type == "cpu" else batch.to(device)
            found.append(Found(batch.rows_B, answer(moved).cpu()))
    if len(encoded) == 1 and found:
        return Found(found[0].rows_m, found[0].values.clone())  # a copy is no tensor of inference mode
    return joined(found)


def joined(parts: list[Found]) -> Found:
    """All rows of all parts, in order; where some found more for a row than others, these are padded by `NONE`."""
    if not parts:
        return Found(torch.empty(0, dtype=torch.int64), torch.empty(0))
    widths = [one.values.size(1) for one in parts if one.values.ndim > 1]
    values, rows_m = [one.values for one in parts], torch.cat([one.rows_m for one in parts])
    for at, width in enumerate(widths):
        missing = values[at].new_full((len(values[at]), max(widths) - width, *values[at].shape[2:]), NONE)
        values[at] = torch.cat([values[at], missing], dim=1)
    order_m = rows_m.argsort()
    return Found(rows_m[order_m], torch.cat(values)[order_m])


def network_logits(classifier: Classifier, encoded: Tokens) -> Tensor:
    """Logits `(n, C)` of the rows, in fp32 on the CPU, of a classifier that lies in no folder yet."""
    return run_batches(lambda batch: classifier(batch.ids_N, batch.layout, batch.segments_N).float(), encoded).values


class Shape(NamedTuple):
    """Of a network, in words: `a Transformer encoder of 1,000 parameters: 2 layers, ..., learned positions`."""

    kind: str
    size: str
    layers: str
    positions: str


class About(NamedTuple):
    """Of a model card: its title, what the model is, and in the lines of Python a `name` for it and its `call`."""

    title: str
    what: str
    name: str
    call: str


@dataclass(slots=True)
class Predictor(ABC, Generic[Network]):
    """A finished model, opened from its folder.

    `settings` is its config.json. `autocast` is the type that the network multiplies in; None is fp32. `workers` are
    processes that hold the same model and compute some of its batches.
    """

    task: ClassVar[str]
    added: ClassVar[str] = ""  # what `answered` adds to a row
    network: Network
    tokenizer: Tokenizer
    settings: Settings
    autocast: torch.dtype | None = field(default=None, kw_only=True)
    workers: "Workers | None" = field(default=None, kw_only=True, repr=False)

    @classmethod
    @abstractmethod
    def opened(cls, folder: ModelFolder, network: Network, tokenizer: Tokenizer) -> Self:
        """The model of a folder. A ValueError where a file in it is missing, broken or does not fit."""

    @classmethod
    @abstractmethod
    def about(cls, settings: Settings, shape: "Shape", labels: Sequence[str], tokenizer: Tokenizer | None) -> "About":
        """What the card of such a model says."""

    def answered(self, texts: list[str], pairs: list[str] | None, config: PredictConfig) -> list[dict[str, Any]]:
        """What `manyheads predict` adds to the row of each text, under the name `added`."""
        raise NotImplementedError(f"{type(self).__name__} is asked by other methods")

    @abstractmethod
    def answer(self, batch: Batch, **asked: Any) -> Tensor:
        """What it finds for each row of a batch `(B, ...)`, by the numbers that are `asked`. Batches do not matter to
        it, but for how wide the widest of their rows is."""

    @property
    def model(self) -> ModelConfig:
        """The architecture."""
        return self.settings.model

    @property
    def max_length(self) -> int:
        """Most tokens of a text that the network reads at once."""
        return self.settings.max_length

    @property
    def pairs(self) -> bool:
        """Whether a row is a pair of texts."""
        return self.settings.pairs

    def on(self, device: torch.device | str, autocast: torch.dtype | None = None) -> Self:
        """The same model, moved to `device`, to multiply in `autocast`."""
        return replace(self, network=self.network.to(device), autocast=autocast)

    def run(
        self,
        encoded: Tokens,
        part: Part = WHOLE,
        *,
        tokens: int = ANSWER_TOKENS,
        rows: int = ANSWER_ROWS,
        **asked: Any,
    ) -> Found:
        """What is found for every row, in order, by all processes together; for the rows of a `part` by this one.

        Args:
            tokens, rows: as of `run_batches`.
            asked: numbers that `answer` is given.
        """
        if self.workers is not None and part == WHOLE:
            return self.workers.run(self, encoded, {"tokens": tokens, "rows": rows, **asked})
        where = {"device": next(self.network.parameters()).device, "autocast": self.autocast}
        return run_batches(partial(self.answer, **asked), encoded, **where, tokens=tokens, rows=rows, part=part)

    def check(self, texts: list[str], pairs: list[str] | None = None, *, filled: bool = False) -> None:
        """Raise ValueError for a single text, a text that is no str, pairs for a model of single texts, none for one of
        pairs, or not one pair for each text. `filled`: for an empty text, too, which has logits but no answer."""
        if isinstance(texts, str) or isinstance(pairs, str):
            raise ValueError("texts is a single str, but a list of texts is needed: put it in brackets")
        for name, given in (("texts", texts), ("pairs", [] if pairs is None else pairs)):
            for at, one in enumerate(given):
                if not isinstance(one, str):
                    rule = "but each text is a str: leave it out, or convert it"
                    raise ValueError(f"{name}[{at}] is of type {type(one).__name__}, {rule}")
                if filled and is_blank(one):
                    raise ValueError(f"{name}[{at}] is empty, and an empty text has no answer: leave it out")
        if (pairs is not None) != self.settings.pairs:
            single, missing = "single texts, but pairs are given", "pairs of texts, but second texts are missing"
            raise ValueError(f"the model was trained on {missing if self.pairs else single}")
        if pairs is not None and len(pairs) != len(texts):
            raise ValueError(f"there are {len(texts)} texts but {len(pairs)} second texts: give one for each text")


@contextmanager
def work_together(ranks: Ranks, timeout: float) -> Iterator["Workers"]:
    """This process among the others while the block lasts; leaving it, the first lets the others go. `Lost` is raised
    where one ended, or has not come, or not done its part of some rows, within `timeout` seconds."""
    seconds = timedelta(seconds=timeout)
    with _heard(timeout):
        if not dist.is_initialized():
            place = "tcp://{}:{}".format(*meeting_place())
            dist.init_process_group("gloo", place, seconds, world_size=ranks.n_ranks, rank=ranks.rank)
            atexit.register(leave)
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

    def run(self, predictor: Predictor[Any], encoded: Tokens, asked: dict[str, Any]) -> Found:
        """What all processes find for all rows, in order; called by the first."""
        self.busy = True
        question = torch.frombuffer(bytearray(json.dumps(asked).encode()), dtype=torch.uint8)
        self.broadcast(save({**to_tensors(encoded), "question": question}))
        own = predictor.run(encoded, self.part, **asked)
        parts = [Found(**load(one)) for one in self.gather(save(own._asdict()))]
        self.busy = False
        found = joined([one for one in parts if len(one.rows_m)])
        assert torch.equal(found.rows_m, torch.arange(len(encoded))), "every row is answered once"
        return found

    def help(self, opened: Callable[[], Predictor[Any]]) -> None:
        """Answer this process's part of all that the first hands on, until it has no more. A mistake that `opened`
        finds is left to the first to say: it opens the same."""
        try:
            predictor = opened()
        except ValueError as error:
            predictor = error
        while message := self.broadcast():
            if isinstance(predictor, ValueError):
                raise predictor
            sent = load(message)
            asked = json.loads(sent["question"].numpy().tobytes())
            self.gather(save(predictor.run(to_tokens(sent), self.part, **asked)._asdict()))

    @property
    def part(self) -> Part:
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
    """Say in one sentence what a lost connection means, and raise `Lost`."""
    try:
        yield
    except RuntimeError as lost:
        why = (
            f"another process of this command has ended, or gave no answer for hardware.timeout={timeout:g} seconds: "
            "see what it said, or use hardware.devices=1"
        )
        print(why, file=sys.stderr, flush=True)
        raise Lost(why) from lost


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
