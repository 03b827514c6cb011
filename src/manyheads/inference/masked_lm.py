"""A masked language model: it predicts the words at the masks of a text.

n texts . B texts of a batch . N tokens of a batch . P masked places . M most masks of a text . K words for each mask
V vocabulary . W of it what the tokenizer knows
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F

from manyheads.config import Task
from manyheads.config.fields import show
from manyheads.data.batches import ANSWER_TOKENS, WHOLE, Batch, in_pieces
from manyheads.data.tokenizer import Vocabulary
from manyheads.data.tokens import Tokens, encode
from manyheads.inference.format import Settings
from manyheads.inference.predictor import NONE, Predictor, Workers
from manyheads.nn.masked_lm import Hidden, MaskedLM, hold_out


class Guess(NamedTuple):
    """The likeliest words for a mask, and the probability of each."""

    words: list[str]
    probabilities: list[float]

    def rounded(self) -> dict[str, float]:
        """Probability by word, in six digits."""
        return {word: round(one, 6) for word, one in zip(self.words, self.probabilities, strict=True)}


class Guessed(NamedTuple):
    """Of one piece of a text: words that were masked, how many of them were right, and the sum of their losses in
    nats."""

    n_hidden: int
    n_right: int
    loss: float


@dataclass(slots=True)
class MaskedLMPredictor(Predictor[MaskedLM]):
    """A model ready to fill masks."""

    task: ClassVar[Task] = Task.pretrain
    network: MaskedLM
    tokenizer: Tokenizer
    settings: Settings
    vocabulary: Vocabulary
    autocast: torch.dtype | None = None
    workers: Workers | None = field(default=None, repr=False)

    @property
    def mask(self) -> str:
        """How a mask is written in a text."""
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
        self.check(texts, pairs)
        n_words = int((~self.vocabulary.special_V).sum())
        if not 1 <= n <= n_words:
            raise ValueError(f"n={n} words are asked for, but the vocabulary has 1 to {n_words:,} to choose from")
        both = zip(texts, pairs or [""] * len(texts), strict=True)
        bare = next((text for text, pair in both if self.mask not in text + pair), None)
        if bare is not None:
            raise ValueError(
                f"the text '{show(bare)}' hides no word: write {self.mask} where the model should predict one"
            )
        encoded = encode(self.tokenizer, texts, pairs, None, self.max_length)
        found_nMK2 = self.run(encoded, tokens=tokens, n_words=n).values
        return [
            [
                Guess([self.tokenizer.decode([int(word)]) for word, _ in of_mask], [share for _, share in of_mask])
                for of_mask in of_text_MK2[of_text_MK2[:, 0, 0] != NONE].tolist()
            ]
            for of_text_MK2 in found_nMK2
        ]

    def pieces(self, texts: list[str], pairs: list[str] | None) -> Tokens:
        """All that the texts hold, in pieces that the model can read; pairs are cut."""
        if pairs is not None:
            return encode(self.tokenizer, texts, pairs, None, self.max_length)
        return in_pieces(encode(self.tokenizer, texts, None, None, WHOLE), self.tokenizer, self.max_length)

    def guess(self, encoded: Tokens, *, tokens: int = ANSWER_TOKENS) -> list[Guessed]:
        """How well masked words of each piece are predicted; which are masked is always the same."""
        guessed_n3 = self.run(encoded, tokens=tokens).values
        return [Guessed(int(n), int(n_right), loss) for n, n_right, loss in guessed_n3.tolist()]

    def answer(self, batch: Batch, **asked: Any) -> Tensor:
        """How the words masked for judging were predicted `(B, 3)`; where `n_words` are asked for, for each mask in the
        text the ids of the likeliest and their probabilities, `(B, M, K, 2)`."""
        return self._fill(batch, **asked) if asked else self._judge(batch)

    def hidden(self, batch: Batch) -> Hidden:
        """The words that are masked where a model is judged."""
        ids_N, layout, special_V = batch.ids_N, batch.layout, self.vocabulary.special_V.to(batch.ids_N.device)
        rows_N = batch.rows_B.repeat_interleave(layout.lengths_B)
        return hold_out(ids_N, rows_N, layout.positions, special_V[ids_N], self.vocabulary.mask)

    def _judge(self, batch: Batch) -> Tensor:
        hidden = self.hidden(batch)
        logits_PV = self._logits(batch, hidden.ids_N, hidden.places_P)
        right_P = logits_PV.argmax(-1) == hidden.words_P
        losses_P = F.cross_entropy(logits_PV, hidden.words_P, reduction="none")
        of_P3 = torch.stack([torch.ones_like(losses_P).double(), right_P.double(), losses_P.double()], dim=1)
        sums_B3 = of_P3.new_zeros(len(batch.rows_B), 3)
        return sums_B3.index_add_(0, _documents(batch)[hidden.places_P], of_P3)

    def _fill(self, batch: Batch, n_words: int) -> Tensor:
        places_P = (batch.ids_N == self.vocabulary.mask).nonzero().squeeze(1)
        logits_PW = self._logits(batch, batch.ids_N, places_P)[:, : self.vocabulary.special_V.numel()]
        barred_W = self.vocabulary.special_V.to(logits_PW.device)
        best = logits_PW.masked_fill(barred_W, -torch.inf).softmax(-1).topk(n_words)
        document_P = _documents(batch)[places_P]
        first_B = torch.searchsorted(document_P, torch.arange(len(batch.rows_B), device=document_P.device))
        at_P = torch.arange(len(document_P), device=document_P.device) - first_B[document_P]
        n_masks = int(at_P.max()) + 1 if len(at_P) else 0
        found_BMK2 = torch.full((len(batch.rows_B), n_masks, n_words, 2), float(NONE), dtype=torch.float64)
        found_BMK2 = found_BMK2.to(document_P.device)
        found_BMK2[document_P, at_P] = torch.stack([best.indices.double(), best.values.double()], dim=-1)
        return found_BMK2

    def _logits(self, batch: Batch, ids_N: Tensor, places_P: Tensor) -> Tensor:
        return self.network(ids_N, batch.layout, batch.segments_N, places_P).float()


def _documents(batch: Batch) -> Tensor:
    """Which document of the batch each token is of: `(N,)`."""
    every_B = torch.arange(len(batch.rows_B), device=batch.ids_N.device)
    return every_B.repeat_interleave(batch.layout.lengths_B)
