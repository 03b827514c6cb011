"""The same budget for every row of a comparison, and the run that each row then is.

The same budget for every row of a table: a width, or a number of steps, chosen so that the costs agree.

Which run each row of the table is, once its budget equals the first row's. Nothing is trained here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch

from manyheads.config import AblateConfig, Equal, ModelConfig, RunConfig
from manyheads.config.ablate import WIDTHS, Variant
from manyheads.config.fields import to_plain
from manyheads.config.model import WIDEST
from manyheads.data.datamodule import TextData
from manyheads.nn import Classifier, assemble
from manyheads.nn.cost import count_parameters, flops_per_token
from manyheads.sweep.ablate import Prepared
from manyheads.training.module import are_few
from manyheads.training.sizing import limited_by_data

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


ELSEWHERE = ("seed", "output", "test", "dry", "logger.", "checkpoint.", "data.path", "data.cache", "hardware.threads")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table on one set of data; `difference` is its budget over the first row's, less one."""

    set: str
    name: str
    run: RunConfig
    difference: float
    parameters: int
    flops_per_token: float


def plan_rows(config: AblateConfig, prepared: Prepared) -> list[Row]:
    """All rows on one set of data, each at the budget of the first.

    Raises:
        ValueError: a budget that cannot be met; names the row.
    """
    rows: list[Row] = []
    for variant in config.variants():
        run = _limited(replace(config.run(variant), data=prepared.data), prepared)
        run, difference = _at_budget(config, variant, run, rows[0] if rows else None, prepared)
        rows.append(
            Row(
                set=prepared.name,
                name=variant.name,
                run=run,
                difference=difference,
                parameters=parameters(run.model, prepared.sizes),
                flops_per_token=flops(run.model, prepared.sizes),
            )
        )
    return rows


def decisive(run: RunConfig) -> dict[str, Any]:
    """The settings of a run that decide its figures, by dotted name; the data itself and the seed are named apart."""
    return {name: value for name, value in _flat(run) if not name.startswith(ELSEWHERE)}


def _limited(run: RunConfig, prepared: Prepared) -> RunConfig:
    """`run` with the epochs and steps that its rows and classes decide, as `train` has them."""
    few = are_few(run, prepared.tokens["train"], prepared.labels)
    return limited_by_data(run, few=few, n_classes=len(prepared.labels))


def _at_budget(
    config: AblateConfig, variant: Variant, run: RunConfig, first: Row | None, prepared: Prepared
) -> tuple[RunConfig, float]:
    """The run with the width or the steps of its budget, and how far that is off."""
    if first is None or config.equal is Equal.seconds:
        return run, 0.0
    try:
        if config.equal is Equal.tokens:
            return _same_tokens(config, run, first.run, prepared)
        match = _same_cost(config, run.model, first, prepared)
    except ValueError as error:
        raise ValueError(f"{config.vary_name}={variant.name} on {prepared.name}: {error}") from error
    return replace(run, model=match.model), match.difference


def _same_cost(config: AblateConfig, model: ModelConfig, first: Row, prepared: Prepared) -> Match:
    def n_parameters(one: ModelConfig) -> float:
        return parameters(one, prepared.sizes)

    def n_operations(one: ModelConfig) -> float:
        return flops(one, prepared.sizes)

    by_size = config.equal is Equal.parameters
    return match_width(
        model,
        first.parameters if by_size else first.flops_per_token,
        n_parameters if by_size else n_operations,
        levers=[name for name in WIDTHS if name not in config.varied],
        tolerance=config.tolerance,
    )


def _same_tokens(config: AblateConfig, run: RunConfig, first: RunConfig, prepared: Prepared) -> tuple[RunConfig, float]:
    """`run` with as many steps as it needs to read the tokens that the first row reads."""
    data = TextData(prepared.tokens, first.batch, first.seed)
    n_first = data.n_steps(first.trainer.get("max_epochs"), first.trainer.get("max_steps", -1))
    target = 0
    for at, tokens in enumerate(_tokens_of_steps(first, prepared)):
        if at == n_first:
            break
        target += tokens
    steps = total = before = 0
    for tokens in _tokens_of_steps(run, prepared):
        steps, before, total = steps + 1, total, total + tokens
        if total >= target:
            break
    if steps > 1 and target - before < total - target:
        steps, total = steps - 1, before
    difference = total / target - 1
    if abs(difference) > config.tolerance:
        raise ValueError(
            f"no number of steps reads the first row's {target:,} tokens: the nearest, {steps}, reads {total:,}, "
            f"beyond tolerance={config.tolerance:g}; use more steps, or smaller batches"
        )
    return replace(run, trainer={**run.trainer, "max_steps": steps, "max_epochs": -1}), difference


def _tokens_of_steps(run: RunConfig, prepared: Prepared) -> Iterator[int]:
    """Tokens that each optimiser step reads, without an end."""
    data, lengths = TextData(prepared.tokens, run.batch, run.seed), prepared.tokens["train"].lengths
    epoch = 0
    while True:
        plan = data.plan(epoch)
        for start in range(0, len(plan), run.batch.accumulate):
            yield sum(int(lengths[one.rows].sum()) for one in plan[start : start + run.batch.accumulate])
        epoch += 1


def _flat(section: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    plain = to_plain(section)
    for one in fields(section):
        value = getattr(section, one.name)
        if is_dataclass(value):
            yield from _flat(value, f"{where}{one.name}.")
        elif isinstance(value, dict) and one.name == "trainer":
            yield from ((f"trainer.{key}", inner) for key, inner in value.items())
        else:
            yield f"{where}{one.name}", plain[one.name]
