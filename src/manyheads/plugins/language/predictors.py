"""Models that answer by tokens: a seq2seq model by a text, a masked language model by the words at the masks of one.

n texts . B texts of a batch . N tokens of a batch . T most tokens of an answer . V vocabulary . W of it what the
tokenizer knows . P masked places . M most masks of a text . K words for each mask
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Self

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F

from manyheads.config import PredictConfig
from manyheads.config.sentences import format_value
from manyheads.data.batches import ANSWER_TOKENS, Batch
from manyheads.data.tokenizer import start_and_end_marks
from manyheads.data.tokens import Tokens, encode
from manyheads.errors import UserError
from manyheads.inference.batching import NONE
from manyheads.inference.format import ModelFolder, Settings
from manyheads.inference.predictor import CardText, Predictor, ShapeWords
from manyheads.plugins.language.masks import Vocabulary, reading_mask, vocabulary
from manyheads.plugins.language.networks import Hidden, MaskedLM, Seq2Seq, greedy, hold_out
from manyheads.plugins.language.pieces import WHOLE, in_pieces
from manyheads.plugins.language.spelling import decode

TOKENS = 8192  # most of a batch of texts that are answered by texts
ROWS = 256  # most rows of a batch


class Followed(NamedTuple):
    """How well the tokens of one target are predicted, each with all tokens before it given.

    Attributes:
        n_tokens: of the target, with the mark at its end.
        n_right: how many of them were the likeliest.
        loss: their mean cross-entropy in nats.
    """

    n_tokens: int
    n_right: int
    loss: float


@dataclass(slots=True)
class Seq2SeqPredictor(Predictor[Seq2Seq]):
    """A model ready to answer by texts."""

    task: ClassVar[str] = "seq2seq"
    added: ClassVar[str] = "generated"

    @classmethod
    def opened(cls, folder: ModelFolder, network: Seq2Seq, tokenizer: Tokenizer) -> Self:
        if start_and_end_marks(tokenizer) is None:
            file = folder.path / "tokenizer.json"
            raise UserError(f"{file} does not put one mark before a text and another after it")
        return cls(network, tokenizer, folder.settings)

    @classmethod
    def about(
        cls, settings: Settings, shape: ShapeWords, labels: Sequence[str], tokenizer: Tokenizer | None
    ) -> CardText:
        what = f"A {shape.kind} encoder and decoder {shape.size}: {shape.layers} on either side, {shape.positions}."
        return CardText("A model that answers texts by texts", what, "translator", 'generate(["a text"])')

    def answered(
        self, texts: list[str], pairs: list[str] | None, config: PredictConfig, rules: object = ()
    ) -> list[dict[str, Any]]:
        section: Any = config  # whose settings `generate` this plugin adds
        generated = self.generate(texts, **asdict(section.generate), tokens=config.batch.tokens)
        return [{self.added: text} for text in generated]

    def generate(self, texts: list[str], *, max_length: int = 0, tokens: int = TOKENS) -> list[str]:
        """One answer a text, in order: the likeliest token at every step. Longer texts than the model's `max_length`
        are cut.

        Args:
            max_length: most tokens of an answer; 0: as many as the model has positions for.
            tokens: most source tokens of a batch. Answers do not depend on it.

        Raises:
            UserError: that of `check`, a text is empty, or `max_length` is more than the model has positions for.
        """
        self.check(texts, filled=True)
        if max_length > self.max_length:
            raise UserError(
                f"generate.max_length={max_length} is more than the {self.max_length} tokens the model was trained to "
                "write at most: use a smaller one"
            )
        found = self.run(
            encode(self.tokenizer, texts, None, None, self.max_length),
            tokens=tokens,
            rows=ROWS,
            max_length=max_length or self.max_length,
        )
        return decode(self.tokenizer, [ids_T[ids_T != NONE].tolist() for ids_T in found.values])

    def follow(self, texts: list[str], targets: list[str], *, tokens: int = TOKENS) -> list[Followed]:
        """How well the model predicts the targets; longer ones than `max_length` are cut."""
        encoded = encode(self.tokenizer, texts, None, None, self.max_length)
        encoded.targets = encode(self.tokenizer, targets, None, None, self.max_length)
        followed_n3 = self.run(encoded, tokens=tokens, rows=ROWS).values
        return [Followed(int(n), int(n_right), loss) for n, n_right, loss in followed_n3.tolist()]

    @property
    def marks(self) -> tuple[int, int]:
        """Ids of the tokens with which a target starts and ends."""
        found = start_and_end_marks(self.tokenizer)
        assert found is not None, "load checks them"
        return found

    def answer(self, batch: Batch, **asked: Any) -> Tensor:
        """Of each target the numbers of `Followed`, `(B, 3)`; where there are none, the tokens of the answers
        `(B, T)`."""
        if batch.targets is None:
            return self._generate(batch, **asked)
        return self._follow(batch, batch.targets)

    def _generate(self, batch: Batch, max_length: int) -> Tensor:
        start, end = self.marks
        answers = greedy(self.network, batch.ids_N, batch.layout, start=start, end=end, max_length=max_length)
        ids_BT = torch.full((len(answers), max(map(len, answers), default=0)), NONE)
        for row, ids in enumerate(answers):
            ids_BT[row, : len(ids)] = torch.tensor(ids, dtype=torch.int64)
        return ids_BT

    def _follow(self, batch: Batch, targets: Batch) -> Tensor:
        logits_NV = self.network(batch.ids_N, batch.layout, targets.ids_N, targets.layout).float()
        losses_N = F.cross_entropy(logits_NV[:-1], targets.ids_N[1:], reduction="none").tolist()
        right_N = (logits_NV[:-1].argmax(-1) == targets.ids_N[1:]).tolist()
        followed = []
        for first, end in pairwise(targets.layout.offsets.tolist()):
            n_tokens, last = end - first - 1, end - 1  # no token is predicted after the last
            loss = sum(losses_N[first:last]) / n_tokens
            followed.append(Followed(n_tokens, sum(right_N[first:last]), loss))
        return torch.tensor(followed, dtype=torch.float64)


class Guess(NamedTuple):
    """The likeliest words for a mask, and the probability of each."""

    words: list[str]
    probabilities: list[float]


class Guessed(NamedTuple):
    """How well the hidden words of one piece of a text are predicted.

    Attributes:
        n_right: how many of them were the likeliest.
        loss: the sum of their losses in nats.
    """

    n_hidden: int
    n_right: int
    loss: float


@dataclass(slots=True)
class MaskedLMPredictor(Predictor[MaskedLM]):
    """A model ready to fill masks."""

    task: ClassVar[str] = "pretrain"
    added: ClassVar[str] = "hidden"
    vocabulary: Vocabulary
    _reader: Tokenizer | None = field(default=None, repr=False)  # which takes a mask in a text as one

    @classmethod
    def opened(cls, folder: ModelFolder, network: MaskedLM, tokenizer: Tokenizer) -> Self:
        network.masks_match = folder.settings.reads_marks  # models of before have both, newer ones neither
        return cls(network, tokenizer, folder.settings, vocabulary(tokenizer, pairs=folder.settings.pairs))

    @classmethod
    def about(
        cls, settings: Settings, shape: ShapeWords, labels: Sequence[str], tokenizer: Tokenizer | None
    ) -> CardText:
        mask = None
        if tokenizer is not None:
            mask = tokenizer.id_to_token(vocabulary(tokenizer, pairs=settings.pairs).mask)
        what = (
            f"A {shape.kind} encoder {shape.size}, learnt from texts without labels: {shape.layers}, "
            f"{shape.positions}. A classifier starts from it: `manyheads train init_from=FOLDER`."
        )
        return CardText("A model that predicts hidden words", what, "guesser", f'fill(["a {mask or "[MASK]"} text"])')

    @property
    def mask(self) -> str:
        """How a mask is written in a text."""
        name = self.tokenizer.id_to_token(self.vocabulary.mask)
        assert name is not None, "vocabulary found it"
        return name

    def answered(
        self, texts: list[str], pairs: list[str] | None, config: PredictConfig, rules: object = ()
    ) -> list[dict[str, Any]]:
        rows = []
        for guesses in self.fill(texts, pairs, tokens=config.batch.tokens):
            of_masks = []
            for guess in guesses:
                of_masks.append({word: round(p, 6) for word, p in zip(guess.words, guess.probabilities, strict=True)})
            rows.append({self.added: of_masks})
        return rows

    def fill(
        self, texts: list[str], pairs: list[str] | None = None, *, n: int = 5, tokens: int = ANSWER_TOKENS
    ) -> list[list[Guess]]:
        """For each text, or pair, the `n` likeliest words at each of its masks, in order; it is cut at `max_length`.

        Raises:
            UserError: that of `check`; a text has no mask, or one that is cut off; the vocabulary has fewer words.
        """
        self.check(texts, pairs)
        n_words = int((~self.vocabulary.special_V).sum())
        if not 1 <= n <= n_words:
            raise UserError(f"n={n} words are asked for, but the vocabulary has 1 to {n_words:,} to choose from")
        if self._reader is None:
            self._reader = self.tokenizer
            if self.tokenizer.encode_special_tokens:  # marks in texts are text: all but the mask
                self._reader = reading_mask(self.tokenizer, self.mask)
        encoded = encode(self._reader, texts, pairs, None, self.max_length)
        whole = encode(self._reader, texts, pairs, None, WHOLE) if encoded.n_truncated else encoded
        for text, n_read, n_all in zip(texts, self._count_masks(encoded), self._count_masks(whole), strict=True):
            if not n_all:
                raise UserError(
                    f"the text '{format_value(text)}' hides no word: write {self.mask} where the model should predict "
                    "one"
                )
            if n_read < n_all:
                raise UserError(
                    f"the text '{format_value(text)}' is cut to the {self.max_length} tokens that the model reads, and "
                    f"{n_all - n_read} of its {n_all} {self.mask} with the rest: shorten it, or split it"
                )
        found = []
        for found_MK2 in self.run(encoded, tokens=tokens, n_words=n).values:
            guesses = []
            for found_K2 in found_MK2[found_MK2[:, 0, 0] != NONE]:  # texts with fewer masks are filled up
                words = [self.tokenizer.decode([int(word)]) for word in found_K2[:, 0]]
                guesses.append(Guess(words, found_K2[:, 1].tolist()))
            found.append(guesses)
        return found

    def _count_masks(self, encoded: Tokens) -> list[int]:
        """How many masks each text has."""
        counts = []
        for ids in encoded.ids_N.split(encoded.offsets.diff().tolist()):
            counts.append(int((ids == self.vocabulary.mask).sum()))
        return counts

    def pieces(self, texts: list[str], pairs: list[str] | None) -> Tokens:
        """All tokens of the texts, in pieces that the model can read; pairs are cut."""
        if pairs is not None:
            return encode(self.tokenizer, texts, pairs, None, self.max_length)
        return in_pieces(encode(self.tokenizer, texts, None, None, WHOLE), self.tokenizer, self.max_length)

    def guess(self, encoded: Tokens, *, tokens: int = ANSWER_TOKENS) -> list[Guessed]:
        """How well masked words of each piece are predicted; which are masked is always the same."""
        guessed_n3 = self.run(encoded, tokens=tokens).values
        return [Guessed(int(n), int(n_right), loss) for n, n_right, loss in guessed_n3.tolist()]

    def answer(self, batch: Batch, **asked: Any) -> Tensor:
        """Of each piece the numbers of `Guessed`, `(B, 3)`; with `n_words=K`, for each mask in the text the ids of the
        likeliest words and their probabilities, `(B, M, K, 2)`."""
        if asked:
            return self._fill(batch, **asked)
        return self._judge(batch)

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
        # the document of each mask, and its number there
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
