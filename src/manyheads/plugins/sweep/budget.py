"""Rows of a comparison at the same budget: a width or a number of steps at which their costs agree; one run at that
budget; and all runs that a results file lacks, which several processes divide among them.

n validation rows . C classes
"""

import hashlib
import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.nn import functional as F

from manyheads.config import ModelConfig, RunConfig
from manyheads.config.model import WIDEST
from manyheads.data.datamodule import TextData
from manyheads.data.tokens import Tokens
from manyheads.errors import UserError
from manyheads.inference.batching import network_logits
from manyheads.nn import Classifier, assemble
from manyheads.nn.cost import count_parameters, mean_flops
from manyheads.plugins.sweep.config import WIDTHS, AblateConfig, Equal, Variant
from manyheads.plugins.sweep.journal import locked
from manyheads.plugins.sweep.results_file import (
    Comparison,
    RowResults,
    RunFigures,
    check_same_comparison,
    decisive,
    machine_words,
    merge_earlier,
    read_results,
)
from manyheads.plugins.sweep.sets import Sizes, TokenizedSet
from manyheads.runs.many import train_in_turn
from manyheads.runs.resolve import with_limits
from manyheads.training.build import fit_head, has_few_rows
from manyheads.training.guard import DivergedError, Guard
from manyheads.training.logs import Meter
from manyheads.training.module import LitModule
from manyheads.training.trainer import run_trainer

Cost = Callable[[ModelConfig], float]
PATIENCE = 60.0  # seconds for which another may be writing the results file
log = logging.getLogger("manyheads.ablate")


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
        run = replace(config.run(variant), data=prepared.data)
        run = with_limits(run, n_rows=len(prepared.tokens["train"]), n_classes=len(prepared.labels))  # as in `train`
        run, difference = _at_budget(config, variant, run, rows[0] if rows else None, prepared)
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
    config: AblateConfig, variant: Variant, run: RunConfig, first: PlannedRow | None, prepared: TokenizedSet
) -> tuple[RunConfig, float]:
    """The run with the width or the steps of its budget, and how far that is off."""
    if first is None:
        return run, 0.0
    by_size = config.equal is Equal.parameters
    levers = [name for name in WIDTHS if name not in config.varied]

    def cost(model: ModelConfig) -> float:
        return n_parameters(model, prepared.sizes) if by_size else mean_flops(model, prepared.sizes.texts)

    try:
        if config.equal is Equal.tokens:
            return _same_tokens(config, run, first.run, prepared)
        target = first.results.parameters if by_size else first.results.flops_per_token
        match = match_width(run.model, target, cost, levers=levers, tolerance=config.tolerance)
    except ValueError as error:
        raise UserError(f"{config.vary_name}={variant.name} on {prepared.name}: {error}") from error
    return replace(run, model=match.model), match.difference


def _same_tokens(
    config: AblateConfig, run: RunConfig, first: RunConfig, prepared: TokenizedSet
) -> tuple[RunConfig, float]:
    """`run` with as many steps as it needs to read the tokens that the first row reads."""
    data = TextData(prepared.tokens, first.batch, first.seed)
    n_first = data.n_steps(first.trainer.get("max_epochs"), first.trainer.get("max_steps", -1))
    target = sum(islice(_tokens_of_steps(first, prepared), n_first))
    steps = total = before = 0
    for tokens in _tokens_of_steps(run, prepared):
        steps, before, total = steps + 1, total, total + tokens
        if total >= target:
            break
    if steps > 1 and target - before < total - target:
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
            yield sum(int(lengths[one.rows].sum()) for one in plan[start : start + run.batch.accumulate])


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
    grain = 1 if model.has_heads or _may_be_odd(model) else 2  # a recurrent layer has half of it for each direction
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
    """Of all widths from 1 to `widest` the one whose cost, which rises, is nearest to `target`: by bisection."""
    enough = 1 + bisect_left(range(1, widest), target, key=lambda width: cost(wide(width)))
    matches = [WidthMatch(wide(width), cost(wide(width)) / target - 1) for width in {enough, max(1, enough - 1)}]
    return min(matches, key=lambda one: abs(one.difference))


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
        "compare values that are closer, or hold something else equal, such as equal=tokens"
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


class Deadline(Callback):
    """Ends training when `seconds` have passed since its first step."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.is_over = False
        self._since = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._since = time.perf_counter()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if time.perf_counter() - self._since >= self.seconds:
            self.is_over = trainer.should_stop = True


def train_run(run: RunConfig, prepared: TokenizedSet, seconds: float) -> RunFigures:
    """Train as `run` says, for `seconds` at the most.

    Weights, order of rows and dropout are drawn by `run.seed`. No epoch is chosen by its validation figures.
    """
    meter, deadline = Meter(), Deadline(seconds)
    module, diverged = _fit(run, prepared, [meter, deadline], {})
    steps = module.trainer.global_step
    right_n, loss = right_and_loss(cast(Classifier, module.network.cpu().eval()), prepared.tokens["validation"])
    return RunFigures(
        accuracy=float(right_n.double().mean()),
        loss=loss,
        steps=steps,
        tokens=meter.tokens,
        seconds=meter.seconds,
        tokens_per_s=meter.tokens_per_s,
        stopped=deadline.is_over and steps < module.n_steps,
        diverged=diverged,
        right="".join("01"[right] for right in right_n.tolist()),
    )


def warm_up(run: RunConfig, prepared: TokenizedSet) -> None:
    """Two steps for nothing: the first steps of a process are slow, whatever they train."""
    _fit(run, prepared, [], {"max_epochs": -1, "max_steps": 2})


def _fit(
    run: RunConfig, prepared: TokenizedSet, callbacks: list[Callback], limits: dict[str, int]
) -> tuple[LitModule, bool]:
    """The module of a run that never looks at validation rows, after training, and whether that diverged."""
    pl.seed_everything(run.seed, workers=True, verbose=False)
    classifier = fresh_classifier(run.model, prepared.sizes)
    run = replace(run, trainer={**run.trainer, "limit_val_batches": 0, **limits})
    if has_few_rows(run, prepared.tokens["train"], prepared.labels):
        fit_head(run, classifier, prepared.tokens["train"])
    try:
        return run_trainer(run, classifier, prepared.tokens, prepared.labels, [Guard(run), *callbacks]), False
    except DivergedError as end:
        return end.module, True


def right_and_loss(classifier: Classifier, tokens: Tokens) -> tuple[Tensor, float]:
    """Which rows are answered right, bool `(n,)`, and the mean loss, both of logits in fp32 on the CPU.

    A row whose logits are not finite is wrong.
    """
    logits_nC = network_logits(classifier, tokens)
    right_n = (logits_nC.argmax(-1) == tokens.labels) & logits_nC.isfinite().all(-1)
    return right_n, float(F.cross_entropy(logits_nC, tokens.labels.long()))


def run_missing(
    config: AblateConfig, rows: list[PlannedRow], data: dict[str, TokenizedSet], results: Comparison, path: Path
) -> None:
    """Make the runs that the results file lacks: all rows of one seed before the next, so that a stop leaves whole
    comparisons."""
    missing = [(row, seed) for seed in results.seeds for row in rows if str(seed) not in row.results.runs]
    if missing:
        first = missing[0][0]
        warm_up(first.run, data[first.results.set])

    def train_one(job: tuple[int, tuple[PlannedRow, int]]) -> None:
        """Unless another process makes this run at the moment, or has made it."""
        at, (row, seed) = job
        name, runs = row.results.set, row.results.runs
        mark = hashlib.blake2b(f"{name} {row.results.row} {seed}".encode(), digest_size=8).hexdigest()
        with ExitStack() as claim:
            try:
                claim.enter_context(locked(path.with_name(f".{path.name}.{mark}.lock"), "another makes it"))
            except ValueError:
                return
            share(results, path, config)
            if str(seed) in runs:
                return
            figures = train_run(replace(row.run, seed=seed), data[name], config.seconds)
            runs[str(seed)] = replace(figures, machine=machine_words(results.machine))
            share(results, path, config)
        log.info(
            "run %d of %d: %s, %s, seed %d: accuracy %.4f after %d steps in %.1f s",
            *(at, len(missing), name, row.results.row),
            *(seed, figures.accuracy, figures.steps, figures.seconds),
        )

    train_in_turn(enumerate(missing, start=1), train_one)
    share(results, path, config)
    left = [(row, seed) for row, seed in missing if str(seed) not in row.results.runs]
    if left:
        log.info("%d run(s) are left to other processes with this results file: the tables lack them", len(left))


def share(results: Comparison, path: Path, config: AblateConfig) -> int:
    """Merge what the results file holds, and write it with what is new here. Returns what `merge_earlier` does."""
    n_dropped, in_use = 0, f"output={path} has been written by another process for {PATIENCE:g} s: see what it does"
    with locked(path.with_name(f".{path.name}.lock"), in_use, wait=PATIENCE):
        if path.exists():
            before = read_results(path)
            check_same_comparison(before, path, config)
            n_dropped = merge_earlier(results, before)
        results.write(path)
    return n_dropped
