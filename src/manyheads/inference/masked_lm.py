"""A model that tells hidden words, as a folder: the same files as a classifier's, labels.json an empty list.

n texts . N tokens of a batch . P hidden words . V vocabulary . W of it what the tokenizer knows
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F

from manyheads.config import DataConfig, ModelConfig, Task
from manyheads.config.fields import show
from manyheads.data.batches import ANSWER_ROWS, ANSWER_TOKENS, WHOLE, Batch, Batches, in_pieces, plan_evaluation
from manyheads.data.tokenizer import Vocabulary, vocabulary
from manyheads.data.tokens import Tokens, encode
from manyheads.inference.classifier import read_tokenizer
from manyheads.inference.format import Columns, opened
from manyheads.inference.save import read_masked, save_without_classes
from manyheads.inference.sharing import WHOLE as ALL
from manyheads.inference.sharing import Crew, Part, dealt
from manyheads.nn.masked_lm import Hidden, MaskedLM, hold_out


class Guess(NamedTuple):
    """The likeliest words for a hidden one, and the probability of each."""

    words: list[str]
    probabilities: list[float]

    def rounded(self) -> dict[str, float]:
        """Probability by word, in six digits."""
        return {word: round(one, 6) for word, one in zip(self.words, self.probabilities, strict=True)}


class Guessed(NamedTuple):
    """Of one piece of a text: words that were hidden, how many of them were told, and the sum of their losses in
    nats."""

    n_hidden: int
    n_right: int
    loss: float


@dataclass(slots=True)
class Guesser:
    """A model ready to tell hidden words. `autocast` is the type it multiplies in; None is fp32."""

    masked: MaskedLM
    tokenizer: Tokenizer
    model: ModelConfig
    max_length: int
    pairs: bool
    columns: Columns
    vocabulary: Vocabulary
    autocast: torch.dtype | None = None
    crew: Crew | None = field(default=None, repr=False)  # processes that answer together with this one
    labels: ClassVar[list[str]] = []

    def on(self, device: torch.device | str, autocast: torch.dtype | None = None) -> "Guesser":
        """The same model, moved to `device`."""
        return replace(self, masked=self.masked.to(device), autocast=autocast)

    @property
    def mask(self) -> str:
        """How a hidden word is written in a text."""
        name = self.tokenizer.id_to_token(self.vocabulary.mask)
        assert name is not None, "vocabulary found it"
        return name

    def fill(
        self, texts: list[str], pairs: list[str] | None = None, *, n: int = 5, tokens: int = ANSWER_TOKENS
    ) -> list[list[Guess]]:
        """For each text, or pair, the `n` likeliest words at each of its masks, in order; it is cut at `max_length`.

        Raises:
            ValueError: `texts` is one text, pairs are given to a model of single texts or the other way round,
                there is no mask in a text, or there are no `n` words.
        """
        if isinstance(texts, str):
            raise ValueError("texts is a single str, but a list of texts is needed: put it in brackets")
        if (pairs is not None) != self.pairs:
            raise ValueError(f"the model was trained on {'pairs of texts' if self.pairs else 'single texts'}")
        n_words = int((~self.vocabulary.special_V).sum())
        if not 1 <= n <= n_words:
            raise ValueError(f"n={n} words are asked for, but the vocabulary has 1 to {n_words:,} to choose from")
        both = zip(texts, pairs or [""] * len(texts), strict=True)
        bare = next((text for text, pair in both if self.mask not in text + pair), None)
        if bare is not None:
            raise ValueError(
                f"the text '{show(bare)}' hides no word: write {self.mask} where the model should predict one"
            )
        found: list[list[Guess]] = [[] for _ in texts]
        encoded = encode(self.tokenizer, texts, pairs, None, self.max_length)
        for batch in self._batches(encoded, tokens):
            places_P = (batch.ids_N == self.vocabulary.mask).nonzero().squeeze(1)
            rows_P = batch.rows_B.repeat_interleave(batch.layout.lengths_B)[places_P]
            logits_PW = self._logits(batch, batch.ids_N, places_P)[:, : self.vocabulary.special_V.numel()]
            barred_W = self.vocabulary.special_V.to(logits_PW.device)
            best = logits_PW.masked_fill(barred_W, -torch.inf).softmax(-1).topk(n)
            for row, ids, shares in zip(rows_P.tolist(), best.indices.tolist(), best.values.tolist(), strict=True):
                found[row].append(Guess([self.tokenizer.decode([one]) for one in ids], shares))
        return found

    def pieces(self, texts: list[str], pairs: list[str] | None) -> Tokens:
        """All that the texts hold, in pieces that the model can read; pairs are cut."""
        if pairs is not None:
            return encode(self.tokenizer, texts, pairs, None, self.max_length)
        return in_pieces(encode(self.tokenizer, texts, None, None, WHOLE), self.tokenizer, self.max_length)

    def guess(self, encoded: Tokens, *, tokens: int = ANSWER_TOKENS) -> list[Guessed]:
        """How well hidden words are told, which are always the same ones, of each piece."""
        asked = {"tokens": tokens}
        found = self.found(encoded, asked) if self.crew is None else self.crew.found(self, encoded, asked)
        by_row = dict(zip(found["rows"].tolist(), found["guessed"].tolist(), strict=True))
        return [Guessed(int(of[0]), int(of[1]), of[2]) for of in (by_row[row] for row in range(len(encoded)))]

    def found(self, encoded: Tokens, asked: dict[str, Any], part: Part = ALL) -> dict[str, Tensor]:
        """`rows` `(m,)`, whose batches are of `part`, and how the hidden words of each were `guessed` `(m, 3)`."""
        rows_m, guessed_m = [torch.empty(0, dtype=torch.int64)], [torch.empty(0, 3, dtype=torch.float64)]
        for batch in self._batches(encoded, asked["tokens"], part):
            every_N = torch.arange(len(batch.rows_B), device=batch.ids_N.device).repeat_interleave(
                batch.layout.lengths_B
            )
            hidden = self.hidden(batch)
            logits_PV = self._logits(batch, hidden.ids_N, hidden.places_P)
            of_P3 = torch.stack(
                [
                    torch.ones_like(hidden.words_P).double(),
                    (logits_PV.argmax(-1) == hidden.words_P).double(),
                    F.cross_entropy(logits_PV, hidden.words_P, reduction="none").double(),
                ],
                dim=1,
            )
            sums_B3 = of_P3.new_zeros(len(batch.rows_B), 3).index_add_(0, every_N[hidden.places_P], of_P3)
            rows_m.append(batch.rows_B.cpu())
            guessed_m.append(sums_B3.cpu())
        return {"rows": torch.cat(rows_m), "guessed": torch.cat(guessed_m)}

    def hidden(self, batch: Batch) -> Hidden:
        """The words that are hidden where a model is judged."""
        ids_N, layout, special_V = batch.ids_N, batch.layout, self.vocabulary.special_V.to(batch.ids_N.device)
        rows_N = batch.rows_B.repeat_interleave(layout.lengths_B)
        return hold_out(ids_N, rows_N, layout.positions, special_V[ids_N], self.vocabulary.mask)

    def _batches(self, encoded: Tokens, tokens: int, part: Part = ALL) -> Iterator[Batch]:
        device = self.masked.head.bias.device
        for batch in Batches(encoded, dealt(plan_evaluation(encoded.lengths, tokens=tokens, rows=ANSWER_ROWS), part)):
            yield batch if device.type == "cpu" else batch.to(device)

    def _logits(self, batch: Batch, ids_N: Tensor, places_P: Tensor) -> Tensor:
        kind = ids_N.device.type
        with torch.inference_mode(), torch.autocast(kind, self.autocast, enabled=self.autocast is not None):
            return self.masked(ids_N, batch.layout, batch.segments_N, places_P).float()


def save_guesser(
    folder: Path,
    masked: MaskedLM,
    *,
    model: ModelConfig,
    data: DataConfig,
    tokenizer: Tokenizer,
    pairs: bool,
    card: str,
) -> None:
    """Write the folder, whole or not at all; what was there before is replaced."""
    made = {"model": model, "data": data, "tokenizer": tokenizer, "pairs": pairs, "card": card}
    n_words = masked.embeddings.words.num_embeddings
    save_without_classes(folder, masked, Task.pretrain, vocab_size=n_words, **made)


def load_guesser(folder: str | Path) -> Guesser:
    """Open a run folder or its model/ folder, wherever it was moved, in eval mode on the CPU.

    Raises:
        ValueError: one sentence; the folder is no run, holds another kind of model, or a file in it is missing, broken
            or does not fit.
    """
    with opened(folder, Task.pretrain) as (place, settings):
        tokenizer = read_tokenizer(place / "tokenizer.json", settings)
        known = vocabulary(tokenizer, pairs=settings.pairs)
        masked = read_masked(place / "model.safetensors", settings)
    return Guesser(
        masked=masked,
        tokenizer=tokenizer,
        model=settings.model,
        max_length=settings.max_length,
        pairs=settings.pairs,
        columns=settings.columns,
        vocabulary=known,
    )
