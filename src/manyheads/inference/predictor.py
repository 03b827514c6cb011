"""What all finished models share: a base class for what is opened from a folder and answers.

n rows . B rows of a batch
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from manyheads.config import ModelConfig, PredictConfig
from manyheads.data.batches import ANSWER_ROWS, ANSWER_TOKENS, Batch
from manyheads.data.texts import is_blank
from manyheads.data.tokens import Tokens
from manyheads.errors import UserError
from manyheads.inference.batching import WHOLE, RowValues, Share, run_batches
from manyheads.inference.format import ModelFolder, Settings
from manyheads.inference.rules import AnswerRule
from manyheads.inference.workers import Workers

NetworkT = TypeVar("NetworkT", bound=nn.Module)


class ShapeWords(NamedTuple):
    """Of a network, in words: `a Transformer encoder of 1,000 parameters: 2 layers, ..., learned positions`."""

    kind: str
    size: str
    layers: str
    positions: str


class CardText(NamedTuple):
    """Of a model card: its title, what the model is, and in the lines of Python a `name` for it and its `call`."""

    title: str
    what: str
    name: str
    call: str


@dataclass(slots=True)
class Predictor(ABC, Generic[NetworkT]):
    """A finished model, opened from its folder.

    `settings` is its config.json. `autocast` is the type that the network multiplies in; None is fp32. `workers` are
    processes that hold the same model and compute some of its batches.
    """

    task: ClassVar[str]
    added: ClassVar[str] = ""  # what `answered` adds to a row
    network: NetworkT = field(repr=False)  # like the next ones it would fill a page of a notebook
    tokenizer: Tokenizer = field(repr=False)
    settings: Settings = field(repr=False)
    autocast: torch.dtype | None = field(default=None, kw_only=True)
    workers: Workers | None = field(default=None, kw_only=True, repr=False)

    @classmethod
    @abstractmethod
    def opened(cls, folder: ModelFolder, network: NetworkT, tokenizer: Tokenizer) -> Self:
        """The model of a folder. A UserError where a file in it is missing, broken or does not fit."""

    @classmethod
    @abstractmethod
    def about(
        cls, settings: Settings, shape: ShapeWords, labels: Sequence[str], tokenizer: Tokenizer | None
    ) -> CardText:
        """What the card of such a model says."""

    @abstractmethod
    def answered(
        self, texts: list[str], pairs: list[str] | None, config: PredictConfig, rules: Sequence[AnswerRule] = ()
    ) -> list[dict[str, Any]]:
        """What `manyheads predict` adds to the row of each text, by name; `rules` are of a classifier."""

    def null_answer(self, config: PredictConfig, rules: Sequence[AnswerRule] = ()) -> dict[str, Any]:
        """As `answered`, of a text that cannot be answered: null for each name."""
        return {self.added: None}

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
        part: Share = WHOLE,
        *,
        tokens: int = ANSWER_TOKENS,
        rows: int = ANSWER_ROWS,
        **asked: Any,
    ) -> RowValues:
        """What is found for every row, in order, by all processes together; for the rows of a `part` by this one.

        Args:
            tokens, rows: see `run_batches`.
            asked: numbers that `answer` is given.
        """
        if self.workers is not None and part == WHOLE:
            return self.workers.run(self, encoded, {"tokens": tokens, "rows": rows, **asked})
        where = {"device": next(self.network.parameters()).device, "autocast": self.autocast}
        return run_batches(partial(self.answer, **asked), encoded, **where, tokens=tokens, rows=rows, part=part)

    def check(self, texts: list[str], pairs: list[str] | None = None, *, filled: bool = False) -> None:
        """Raise UserError for a single text, a text that is no str, pairs for a model of single texts, none for one of
        pairs, or not one pair for each text. `filled`: for an empty text, too, which has logits but no answer."""
        for name, given in (("texts", texts), ("pairs", [] if pairs is None else pairs)):
            is_table = hasattr(given, "columns")  # which would give the names of these
            if isinstance(given, str | Mapping) or not isinstance(given, Iterable) or is_table:
                remedy = "put it in brackets" if isinstance(given, str | Mapping) else "give one, such as ['a text']"
                raise UserError(f"{name} is a single {type(given).__name__}, but a list of texts is needed: {remedy}")
        for name, given in (("texts", texts), ("pairs", [] if pairs is None else pairs)):
            for at, one in enumerate(given):
                if not isinstance(one, str):
                    rule = "but each text is a str: leave it out, or convert it"
                    raise UserError(f"{name}[{at}] is of type {type(one).__name__}, {rule}")
                if filled and is_blank(one):
                    raise UserError(f"{name}[{at}] is empty, and an empty text has no answer: leave it out")
        if (pairs is not None) != self.settings.pairs:
            single, missing = "single texts, but pairs are given", "pairs of texts, but second texts are missing"
            raise UserError(f"the model was trained on {missing if self.pairs else single}")
        if pairs is not None and len(pairs) != len(texts):
            raise UserError(f"there are {len(texts)} texts but {len(pairs)} second texts: give one for each text")
