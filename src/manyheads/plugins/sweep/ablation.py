"""The runs of `ablate`: planned at an equal budget, trained one after another in this process, and kept in its file.

Importing torch and Lightning takes as long as many of these runs, so that they share a process. Several processes with
the same command divide the runs among them: who makes one holds its lock, and who writes the results file merges what
others have written.

n validation rows . C classes
"""

import hashlib
import logging
import shutil
import time
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, cast

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.nn import functional as F

from manyheads.config import RunConfig
from manyheads.data.tokens import Tokens
from manyheads.inference.batching import network_logits
from manyheads.inference.precision import choose_device
from manyheads.nn import Classifier
from manyheads.plugins.sweep.budget import PlannedRow, fresh_classifier, plan_rows
from manyheads.plugins.sweep.config import AblateConfig
from manyheads.plugins.sweep.journal import locked
from manyheads.plugins.sweep.results_file import (
    Comparison,
    RunFigures,
    check_same_comparison,
    machine,
    machine_words,
    merge_earlier,
    read_results,
)
from manyheads.plugins.sweep.sets import ReadSet
from manyheads.plugins.sweep.tables import sheets
from manyheads.plugins.sweep.tokenized_sets import TokenizedSet, tokenize
from manyheads.runs.many import train_in_turn
from manyheads.terminal import log_to_screen, print_sheet, typed_path
from manyheads.training.build import prepare_weights
from manyheads.training.guard import DivergedError, Guard
from manyheads.training.logs import Meter
from manyheads.training.module import LitModule
from manyheads.training.trainer import check_trainer, run_trainer

PATIENCE = 60.0  # seconds for which another may be writing the results file
log = logging.getLogger("manyheads.ablate")


def compare_variants(config: AblateConfig, sets: list[ReadSet], path: Path) -> Comparison:
    """Plan all rows, make the runs that the results file lacks, and print the tables."""
    first = config.run(config.variants()[0])
    check_trainer(first)
    data = {one.name: tokenize(one, first) for one in sets}
    rows: list[PlannedRow] = []
    for tokenized in data.values():
        rows += plan_rows(config, tokenized)
    results = Comparison(
        vary=config.vary_name,
        equal=config.equal.name,
        tolerance=config.tolerance,
        seconds=config.seconds,
        sets=list(data),
        rows=[variant.name for variant in config.variants()],
        seeds=list(range(config.seed, config.seed + config.seeds)),
        n_rows={name: len(one.tokens["validation"]) for name, one in data.items()},
        machine=machine(config.hardware),
        measured=[row.results for row in rows],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with log_to_screen(log):
        merge_and_write(results, path, config, keep_earlier=True)
        run_missing(config, rows, data, results, path)
    for sheet in sheets(results):
        print_sheet(sheet)
    return results


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
    network, device = cast(Classifier, module.network.eval()), choose_device(run.hardware)
    right_n, loss = right_and_loss(network, prepared.tokens["validation"], device)
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
    prepare_weights(run, classifier, prepared.tokens["train"], prepared.labels, first=True)
    try:
        return run_trainer(run, classifier, prepared.tokens, prepared.labels, [Guard(run), *callbacks]), False
    except DivergedError as end:
        return end.module, True


def right_and_loss(classifier: Classifier, tokens: Tokens, device: torch.device) -> tuple[Tensor, float]:
    """Which rows are answered right, bool `(n,)`, and the mean loss, both of logits in fp32, computed on `device`.

    A row whose logits are not finite is wrong.
    """
    logits_nC = network_logits(classifier, tokens, device)
    right_n = (logits_nC.argmax(-1) == tokens.labels) & logits_nC.isfinite().all(-1)
    return right_n, float(F.cross_entropy(logits_nC, tokens.labels.long()))


def run_missing(
    config: AblateConfig, rows: list[PlannedRow], data: dict[str, TokenizedSet], results: Comparison, path: Path
) -> None:
    """Make the runs that the results file lacks: all rows of one seed before the next, so that a stop leaves whole
    comparisons."""
    missing: list[tuple[PlannedRow, int]] = []
    for seed in results.seeds:
        missing += [(row, seed) for row in rows if str(seed) not in row.results.runs]
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
            merge_and_write(results, path, config)
            if str(seed) in runs:
                return
            figures = train_run(replace(row.run, seed=seed), data[name], config.seconds)
            runs[str(seed)] = replace(figures, machine=machine_words(results.machine))
            merge_and_write(results, path, config)
        log.info(
            "run %d of %d: %s, %s, seed %d: accuracy %.4f after %d steps in %.1f s",
            *(at, len(missing), name, row.results.row),
            *(seed, figures.accuracy, figures.steps, figures.seconds),
        )

    train_in_turn(enumerate(missing, start=1), train_one)
    merge_and_write(results, path, config)
    n_left = sum(str(seed) not in row.results.runs for row, seed in missing)
    if n_left:
        log.info("%d run(s) are left to other processes with this results file: the tables lack them", n_left)


def merge_and_write(results: Comparison, path: Path, config: AblateConfig, *, keep_earlier: bool = False) -> None:
    """Merge what the results file holds, and write it with what is new here.

    Args:
        keep_earlier: if runs no longer fit, keep the file as it was under another name.
    """
    in_use = f"output={path} has been written by another process for {PATIENCE:g} s: see what it does"
    with locked(path.with_name(f".{path.name}.lock"), in_use, wait=PATIENCE):
        if path.exists():
            before = read_results(path)
            check_same_comparison(before, path, config)
            n_dropped = merge_earlier(results, before)
            if n_dropped and keep_earlier:
                numbered = (path.with_name(f"{path.stem}-{at}.json") for at in count(1))
                kept = next(one for one in numbered if not one.exists())
                shutil.copy2(path, kept)
                fate = f"no longer fit the settings and are made again; they are kept in {typed_path(kept)}"
                log.info("%d finished runs %s", n_dropped, fate)
        results.write(path)
