"""Which run each row of the table is, once its budget equals the first row's. Nothing is trained here."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from manyheads.ablate.budget import Match, flops, match_width, parameters
from manyheads.ablate.sets import Prepared
from manyheads.config import ModelConfig, RunConfig
from manyheads.config.ablate import WIDTHS, AblateConfig, Equal, Variant
from manyheads.config.plain import to_plain
from manyheads.data.module import TextData
from manyheads.fit.budget import limited_by_data
from manyheads.fit.session import are_few

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
