"""The whole state of a training under way, saved between two optimiser steps and put back exactly; the best weights.

A save happens where a batch has been fetched and nothing of it computed: the step before it is complete, with its
validation, its rows of metrics.csv and, between epochs, the figures of the epoch. Of Lightning's loops the counters
alone are put back, not the loops by their own `load_state_dict`: that makes them "restart", which knows a dozen places
to stand in, skips hooks, and counts a step twice where a validation came before it. With the counters set, an epoch
that goes on is an epoch like any other whose loader leaves out the batches that were done. Which they are follows
from seed and epoch alone (data/batches.py), so the place in the data is two numbers, on however many ranks.

Of several ranks the first writes and the others wait for it; what each has of its own is gathered there. Where writing
takes long, they wait until it has a copy in memory alone, which a thread writes while training goes on: one at a time,
and whoever leaves training waits for it. The weights of the best epoch lie on disk while training goes on.
"""

import io
import json
import logging
import math
import secrets
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from operator import methodcaller
from pathlib import Path
from time import perf_counter
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.fsdp import FSDPModule

from manyheads.config import CheckpointConfig
from manyheads.config.figures import lower_is_better
from manyheads.config.training import Background
from manyheads.data.datamodule import TextData
from manyheads.distributed.collectives import Votes, from_first, gathered
from manyheads.distributed.faults import inject_fault
from manyheads.distributed.heartbeat import phase
from manyheads.distributed.ranks import spare_memory
from manyheads.distributed.signals import Stop, Stopped, ending
from manyheads.errors import UserError
from manyheads.plugin import VERSION
from manyheads.runs.checkpoints import Write, refuse_unfit, write_checkpoint
from manyheads.runs.files import hardlink_or_copy, read_json_or_none, replace_file
from manyheads.runs.resume import Start
from manyheads.training import state
from manyheads.training.logs import Meter, MetricsFile
from manyheads.training.optim import Average
from manyheads.training.state import read_nest, write_nest, write_tensors
from manyheads.training.strategies import put_weights, whole

A_WHILE = 60.0  # seconds between two saves within an epoch, where `checkpoint.every` is 0
AT_MOST = 0.02  # of the time: for saves at the ends of short epochs; for more, they are written in the background
log = logging.getLogger("manyheads")


class KeepBest(Callback):
    """Writes `best.safetensors` after each validation that is better than all before; `best` holds its metric and
    value, the epoch, from 1, and the optimiser steps done.

    Of two epochs with the same figure the one with the lower validation loss is better: on a small validation
    split the same accuracy often comes twice. An epoch whose figure or loss is not a finite number is never kept.
    """

    def __init__(self, metric: str, network: nn.Module, folder: Path) -> None:
        self.metric = metric
        self.network = network
        self.path = folder / "best.safetensors"
        self.best: dict[str, Any] = {}
        self._rank: tuple[float, float] | None = None

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        figures = trainer.callback_metrics
        value, loss = (float(figures[f"validation_{name}"]) for name in (self.metric, "loss"))
        rank = (-value if lower_is_better(self.metric) else value, -loss)
        if not all(map(math.isfinite, rank)):
            return
        if self._rank is not None and not rank > self._rank:
            return
        self._rank = rank
        when = {"epoch": trainer.current_epoch + 1, "step": trainer.global_step}
        self.best = {"metric": self.metric, "value": value, **when}
        weights = whole(pl_module.network.state_dict())  # type: ignore[union-attr]
        if trainer.is_global_zero:
            self.path.parent.mkdir(exist_ok=True)
            with replace_file(self.path) as part:
                save_file(weights, part)

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "rank": self._rank} if self.best else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best = {name: state_dict["best"][name] for name in ("metric", "value", "epoch", "step")}
        self._rank = state_dict["rank"]

    def restore(self) -> dict[str, Any]:
        """Load the kept weights, if a validation was ever made; returns `best`. Refused are a file, which may be
        anybody's, that does not fit, and weights that are of no use to anybody."""
        if self.best:
            with refuse_unfit(self.path):
                self.network.load_state_dict(load_file(self.path))
        if not all(bool(one.isfinite().all()) for one in self.network.state_dict().values()):
            raise UserError(
                f"the run in {self.path.parent.parent} ends with weights that are not finite numbers, so that no model "
                "is written: start a new run in another folder"
            )
        return self.best


class Unchanged(Callback):
    """Refuses what a run could not save: a network that callbacks have made another than its settings describe, before
    the first step, and at each epoch and validation; and a state of theirs that no checkpoint can hold. They may
    freeze weights, change their values and watch. Comes after them.

    Args:
        module: before they have seen it.
    """

    def __init__(self, module: pl.LightningModule, callbacks: Sequence[Callback]) -> None:
        self.callbacks = callbacks
        self._made, self._has_begun = _described(module), False

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if not self._has_begun:
            self._has_begun = True
            for one in self.callbacks:
                state.check_nest(one.state_dict())
            self.on_train_epoch_start(trainer, pl_module)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        found = _described(pl_module)
        for name in [*self._made, *found]:
            before, now = (one.get(name, "nothing") for one in (self._made, found))
            if before != now:
                raise UserError(
                    f"a callback ({', '.join(type(one).__name__ for one in self.callbacks)}) has changed the network, "
                    f"which could not be saved: {name} is {now} where the settings make {before}; remove the callback, "
                    "or train such a network under a Trainer of your own"
                )

    on_validation_start = on_train_end = on_train_epoch_start


def _described(module: pl.LightningModule) -> dict[str, str]:
    """Kind of each block of the network, and shape and type of each tensor that is saved, by name."""
    found: dict[str, str] = {}
    for name, one in module.named_modules():
        kind = next(kind for kind in type(one).__mro__ if not issubclass(kind, FSDPModule))
        found[name] = f"{kind.__qualname__} of {kind.__module__}" + (
            " with a forward of its own" * ("forward" in vars(one))
        )
    for name, tensor in module.state_dict().items():
        found[name] = f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
    return found


class Patience(Callback):
    """Ends training at the end of an epoch when `epochs` of them have brought no better figure, however many
    validations each of them had. Epochs without one count once the next is made: what was not judged is not given up.
    """

    def __init__(self, metric: str, epochs: int) -> None:
        self.metric, self.epochs = metric, epochs
        self._best, self._epoch, self._judged = -math.inf, 0, 0  # epochs, from 1: of the best figure and of the last

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        value = float(trainer.callback_metrics[f"validation_{self.metric}"])
        value = -value if lower_is_better(self.metric) else value
        self._judged = trainer.current_epoch + 1
        if value > self._best:
            self._best, self._epoch = value, self._judged

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._judged - self._epoch >= self.epochs:
            trainer.should_stop = True

    def state_dict(self) -> dict[str, Any]:
        return {"best": self._best, "epoch": self._epoch, "judged": self._judged}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._best, self._epoch, self._judged = (state_dict[name] for name in ("best", "epoch", "judged"))


class Checkpoint(Callback):
    """Saves every `every` steps, or at the end of each epoch and each minute; and when the run is asked to stop.

    The ends of epochs that are short beside a save are passed over, so that saving takes a fiftieth of the time at the
    most. Stands behind the callbacks whose state it saves. What could not be written in the background is said between
    the next two steps.

    Args:
        data: hash of the tokens; a run goes on with the same alone.
        started: `perf_counter()` when the run began, less what it took before.
    """

    def __init__(
        self,
        config: CheckpointConfig,
        stop: Stop,
        votes: Votes,
        best: KeepBest,
        start: Start,
        *,
        data: str,
        started: float,
    ) -> None:
        self.config, self.stop, self.votes, self.best, self.start = config, stop, votes, best, start
        self.data, self.started = data, started
        self._batches: TextData | None = None
        self._random: dict[str, torch.Tensor] | None = None
        self._saved = {"step": 0, "epoch": 0}
        self._since, self._took, self._n_bytes, self._voted = perf_counter(), 0.0, 0, False
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None
        self._has_told = False

    def fit(self, trainer: pl.Trainer, module: pl.LightningModule, data: TextData) -> None:
        """Train from where the run is to go on; where only its training is done, put back what came of it."""
        self._batches = data
        if self._is_trained(trainer):
            module.trainer = trainer
            if trainer.is_global_zero and self.start.checkpoint is not None:
                with refuse_unfit(self.start.checkpoint):
                    self.restore(trainer, module)
                for one in () if self.start.progress.get("finished") else trainer.callbacks:  # type: ignore[attr-defined]
                    if isinstance(one, Average):  # the weights are not yet the mean that a run ends with
                        one.on_train_end(trainer, module)
            return
        with self.stop.listening():
            try:
                trainer.fit(module, data)
            finally:
                if refusal := self._written():
                    log.error("%s", refusal)
                self._thread.shutdown()

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.votes.join(trainer.world_size)
        self.stop.disable_broadcast(trainer.fit_loop.epoch_loop)
        self._agree(trainer)
        if self.start.checkpoint is not None:
            with refuse_unfit(self.start.checkpoint):
                self.restore(trainer, pl_module)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.stop.listen()
        self._since = perf_counter()
        if self.start.checkpoint is None and trainer.global_rank > 0:
            self._seed(trainer)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self._random is not None:
            state.put_batch(trainer, self.start.progress["batch"])
            if self._random:
                torch.set_rng_state(self._random["cpu"])
            else:
                self._seed(trainer)
            if "cuda" in self._random and pl_module.device.type == "cuda":
                torch.cuda.set_rng_state(self._random["cuda"], pl_module.device)
            self._random = None
        place, by_clock = state.place_of(trainer), not self.config.every  # by that of rank 0 alone
        if place["batch"] % place["per_step"] == 0:
            inject_fault("step")
            self.votes.put(self.stop.votes())
            if (
                trainer.is_global_zero
                and not self._voted
                and (self._has_failed() or (by_clock and self._is_due(place)))
            ):
                self._voted = True
                self.votes.put({"save": 1})
            outcome = self.votes.cast()
            stopped = ending(outcome)
            if stopped or outcome["save"] or (not by_clock and self._is_due(place)):
                self._save(trainer, pl_module, place, last=bool(stopped))
            if stopped:
                raise self._said(stopped, place)

    def on_validation_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        inject_fault("validation")

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        place = state.place_of(trainer) | {"batch": 0, "finished": True}
        self._save(trainer, pl_module, place, last=True)
        inject_fault("trained")
        self.votes.put(self.stop.votes())
        if stopped := ending(self.votes.settle()):
            raise self._said(stopped, place)

    def restore(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Put back everything but what the first batch needs last: random numbers, and its place in the epoch."""
        folder, place = self.start.checkpoint, self.start.progress
        assert folder is not None
        assert self._batches is not None
        own = self._own(trainer, folder, place["ranks"])
        per_step = trainer.accumulate_grad_batches  # batches of each rank, of which there may be others than before
        batches: dict[str, Any] = {name: place[name] * per_step // place["per_step"] for name in ("batch", "batches")}
        place = {**place, **batches, "per_step": per_step}
        put_weights(module, load_file(folder / "weights.safetensors"))
        state.put_back(trainer, module, read_nest(folder / "state.safetensors"), own)
        rows = json.loads((folder / "rows.json").read_bytes())
        for metrics in (one for one in trainer.loggers if isinstance(one, MetricsFile)):
            metrics.rows = {int(row["step"]): row for row in rows}
        state.put_place(trainer, place)
        self._batches.begin = place["epoch"], place["batch"]
        best = folder / self.best.path.name
        if trainer.is_global_zero and best.is_file():
            with replace_file(self.best.path) as part:
                part.write_bytes(best.read_bytes())
        self._random, self._saved = own["random"], place
        self.start = replace(self.start, progress=place)
        log.info("resumed at step %d", place["step"])

    def _agree(self, trainer: pl.Trainer) -> None:
        """Go on from the checkpoint that rank 0 found, should the disk have shown this rank another. Refused is to
        train on other rows than rank 0, or otherwise."""
        assert self._batches is not None
        found = self.start.checkpoint.name if self.start.checkpoint else ""
        same = {"rows": self.data, "batches": self._batches.batch.tokens, "again": self.start.restart.notes()}
        firsts = json.loads(from_first(json.dumps([found, same]).encode(), self.votes.group))
        if firsts[1] != same:
            what = ", ".join(name for name in same if same[name] != firsts[1][name])
            raise UserError(
                f"process {trainer.global_rank} has other {what} than process 0: give all machines the same data and "
                "the same folder, and start all processes with the same words"
            )
        if firsts[0] != found:
            folder = self.best.path.parent / firsts[0] if firsts[0] else None
            progress = read_json_or_none(folder / "progress.json") if folder else {}
            self.start = replace(self.start, checkpoint=folder, progress=progress)

    def _own(self, trainer: pl.Trainer, folder: Path, n_before: int) -> dict[str, Any]:
        """What this rank had of its own, or has now that there are more of them or fewer."""
        if trainer.world_size != n_before:
            log.info(
                "%d processes go on where there were %d: dropout draws other numbers", trainer.world_size, n_before
            )
        elif not self._is_trained(trainer):  # else the first comes here alone, for what all of them had counted
            return read_nest(folder / f"rank-{trainer.global_rank}.safetensors")
        ranks = [read_nest(folder / f"rank-{rank}.safetensors") for rank in range(n_before)]
        return state.share_out(ranks, trainer.global_rank)

    def _is_trained(self, trainer: pl.Trainer) -> bool:
        """Whether no step is left, also by a limit that was lowered to what is done."""
        place = self.start.progress
        return bool(place) and (
            place.get("finished", False) or trainer.max_steps == place["step"] or trainer.max_epochs == place["epoch"]
        )

    def _seed(self, trainer: pl.Trainer) -> None:
        assert self._batches is not None
        state.seed_rank(self._batches.seed, trainer.global_rank, trainer.global_step)

    def _is_due(self, place: dict[str, int]) -> bool:
        if self.config.every:
            return place["step"] >= self._saved["step"] + self.config.every
        waited, new_epoch = perf_counter() - self._since, place["epoch"] > self._saved["epoch"]
        least = min(A_WHILE, self._took / AT_MOST) if new_epoch else A_WHILE
        return place["step"] > self._saved["step"] and waited >= least

    def _save(self, trainer: pl.Trainer, module: pl.LightningModule, place: dict[str, Any], *, last: bool) -> None:
        """All ranks come here, and leave when the first has written it, or has a copy in memory that will be; the
        `last` is written."""
        came = perf_counter()
        with phase("a checkpoint"):
            refusal, began = self._written(), perf_counter()
            aside = trainer.is_global_zero and not last and self._goes_aside(began)
            files = self._files(trainer, module, place, copied=aside)
            if trainer.is_global_zero and not refusal:
                refusal = self._write(place["step"], files, began, aside=aside)
            if refusal := from_first(refusal.encode(), self.votes.group).decode():
                raise UserError(refusal)
        self._saved, self._since, self._voted = place, perf_counter(), False
        for meter in (one for one in trainer.callbacks if isinstance(one, Meter)):  # type: ignore[attr-defined]
            meter.leave_out(self._since - came)

    def _goes_aside(self, now: float) -> bool:
        """Whether to write in the background what is saved now: by itself where the one before took too large a share
        of the time since, and memory has twice the room of a copy."""
        mode, share = self.config.background, self._took / max(now - self._since, 1e-9)
        if mode is not Background.auto:
            return mode is Background.always
        aside = share > AT_MOST and spare_memory() > 2 * self._n_bytes
        if aside and not self._has_told:
            self._has_told = True
            log.info(
                "checkpoints are written in the background: one takes %.1f s, %.0f %% of the time from one to the next",
                self._took,
                100 * share,
            )
        return aside

    def _files(
        self, trainer: pl.Trainer, module: pl.LightningModule, place: dict[str, Any], *, copied: bool
    ) -> dict[str, Write]:
        """What writes each file, on rank 0: all ranks give what they have. `copied`: training may go on meanwhile."""
        facts = {"seconds": perf_counter() - self.started, "data": self.data, "manyheads": VERSION}
        weights, everyones = whole(module.state_dict(), copied=copied), state.of_all(trainer, copied=copied)
        own = io.BytesIO()
        write_nest(state.of_one(trainer, module), own)
        ranks = gathered(own.getvalue(), self.votes.group)
        progress = json.dumps({**place, "ranks": len(ranks), **facts}).encode()
        metrics = (one for one in trainer.loggers if isinstance(one, MetricsFile))
        rows = json.dumps([row for one in metrics for row in one.rows.values()]).encode()
        return {
            "weights.safetensors": partial(write_tensors, weights),
            "state.safetensors": partial(write_nest, everyones),
            **{f"rank-{rank}.safetensors": methodcaller("write", its) for rank, its in enumerate(ranks)},
            "rows.json": methodcaller("write", rows),
            "progress.json": methodcaller("write", progress),
        }

    def _write(self, step: int, files: dict[str, Write], began: float, *, aside: bool) -> str:
        """Returns why it could not be written, in one sentence, or nothing; of what is written `aside`, `_written` will
        say so."""
        best = self.best.path
        kept = {best.name: best} if self.best.best else {}

        def write() -> None:
            try:
                made = write_checkpoint(best.parent, step, files, kept, keep=self.config.keep)
            finally:
                for held in (one for one in kept.values() if one != best):
                    held.unlink(missing_ok=True)
            self._took = perf_counter() - began
            self._n_bytes = sum(file.stat().st_size for file in made.iterdir())

        try:
            if aside and kept:  # the next best may take its name meanwhile
                kept = {best.name: best.with_name(f".{best.name}.{secrets.token_hex(8)}.part")}
                hardlink_or_copy(best, kept[best.name])
            if aside:
                self._writing = self._thread.submit(write)
            else:
                write()
        except (OSError, ValueError) as problem:
            return self._refusal(step, problem)
        return ""

    def _has_failed(self) -> bool:
        """Whether what is written in the background could not be."""
        return self._writing is not None and self._writing.done() and self._writing.exception() is not None

    def _written(self) -> str:
        """Wait for what is written in the background; why it could not be, or nothing."""
        writing, self._writing = self._writing, None
        try:
            if writing is not None:
                writing.result()
        except (OSError, ValueError) as problem:
            return self._refusal(self._saved["step"], problem)
        return ""

    def _refusal(self, step: int, problem: OSError | ValueError) -> str:
        if isinstance(problem, ValueError):  # what a callback holds
            return str(problem)
        return (
            f"the checkpoint of step {step} cannot be written to {self.best.path.parent} "
            f"({problem.strerror or problem}): make room there or let it be written to, then go on by resume=auto"
        )

    def _said(self, stopped: Stopped, place: dict[str, Any]) -> Stopped:
        log.info("stopped by %s at step %d: resume=auto goes on from there", stopped.why, place["step"])
        return stopped
