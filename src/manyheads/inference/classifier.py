"""A classifier as a folder: model.safetensors, config.json, tokenizer.json, labels.json, README.md; with a linear model
beside the network linear.safetensors; and, where a text has any number of labels, thresholds.json.

It opens with torch, safetensors and tokenizers alone. Every file in it is read as a stranger's: nothing runs,
nothing large is allocated before the shapes agree, and whatever is wrong is one sentence.

n texts . m of them . N tokens of a batch . B texts of a batch . C classes
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F

from manyheads.config import Cutting, ModelConfig, Task
from manyheads.config.data import CUT
from manyheads.data.batches import ANSWER_ROWS, ANSWER_TOKENS, Batch, Batches, laid_out, plan_evaluation
from manyheads.data.rows import Rows
from manyheads.data.tokens import Tokens, encode, load_tokenizer, reach
from manyheads.inference.format import Columns, Settings, opened, read_labels, read_thresholds
from manyheads.inference.precision import cast_once
from manyheads.inference.save import read_classifier
from manyheads.inference.sharing import WHOLE, Crew, Part, dealt
from manyheads.linear.member import FILE as LINEAR
from manyheads.linear.member import Beside, LinearBaseline, linear_logits, read_baseline, read_linear, together
from manyheads.nn import Classifier

CHUNK = 4096  # rows tokenised and sorted by length together


class Prediction(NamedTuple):
    """The likeliest class and the probability of every class by name."""

    label: str
    probabilities: dict[str, float]


class Labelled(NamedTuple):
    """The labels of a text, the likeliest first, maybe none, and the probability of every label by name."""

    labels: list[str]
    probabilities: dict[str, float]


@dataclass(slots=True)
class Deliverable:
    """A classifier ready to answer. `autocast` is the type its network multiplies in; None is fp32. With `thresholds` a
    text has any number of labels: each whose probability is at least its own; `alone` holds those of each member where
    it is asked by itself. `beside` is a linear model, whose share of the answers may be nothing."""

    classifier: Classifier
    tokenizer: Tokenizer
    labels: list[str]
    model: ModelConfig
    max_length: int
    pairs: bool
    columns: Columns
    cutting: Cutting = CUT
    thresholds: list[float] | None = None
    alone: dict[str, list[float]] = field(default_factory=dict)
    beside: Beside | None = None
    autocast: torch.dtype | None = None
    crew: Crew | None = field(default=None, repr=False)  # processes that answer together with this one
    _cast: Classifier | None = field(default=None, repr=False)  # the classifier with matrices of that type

    def on(self, device: torch.device | str, autocast: torch.dtype | None = None) -> "Deliverable":
        """The same classifier, moved to `device`; its matrices are cast to `autocast` here, once."""
        classifier = self.classifier.to(device)
        return replace(self, classifier=classifier, autocast=autocast, _cast=cast_once(classifier, autocast))

    @property
    def share(self) -> float:
        """Of the linear model in each answer; 0: the network answers alone."""
        return self.beside.share if self.beside else 0.0

    @property
    def members(self) -> tuple[str, ...]:
        """Who answers: `("network", "linear")` where a linear model has a share, else `("network",)`."""
        return ("network", "linear") if self.share else ("network",)

    @property
    def multi(self) -> bool:
        """Whether a text has any number of labels."""
        return self.thresholds is not None

    def probabilities(self, logits_nC: Tensor) -> Tensor:
        """Of every class `(n, C)`, in the type of the logits: they add up to 1 where a text has one class."""
        return logits_nC.sigmoid() if self.multi else logits_nC.softmax(-1)

    def given(self, probabilities_nC: Tensor, member: str = "both") -> Tensor:
        """Which labels a text is given, bool `(n, C)`: those from their thresholds on, which each `member` has of its
        own, or the likeliest class."""
        if self.thresholds is None:
            return F.one_hot(probabilities_nC.argmax(-1), len(self.labels)).bool()
        return probabilities_nC >= torch.tensor(self.alone.get(member, self.thresholds), dtype=torch.float64)

    def logits(self, texts: list[str], pairs: list[str] | None = None, *, tokens: int = ANSWER_TOKENS) -> Tensor:
        """Logits `(n, C)` in fp32 on the CPU, in the order of `texts`; of a text beyond `max_length` the network reads
        what `cutting` leaves. With a linear model they are logarithms: of the probabilities of both together.

        Batches hold texts of similar length and at most `tokens` tokens. What a text gets does not depend on its
        neighbours, but for the rounding of sums.

        Raises:
            ValueError: pairs for a model of single texts, none for a model of pairs, or not one pair a text.
        """
        return self.with_linear(self._network_logits(texts, pairs, tokens), texts, pairs)

    def member_logits(
        self, texts: list[str], pairs: list[str] | None = None, *, tokens: int = ANSWER_TOKENS
    ) -> dict[str, Tensor]:
        """Logits `(n, C)` in fp32 on the CPU by who answers: `"network"` alone, and where the folder holds a linear
        model, whatever its share, `"linear"` alone and `"both"`, which are those of `logits`, as are the network's
        where there is no `"both"`. The network runs once. Arguments and errors as of `logits`."""
        network_nC = self._network_logits(texts, pairs, tokens)
        if self.beside is None:
            return {"network": network_nC}
        linear_nC = linear_logits(self.beside.linear, texts, pairs)
        return {"network": network_nC, "linear": linear_nC, "both": self._both(network_nC, linear_nC)}

    def _network_logits(self, texts: list[str], pairs: list[str] | None, tokens: int) -> Tensor:
        self.check(texts, pairs)
        encoded = encode(self.tokenizer, texts, pairs, None, self.max_length, self.cutting)
        asked = {"tokens": tokens}
        found = self.found(encoded, asked) if self.crew is None else self.crew.found(self, encoded, asked)
        logits_nC = torch.empty(len(texts), len(self.labels))
        logits_nC[found["rows"]] = found["logits"]
        return logits_nC

    def with_linear(self, network_nC: Tensor, texts: list[str], pairs: list[str] | None) -> Tensor:
        """Logits of the network for `texts` to those of the whole: the same where it answers alone."""
        if self.beside is None or not self.share:
            return network_nC
        return self._both(network_nC, linear_logits(self.beside.linear, texts, pairs))

    def _both(self, network_nC: Tensor, linear_nC: Tensor) -> Tensor:
        if self.beside is None or not self.share:
            return network_nC
        return together(network_nC, linear_nC, self.share, self.beside.temperature, multi=self.multi)

    def baseline(self, home: Path | None) -> LinearBaseline | None:
        """The linear model alone, as it was fitted in training: the one in the folder, else that of the run folder
        `home`; None where training fitted none.

        Raises:
            ValueError: its files in `home` are broken or do not fit.
        """
        if self.beside is not None:
            return LinearBaseline(self.beside.linear, self.alone.get("linear"))
        return read_baseline(home, len(self.labels), multi=self.multi) if home else None

    def found(self, encoded: Tokens, asked: dict[str, Any], part: Part = WHOLE) -> dict[str, Tensor]:
        """`rows` `(m,)`, whose batches are of `part`, and the network's `logits` for them `(m, C)`; `asked` is the most
        `tokens` of a batch. Batches are the same whatever the parts."""
        batches = (
            [_alone(encoded)][part[0] :]
            if len(encoded) == 1  # nothing to plan or copy, which takes a tenth of the time of a short text
            else Batches(
                encoded, dealt(plan_evaluation(encoded.lengths, tokens=asked["tokens"], rows=ANSWER_ROWS), part)
            )
        )
        rows_m, logits_mC = [torch.empty(0, dtype=torch.int64)], [torch.empty(0, len(self.labels))]
        device = self.classifier.embeddings.words.weight.device
        classifier = self.classifier if self.autocast is None or self._cast is None else self._cast
        with torch.inference_mode(), torch.autocast(device.type, self.autocast, enabled=self.autocast is not None):
            for batch in batches:
                moved = batch if device.type == "cpu" else batch.to(device)
                rows_m.append(batch.rows_B)
                logits_mC.append(classifier(moved.ids_N, moved.layout, moved.segments_N).float().cpu())
        return {"rows": torch.cat(rows_m), "logits": torch.cat(logits_mC)}

    def predict(
        self, texts: list[str], pairs: list[str] | None = None, *, tokens: int = ANSWER_TOKENS
    ) -> list[Prediction] | list[Labelled]:
        """One prediction a text, in order; `Labelled` ones where a text has any number of labels. Arguments and errors
        as of `logits`."""
        probabilities_nC = self.probabilities(self.logits(texts, pairs, tokens=tokens))
        if self.multi:
            return [self._labelled(*row) for row in zip(probabilities_nC, self.given(probabilities_nC), strict=True)]
        answers = probabilities_nC.argmax(-1).tolist()
        return [
            Prediction(self.labels[answer], dict(zip(self.labels, row, strict=True)))
            for answer, row in zip(answers, probabilities_nC.tolist(), strict=True)
        ]

    def _labelled(self, probabilities_C: Tensor, given_C: Tensor) -> Labelled:
        order = probabilities_C.argsort(descending=True, stable=True).tolist()
        labels = [self.labels[label] for label in order if given_C[label]]
        return Labelled(labels, dict(zip(self.labels, probabilities_C.tolist(), strict=True)))

    def check(self, texts: list[str], pairs: list[str] | None) -> None:
        """Whether the model takes such texts.

        Raises:
            ValueError: as of `logits`; or a text is no str.
        """
        if isinstance(texts, str) or isinstance(pairs, str):
            raise ValueError("texts is a single str, but a list of texts is needed: put it in brackets")
        for name, given in (("texts", texts), ("pairs", [] if pairs is None else pairs)):
            at, kind = next(
                ((at, type(one).__name__) for at, one in enumerate(given) if not isinstance(one, str)), (0, "")
            )
            if kind:
                raise ValueError(f"{name}[{at}] is of type {kind}, but each text is a str: leave it out, or convert it")
        if (pairs is not None) != self.pairs:
            takes = (
                "pairs of texts, but second texts are missing" if self.pairs else "single texts, but pairs are given"
            )
            raise ValueError(f"the model was trained on {takes}")
        if pairs is not None and len(pairs) != len(texts):
            raise ValueError(f"there are {len(texts)} texts but {len(pairs)} second texts: give one for each text")


def _alone(encoded: Tokens) -> Batch:
    """The batch of a single row, without planning or copying."""
    segments_N = None if encoded.segments_N is None else encoded.segments_N.long()
    row_1 = torch.zeros(1, dtype=torch.int64)
    _, layout = laid_out(encoded, row_1)
    return Batch(encoded.ids_N.long(), segments_N, layout, encoded.labels, row_1, 1.0)


def load(folder: str | Path) -> Deliverable:
    """Open a run folder or its model/ folder, wherever it was moved, in eval mode on the CPU, in fp32.

    Raises:
        ValueError: one sentence; the folder is no run, holds no classifier, or a file in it is missing, broken or does
            not fit.
    """
    with opened(folder, Task.classify) as (place, settings):
        labels = read_labels(place / "labels.json", settings)
        thresholds = read_thresholds(place / "thresholds.json", settings) if settings.multi else {}
        tokenizer = read_tokenizer(place / "tokenizer.json", settings)
        classifier = read_classifier(place / "model.safetensors", settings)
        linear = read_linear(place / LINEAR, settings.n_classes, settings.terms) if settings.terms else None
    return Deliverable(
        classifier=classifier,
        tokenizer=tokenizer,
        labels=labels,
        model=settings.model,
        max_length=settings.max_length,
        pairs=settings.pairs,
        columns=settings.columns,
        cutting=settings.cutting,
        thresholds=thresholds.pop("both", None),
        alone=thresholds,
        beside=Beside(linear, settings.linear, settings.temperature) if linear else None,
    )


def read_tokenizer(path: Path, settings: Settings) -> Tokenizer:
    """The tokenizer, once it has shown that every id it can give has a row in the embedding."""
    try:
        tokenizer = load_tokenizer(path)
        reached = reach(tokenizer, pairs=settings.pairs)
    except ValueError as error:
        raise ValueError(
            f"{path} is not a whole tokenizer that puts marks such as [CLS] and [SEP] around any text"
        ) from error
    if reached.ids > settings.vocab_size:
        raise ValueError(
            f"{path} has {reached.ids} entries, but the embedding has {settings.vocab_size} rows: "
            "it is not the tokenizer this model was trained with"
        )
    if settings.pairs and reached.segments > 2:
        raise ValueError(f"{path} marks texts by segment {reached.segments - 1}, but a pair has segments 0 and 1")
    return tokenizer


def in_chunks(
    answers: Callable[[list[str], list[str] | None], dict[str, Tensor]],
    rows: Rows,
    n_classes: int,
    progress: Callable[[int], None],
) -> dict[str, Tensor]:
    """The answers `(n, C)` to all rows by name, asked for `CHUNK` rows at a time; `progress` hears of each chunk."""
    pieces: list[dict[str, Tensor]] = []
    for start in range(0, len(rows), CHUNK):
        chunk = slice(start, start + CHUNK)
        pieces.append(answers(rows.texts[chunk], None if rows.pairs is None else rows.pairs[chunk]))
        progress(len(rows.texts[chunk]))
    if not pieces:
        return dict.fromkeys(answers([], None if rows.pairs is None else []), torch.empty(0, n_classes))
    return {name: torch.cat([one[name] for one in pieces]) for name in pieces[0]}
