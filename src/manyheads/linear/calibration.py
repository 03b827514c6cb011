"""What `manyheads calibrate` fits and calibration.json of a folder holds: a map from logits to calibrated ones.

`temperature` divides all logits by one number, `vector` scales and shifts those of each class: Guo et al. (2017), "On
Calibration of Modern Neural Networks". `isotonic` maps the probability of each class by a rising line through knots:
Zadrozny and Elkan (2002), "Transforming Classifier Scores into Accurate Multiclass Probability Estimates".

n rows . C classes or labels . P knots
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from manyheads.errors import UserError
from manyheads.runs.files import read_json

LEAST_MAPPED = 1e-6  # of a calibrated probability, so that the loss of a mistake stays finite
MOST_READ = 1e6  # of a number in calibration.json


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
    """What `manyheads calibrate` wrote; None where there is no file. A UserError where it does not fit."""
    if not path.is_file():
        return None
    found = read_json(path)
    if not isinstance(found, dict):
        found = {}
    method, digest = str(found.get("method")), found.get("digest")
    if not isinstance(digest, str):
        digest = ""
    if "knots" in found:
        pairs = found["knots"]
        if not isinstance(pairs, list) or len(pairs) != n_classes or not all(map(_are_knots, pairs)):
            raise UserError(
                f"{path} must hold ascending knots, two lists of probabilities for each of {n_classes} classes"
            )
        knots = [(torch.tensor(x, dtype=torch.float64), torch.tensor(y, dtype=torch.float64)) for x, y in pairs]
        return Calibration(method, knots=knots, digest=digest)
    scale, shift = _numbers(found.get("scale")), _numbers(found.get("shift"))
    if len(scale) != n_classes or len(shift) != n_classes or min(scale) <= 0:
        raise UserError(f"{path} must hold a scale above 0 and a shift for each of {n_classes} classes")
    scale_C, shift_C = torch.tensor(scale, dtype=torch.float64), torch.tensor(shift, dtype=torch.float64)
    return Calibration(method, scale_C, shift_C, digest=digest)


def _numbers(found: Any) -> list[float]:
    """The list, if it holds finite numbers and nothing else, or an empty one."""
    if not isinstance(found, list):
        return []
    for one in found:
        if type(one) not in (int, float) or not math.isfinite(one) or abs(one) > MOST_READ:
            return []
    return found


def _are_knots(pair: Any) -> bool:
    if not isinstance(pair, list) or len(pair) != 2:
        return False
    x, y = map(_numbers, pair)
    rising = all(later >= former for one in (x, y) for former, later in pairwise(one))
    return len(x) >= 2 and len(x) == len(y) and rising and all(0 <= one <= 1 for one in (*x, *y))
