"""A text classifier: a network and, maybe, a linear model whose probabilities are blended with its own.

The network is one of torch, or a graph that `manyheads export format=onnx` has written (graph.py).

n texts . B texts of a batch . C classes
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, cast

import torch
from tokenizers import Tokenizer
from torch import Tensor

import manyheads.plugin as plugin
from manyheads.config import Cutting, PredictConfig
from manyheads.config.sentences import format_value
from manyheads.data.batches import ANSWER_TOKENS, Batch
from manyheads.data.formats.fields import join_given, reader_of
from manyheads.data.rows import Rows
from manyheads.data.tokens import Tokens, encode
from manyheads.errors import UserError
from manyheads.inference.format import CALIBRATION, ModelFolder, Settings, read_thresholds
from manyheads.inference.graph import GraphLinear, GraphNetwork
from manyheads.inference.packed import cast_once
from manyheads.inference.predictor import CardText, Predictor, ShapeWords
from manyheads.inference.rules import AnswerRule, mark_texts
from manyheads.linear.blend import Blend
from manyheads.linear.calibration import Calibration, read_calibration
from manyheads.linear.model import FILE as LINEAR
from manyheads.linear.model import LinearBaseline, linear_logits, read_baseline, read_linear
from manyheads.linear.thresholds import given_of, probabilities_of
from manyheads.nn import Classifier
from manyheads.plugin import Part
from manyheads.runs.notebook import AnswerList, InlinePage

OVERFLOW = "is not finite numbers, as the weights of the model are too large: use another model"
CHUNK = 4096  # rows tokenised and sorted by length together
MOST_LOGITS = 2**22  # of such a chunk
DIGITS = 6  # of a probability that predict writes


class Prediction(NamedTuple):
    """The likeliest class and the probability of every class by name."""

    label: str
    probabilities: dict[str, float]


class LabelsPrediction(NamedTuple):
    """The labels of a text, the likeliest first, maybe none, and the probability of every label by name."""

    labels: list[str]
    probabilities: dict[str, float]


def likeliest_of(answer: Prediction | LabelsPrediction) -> str:
    """The class or label whose probability is the highest."""
    return max(answer.probabilities, key=answer.probabilities.__getitem__)


@dataclass(slots=True)
class TextClassifier(Predictor[Classifier]):
    """A classifier ready to answer.

    Attributes:
        labels: names of the classes; index is class id.
        thresholds: if a text has any number of labels, the probability from which on each is given; else None.
        member_thresholds: those of the `network` and the `linear` model where one answers alone.
        blend: the linear model and its share of the answers, which may be 0.
        calibration: maps the logits of all members together, not those of one alone.
    """

    task: ClassVar[str] = "classify"
    labels: list[str]
    thresholds: list[float] | None = None
    member_thresholds: dict[str, list[float]] = field(default_factory=dict)
    blend: Blend | None = field(default=None, repr=False)
    calibration: Calibration | None = None
    _cast: Classifier | None = field(default=None, repr=False)  # the network with matrices of type `autocast`

    @classmethod
    def opened(cls, folder: ModelFolder, network: Classifier, tokenizer: Tokenizer) -> Self:
        path, settings = folder
        thresholds = read_thresholds(path / "thresholds.json", settings) if settings.multi else {}
        calibration = read_calibration(path / CALIBRATION, settings.n_classes)
        linear = None
        if settings.terms and isinstance(network, GraphNetwork):
            linear = GraphLinear(network, settings.terms)
        elif settings.terms:
            linear = read_linear(path / LINEAR, settings.n_classes, settings.terms)
        if calibration is not None:
            calibrated = ["both"]
            if not settings.linear:  # the network alone gives all answers
                calibrated.append("network")
            for who in calibrated:
                if who in thresholds:
                    thresholds[who] = calibration.thresholds(thresholds[who])
        return cls(
            network,
            tokenizer,
            settings,
            folder.labels(),
            thresholds=thresholds.pop("both", None),
            member_thresholds=thresholds,
            blend=Blend(linear, settings.linear, settings.temperature) if linear else None,
            calibration=calibration,
        )

    @classmethod
    def about(
        cls, settings: Settings, shape: ShapeWords, labels: Sequence[str], tokenizer: Tokenizer | None
    ) -> CardText:
        texts, call = "texts", 'predict(["a text"])'
        if settings.pairs:
            texts, call = "pairs of texts", 'predict(["a text"], ["its pair"])'
        if settings.fields:
            call = call.replace('"a text"', str(dict.fromkeys(settings.fields, "...")))
        if settings.model.reads_apart:
            texts += ", read apart and then across," if settings.model.n_cross_layers else ", read apart,"
        sorts = f"sorts {texts} into {len(labels)} classes"
        if settings.multi:
            sorts = f"says of {texts} which of {len(labels)} labels they have, none, one or several"
        what = (
            f"A {shape.kind} encoder {shape.size} that {sorts}: {shape.layers}, {shape.positions}, "
            f"{settings.model.pooling} pooling."
        )
        if settings.linear and settings.terms is not None:
            share = f"{settings.linear:.0%} of each probability are its own."
            what += f"\nA linear model of {settings.terms.value} answers with it: {share}"
        return CardText("A text classifier", what, "classifier", call)

    def on(self, device: torch.device | str, autocast: torch.dtype | None = None) -> Self:
        """The same classifier, moved to `device`; its matrices are cast to `autocast` here, once."""
        moved = cast(Any, Predictor.on(self, device, autocast))
        moved._cast = None if autocast is None else cast_once(moved.network, autocast)
        return moved

    @property
    def cutting(self) -> Cutting:
        """What becomes of texts beyond `max_length`."""
        return self.settings.cutting

    @property
    def share(self) -> float:
        """Of the linear model in each answer; 0: the network answers alone."""
        return self.blend.share if self.blend else 0.0

    @property
    def members(self) -> tuple[str, ...]:
        """Who answers: the `"network"`, the `"linear"` model, or both, as far as they have a share."""
        if self.share == 1:
            return ("linear",)
        if self.share > 0:
            return "network", "linear"
        return ("network",)

    @property
    def multi(self) -> bool:
        """Whether a text has any number of labels."""
        return self.thresholds is not None

    def as_read(self, texts: list[str]) -> list[str]:
        """What the network and the linear model read of texts, see `Section.read`. A UserError where a text lacks a
        column."""
        read = reader_of(self.settings.kept)
        return texts if read is None else read(texts)

    def predict(
        self,
        texts: list[Any],
        pairs: list[str] | None = None,
        *,
        tokens: int = ANSWER_TOKENS,
        network_nC: Tensor | None = None,
    ) -> list[Prediction] | list[LabelsPrediction]:
        """One prediction a text, in order; where a text has any number of labels, a `LabelsPrediction`. Arguments and
        errors are those of `logits`, and a UserError where a text is empty or a probability is not finite. A text of
        several columns is a mapping from their names to their cells."""
        texts = join_given(texts, self.settings.fields)
        self.check(texts, pairs, filled=True)
        return AnswerList(
            texts, self.predictions(self.logits(texts, pairs, tokens=tokens, network_nC=network_nC), texts)
        )

    def explain(
        self,
        text: Any,
        pair: str | None = None,
        *,
        view: str = "",
        source: str = "this model",
        tokens: int = ANSWER_TOKENS,
        **options: Any,
    ) -> InlinePage:
        """What `manyheads look` shows of a text, as a page for a notebook: by the part `view`, or the first of its
        kind, which has `options` such as `layers="2"`; `source` names the model. A UserError where there is none, or
        it cannot show this model or text."""
        part = plugin.find("view", view or next(iter(plugin.names("view")), ""))
        if reason := why_not(part, self):
            raise UserError(reason)
        (text,), pairs = join_given([text], self.settings.fields), None if pair is None else [pair]
        (answer,) = self.predict([text], pairs, tokens=tokens)
        exactly = self.on(next(self.network.parameters()).device)  # in fp32, as `manyheads look`
        return InlinePage(plugin.resolve(part.make)(exactly, text, pair, answer=answer, source=source, **options))

    def predictions(self, logits_nC: Tensor, texts: list[str]) -> list[Prediction] | list[LabelsPrediction]:
        """What the `logits` of these texts say, as `predict` returns it.

        Raises:
            UserError: they are not finite.
        """
        probabilities_nC = self.probabilities(logits_nC)
        broken = (~probabilities_nC.isfinite()).any(1).nonzero()
        if len(broken):
            raise UserError(f"what is answered to the text '{format_value(texts[int(broken[0])])}' {OVERFLOW}")
        by_name = [dict(zip(self.labels, row, strict=True)) for row in probabilities_nC.tolist()]
        if not self.multi:
            answers = probabilities_nC.argmax(-1).tolist()
            return [Prediction(self.labels[answer], of) for answer, of in zip(answers, by_name, strict=True)]
        given_nC = self.given(probabilities_nC).tolist()
        order_nC = probabilities_nC.argsort(descending=True, stable=True).tolist()
        predictions = []
        for given_C, order_C, of in zip(given_nC, order_nC, by_name, strict=True):
            labels = [self.labels[label] for label in order_C if given_C[label]]
            predictions.append(LabelsPrediction(labels, of))
        return predictions

    def answered(
        self, texts: list[str], pairs: list[str] | None, config: PredictConfig, rules: Sequence[AnswerRule] = ()
    ) -> list[dict[str, Any]]:
        """What `manyheads predict` adds to the row of each text: `label` or `labels`, `probabilities`, and what the
        rules add."""
        tokens, network_nC, marks = config.batch.tokens, None, list[Tensor | None]()
        if rules:
            network_nC, marks = mark_texts(rules, self, texts, pairs, tokens=tokens)
        predictions = self.predictions(self.logits(texts, pairs, tokens=tokens, network_nC=network_nC), texts)
        answers: list[dict[str, Any]] = []
        for one in predictions:
            names = list(one.probabilities)  # in the order of the classes
            if config.top_k:
                names = sorted(names, key=lambda name: -one.probabilities[name])[: config.top_k]
            probabilities = {name: round(one.probabilities[name], DIGITS) for name in names}
            if isinstance(one, Prediction):
                answers.append({"label": one.label, "probabilities": probabilities})
            else:
                answers.append({"labels": one.labels, "probabilities": probabilities})
        for rule, marks_n in zip(rules, marks, strict=True):
            rule.apply(answers, predictions, marks_n)
        return answers

    def null_answer(self, config: PredictConfig, rules: Sequence[AnswerRule] = ()) -> dict[str, Any]:
        nulls: dict[str, Any] = {"labels" if self.multi else "label": None}
        nulls["probabilities"] = dict.fromkeys(self.labels[: config.top_k or None])
        for rule in rules:
            nulls |= dict.fromkeys(rule.columns)
        return nulls

    def logits(
        self,
        texts: list[str],
        pairs: list[str] | None = None,
        *,
        tokens: int = ANSWER_TOKENS,
        network_nC: Tensor | None = None,
    ) -> Tensor:
        """Logits `(n, C)` in fp32 on the CPU, in the order of `texts`; of a text beyond `max_length` the network reads
        what `cutting` leaves. With a linear model they are logarithms: of the probabilities of both together.

        Batches hold texts of similar length and at most `tokens` tokens. What a text gets does not depend on its
        neighbours, but for the rounding of sums. Raises as `check` does.

        Args:
            network_nC: the network's logits, where it was asked already.
        """
        if network_nC is None and self.share == 1:  # what the network would answer counts for nothing
            self.check(texts, pairs)
            network_nC = torch.zeros(len(texts), len(self.labels))
        elif network_nC is None:
            network_nC = self.network_logits(texts, pairs, tokens=tokens)
        return self.calibrated(self.with_linear(network_nC, texts, pairs))

    def member_logits(
        self,
        texts: list[str],
        pairs: list[str] | None = None,
        *,
        tokens: int = ANSWER_TOKENS,
        network_nC: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Logits `(n, C)` in fp32 on the CPU by who answers: `"network"`, and if the folder holds a linear model,
        whatever its share, `"linear"` and `"both"`. Those that answer, `"both"` or a network that is alone, are
        calibrated, as by `logits`. The network runs once. Arguments and errors are those of `logits`."""
        if network_nC is None:
            network_nC = self.network_logits(texts, pairs, tokens=tokens)
        if self.blend is None:
            return {"network": self.calibrated(network_nC)}
        linear_nC = linear_logits(self.blend.linear, self.as_read(texts), pairs)
        both_nC = self.calibrated(self.blend.of(network_nC, linear_nC, multi=self.multi))
        if not self.share:
            network_nC = both_nC
        return {"network": network_nC, "linear": linear_nC, "both": both_nC}

    def alone(self, member: str) -> Self:
        """The same classifier, of which the `"network"` or the `"linear"` model answers by itself: by thresholds of its
        own, and uncalibrated where both were calibrated together; itself where nobody else answers.

        Raises:
            UserError: there is no linear model, or no member of that name.
        """
        if member not in ("network", "linear"):
            raise UserError(f"member={format_value(member)} is not a choice: choose network or linear")
        if self.blend is None and member == "linear":
            raise UserError("the model has no linear model that could answer alone")
        if self.blend is None or self.members == (member,):
            return self
        blend, thresholds = self.blend._replace(share=float(member == "linear")), self.member_thresholds.get(member)
        return replace(self, blend=blend, calibration=None, thresholds=thresholds)

    def calibrated(self, logits_nC: Tensor) -> Tensor:
        """Logits of calibrated probabilities; unchanged if nothing was fitted."""
        if self.calibration is None:
            return logits_nC
        return self.calibration.of(logits_nC, multi=self.multi)

    def network_logits(self, texts: list[str], pairs: list[str] | None, *, tokens: int) -> Tensor:
        """Logits `(n, C)` of the network alone. Arguments and errors are those of `logits`."""
        self.check(texts, pairs)
        read = self.as_read(texts) if self.settings.kept else texts
        encoded = encode(self.tokenizer, read, pairs, None, self.settings.max_length, self.settings.cutting)
        return self.run(encoded, tokens=tokens).values.reshape(len(texts), len(self.labels))

    def answer(self, batch: Batch, **asked: Any) -> Tensor:
        """The network's logits `(B, C)`; where `vectors` are asked for, after them what its head reads
        `(B, C + D)`."""
        network = self._cast or self.network
        if asked.get("vectors"):
            vectors = network.read(batch.ids_N, batch.layout, batch.segments_N)
            return batch.layout.pooled(torch.cat([network.head(vectors), vectors], dim=1)).float()
        return network(batch.ids_N, batch.layout, batch.segments_N).float()

    def with_linear(self, network_nC: Tensor, texts: list[str], pairs: list[str] | None) -> Tensor:
        """Logits of the network for `texts` to those of both members, uncalibrated: the same where it answers alone."""
        if self.blend is None or not self.share:
            return network_nC
        linear_nC = linear_logits(self.blend.linear, self.as_read(texts), pairs)
        return self.blend.of(network_nC, linear_nC, multi=self.multi)

    def probabilities(self, logits_nC: Tensor) -> Tensor:
        """Of logits `(n, C)` the probabilities: see `probabilities_of`."""
        return probabilities_of(logits_nC, multi=self.multi)

    def given(self, probabilities_nC: Tensor) -> Tensor:
        """Which labels texts are given, bool `(n, C)`: see `given_of`."""
        return given_of(probabilities_nC, self.thresholds)

    def baseline(self, home: Path | None) -> LinearBaseline | None:
        """The linear model alone, as it was fitted in training: the one in the folder, else that of the run folder
        `home`; None where training fitted none. A UserError where its files are broken or do not fit."""
        if self.blend is not None:
            return LinearBaseline(self.blend.linear, self.member_thresholds.get("linear"))
        return read_baseline(home, len(self.labels), multi=self.multi) if home else None


def why_not(view: Part, classifier: TextClassifier) -> str:
    """Why a view has nothing to show of this model; empty where it has."""
    reason_of = plugin.resolve(view.facts.get("why_not"))
    return reason_of(classifier) if reason_of else ""


def read_vectors(
    classifier: TextClassifier, texts: list[str], pairs: list[str] | None, tokens: int
) -> tuple[Tokens, Tensor, Tensor]:
    """The tokens of texts, the network's logits `(n, C)`, and the vectors `(n, D)` that its head reads."""
    classifier.check(texts, pairs)
    read = classifier.as_read(texts)
    encoded = encode(classifier.tokenizer, read, pairs, None, classifier.max_length, classifier.cutting)
    n_classes, width = len(classifier.labels), classifier.network.head.in_features
    found_nM = classifier.run(encoded, tokens=tokens, vectors=1).values.reshape(len(texts), n_classes + width)
    return encoded, found_nM[:, :n_classes], found_nM[:, n_classes:].double()


def answer_in_chunks(
    answers: Callable[[list[str], list[str] | None], dict[str, Tensor]],
    rows: Rows,
    n_classes: int,
    progress: Callable[[int], None],
) -> dict[str, Tensor]:
    """The answers `(n, C)` to all rows by name; `progress` is called with the rows of each chunk."""
    chunks = list(chunks_of(answers, rows, n_classes, progress))
    if not chunks:
        names = answers([], None if rows.pairs is None else [])
        return dict.fromkeys(names, torch.empty(0, n_classes))
    return {name: torch.cat([chunk[name] for chunk in chunks]) for name in chunks[0]}


def chunks_of(
    answers: Callable[[list[str], list[str] | None], dict[str, Tensor]],
    rows: Rows,
    n_classes: int,
    progress: Callable[[int], None],
) -> Iterator[dict[str, Tensor]]:
    """The answers by name, a chunk of rows at a time; `progress` is called with the rows of each chunk."""
    step = rows_at_once(n_classes)
    for start in range(0, len(rows), step):
        texts, pairs = rows.texts[start : start + step], None
        if rows.pairs is not None:
            pairs = rows.pairs[start : start + step]
        yield answers(texts, pairs)
        progress(len(texts))


def rows_at_once(n_classes: int) -> int:
    """Of a chunk: fewer where there are many classes."""
    return max(1, min(CHUNK, MOST_LOGITS // max(1, n_classes)))
