"""Rows of a comparison at the same budget: a width or a number of steps at which their costs agree."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import NamedTuple

import torch

from manyheads.config import ModelConfig, RunConfig
from manyheads.config.model import WIDEST
from manyheads.data.datamodule import TextData
from manyheads.errors import UserError
from manyheads.nn import Classifier, assemble
from manyheads.nn.cost import count_parameters, mean_flops
from manyheads.plugins.sweep.config import WIDTHS, AblateConfig, Equal, Variant
from manyheads.plugins.sweep.results_file import RowResults, decisive
from manyheads.plugins.sweep.tokenized_sets import Sizes, TokenizedSet
from manyheads.runs.resolve import with_limits

Cost = Callable[[ModelConfig], float]


class PlannedRow(NamedTuple):
    """One row of the table on one set of data: how it is trained, and its results so far."""

    run: RunConfig
    results: RowResults


@dataclass(frozen=True, slots=True)
class WidthMatch:
    """A model at the budget; `difference` is its cost over the target, less one."""

    model: ModelConfig
    difference: float


def plan_rows(config: AblateConfig, prepared: TokenizedSet) -> list[PlannedRow]:
    """All rows on one set of data, each at the budget of the first.

    Raises:
        UserError: a budget that cannot be met; names the row.
    """
    rows: list[PlannedRow] = []
    for variant in config.variants():
        run, difference = replace(config.run(variant), data=prepared.data), 0.0
        run = with_limits(run, n_rows=len(prepared.tokens["train"]), n_classes=len(prepared.labels))  # as in `train`
        if rows:
            run, difference = _at_budget(config, variant, run, rows[0], prepared)
        results = RowResults(
            set=prepared.name,
            row=variant.name,
            data=prepared.digest,
            settings=decisive(run),
            width={"d_model": run.model.d_model, "d_ff": run.model.d_ff},
            difference=difference,
            parameters=n_parameters(run.model, prepared.sizes),
            flops_per_token=mean_flops(run.model, prepared.sizes.texts),
        )
        rows.append(PlannedRow(run, results))
    return rows


def _at_budget(
    config: AblateConfig, variant: Variant, run: RunConfig, first: PlannedRow, prepared: TokenizedSet
) -> tuple[RunConfig, float]:
    """The run with the width or the steps of the first row's budget, and how far that is off."""

    def size(model: ModelConfig) -> float:
        return n_parameters(model, prepared.sizes)

    def flops(model: ModelConfig) -> float:
        return mean_flops(model, prepared.sizes.texts)

    levers = [name for name in WIDTHS if name not in config.varied]
    try:
        if config.equal is Equal.tokens:
            return _same_tokens(config, run, first.run, prepared)
        cost, target = size, float(first.results.parameters)
        if config.equal is Equal.flops:
            cost, target = flops, first.results.flops_per_token
        match = match_width(run.model, target, cost, levers=levers, tolerance=config.tolerance)
    except ValueError as error:
        raise UserError(f"{config.vary_name}={variant.name} on {prepared.name}: {error}") from error
    return replace(run, model=match.model), match.difference


def _same_tokens(
    config: AblateConfig, run: RunConfig, first: RunConfig, prepared: TokenizedSet
) -> tuple[RunConfig, float]:
    """`run` with as many steps as it needs to read the tokens that the first row reads, and how far that is off."""
    data = TextData(prepared.tokens, first.batch, first.seed)
    n_first = data.n_steps(first.trainer.get("max_epochs"), first.trainer.get("max_steps", -1))
    target = sum(islice(_tokens_of_steps(first, prepared), n_first))
    steps = total = before = 0
    for tokens in _tokens_of_steps(run, prepared):
        steps, before, total = steps + 1, total, total + tokens
        if total >= target:
            break
    if steps > 1 and target - before < total - target:  # one step less is nearer
        steps, total = steps - 1, before
    difference = total / target - 1
    if abs(difference) > config.tolerance:
        raise UserError(
            f"no step count reads the first row's {target:,} tokens: the nearest, {steps}, reads {total:,}, "
            f"beyond tolerance={config.tolerance:g}; use more steps, or smaller batches"
        )
    return replace(run, trainer={**run.trainer, "max_steps": steps, "max_epochs": -1}), difference


def _tokens_of_steps(run: RunConfig, prepared: TokenizedSet) -> Iterator[int]:
    """Tokens that each optimiser step reads, without an end."""
    data, lengths = TextData(prepared.tokens, run.batch, run.seed), prepared.tokens["train"].lengths
    for epoch in count():
        plan = data.plan(epoch)
        for start in range(0, len(plan), run.batch.accumulate):
            batches = plan[start : start + run.batch.accumulate]
            yield sum(int(lengths[batch.rows].sum()) for batch in batches)


def match_width(model: ModelConfig, target: float, cost: Cost, *, levers: list[str], tolerance: float) -> WidthMatch:
    """`model` at another width, so that `cost` is as near to `target` as a whole number allows.

    That is `d_ff`, since it changes nothing else of the model; `d_model` where the cost does not depend on `d_ff`, as
    of recurrent layers, or `d_ff` is not among the `levers`.

    Args:
        cost: rises with each width.
        levers: which of `model.d_ff` and `model.d_model` may move.
        tolerance: the largest relative difference that is accepted.

    Raises:
        UserError: no width comes within the tolerance; names the nearest.
    """
    grain = 1  # of d_model
    if not model.has_heads and not _may_be_odd(model):  # a recurrent layer has half of it for each direction
        grain = 2
    found = None
    if "model.d_ff" in levers and cost(replace(model, d_ff=1)) < cost(replace(model, d_ff=2)):
        found = _nearest(target, cost, lambda width: replace(model, d_ff=width), 4 * WIDEST)
    elif "model.d_model" in levers and model.project and model.project_output:  # else d_model is that of the heads
        found = _nearest(target, cost, lambda step: replace(model, d_model=grain * step), WIDEST // grain)
    if found is None or abs(found.difference) > tolerance:
        raise UserError(_out_of_reach(target, found, tolerance))
    return found


def _may_be_odd(model: ModelConfig) -> bool:
    try:
        replace(model, d_model=model.d_model // 2 * 2 + 1)
    except ValueError:
        return False
    return True


def _nearest(target: float, cost: Cost, wide: Callable[[int], ModelConfig], widest: int) -> WidthMatch:
    """Of all widths from 1 to `widest` the one whose cost, which rises, is nearest to `target`: by interpolation, which
    finds it at once where the cost is a line. To count the cost of a model takes long.

    Dowell and Jarratt (1971), "A modified regula falsi method for computing the root of an equation".
    """

    def difference(width: int) -> float:
        return cost(wide(width)) / target - 1

    low, high = 1, widest
    below, above = difference(low), difference(high)
    if below >= 0:
        high, above = low, below
    elif above < 0:
        low, below = high, above
    weight_low, weight_high = below, above
    while high - low > 1:
        guess = low + round((high - low) * weight_low / (weight_low - weight_high))
        guess = min(max(guess, low + 1), high - 1)
        found = difference(guess)
        if found < 0:
            low, below, weight_low, weight_high = guess, found, found, weight_high / 2
        else:
            high, above, weight_low, weight_high = guess, found, weight_low / 2, found
    if abs(below) < abs(above):
        return WidthMatch(wide(low), below)
    return WidthMatch(wide(high), above)


def _out_of_reach(target: float, nearest: WidthMatch | None, tolerance: float) -> str:
    if nearest is None:
        return (
            "no width is left to make the rows equal, as model.d_ff and model.d_model both vary or are fixed: "
            "hold something else equal, such as equal=tokens"
        )
    model, share = nearest.model, 1 + nearest.difference
    return (
        f"no width brings this row to the first row's {target:,.0f}: the nearest, model.d_model={model.d_model} "
        f"model.d_ff={model.d_ff}, costs {share:.2f} times as much, beyond tolerance={tolerance:g}; "
        "compare closer values, or use equal=tokens"
    )


def n_parameters(model: ModelConfig, sizes: Sizes) -> int:
    """Trained numbers of the model, on torch's meta device: nothing is allocated, whatever the size."""
    with torch.device("meta"):
        return count_parameters(fresh_classifier(model, sizes))


def fresh_classifier(model: ModelConfig, sizes: Sizes) -> Classifier:
    """A classifier with fresh weights, drawn from torch's generator."""
    return assemble(
        model,
        vocab_size=sizes.vocab_size,
        n_classes=sizes.n_classes,
        max_length=sizes.max_length,
        n_segments=sizes.n_segments,
    )
