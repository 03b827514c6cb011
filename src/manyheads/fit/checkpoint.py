"""The whole state of a training under way: saved between two optimiser steps, and put back exactly.

A save happens where a batch has been fetched and nothing of it computed: the step before it is complete, with its
validation, its rows of metrics.csv and, between epochs, the figures of the epoch. Of Lightning's loops the counters
alone are put back, not the loops by their own `load_state_dict`: that makes them "restart", which knows a dozen places
to stand in, skips hooks, and counts a step twice where a validation came before it. With the counters set, an epoch
that goes on is an epoch like any other whose loader leaves out the batches that were done. Which they are follows
from seed and epoch alone (data/batches.py), so the place in the data is two numbers.
"""

import json
import logging
from pathlib import Path
from time import perf_counter
from typing import Any

import lightning.pytorch as pl
import safetensors.torch
import torch
from lightning.pytorch.callbacks import Callback

from manyheads import __version__
from manyheads.config import CheckpointConfig
from manyheads.data.module import TextData
from manyheads.faults import fault
from manyheads.fit import state
from manyheads.fit.keep import KeepBest
from manyheads.fit.nest import read_nest, write_nest
from manyheads.fit.resume import Start
from manyheads.fit.saved import Write, save
from manyheads.fit.stop import Stop, Stopped
from manyheads.whole import replace_file

A_WHILE = 60.0  # seconds between two saves within an epoch, where `checkpoint.every` is 0
AT_MOST = 0.02  # of the time goes into saves at the ends of short epochs
log = logging.getLogger("manyheads")


class Checkpoint(Callback):
    """Saves every `every` steps, or at the end of each epoch and each minute; and when the run is asked to stop.

    The ends of epochs that are short beside a save are passed over, so that saving takes a fiftieth of the time at the
    most. Stands behind the callbacks whose state it saves.

    Args:
        data: hash of the tokens; a run goes on with the same alone.
        started: `perf_counter()` when the run began, less what it took before.
    """

    def __init__(
        self, config: CheckpointConfig, stop: Stop, best: KeepBest, start: Start, *, data: str, started: float
    ) -> None:
        self.config = config
        self.stop = stop
        self.best = best
        self.start = start
        self.data = data
        self.started = started
        self._random: dict[str, torch.Tensor] = {}
        self._saved = {"step": 0, "epoch": 0}
        self._since, self._took = perf_counter(), 0.0

    def fit(self, trainer: pl.Trainer, module: pl.LightningModule, data: TextData) -> None:
        """Train from where the run is to go on; where only its training is done, put back what came of it.

        Several processes are trained, not saved.
        """
        if trainer.world_size > 1:
            trainer.callbacks.remove(self)  # type: ignore[attr-defined]
            trainer.fit(module, data)
            return
        folder, place = self.start.checkpoint, self.start.progress
        if folder is not None and place.get("finished"):
            module.trainer = trainer
            self.restore(trainer, module, folder)
            return
        if folder is not None:
            data.begin = place["epoch"], place["batch"]
        with self.stop.listening():
            trainer.fit(module, data)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.start.checkpoint is not None:
            self.restore(trainer, pl_module, self.start.checkpoint)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.stop.listen()
        self._since = perf_counter()

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self._random:
            state.put_batch(trainer, self.start.progress["batch"])
            state.put_random_numbers(self._random, pl_module.device)
            self._random = {}
        place = state.place_of(trainer)
        if place["batch"] % trainer.accumulate_grad_batches == 0:
            fault("step")
            stopped = self.stop.asked()
            if stopped or self._is_due(place):
                self._save(trainer, pl_module, place)
            if stopped:
                raise self._said(stopped, place)

    def on_validation_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        fault("validation")

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if getattr(pl_module, "diverged_in", None) is None:
            place = state.place_of(trainer) | {"batch": 0, "finished": True}
            self._save(trainer, pl_module, place)
            fault("trained")
            if stopped := self.stop.asked():
                raise self._said(stopped, place)

    def restore(self, trainer: pl.Trainer, module: pl.LightningModule, folder: Path) -> None:
        """Put back everything but what the first batch needs last: random numbers, and its place in the epoch."""
        ranks = read_nest(folder / "ranks.safetensors")
        own = ranks[trainer.global_rank]
        module.load_state_dict(safetensors.torch.load_file(folder / "weights.safetensors"))
        everyones = read_nest(folder / "state.safetensors")
        state.put_back(trainer, module, everyones, own)
        state.put_rows(trainer, json.loads((folder / "rows.json").read_bytes()))
        state.put_place(trainer, self.start.progress)
        best = folder / self.best.path.name
        if trainer.is_global_zero and best.is_file():
            with replace_file(self.best.path) as part:
                part.write_bytes(best.read_bytes())
        self._random, self._saved = own["random"], self.start.progress
        log.info("resumed at step %d", self.start.progress["step"])

    def _is_due(self, place: dict[str, int]) -> bool:
        if self.config.every:
            return place["step"] >= self._saved["step"] + self.config.every
        waited, new_epoch = perf_counter() - self._since, place["epoch"] > self._saved["epoch"]
        least = min(A_WHILE, self._took / AT_MOST) if new_epoch else A_WHILE
        return place["step"] > self._saved["step"] and waited >= least

    def _save(self, trainer: pl.Trainer, module: pl.LightningModule, place: dict[str, Any]) -> None:
        progress = place | {"seconds": perf_counter() - self.started, "data": self.data, "manyheads": __version__}
        files: dict[str, Write] = {
            "weights.safetensors": lambda part: part.write(safetensors.torch.save(module.state_dict())),
            "state.safetensors": lambda part: write_nest(state.of_all(trainer), part),
            "ranks.safetensors": lambda part: write_nest([state.of_one(trainer, module)], part),
            "rows.json": lambda part: part.write(json.dumps(state.rows_of(trainer)).encode()),
            "progress.json": lambda part: part.write(json.dumps(progress).encode()),
        }
        kept = {self.best.path.name: self.best.path} if self.best.best else {}
        folder, began = self.best.path.parent, perf_counter()
        try:
            save(folder, place["step"], files, kept, keep=self.config.keep)
        except OSError as problem:
            why = problem.strerror or str(problem)
            raise ValueError(
                f"the checkpoint of step {place['step']} cannot be written to {folder} ({why}): make room there or "
                "let it be written to, then go on by resume=auto"
            ) from problem
        self._saved, self._since = place, perf_counter()
        self._took = self._since - began
        state.leave_out(trainer, self._took)

    def _said(self, stopped: Stopped, place: dict[str, Any]) -> Stopped:
        log.info("stopped by %s at step %d: resume=auto goes on from there", stopped.why, place["step"])
        return stopped
