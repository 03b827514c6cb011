"""A model that answers texts by texts.

n texts . B texts of a batch . N tokens of a batch's targets . T most tokens of an answer . V words
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F

from manyheads.config import Task
from manyheads.config.model import LENGTH_PENALTY
from manyheads.data.batches import Batch
from manyheads.data.tokenizer import decode, marks
from manyheads.data.tokens import encode
from manyheads.inference.format import Settings
from manyheads.inference.predictor import NONE, Predictor, Workers
from manyheads.nn.seq2seq import Seq2Seq, beam_search, greedy

TOKENS = 8192  # most of a batch
ROWS = 256  # most rows, or beams, of a batch


class Followed(NamedTuple):
    """Of one target, read token by token with all before given: tokens, the mark at the end counted, how many of them
    were the likeliest, and their mean cross-entropy in nats."""

    n_tokens: int
    n_right: int
    loss: float


@dataclass(slots=True)
class Seq2SeqPredictor(Predictor[Seq2Seq]):
    """A model ready to answer by texts."""

    task: ClassVar[Task] = Task.seq2seq
    network: Seq2Seq
    tokenizer: Tokenizer
    settings: Settings
    autocast: torch.dtype | None = None
    workers: Workers | None = field(default=None, repr=False)

    def generate(
        self,
        texts: list[str],
        *,
        n_beams: int = 1,
        length_penalty: float = LENGTH_PENALTY,
        max_length: int = 0,
        tokens: int = TOKENS,
    ) -> list[str]:
        """One answer a text, in order; a text beyond the model's `max_length` is cut.

        Args:
            n_beams: answers followed at a time; 1 takes the likeliest token at every step.
            length_penalty: how much a beam favours long answers (`nn.generate.beam_search`).
            max_length: most tokens of an answer; 0: as many as the model has positions for.
            tokens: most source tokens of a batch. Answers do not depend on it.

        Raises:
            ValueError: `texts` is one text, or `max_length` more than the model has positions for.
        """
        self.check(texts)
        if max_length > self.max_length:
            raise ValueError(
                f"generate.max_length={max_length} is more than the {self.max_length} tokens the model was trained to "
                "write at most: use a smaller one"
            )
        found = self.run(
            encode(self.tokenizer, texts, None, None, self.max_length),
            tokens=max(1, tokens // n_beams),
            rows=max(1, ROWS // n_beams),
            n_beams=n_beams,
            length_penalty=length_penalty,
            max_length=max_length or self.max_length,
        )
        return decode(self.tokenizer, [ids_T[ids_T != NONE].tolist() for ids_T in found.values])

    def follow(self, texts: list[str], targets: list[str], *, tokens: int = TOKENS) -> list[Followed]:
        """How well the model tells each next token of the targets; one beyond `max_length` is cut."""
        encoded = encode(self.tokenizer, texts, None, None, self.max_length)
        encoded.targets = encode(self.tokenizer, targets, None, None, self.max_length)
        followed_n3 = self.run(encoded, tokens=tokens, rows=ROWS).values
        return [Followed(int(n), int(n_right), loss) for n, n_right, loss in followed_n3.tolist()]

    @property
    def marks(self) -> tuple[int, int]:
        """Ids of the tokens with which a target starts and ends."""
        found = marks(self.tokenizer)
        assert found is not None, "load checks them"
        return found

    def answer(self, batch: Batch, **asked: Any) -> Tensor:
        """How the targets were followed `(B, 3)`; where there are none, the tokens of the answers, `(B, T)`."""
        return self._generate(batch, **asked) if batch.targets is None else self._follow(batch, batch.targets)

    def _generate(self, batch: Batch, n_beams: int, length_penalty: float, max_length: int) -> Tensor:
        start, end = self.marks
        limits = {"start": start, "end": end, "max_length": max_length}
        if n_beams == 1:
            answers = greedy(self.network, batch.ids_N, batch.layout, **limits)
        else:
            search = {"n_beams": n_beams, "length_penalty": length_penalty}
            answers = beam_search(self.network, batch.ids_N, batch.layout, **limits, **search)
        ids_BT = torch.full((len(answers), max(map(len, answers), default=0)), NONE)
        for row, ids in enumerate(answers):
            ids_BT[row, : len(ids)] = torch.tensor(ids, dtype=torch.int64)
        return ids_BT

    def _follow(self, batch: Batch, targets: Batch) -> Tensor:
        logits_NV = self.network(batch.ids_N, batch.layout, targets.ids_N, targets.layout).float()
        losses_N = F.cross_entropy(logits_NV[:-1], targets.ids_N[1:], reduction="none").tolist()
        right_N = (logits_NV[:-1].argmax(-1) == targets.ids_N[1:]).tolist()
        followed = [
            Followed(b - a - 1, sum(right_N[a : b - 1]), sum(losses_N[a : b - 1]) / (b - a - 1))
            for a, b in pairwise(targets.layout.offsets.tolist())
        ]
        return torch.tensor(followed, dtype=torch.float64)
