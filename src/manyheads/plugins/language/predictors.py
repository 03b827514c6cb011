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
from manyheads.data.tokenizer import Vocabulary, decode, marks, reading_mask, vocabulary
from manyheads.data.tokens import Tokens, encode
from manyheads.errors import UserError
from manyheads.inference.batching import NONE
from manyheads.inference.format import ModelFolder, Settings
from manyheads.inference.predictor import CardText, Predictor, ShapeWords
from manyheads.plugins.language.networks import Hidden, MaskedLM, Seq2Seq, greedy, hold_out
from manyheads.plugins.language.pieces import WHOLE, in_pieces

TOKENS = 8192  # most of a batch of texts that are answered by texts
ROWS = 256  # most rows of a batch


class Followed(NamedTuple):
    """Of one target, read token by token with all before given: tokens, the mark at the end counted, how many of them
    were the likeliest, and their mean cross-entropy in nats."""

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
        if marks(tokenizer) is None:
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
        asked: Any = config  # which has the section of this plugin
        generated = self.generate(texts, **asdict(asked.generate), tokens=config.batch.tokens)
        return [{self.added: text} for text in generated]

    def generate(self, texts: list[str], *, max_length: int = 0, tokens: int = TOKENS) -> list[str]:
        """One answer a text, in order, of the likeliest token at every step; a text beyond the model's `max_length` is
        cut.

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
        followed = [
            Followed(b - a - 1, sum(right_N[a : b - 1]), sum(losses_N[a : b - 1]) / (b - a - 1))
            for a, b in pairwise(targets.layout.offsets.tolist())
        ]
        return torch.tensor(followed, dtype=torch.float64)


class Guess(NamedTuple):
    """The likeliest words for a mask, and the probability of each."""

    words: list[str]
    probabilities: list[float]


class Guessed(NamedTuple):
    """Of one piece of a text: words that were masked, how many of them were right, and the sum of their losses in
    nats."""

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
        network.masks_match = folder.settings.reads_marks  # both as they were before
        return cls(network, tokenizer, folder.settings, vocabulary(tokenizer, pairs=folder.settings.pairs))

    @classmethod
    def about(
        cls, settings: Settings, shape: ShapeWords, labels: Sequence[str], tokenizer: Tokenizer | None
    ) -> CardText:
        mask = tokenizer and tokenizer.id_to_token(vocabulary(tokenizer, pairs=settings.pairs).mask)
        learnt = f"A {shape.kind} encoder {shape.size}, learnt from texts without labels"
        start = "A classifier starts from it: `manyheads train init_from=FOLDER`."
        what = f"{learnt}: {shape.layers}, {shape.positions}. {start}"
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
        def rounded(one: Guess) -> dict[str, float]:
            return {word: round(share, 6) for word, share in zip(*one, strict=True)}

        hidden = self.fill(texts, pairs, tokens=config.batch.tokens)
        return [{self.added: [rounded(one) for one in of]} for of in hidden]

    def fill(
        self, texts: list[str], pairs: list[str] | None = None, *, n: int = 5, tokens: int = ANSWER_TOKENS
    ) -> list[list[Guess]]:
        """For each text, or pair, the `n` likeliest words at each of its masks, in order; it is cut at `max_length`.
        ValueError of `check`, where there is no mask in a text or one is cut off, or there are no `n` words."""
        self.check(texts, pairs)
        n_words = int((~self.vocabulary.special_V).sum())
        if not 1 <= n <= n_words:
            raise UserError(f"n={n} words are asked for, but the vocabulary has 1 to {n_words:,} to choose from")
        if self._reader is None:
            reads = not self.tokenizer.encode_special_tokens  # as before marks in texts were text
            self._reader = self.tokenizer if reads else reading_mask(self.tokenizer, self.mask)
        encoded = encode(self._reader, texts, pairs, None, self.max_length)
        whole = encode(self._reader, texts, pairs, None, WHOLE) if encoded.n_truncated else encoded
        for text, n_read, n_all in zip(texts, self._masks(encoded), self._masks(whole), strict=True):
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
        found_nMK2 = self.run(encoded, tokens=tokens, n_words=n).values
        return [
            [
                Guess([self.tokenizer.decode([int(word)]) for word, _ in of_mask], [share for _, share in of_mask])
                for of_mask in of_text_MK2[of_text_MK2[:, 0, 0] != NONE].tolist()
            ]
            for of_text_MK2 in found_nMK2
        ]

    def _masks(self, encoded: Tokens) -> list[int]:
        """How many each text has."""
        return [
            int((ids == self.vocabulary.mask).sum()) for ids in encoded.ids_N.split(encoded.offsets.diff().tolist())
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
