"""The same budget for every row of a table: a width, or a number of steps, chosen so that the costs agree."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from manyheads.config import ModelConfig
from manyheads.config.model import WIDEST
from manyheads.nn import Classifier, assemble
from manyheads.nn.cost import count_parameters, flops_per_token

Cost = Callable[[ModelConfig], float]
NARROWEST = 0.25  # share of its d_ff that a model keeps before d_model gives way too


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the data decides about a model's size; `lengths` are those of the training texts in tokens, each with how
    many texts have it."""

    vocab_size: int
    n_classes: int
    max_length: int
    n_segments: int
    lengths: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Match:
    """A model at the budget; `difference` is its cost over the target, less one."""

    model: ModelConfig
    difference: float


def parameters(model: ModelConfig, sizes: Sizes) -> int:
    """Trained numbers of the model, on torch's meta device: nothing is allocated, whatever the size."""
    with torch.device("meta"):
        return count_parameters(untrained(model, sizes))


def flops(model: ModelConfig, sizes: Sizes) -> float:
    """Operations of a token, averaged over all tokens: a long text has more of them, and each of them more keys."""
    n_tokens = sum(length * n_texts for length, n_texts in sizes.lengths)
    return sum(length * n_texts * flops_per_token(model, length) for length, n_texts in sizes.lengths) / n_tokens


def untrained(model: ModelConfig, sizes: Sizes) -> Classifier:
    """A classifier with fresh weights, drawn from torch's generator."""
    return assemble(
        model,
        vocab_size=sizes.vocab_size,
        n_classes=sizes.n_classes,
        max_length=sizes.max_length,
        n_segments=sizes.n_segments,
    )


def match_width(model: ModelConfig, target: float, cost: Cost, *, levers: list[str], tolerance: float) -> Match:
    """`model` at another width, so that `cost` is as near to `target` as a whole number allows.

    `d_ff` is tried first, since it changes nothing else of the model; where that does not meet the target, or would
    leave less than a quarter of `d_ff` or ask for more than four times of it, `d_model` moves, `d_ff` in proportion,
    and `d_ff` then makes up for what is left.

    Args:
        cost: rises with each width.
        levers: which of `model.d_ff` and `model.d_model` may move.
        tolerance: the largest relative difference that is accepted.

    Raises:
        ValueError: no width comes within the tolerance; names the nearest.
    """
    found: list[Match] = []
    by_d_ff = _by_d_ff(model, target, cost) if "model.d_ff" in levers else None
    if by_d_ff is not None:
        found.append(by_d_ff)
        kept = by_d_ff.model.d_ff / model.d_ff
        if abs(by_d_ff.difference) <= tolerance and NARROWEST <= kept <= 1 / NARROWEST:
            return by_d_ff
    if "model.d_model" in levers and model.project and model.project_output:  # else d_model is that of the heads
        found.insert(0, _by_d_model(model, target, cost, both=by_d_ff is not None))
    for match in found:
        if abs(match.difference) <= tolerance:
            return match
    raise ValueError(_out_of_reach(target, min(found, key=lambda one: abs(one.difference), default=None), tolerance))


def _by_d_ff(model: ModelConfig, target: float, cost: Cost) -> Match | None:
    """None where the model's cost does not depend on d_ff."""

    def wide(width: int) -> ModelConfig:
        return replace(model, d_ff=width)

    moves = cost(wide(1)) < cost(wide(2))
    return _nearest(target, cost, wide, 4 * WIDEST) if moves else None


def _by_d_model(model: ModelConfig, target: float, cost: Cost, *, both: bool) -> Match:
    share = model.d_ff / model.d_model if both else 0
    grain = 2 if model.is_recurrent and model.bidirectional else 1  # half of d_model for each direction

    def wide(step: int) -> ModelConfig:
        width = grain * step
        return replace(model, d_model=width, d_ff=max(1, round(share * width)) if both else model.d_ff)

    coarse = _nearest(target, cost, wide, int(WIDEST / max(share / 4, 1)) // grain)
    fine = _by_d_ff(coarse.model, target, cost) if both else None
    return coarse if fine is None else min(coarse, fine, key=lambda one: abs(one.difference))


def _nearest(target: float, cost: Cost, wide: Callable[[int], ModelConfig], widest: int) -> Match:
    """Of all widths from 1 to `widest` the one whose cost, which rises, is nearest to `target`: by bisection."""
    low, high = 1, widest
    while low < high:  # the least width that costs as much as the target
        middle = (low + high) // 2
        low, high = (low, middle) if cost(wide(middle)) >= target else (middle + 1, high)
    matches = [Match(wide(width), cost(wide(width)) / target - 1) for width in {low, max(1, low - 1)}]
    return min(matches, key=lambda one: abs(one.difference))


def _out_of_reach(target: float, nearest: Match | None, tolerance: float) -> str:
    if nearest is None:
        return (
            "no width is left to make the rows equal, as model.d_ff and model.d_model both vary or are fixed: "
            "hold something else equal, such as equal=tokens"
        )
    model, share = nearest.model, 1 + nearest.difference
    return (
        f"no width brings this row to the first row's {target:,.0f}: the nearest, model.d_model={model.d_model} "
        f"model.d_ff={model.d_ff}, costs {share:.2f} times as much, beyond tolerance={tolerance:g}; "
        "compare values that are closer, or hold something else equal, such as equal=tokens"
    )
