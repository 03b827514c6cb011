"""The linear model beside a network, or alone as its baseline: its file, its answers, its share in both.

The linear classifier beside a network, or alone as its baseline: its file, its answers to texts, and both together.

n texts . U terms . C classes

What is left to tune once a classifier is trained, on validation rows: the share of a linear model in its answers,
and from which probability on a label is given.

n rows . C classes
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from manyheads.config import Terms
from manyheads.config.facts import check_ranges, setting
from manyheads.config.fields import from_plain, to_plain
from manyheads.data.batches import ANSWER_ROWS, ANSWER_TOKENS, Batches, plan_evaluation
from manyheads.data.rows import Rows
from manyheads.data.tokens import Tokens
from manyheads.linear.model import LinearModel, counted, counting, given, likeliest, likelihood
from manyheads.linear.thresholds import best, count, no_counts
from manyheads.nn import Classifier
from manyheads.runs.atomic import read_json

FILE = "linear.safetensors"
BASELINE = ("baseline.safetensors", "baseline.json")  # of a run whose model/ holds no linear model
KINDS = {"terms_U": "I64", "rarity_U": "F32", "votes_UC": "F32", "bias_C": "F32"}
MOST = 1e6  # of a value in the file: sums of larger ones may overflow
AT_ONCE, LETTERS_AT_ONCE = 4096, 2_000_000  # texts, and letters in all of them: 400 MB
SHARES = [at / 20 for at in range(21)]  # that are tried
PULL = 8.0  # rows
LEAST_SHARE = SHARES[1]  # the pull counts none as this: between the two, the rows alone decide


class Beside(NamedTuple):
    """A linear model that answers beside a network: its probabilities count for `share` of the whole, those of the
    network's logits over `temperature` for the rest (Guo et al., 2017, "On Calibration of Modern Neural Networks").
    With a share of 0 the network answers alone, and the linear model is its baseline."""

    linear: LinearModel
    share: float
    temperature: float = 1.0


class LinearBaseline(NamedTuple):
    """The linear model alone: the bar that a network has to clear. It is fitted once a run; with `thresholds` a text
    has any number of labels. Where `linear=true` it is the very model that answers beside the network."""

    linear: LinearModel
    thresholds: list[float] | None = None

    def logits(self, texts: Sequence[str], pairs: Sequence[str] | None) -> Tensor:
        """`(n, C)`, fp32 on the CPU."""
        return linear_logits(self.linear, texts, pairs)


@dataclass(kw_only=True, slots=True)
class About:
    """What baseline.json says of the tensors beside it."""

    terms: Terms = setting(Terms.words, "what is counted in a text")
    thresholds: list[float] = setting(list, "from which probability on each label is given", ge=0.0, le=1.0)


def write_linear(path: Path, linear: LinearModel) -> None:
    """Its tensors, in the same bytes for the same values."""
    save_file({name: tensor.contiguous() for name, tensor in linear.state_dict().items()}, path)


def read_linear(path: Path, n_classes: int, terms: Terms) -> LinearModel:
    """What `write_linear` has written.

    Raises:
        ValueError: not a safetensors file; tensors missing, too many, of another shape or type, not finite, too
            large, or terms that do not ascend.
    """
    try:
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
            held = {name: (one.get_dtype(), one.get_shape()) for name, one in slices.items()}
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from error
    n_terms = held.get("terms_U", ("", [0]))[1][0:1]
    sizes = {"terms_U": n_terms, "rarity_U": n_terms, "votes_UC": [*n_terms, n_classes], "bias_C": [n_classes]}
    if held != {name: (kind, sizes[name]) for name, kind in KINDS.items()} or n_terms in ([], [0]):
        raise ValueError(f"{path} does not hold the linear model of {n_classes} classes")
    tensors = load_file(path)
    bounded = all((tensors[name].abs() < MOST).all() for name in ("rarity_U", "votes_UC", "bias_C"))
    if not bounded or (tensors["terms_U"].diff() <= 0).any():
        raise ValueError(f"{path} holds values that are not finite or not below a million, or terms out of order")
    return LinearModel(**tensors, terms=terms)


def write_baseline(folder: Path, baseline: LinearBaseline) -> None:
    """Both files of a baseline, in a run folder."""
    tensors, about = (folder / name for name in BASELINE)
    write_linear(tensors, baseline.linear)
    plain = to_plain(About(terms=baseline.linear.terms, thresholds=baseline.thresholds or []))
    about.write_text(json.dumps(plain) + "\n", encoding="utf-8")


def read_baseline(folder: Path, n_classes: int, *, multi: bool) -> LinearBaseline | None:
    """What `write_baseline` has written; None where there is none.

    Raises:
        ValueError: a file is not what it should be.
    """
    tensors, written = (folder / name for name in BASELINE)
    if not tensors.is_file() or not written.is_file():
        return None
    try:
        about = from_plain(About, read_json(written))
        check_ranges(about, "")
    except ValueError as error:
        raise ValueError(f"{written}: {error}") from error
    if len(about.thresholds) != (n_classes if multi else 0):
        raise ValueError(f"{written} holds {len(about.thresholds)} thresholds for {n_classes} classes")
    return LinearBaseline(read_linear(tensors, n_classes, about.terms), about.thresholds if multi else None)


@torch.inference_mode()
def linear_logits(linear: LinearModel, texts: Sequence[str], pairs: Sequence[str] | None) -> Tensor:
    """Its logits `(n, C)`."""
    found = [torch.empty(0, len(linear.bias_C))]
    for chunk in _chunks(texts, pairs):
        found.append(linear.of(counted(texts[chunk], None if pairs is None else pairs[chunk], linear.terms)))
    return torch.cat(found)


def _chunks(texts: Sequence[str], pairs: Sequence[str] | None) -> Iterator[slice]:
    """Rows that are answered at once: so many, with so many letters, or a single longer one."""
    start = n_letters = 0
    for at, text in enumerate(texts):
        more = len(text) + (len(pairs[at]) if pairs else 0)
        if at > start and (at - start == AT_ONCE or n_letters + more > LETTERS_AT_ONCE):
            yield slice(start, at)
            start, n_letters = at, 0
        n_letters += more
    if start < len(texts):
        yield slice(start, len(texts))


def together(network_nC: Tensor, linear_nC: Tensor, share: float, temperature: float, *, multi: bool) -> Tensor:
    """Logits `(n, C)` whose probabilities are those of both, the linear model's counting for `share` of the whole and
    the network's logits divided by `temperature`."""
    logs = torch.tensor([1 - share, share], dtype=torch.float64).log()
    both = network_nC.double() / temperature, linear_nC.double()
    if not multi:
        log_nC = [F.log_softmax(one, -1) + log for one, log in zip(both, logs, strict=True)]
        return torch.logaddexp(*log_nC).to(network_nC.dtype)
    given_nC, kept_nC = (
        torch.logaddexp(*(F.logsigmoid(sign * one) + log for one, log in zip(both, logs, strict=True)))
        for sign in (1, -1)
    )
    return (given_nC - kept_nC).to(network_nC.dtype)


def best_together(
    network_nC: Tensor, linear_nC: Tensor, labels: Tensor, weights_C: Tensor | None = None
) -> tuple[float, float, float]:
    """Share, temperature of the network and temperature of the linear model by rows of known `labels`, class ids `(n,)`
    or marks `(n, C)`: those with which each alone, then both together, answer these rows likeliest.

    Smoothed labels make a network too modest, few rows a linear model. The network was chosen on the same rows, which
    flatters it where they are few; the share is therefore held towards a half, as `PULL` further rows would that each
    of them answers half of. Of equals the smallest share.

    Args:
        weights_C: how much a row of each class counts, or what a row has of each label; None: all alike.
    """
    weights = counting(labels, weights_C)
    of_network, of_linear = (likeliest(one, labels, weights) for one in (network_nC, linear_nC))
    network, linear = given(network_nC / of_network, labels), given(linear_nC / of_linear, labels)

    def loss(share: float) -> float:
        held = [math.log(max(part, LEAST_SHARE)) for part in (share, 1 - share)]
        return -likelihood((1 - share) * network + share * linear, weights) - PULL / 2 * sum(held)

    return min(SHARES, key=loss), of_network, of_linear


DIGITS = 6


class Tuned(NamedTuple):
    """What to ship: the linear model beside the network, if it may answer; thresholds, where a text has any number of
    labels, and those of each member asked by itself; and the linear model alone, as the baseline of the run."""

    beside: Beside | None = None
    thresholds: list[float] | None = None
    alone: dict[str, list[float]] = {}  # noqa: RUF012 - read alone
    baseline: LinearBaseline | None = None

    @property
    def share(self) -> float:
        """Of the linear model in each answer."""
        return self.beside.share if self.beside else 0.0


def tuned_on(
    classifier: Classifier,
    linear: LinearModel | None,
    tokens: Tokens,
    rows: Rows,
    weights_C: Tensor | None = None,
    *,
    answers: bool = True,
) -> Tuned:
    """What is best on `rows`, whose tokens are `tokens`: the share by their likelihood, in which classes count by
    `weights_C`, then thresholds by F1. In fp32 on the CPU, as the shipped classifier is judged.

    Args:
        answers: the linear model may answer beside the network; otherwise it is a baseline.
    """
    labels, multi = tokens.labels, tokens.labels.ndim == 2
    if linear is None:
        return Tuned(thresholds=thresholds_of(network_logits(classifier, tokens), labels)) if multi else Tuned()
    linear_nC = linear_logits(linear, rows.texts, rows.pairs)
    network_nC = network_logits(classifier, tokens) if answers or multi else torch.empty(0)
    share, temperature, of_linear = (
        best_together(network_nC, linear_nC, labels, weights_C)
        if answers
        else (0.0, 1.0, likeliest(linear_nC, labels, counting(labels, weights_C)))
    )
    linear, linear_nC = linear.over(of_linear), linear_nC / of_linear
    both_nC = together(network_nC, linear_nC, share, temperature, multi=multi) if share else network_nC
    beside = Beside(linear, share, temperature if share else 1.0) if answers else None
    if not multi:
        return Tuned(beside, baseline=LinearBaseline(linear))
    of_both, of_network, of_linear = (thresholds_of(one, labels) for one in (both_nC, network_nC, linear_nC))
    alone = {"network": of_network, "linear": of_linear} if answers else {}
    return Tuned(beside, of_both, alone, LinearBaseline(linear, of_linear))


def thresholds_of(logits_nC: Tensor, marks_nC: Tensor) -> list[float]:
    """From which probability on each label is best given."""
    counts = no_counts(marks_nC.shape[1])
    count(counts, logits_nC, marks_nC)
    return [round(one, DIGITS) for one in best(counts).thresholds_C.tolist()]


@torch.inference_mode()
def network_logits(classifier: Classifier, tokens: Tokens) -> Tensor:
    """Logits `(n, C)` of the rows of `tokens`."""
    logits_nC = torch.empty(len(tokens), classifier.head.out_features)
    for batch in Batches(tokens, plan_evaluation(tokens.lengths, tokens=ANSWER_TOKENS, rows=ANSWER_ROWS)):
        logits_nC[batch.rows_B] = classifier(batch.ids_N, batch.layout, batch.segments_N).float()
    return logits_nC
