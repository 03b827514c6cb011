"""A model of several columns: one network, and for each column a classifier that reads its part of the logits.

n texts . C labels of all columns . K labels of one
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self, cast

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from manyheads.config import PredictConfig
from manyheads.config.facts import require
from manyheads.data.batches import ANSWER_TOKENS, Batch
from manyheads.data.formats.fields import join_given
from manyheads.data.tokens import encode
from manyheads.inference.classifier import DIGITS, Prediction, TextClassifier
from manyheads.inference.format import ModelFolder, Settings, open_folder
from manyheads.inference.predictor import CardText, Predictor, ShapeWords
from manyheads.inference.rules import AnswerRule
from manyheads.nn import Classifier
from manyheads.plugins.multitask.columns import LabelColumn, columns_of
from manyheads.plugins.multitask.config import columns_in
from manyheads.runs.summary import JOINT


class ColumnsPrediction(NamedTuple):
    """The class, or the labels, of each column by its name; and the probability of every label, `topic: sport`."""

    answers: dict[str, Any]
    probabilities: dict[str, float]


@dataclass(slots=True)
class ColumnsClassifier(Predictor[Classifier]):
    """A classifier of several columns, ready to answer.

    Attributes:
        labels: those of all columns, `topic: sport`, as the network gives their logits.
        columns, heads: the columns, and a classifier of each, which shares the encoder.
    """

    task: ClassVar[str] = "multitask"
    labels: list[str]
    columns: list[LabelColumn]
    heads: list[TextClassifier]

    @classmethod
    def opened(cls, folder: ModelFolder, network: Classifier, tokenizer: Tokenizer) -> Self:
        columns, heads = columns_of(folder.labels(), folder.settings.kept), []
        for number, column in enumerate(columns, 1):
            own = open_folder(folder.path / column_folder(column, number), "classify")
            fits = own.labels() == column.labels and own.settings.multi == column.is_set
            require(fits, f"{own.path} is not the classifier of the column '{column.name}' of {folder.path}")
            heads.append(TextClassifier.opened(own, part_of(network, column.ids), tokenizer))
        return cls(network, tokenizer, folder.settings, folder.labels(), columns, heads)

    @classmethod
    def about(
        cls, settings: Settings, shape: ShapeWords, labels: Sequence[str], tokenizer: Tokenizer | None
    ) -> CardText:
        what = (
            f"A {shape.kind} encoder {shape.size} that labels texts in {len(columns_in(settings.kept))} columns: "
            f"{', '.join(columns_in(settings.kept))}; {shape.layers}, {shape.positions}."
        )
        return CardText("A text classifier of several columns", what, "classifier", 'predict(["a text"])')

    @property
    def members(self) -> tuple[str, ...]:
        """Who answers: the `"network"`, and the `"linear"` model if it has a share in the answers of a column."""
        return ("network", "linear") if any(head.share for head in self.heads) else ("network",)

    def on(self, device: torch.device | str, autocast: torch.dtype | None = None) -> Self:
        """The same model, moved to `device`, whose network multiplies in `autocast`."""
        moved = cast(Any, Predictor.on(self, device, autocast))
        moved.heads = [head.on(device, autocast) for head in self.heads]
        return moved

    def answer(self, batch: Batch, **asked: Any) -> Tensor:
        """The network's logits `(B, C)`."""
        return self.network(batch.ids_N, batch.layout, batch.segments_N).float()

    def network_logits(self, texts: list[str], pairs: list[str] | None, *, tokens: int) -> Tensor:
        """Logits `(n, C)` of the network alone, in fp32 on the CPU. Raises as `check` does."""
        self.check(texts, pairs)
        encoded = encode(self.tokenizer, texts, pairs, None, self.settings.max_length, self.settings.cutting)
        return self.run(encoded, tokens=tokens).values.reshape(len(texts), len(self.labels))

    def predict(
        self, texts: list[Any], pairs: list[str] | None = None, *, tokens: int = ANSWER_TOKENS
    ) -> list[ColumnsPrediction]:
        """One prediction a text, in order. A UserError where a text is empty, and as `check` raises it. A text of
        several columns is a mapping from their names to their cells."""
        texts = join_given(texts, self.settings.fields)
        self.check(texts, pairs, filled=True)
        network_nC = self.network_logits(texts, pairs, tokens=tokens)
        of_columns = []
        for column, head in zip(self.columns, self.heads, strict=True):
            of_columns.append(head.logits(texts, pairs, network_nC=network_nC[:, column.ids]))
        return self.predictions(torch.cat(of_columns, dim=1), texts)

    def predictions(self, logits_nC: Tensor, texts: list[str]) -> list[ColumnsPrediction]:
        """What the logits of all columns say of these texts; a UserError where they are not finite."""
        found = [ColumnsPrediction({}, {}) for _ in texts]
        for column, head in zip(self.columns, self.heads, strict=True):
            for one, own in zip(found, head.predictions(logits_nC[:, column.ids], texts), strict=True):
                one.answers[column.name] = own.label if isinstance(own, Prediction) else own.labels
                one.probabilities.update({f"{column.name}{JOINT}{name}": p for name, p in own.probabilities.items()})
        return found

    def answered(
        self, texts: list[str], pairs: list[str] | None, config: PredictConfig, rules: Sequence[AnswerRule] = ()
    ) -> list[dict[str, Any]]:
        """What `manyheads predict` adds to the row of each text: the answer of each column, and `probabilities`."""
        rows = []
        for one in self.predict(texts, pairs, tokens=config.batch.tokens):
            probabilities = {name: round(probability, DIGITS) for name, probability in one.probabilities.items()}
            rows.append({**one.answers, "probabilities": probabilities})
        return rows

    def null_answer(self, config: PredictConfig, rules: Sequence[AnswerRule] = ()) -> dict[str, Any]:
        nulls = dict[str, Any].fromkeys([column.name for column in self.columns])
        return nulls | {"probabilities": dict.fromkeys(self.labels)}


def column_folder(column: LabelColumn, number: int) -> str:
    """The name of the folder of a column, the one of this number, within that of the model: its own, if that can be
    one, and is none that a column without such a name has."""
    return column.name if re.fullmatch(r"(?!column-)\w[\w-]{0,40}", column.name) else f"column-{number}"


def part_of(network: Classifier, ids: slice) -> Classifier:
    """A network that gives some of the logits: it shares all parts but the head, of which it has some rows."""
    weight_KD = network.head.weight.detach()[ids]
    head = nn.Linear(weight_KD.shape[1], len(weight_KD))
    head.weight, head.bias = nn.Parameter(weight_KD), nn.Parameter(network.head.bias.detach()[ids])
    part = Classifier(
        embeddings=network.embeddings,
        encoder=network.encoder,
        pooling=network.pooling,
        dropout=network.dropout.p,
        head=head,
        cross=network.cross,
    )
    return part.eval()
