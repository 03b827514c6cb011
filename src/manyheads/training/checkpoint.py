"""When the state of a training is saved, what it consists of, and how it is restored to the bit.

A checkpoint is saved after a batch has been fetched and before anything of it is computed. So the previous step is
complete, with its validation, its rows of metrics.csv and, between epochs, the figures of the epoch.

Of Lightning's loops only the counters are restored. Their own `load_state_dict` would put them into a state
"restarting", which skips hooks and counts a step twice if a validation came before it. With the counters set, a resumed
epoch is an epoch like any other, whose loader omits the batches that are done. Which these are follows from seed and
epoch alone (data/batches.py): so the place in the data is two numbers, on any number of ranks.

With several ranks the first one writes, and the others wait; what each has of its own is gathered there. If writing
takes long, they only wait until the first has a copy in memory, which checkpoint_writer.py writes in the background.
"""

import io
import json
import logging
from dataclasses import replace
from functools import partial
from operator import methodcaller
from pathlib import Path
from time import perf_counter
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from safetensors.torch import load_file

from manyheads.config import CheckpointConfig
from manyheads.config.training import Background
from manyheads.data.datamodule import TextData
from manyheads.distributed.collectives import Votes, from_first, gathered
from manyheads.distributed.faults import inject_fault
from manyheads.distributed.heartbeat import phase
from manyheads.distributed.machine import spare_memory
from manyheads.distributed.signals import Stop, Stopped, ending
from manyheads.errors import UserError
from manyheads.plugin import VERSION
from manyheads.runs.checkpoints import Write, refuse_unfit
from manyheads.runs.files import read_json_or_none, replace_file
from manyheads.runs.resume import Start
from manyheads.training import state
from manyheads.training.callbacks import KeepBest
from manyheads.training.checkpoint_writer import CheckpointWriter
from manyheads.training.logs import Meter, MetricsFile
from manyheads.training.optim import EMACallback
from manyheads.training.state import load_pytree, save_pytree, write_tensors
from manyheads.training.strategies import put_weights, whole

INTERVAL = 60.0  # seconds between two checkpoints within an epoch, if `checkpoint.every` is 0
MOST_SHARE = 0.02  # of the time, that saving may take: then ends of short epochs are skipped, or a thread writes
log = logging.getLogger("manyheads")


class Checkpoint(Callback):
    """Saves every `checkpoint.every` steps, or at the end of each epoch and every minute; and when a signal or
    `trainer.max_time` ends the run.

    The ends of short epochs are skipped, so that saving takes at most `MOST_SHARE` of the time. It comes after the
    callbacks whose state it saves. An error in the background is raised between the next two steps.

    Args:
        config: the settings `checkpoint`.
        stop: what may end the run.
        votes: by which all ranks agree to save or to stop at the same step.
        best: the callback that keeps the best weights.
        start: the checkpoint that the run resumes from, if any.
        data: hash of the tokens: a run resumes only with the same ones.
        files: digests of the files that it began with, likewise.
        started: `perf_counter()` when the run began, minus the time it took before it was resumed.
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
        files: dict[str, str],
    ) -> None:
        self.config, self.stop, self.votes, self.best, self.start = config, stop, votes, best, start
        self.data, self.started, self.files = data, started, files
        self.writer = CheckpointWriter(best.path, config.keep)
        self._batches: TextData | None = None
        self._random: dict[str, torch.Tensor] | None = None  # to be restored in the first step after a restart
        self._saved = {"step": 0, "epoch": 0}  # where the last checkpoint was saved, and when
        self._since = perf_counter()
        self._has_voted = False  # for the next checkpoint: once is enough
        self._has_told = False  # that checkpoints are written in the background

    def fit(self, trainer: pl.Trainer, module: pl.LightningModule, data: TextData) -> None:
        """Train from the start or from the checkpoint. If all steps are done already, only restore the state."""
        self._batches = data
        if self._is_trained(trainer):
            module.trainer = trainer
            if trainer.is_global_zero and self.start.checkpoint is not None:
                self._restore_trained(self.start.checkpoint, trainer, module)
            return
        with self.stop.listening():
            try:
                trainer.fit(module, data)
            finally:
                if refusal := self.writer.close():
                    log.error("%s", refusal)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Other rows may make weights of another shape, which DDP and FSDP refuse or wait for after this."""
        self.votes.join(trainer.world_size)
        self._agree(trainer)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.stop.disable_lightning(trainer)
        if self.start.checkpoint is not None:
            with refuse_unfit(self.start.checkpoint):
                self.restore(trainer, pl_module)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._since = perf_counter()
        if self.start.checkpoint is None and trainer.global_rank > 0:
            self._seed(trainer)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self._random is not None:
            self._continue_epoch(self._random, trainer, pl_module)
            self._random = None
        place = state.place_of(trainer)
        if place["batch"] % place["per_step"] != 0:
            return  # gradients are being accumulated: this is not between two steps
        inject_fault("step")
        # Counting steps, each rank knows that a checkpoint is due. Clocks differ: there rank 0 decides for all.
        by_clock, is_due = not self.config.every, self._is_due(place)
        self.votes.put(self.stop.votes())
        wants_save = self.writer.has_failed() or (by_clock and is_due)
        if wants_save and trainer.is_global_zero and not self._has_voted:
            self._has_voted = True
            self.votes.put({"save": 1})
        outcome = self.votes.cast()
        stopped = ending(outcome)
        if stopped or outcome["save"] or (is_due and not by_clock):
            self._save(trainer, pl_module, place, last=bool(stopped))
        if stopped:
            raise self._logged(stopped, place)

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
            raise self._logged(stopped, place)

    def restore(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Restore everything except for random numbers and the number of the batch: the first `on_train_batch_start`
        restores these."""
        folder, place = self.start.checkpoint, self.start.progress
        assert folder is not None
        assert self._batches is not None
        own = self._own(trainer, folder, place["ranks"])
        per_step = trainer.accumulate_grad_batches  # batches of each rank; with another number of ranks it differs
        place = {
            **place,
            "batch": place["batch"] * per_step // place["per_step"],
            "batches": place["batches"] * per_step // place["per_step"],
            "per_step": per_step,
        }
        put_weights(module, load_file(folder / "weights.safetensors"))
        state.restore(trainer, module, load_pytree(folder / "state.safetensors"), own)
        rows = json.loads((folder / "rows.json").read_bytes())
        for logger in trainer.loggers:
            if isinstance(logger, MetricsFile):
                logger.rows = {int(row["step"]): row for row in rows}
        state.put_place(trainer, place)
        self._batches.begin = place["epoch"], place["batch"]
        best = folder / self.best.path.name
        if trainer.is_global_zero and best.is_file():
            with replace_file(self.best.path) as part:
                part.write_bytes(best.read_bytes())
        self._random, self._saved = own["random"], place
        self.start = replace(self.start, progress=place)
        log.info("resumed at step %d", place["step"])

    def _restore_trained(self, checkpoint: Path, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Restore the state where no step is left, without `Trainer.fit`."""
        with refuse_unfit(checkpoint):
            self.restore(trainer, module)
        if not self.start.progress.get("finished"):  # stopped before the weights became their moving average
            for callback in trainer.callbacks:  # type: ignore[attr-defined]
                if isinstance(callback, EMACallback):
                    callback.on_train_end(trainer, module)

    def _continue_epoch(self, random: dict[str, torch.Tensor], trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Restore in the first step what Lightning sets when an epoch begins: the number of the batch, and with it the
        random numbers; empty ones are drawn anew, for a rank that there was not before."""
        state.put_batch(trainer, self.start.progress["batch"])
        if random:
            torch.set_rng_state(random["cpu"])
        else:
            self._seed(trainer)
        if "cuda" in random and module.device.type == "cuda":
            torch.cuda.set_rng_state(random["cuda"], module.device)

    def _agree(self, trainer: pl.Trainer) -> None:
        """Use the checkpoint that rank 0 found: a shared disk may have shown this rank another one.

        Raises:
            UserError: this rank has other rows or settings than rank 0.
        """
        assert self._batches is not None
        found = self.start.checkpoint.name if self.start.checkpoint else ""
        same = {"rows": self.data, "batches": self._batches.batch.tokens, "restarts": self.start.restart.notes()}
        of_first = from_first(json.dumps([found, same]).encode(), self.votes.group)
        first_found, first_same = json.loads(of_first)
        if first_same != same:
            what = ", ".join(name for name in same if same[name] != first_same[name])
            raise UserError(
                f"process {trainer.global_rank} has other {what} than process 0: give all machines the same data and "
                "the same folder, and start all processes by the same command"
            )
        if first_found == found:
            return
        folder, progress = None, {}
        if first_found:
            folder = self.best.path.parent / first_found
            progress = read_json_or_none(folder / "progress.json")
        self.start = replace(self.start, checkpoint=folder, progress=progress)

    def _own(self, trainer: pl.Trainer, folder: Path, n_before: int) -> dict[str, Any]:
        """The state of this rank alone; if the number of ranks has changed, its share of what all of them had."""
        if trainer.world_size != n_before:
            log.info("%d processes resume what %d began: dropout draws other numbers", trainer.world_size, n_before)
        elif not self._is_trained(trainer):  # else rank 0 is here alone and needs the counts of all
            return load_pytree(folder / f"rank-{trainer.global_rank}.safetensors")
        ranks = [load_pytree(folder / f"rank-{rank}.safetensors") for rank in range(n_before)]
        return state.share_out(ranks, trainer.global_rank)

    def _is_trained(self, trainer: pl.Trainer) -> bool:
        """Whether no step is left, also if a limit was lowered to what is done."""
        place = self.start.progress
        if not place:
            return False
        if place.get("finished", False):
            return True
        return trainer.max_steps == place["step"] or trainer.max_epochs == place["epoch"]

    def _seed(self, trainer: pl.Trainer) -> None:
        assert self._batches is not None
        state.seed_rank(self._batches.seed, trainer.global_rank, trainer.global_step)

    def _is_due(self, place: dict[str, int]) -> bool:
        """Whether a checkpoint is to be saved here: by steps, or by the clock of this process."""
        if self.config.every:
            return place["step"] >= self._saved["step"] + self.config.every
        interval = INTERVAL
        if place["epoch"] > self._saved["epoch"]:
            interval = min(INTERVAL, self.writer.seconds / MOST_SHARE)
        return place["step"] > self._saved["step"] and perf_counter() - self._since >= interval

    def _save(self, trainer: pl.Trainer, module: pl.LightningModule, place: dict[str, Any], *, last: bool) -> None:
        """Save a checkpoint. All ranks call it, and return when rank 0 has written it or has a copy in memory.

        Args:
            last: the process ends after it, so it is not written in the background.
        """
        came = perf_counter()
        with phase("a checkpoint"):
            refusal, began = self.writer.wait(), perf_counter()
            background = trainer.is_global_zero and not last and self._writes_in_background(began)
            files = self._files(trainer, module, place, copied=background)
            if trainer.is_global_zero and not refusal:
                has_best = bool(self.best.best)
                refusal = self.writer.write(place["step"], files, began, has_best=has_best, background=background)
            if refusal := from_first(refusal.encode(), self.votes.group).decode():
                raise UserError(refusal)
        self._saved, self._since, self._has_voted = place, perf_counter(), False
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, Meter):
                callback.leave_out(self._since - came)

    def _writes_in_background(self, now: float) -> bool:
        """Whether to write this checkpoint in the background. By default if the previous one took more than
        `MOST_SHARE` of the time since, and there is memory for two copies."""
        if self.config.background is not Background.auto:
            return self.config.background is Background.always
        share = self.writer.seconds / max(now - self._since, 1e-9)
        background = share > MOST_SHARE and spare_memory() > 2 * self.writer.n_bytes
        if background and not self._has_told:
            self._has_told = True
            log.info(
                "checkpoints are written in the background: one takes %.1f s, %.0f %% of the time from one to the next",
                self.writer.seconds,
                100 * share,
            )
        return background

    def _files(
        self, trainer: pl.Trainer, module: pl.LightningModule, place: dict[str, Any], *, copied: bool
    ) -> dict[str, Write]:
        """Gather the state of all ranks; returns the functions that write the files of the checkpoint.

        Args:
            copied: copy all tensors, so that training may continue before they are written.
        """
        seconds = perf_counter() - self.started
        weights = whole(module.state_dict(), copied=copied)
        everyones = state.global_state(trainer, copied=copied)
        own = io.BytesIO()
        save_pytree(state.rank_state(trainer, module), own)
        ranks = gathered(own.getvalue(), self.votes.group)
        progress = {**place, "ranks": len(ranks), "seconds": seconds, "data": self.data, "files": self.files}
        progress["manyheads"] = VERSION
        rows: list[dict[str, float]] = []
        for logger in trainer.loggers:
            if isinstance(logger, MetricsFile):
                rows += logger.rows.values()
        files: dict[str, Write] = {
            "weights.safetensors": partial(write_tensors, weights),
            "state.safetensors": partial(save_pytree, everyones),
        }
        for rank, content in enumerate(ranks):
            files[f"rank-{rank}.safetensors"] = methodcaller("write", content)
        files["rows.json"] = methodcaller("write", json.dumps(rows).encode())
        files["progress.json"] = methodcaller("write", json.dumps(progress).encode())
        return files

    def _logged(self, stopped: Stopped, place: dict[str, Any]) -> Stopped:
        log.info("stopped by %s at step %d: resume=auto continues from there", stopped.why, place["step"])
        return stopped
