"""A model that answers texts by texts, as a folder: the same files as a classifier's, labels.json an empty list.

n texts . m of them . N tokens of a batch's targets . B texts of a batch
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F

from manyheads.config import DataConfig, ModelConfig, Task
from manyheads.config.model import LENGTH_PENALTY
from manyheads.data.batches import Batch, Batches, plan_evaluation
from manyheads.data.tokenizer import decode, marks
from manyheads.data.tokens import Tokens, encode
from manyheads.inference.classifier import read_tokenizer
from manyheads.inference.format import Columns, opened
from manyheads.inference.save import read_seq2seq, save_without_classes
from manyheads.inference.sharing import WHOLE, Crew, Part, dealt
from manyheads.nn.seq2seq import Seq2Seq, beam_search, greedy

Found = TypeVar("Found")
ROWS = 256  # most rows, or beams, of a batch; tokens bound it too


class Followed(NamedTuple):
    """Of one target, read token by token with all before given: tokens, the mark at the end counted, how many of them
    were the likeliest, and their mean cross-entropy in nats."""

    n_tokens: int
    n_right: int
    loss: float


@dataclass(slots=True)
class Translator:
    """A model ready to answer. `autocast` is the type it multiplies in; None is fp32."""

    seq2seq: Seq2Seq
    tokenizer: Tokenizer
    model: ModelConfig
    max_length: int
    columns: Columns
    autocast: torch.dtype | None = None
    crew: Crew | None = field(default=None, repr=False)  # processes that answer together with this one
    pairs: ClassVar[bool] = False

    def on(self, device: torch.device | str, autocast: torch.dtype | None = None) -> "Translator":
        """The same model, moved to `device`."""
        return replace(self, seq2seq=self.seq2seq.to(device), autocast=autocast)

    def generate(
        self,
        texts: list[str],
        *,
        n_beams: int = 1,
        length_penalty: float = LENGTH_PENALTY,
        max_length: int = 0,
        tokens: int = 8192,
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
        if isinstance(texts, str):
            raise ValueError("texts is a single str, but a list of texts is needed: put it in brackets")
        if max_length > self.max_length:
            raise ValueError(
                f"generate.max_length={max_length} is more than the {self.max_length} tokens the model was trained to "
                "write at most: use a smaller one"
            )
        asked = {"n_beams": n_beams, "length_penalty": length_penalty, "max_length": max_length or self.max_length}
        found = self._asked(encode(self.tokenizer, texts, None, None, self.max_length), asked | {"tokens": tokens})
        answers = found["ids"].split(found["lengths"].tolist())
        by_row = dict(zip(found["rows"].tolist(), answers, strict=True))
        return decode(self.tokenizer, [by_row[row].tolist() for row in range(len(texts))])

    def follow(self, texts: list[str], targets: list[str], *, tokens: int = 8192) -> list[Followed]:
        """How well the model tells each next token of the targets; one beyond `max_length` is cut."""
        encoded = encode(self.tokenizer, texts, None, None, self.max_length)
        encoded.targets = encode(self.tokenizer, targets, None, None, self.max_length)
        found = self._asked(encoded, {"tokens": tokens})
        by_row = dict(zip(found["rows"].tolist(), found["followed"].tolist(), strict=True))
        return [Followed(int(of[0]), int(of[1]), of[2]) for of in (by_row[row] for row in range(len(texts)))]

    def found(self, encoded: Tokens, asked: dict[str, Any], part: Part = WHOLE) -> dict[str, Tensor]:
        """`rows` `(m,)`, whose batches are of `part`, and how the targets of each were `followed` `(m, 3)`; where there
        are no targets, the tokens of their answers: `ids`, end to end, and the `lengths` `(m,)` of these."""
        tokens, n_beams = asked["tokens"], asked.get("n_beams", 1)
        if encoded.targets is not None:
            rows, followed = self._each(encoded, self._follow, tokens, ROWS, part)
            return {"rows": rows, "followed": torch.tensor(followed, dtype=torch.float64).reshape(-1, 3)}
        start, end = self.marks
        limits = {"start": start, "end": end, "max_length": asked["max_length"]}

        def answer(batch: Batch) -> list[list[int]]:
            if n_beams == 1:
                return greedy(self.seq2seq, batch.ids_N, batch.layout, **limits)
            search = {"n_beams": n_beams, "length_penalty": asked["length_penalty"]}
            return beam_search(self.seq2seq, batch.ids_N, batch.layout, **limits, **search)

        rows, answers = self._each(encoded, answer, max(1, tokens // n_beams), max(1, ROWS // n_beams), part)
        lengths = torch.tensor([len(ids) for ids in answers], dtype=torch.int64)
        return {"rows": rows, "ids": torch.tensor([*chain(*answers)], dtype=torch.int64), "lengths": lengths}

    @property
    def marks(self) -> tuple[int, int]:
        """Ids of the tokens with which a target starts and ends."""
        found = marks(self.tokenizer)
        assert found is not None, "load checks them"
        return found

    def _follow(self, batch: Batch) -> list[Followed]:
        targets = batch.targets
        assert targets is not None
        logits_NV = self.seq2seq(batch.ids_N, batch.layout, targets.ids_N, targets.layout).float()
        losses_N = F.cross_entropy(logits_NV[:-1], targets.ids_N[1:], reduction="none").tolist()
        right_N = (logits_NV[:-1].argmax(-1) == targets.ids_N[1:]).tolist()
        bounds = targets.layout.offsets.tolist()
        return [
            Followed(b - a - 1, sum(right_N[a : b - 1]), sum(losses_N[a : b - 1]) / (b - a - 1))
            for a, b in pairwise(bounds)
        ]

    def _asked(self, encoded: Tokens, asked: dict[str, Any]) -> dict[str, Tensor]:
        return self.found(encoded, asked) if self.crew is None else self.crew.found(self, encoded, asked)

    def _each(
        self, encoded: Tokens, answer: Callable[[Batch], list[Found]], tokens: int, rows: int, part: Part
    ) -> tuple[Tensor, list[Found]]:
        """Rows of `part`, batch by batch, and what `answer` says of each."""
        plan = dealt(plan_evaluation(encoded.lengths, tokens=tokens, rows=rows), part)
        device = self.seq2seq.head.weight.device
        found: list[Found] = []
        with torch.inference_mode(), torch.autocast(device.type, self.autocast, enabled=self.autocast is not None):
            for batch in Batches(encoded, plan):
                found += answer(batch if device.type == "cpu" else batch.to(device))
        return torch.cat([torch.empty(0, dtype=torch.int64), *(planned.rows for planned in plan)]), found


def save_translator(
    folder: Path, seq2seq: Seq2Seq, *, model: ModelConfig, data: DataConfig, tokenizer: Tokenizer, card: str
) -> None:
    """Write the folder, whole or not at all; what was there before is replaced."""
    made = {"model": model, "data": data, "tokenizer": tokenizer, "pairs": False, "card": card}
    n_words = seq2seq.source.words.num_embeddings
    save_without_classes(folder, seq2seq, Task.seq2seq, vocab_size=n_words, **made)


def load_translator(folder: str | Path) -> Translator:
    """Open a run folder or its model/ folder, wherever it was moved, in eval mode on the CPU.

    Raises:
        ValueError: one sentence; the folder is no run, holds a classifier, or a file in it is missing, broken or does
            not fit.
    """
    with opened(folder, Task.seq2seq) as (place, settings):
        tokenizer = read_tokenizer(place / "tokenizer.json", settings)
        if marks(tokenizer) is None:
            raise ValueError(f"{place / 'tokenizer.json'} does not put one mark before a text and another after it")
        seq2seq = read_seq2seq(place / "model.safetensors", settings)
    return Translator(
        seq2seq=seq2seq,
        tokenizer=tokenizer,
        model=settings.model,
        max_length=settings.max_length,
        columns=settings.columns,
    )
