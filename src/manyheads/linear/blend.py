"""What is tuned on validation rows once a classifier is trained: temperatures, the share of the linear model in the
answers, and the thresholds of labels; and what `manyheads calibrate` fits afterwards, calibration.json of a folder.

Thresholds are chosen for micro and macro F1. Rows are counted by logit, so that what is known of a split is small, and
counts of several processes can be added up.

Of a calibration `temperature` divides all logits by one number, `vector` scales and shifts those of each class: Guo et
al. (2017), "On Calibration of Modern Neural Networks". `isotonic` maps the probability of each class by a rising line
through knots: Zadrozny and Elkan (2002), "Transforming Classifier Scores into Accurate Multiclass Probability
Estimates".

n rows . C classes or labels . T steps of the grid of logits . P knots
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from manyheads.data.rows import Rows
from manyheads.data.tokens import multi_hot
from manyheads.linear.model import LinearBaseline, LinearModel, linear_logits
from manyheads.runs.folder import read_json

TEMPERATURES = [2 ** (at / 4) for at in range(-8, 17)]
UNSURE = 0.5
"""Of one more row, spread over the texts of all, that may have any class, or each label or not: without it a
temperature would make certainties of few rows that are all right. Platt (1999), "Probabilistic Outputs for Support
Vector Machines", section 2.1, has such targets."""
LEAST = 1e-30  # of a probability
SHARES = [at / 20 for at in range(21)]  # that are tried
PULL = 8.0  # rows
LEAST_SHARE = SHARES[1]  # the pull counts none as this: between the two, the rows alone decide
DIGITS = 6  # of a threshold
LARGEST, STEP = 8.0, 0.05  # thresholds are tried from a logit of -8, a probability of 0.0003, to 8
N_STEPS = 1 + round(2 * LARGEST / STEP)
# As they are written to thresholds.json, so that rows are counted by the very numbers that labels are given by. The
# lowest gives a label to every text.
GRID = [0.0, *(round(1 / (1 + math.exp(LARGEST - at * STEP)), DIGITS) for at in range(1, N_STEPS))]
NEIGHBOURS = 5  # steps to either side over which rows are counted on average
MOST_ROUNDS = 20
UNKNOWN = 0.5  # the threshold of a label that no row has
LEAST_MAPPED = 1e-6  # of a calibrated probability, so that the loss of a mistake stays finite
MOST_READ = 1e6  # of a number in calibration.json


class Blend(NamedTuple):
    """A linear model that answers with a network: its probabilities count for `share` of the whole, those of the
    network's logits over `temperature` for the rest (Guo et al., 2017, "On Calibration of Modern Neural Networks").
    With a share of 0 the network answers alone, and the linear model is its baseline."""

    linear: LinearModel
    share: float
    temperature: float = 1.0

    def of(self, network_nC: Tensor, linear_nC: Tensor, *, multi: bool) -> Tensor:
        """Logits `(n, C)` of both together; of labels, of which a row has any number, where it is `multi`."""
        return blended(network_nC, linear_nC, self.share, self.temperature, multi=multi) if self.share else network_nC


class Tuned(NamedTuple):
    """What to ship: the linear model with the network, if it may answer; thresholds, where a text has any number of
    labels, and those of each member asked by itself; and the linear model alone, as the baseline of the run."""

    blend: Blend | None = None
    thresholds: list[float] | None = None
    member_thresholds: dict[str, list[float]] = {}  # noqa: RUF012 - read alone
    baseline: LinearBaseline | None = None

    @property
    def share(self) -> float:
        """Of the linear model in each answer."""
        return self.blend.share if self.blend else 0.0


def tune(
    network_nC: Tensor | None,
    linear: LinearModel | None,
    rows: Rows,
    n_classes: int,
    weights_C: Tensor | None = None,
    *,
    answers: bool = True,
) -> Tuned:
    """What is best on `rows`: the share by their likelihood, in which classes count by `weights_C`, then thresholds by
    F1.

    Args:
        network_nC: the network's logits of the rows, in fp32; needed where it has thresholds or shares its answers.
        linear: None: training fitted none.
        answers: the linear model may answer with the network; otherwise it is a baseline.
    """
    labels, multi = labels_of(rows, n_classes), rows.sets is not None
    if linear is None:
        return Tuned(thresholds=thresholds_of(network_nC, labels)) if multi and network_nC is not None else Tuned()
    linear_nC = linear_logits(linear, rows.texts, rows.pairs)
    share, temperature = 0.0, 1.0
    if answers and network_nC is not None:
        share, temperature, of_linear = best_share(network_nC, linear_nC, labels, weights_C)
    else:
        of_linear = best_temperature(linear_nC, labels, row_weights(labels, weights_C))
    linear, linear_nC = linear.over(of_linear), linear_nC / of_linear
    blend = Blend(linear, share, temperature if share else 1.0)
    if not multi or network_nC is None:
        return Tuned(blend if answers else None, baseline=LinearBaseline(linear))
    both_nC = blend.of(network_nC, linear_nC, multi=True)
    of_both, of_network, of_linear = (thresholds_of(one, labels) for one in (both_nC, network_nC, linear_nC))
    members = {"network": of_network, "linear": of_linear} if answers else {}
    return Tuned(blend if answers else None, of_both, members, LinearBaseline(linear, of_linear))


def labels_of(rows: Rows, n_classes: int) -> Tensor:
    """Class ids `(n,)` or, where a row has any number of labels, a 1 for each it has `(n, C)`."""
    return torch.tensor(rows.labels) if rows.sets is None else multi_hot(rows.sets, n_classes)


def blended(network_nC: Tensor, linear_nC: Tensor, share: float, temperature: float, *, multi: bool) -> Tensor:
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


def best_share(
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
    weights = row_weights(labels, weights_C)
    of_network, of_linear = (best_temperature(one, labels, weights) for one in (network_nC, linear_nC))
    network, linear = likelihoods(network_nC / of_network, labels), likelihoods(linear_nC / of_linear, labels)

    def loss(share: float) -> float:
        held = [math.log(max(part, LEAST_SHARE)) for part in (share, 1 - share)]
        logs = log_likelihoods((1 - share) * network + share * linear, weights)
        return -float(logs.sum()) - PULL / 2 * sum(held)

    return min(SHARES, key=loss), of_network, of_linear


def row_weights(labels: Tensor, weights_C: Tensor | None) -> Tensor:
    """How much each of `likelihoods` counts, of class ids `(n,)` or marks `(n, C)`."""
    if weights_C is None:
        return torch.ones(())
    return weights_C[labels] if labels.ndim == 1 else torch.where(labels > 0, weights_C, 1.0)


def best_temperature(logits_nC: Tensor, labels: Tensor, weights: Tensor) -> float:
    """The temperature with which the labels are likeliest; `UNSURE` keeps it up where all of them are right."""

    def log_likelihood(temperature: float) -> float:
        over_nC = logits_nC.double() / temperature
        of_any_nC = over_nC.log_softmax(-1) if labels.ndim == 1 else -(F.softplus(over_nC) + F.softplus(-over_nC)) / 2
        of_one = of_any_nC.mean(0).mean() if labels.ndim == 1 else of_any_nC.mean(0).sum()
        return float(log_likelihoods(likelihoods(over_nC, labels), weights).sum() + UNSURE * of_one)

    return max(TEMPERATURES, key=log_likelihood)


def log_likelihoods(likelihoods: Tensor, weights: Tensor) -> Tensor:
    """Their logarithms, by how much each counts."""
    return likelihoods.clamp(min=LEAST).log() * weights


def likelihoods(logits_nC: Tensor, labels: Tensor) -> Tensor:
    """The probabilities of what rows are labelled: of their classes `(n,)`, or of having or not having each label
    `(n, C)`."""
    if labels.ndim == 1:
        return logits_nC.double().softmax(-1).gather(1, labels[:, None]).squeeze(1)
    return (logits_nC.double() * (2 * labels.double() - 1)).sigmoid()


def probabilities_of(logits_nC: Tensor, *, multi: bool) -> Tensor:
    """Of every class `(n, C)`, in fp64: promises are set in it, and the loss of a confident mistake stays finite. They
    add up to 1 where a text has one class."""
    return logits_nC.double().sigmoid() if multi else logits_nC.double().softmax(-1)


def given_of(probabilities_nC: Tensor, thresholds: list[float] | Tensor | None) -> Tensor:
    """Which labels a text is given, bool `(n, C)`: those from their `thresholds` on, of all texts, or of each `(n, C)`;
    None: the likeliest class."""
    if thresholds is None:
        return F.one_hot(probabilities_nC.argmax(-1), probabilities_nC.size(1)).bool()
    return probabilities_nC >= torch.as_tensor(thresholds, dtype=torch.float64)


def thresholds_of(logits_nC: Tensor, marks_nC: Tensor) -> list[float]:
    """From which probability on each label is best given."""
    counts = no_counts(marks_nC.shape[1])
    count(counts, logits_nC, marks_nC)
    return best(counts).thresholds_C.tolist()


class Counts(NamedTuple):
    """Rows by the last of `GRID` that a label's probability reaches: those that have the label, and all; `(C, T)` int64
    each."""

    own_CT: Tensor
    all_CT: Tensor


class Best(NamedTuple):
    """The threshold of each label `(C,)`, a probability, and with it, of each label, the rows it is given to, those of
    them that have it, and all that have it."""

    thresholds_C: Tensor
    given_C: Tensor
    right_C: Tensor
    support_C: Tensor

    @property
    def micro_f1(self) -> Tensor:
        """F1 of all labels of all rows."""
        return 2 * self.right_C.sum() / (self.given_C + self.support_C).sum().clamp(min=1)

    @property
    def macro_f1(self) -> Tensor:
        """The mean of the F1 of labels that rows have, or are given."""
        occurs_C = self.given_C + self.support_C
        return (2 * self.right_C / occurs_C.clamp(min=1)).sum() / (occurs_C > 0).sum().clamp(min=1)


def no_counts(n_labels: int) -> Counts:
    """Counts of no rows."""
    return Counts(*(torch.zeros(n_labels, N_STEPS, dtype=torch.int64) for _ in range(2)))


def count(counts: Counts, logits_nC: Tensor, marks_nC: Tensor) -> None:
    """Add rows to `counts`, in place and on their device; `marks_nC` has a 1 for each label of a row."""
    likely_nC, grid_T = logits_nC.double().sigmoid(), torch.tensor(GRID, dtype=torch.float64, device=logits_nC.device)
    step_nC = torch.bucketize(likely_nC.nan_to_num(0.0), grid_T, right=True) - 1
    cells = (step_nC + N_STEPS * torch.arange(logits_nC.shape[1], device=step_nC.device)).flatten()
    counts.all_CT.view(-1).index_add_(0, cells, torch.ones_like(cells))
    counts.own_CT.view(-1).index_add_(0, cells, marks_nC.long().flatten())


def best(counts: Counts) -> Best:
    """The threshold of each label, such that micro F1 and macro F1 together are as high as can be.

    The best F1 of each label alone would give a label that cannot be predicted to every text there is, and the best
    micro F1 would never give a rare one. So it begins with the former, and then each label in turn takes the threshold
    at which the sum of both is highest, until none changes.
    """
    n_labels = len(counts.own_CT)
    right_CT, given_CT = (counted.cpu().flip(1).cumsum(1).flip(1) for counted in counts)
    support_C = right_CT[:, 0]
    at_C = _climbed(_smoothed(right_CT), _smoothed(given_CT), support_C)
    thresholds_C = torch.tensor(GRID, dtype=torch.float64)[at_C].where(support_C > 0, UNKNOWN)
    found = Best(thresholds_C, given_CT[range(n_labels), at_C], right_CT[range(n_labels), at_C], support_C)
    return Best(*(one.to(counts.own_CT.device) for one in found))


def _smoothed(counted_CT: Tensor) -> Tensor:
    """Means over neighbouring thresholds: of a label with few rows the very best one is an accident of these rows."""
    width = 2 * NEIGHBOURS + 1
    return F.avg_pool1d(counted_CT.double(), width, 1, NEIGHBOURS, count_include_pad=False)


def _climbed(right_CT: Tensor, given_CT: Tensor, support_C: Tensor) -> Tensor:
    """Which threshold each label takes, `(C,)`: coordinate ascent on the sum of micro and macro F1."""
    f1_CT = 2 * right_CT / (given_CT + support_C[:, None]).clamp(min=1)
    n_had, every = (support_C > 0).sum().clamp(min=1), range(len(f1_CT))
    at_C = torch.stack([_middle_of_best(f1_T) for f1_T in f1_CT]).where(support_C > 0, N_STEPS // 2)
    right, given = right_CT[every, at_C].sum(), given_CT[every, at_C].sum() + support_C.sum()
    for _ in range(MOST_ROUNDS):
        before_C = at_C.clone()
        for label in support_C.nonzero().flatten().tolist():
            right_T = right + right_CT[label] - right_CT[label, at_C[label]]
            given_T = given + given_CT[label] - given_CT[label, at_C[label]]
            at_C[label] = _middle_of_best(2 * right_T / given_T + f1_CT[label] / n_had)
            right, given = right_T[at_C[label]], given_T[at_C[label]]
        if torch.equal(at_C, before_C):
            break
    return at_C


def _middle_of_best(worth_T: Tensor) -> Tensor:
    """Which is the highest, of equal ones the middle: the furthest from where it gets worse."""
    highest = (worth_T >= worth_T.max() - 1e-9).nonzero().flatten()
    return highest[len(highest) // 2]


@dataclass(slots=True)
class Calibration:
    """How logits are mapped: by `scale_C` and `shift_C`, or by the `knots` of each class, which are pairs of ascending
    probabilities. `digest` is that of the rows it was fitted on."""

    method: str
    scale_C: Tensor | None = None
    shift_C: Tensor | None = None
    knots: list[tuple[Tensor, Tensor]] | None = None
    digest: str = ""

    @property
    def name(self) -> str:
        """Which one it is: how it was fitted, and on which rows."""
        return f"{self.method} {self.digest}".strip()

    def of(self, logits_nC: Tensor, *, multi: bool) -> Tensor:
        """Logits `(n, C)` of calibrated probabilities, in the type of `logits_nC`."""
        wide_nC = logits_nC.double()
        if self.knots is None:
            assert self.scale_C is not None, "one of the two is there"
            assert self.shift_C is not None, "one of the two is there"
            return (wide_nC * self.scale_C + self.shift_C).to(logits_nC.dtype)
        likely_nC = wide_nC.sigmoid() if multi else wide_nC.softmax(-1)
        mapped = [_along(of, *knots) for of, knots in zip(likely_nC.T, self.knots, strict=True)]
        mapped_nC = torch.stack(mapped, dim=1).clamp(LEAST_MAPPED, 1 - LEAST_MAPPED)
        return (mapped_nC.logit() if multi else mapped_nC.log().log_softmax(-1)).to(logits_nC.dtype)

    def thresholds(self, thresholds: list[float]) -> list[float]:
        """From which calibrated probabilities on labels are given, so that they are given to the same texts."""
        given_1C = torch.tensor([thresholds], dtype=torch.float64)
        mapped_1C = self.of(given_1C.logit(), multi=True).sigmoid()
        # none is below 0, and next to none at 1: to these no probability is mapped
        return mapped_1C.where((given_1C > 0) & (given_1C < 1), given_1C)[0].tolist()

    def as_json(self) -> dict[str, Any]:
        """What `read_calibration` reads."""
        if self.knots is not None:
            return {"method": self.method, "knots": [[one.tolist() for one in pair] for pair in self.knots]}
        assert self.scale_C is not None, "one of the two is there"
        assert self.shift_C is not None, "one of the two is there"
        return {"method": self.method, "scale": self.scale_C.tolist(), "shift": self.shift_C.tolist()}


def _along(x_n: Tensor, from_P: Tensor, to_P: Tensor) -> Tensor:
    """Values on the line through the knots; beyond the first and the last, theirs."""
    after_n = torch.searchsorted(from_P, x_n.contiguous()).clamp(1, len(from_P) - 1)
    left, right = from_P[after_n - 1], from_P[after_n]
    part_n = ((x_n - left) / (right - left).clamp(min=1e-300)).clamp(0, 1)
    return torch.lerp(to_P[after_n - 1], to_P[after_n], part_n)


def read_calibration(path: Path, n_classes: int) -> Calibration | None:
    """What `manyheads calibrate` wrote; None where there is no file. A ValueError where it does not fit."""
    if not path.is_file():
        return None
    found = read_json(path)
    found = found if isinstance(found, dict) else {}
    method, digest = str(found.get("method")), found.get("digest")
    digest = digest if isinstance(digest, str) else ""
    if "knots" in found:
        pairs = found["knots"]
        if not isinstance(pairs, list) or len(pairs) != n_classes or not all(map(_are_knots, pairs)):
            raise ValueError(
                f"{path} must hold ascending knots, two lists of probabilities for each of {n_classes} classes"
            )
        knots = [(torch.tensor(x, dtype=torch.float64), torch.tensor(y, dtype=torch.float64)) for x, y in pairs]
        return Calibration(method, knots=knots, digest=digest)
    scale, shift = _numbers(found.get("scale")), _numbers(found.get("shift"))
    if len(scale) != n_classes or len(shift) != n_classes or min(scale) <= 0:
        raise ValueError(f"{path} must hold a scale above 0 and a shift for each of {n_classes} classes")
    scale_C, shift_C = torch.tensor(scale, dtype=torch.float64), torch.tensor(shift, dtype=torch.float64)
    return Calibration(method, scale_C, shift_C, digest=digest)


def _numbers(found: Any) -> list[float]:
    """The list, if it holds finite numbers and nothing else, or an empty one."""
    is_one = isinstance(found, list) and all(
        type(one) in (int, float) and math.isfinite(one) and abs(one) <= MOST_READ for one in found
    )
    return found if is_one else []


def _are_knots(pair: Any) -> bool:
    if not isinstance(pair, list) or len(pair) != 2:
        return False
    x, y = map(_numbers, pair)
    rising = all(later >= former for one in (x, y) for former, later in pairwise(one))
    return len(x) >= 2 and len(x) == len(y) and rising and all(0 <= one <= 1 for one in (*x, *y))
