"""Reacts to non-finite losses and gradients and to memory that runs out, as the settings `guard` say.

The norm of the gradient, which clipping needs in any case, is the same on every rank after gradients are summed, and a
non-finite loss makes it non-finite (module.py). So all ranks agree without communication. The optimiser skips such a
step by a flag on the device, and nothing is read back within a step: loss and norm stay on the device until figures are
logged or a validation comes. On a CPU they are read at once.
"""

import json
import logging
import math
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from manyheads.config import RunConfig
from manyheads.errors import UserError
from manyheads.runs.files import read_json_or_none, write_atomic
from manyheads.runs.restart import FILE as NEXT
from manyheads.runs.restart import RestartRequested, RestartState, read_restart_state, write_restart_state
from manyheads.training.module import LitModule
from manyheads.training.optim import rate_factor

FILE = "nonfinite.json"
NO_MEMORY = re.compile(r"out of memory|_ALLOC(ATION)?_FAILED|can't allocate memory|could not create a primitive$")
SCALINGS = 40  # overflows in a row after which fp16's loss scale, halved each time, cannot be the reason
log = logging.getLogger("manyheads")


class DivergedError(UserError):
    """Training has diverged; the weights of `module` are those before the step that failed."""

    def __init__(self, sentence: str, module: LitModule) -> None:
        super().__init__(sentence)
        self.module = module


@dataclass(frozen=True, slots=True)
class Step:
    """An optimiser step.

    Attributes:
        number: from 1, in the whole run.
        epoch: from 0.
        slot: its place in the epoch, from 0.
        loss: mean over this rank's rows.
        norm: of the gradient, before clipping.
    """

    number: int
    epoch: int
    slot: int
    loss: float
    norm: float


class Guard(Callback):
    """Records steps that were skipped because of a non-finite gradient, and ends or restarts training if need be.

    Args:
        run: for the settings `guard`, `logger.every` and `optim.lr`.
        folder: of the run, where such steps are recorded; None: they are not.
        again: the state with which the run was restarted.
    """

    def __init__(self, run: RunConfig, folder: Path | None = None, again: RestartState = RestartState()) -> None:  # noqa: B008 - frozen
        self.config = run.guard
        self.every = run.logger.every
        self.rate = run.optim.lr  # as typed
        self.folder = folder
        self.again = again
        self.skipped: list[int] = []
        self._last = 0  # the number of the last step
        self._losses: list[Tensor] = []  # of the batches of the step under way
        self._kept: list[tuple[int, int, int]] = []  # steps whose figures are still on the device: number, epoch, slot
        self._figures: list[Tensor] = []  # their loss and norm
        self._read: list[Step] = []  # steps whose figures are read and not yet handled
        self._in_a_row = 0  # overflows of fp16
        self._out_of_memory, self._rows = "", 0  # where memory ran out, and the rows of that batch

    @property
    def left_out(self) -> list[int]:
        """The steps, from 1, that were skipped."""
        return sorted({*self.again.left_out, *self.skipped})

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, LitModule)
        pl_module.skip_steps, pl_module.is_guarded = frozenset(self.again.left_out), True
        if self.folder and trainer.is_global_zero and self.again == RestartState():
            (self.folder / NEXT).unlink(missing_ok=True)  # of a run with other settings
        if trainer.strategy.root_device.type == "cpu":
            self.every = 1

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._last = trainer.global_step

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, LitModule)
        self._losses.append(outputs["loss"])
        if trainer.global_step == self._last:
            return  # gradients are still being accumulated
        self._last = trainer.global_step
        n_batches = trainer.fit_loop.epoch_loop.batch_progress.current.ready
        self._kept.append((self._last, trainer.current_epoch, n_batches // trainer.accumulate_grad_batches - 1))
        self._figures.append(torch.stack([torch.stack(self._losses).sum(), pl_module.norm]))
        self._losses = []
        if self._last % self.every == 0:
            self._check_steps(trainer, pl_module)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._check_steps(trainer, pl_module)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Only a validation shows that the last step has made the weights non-finite. Its loss is of all ranks."""
        loss = float(trainer.callback_metrics["validation_loss"])
        if not math.isfinite(loss):
            self._end(trainer, pl_module, f"after step {trainer.global_step}: the validation loss is {loss:g}")

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._check_steps(trainer, pl_module)

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        assert isinstance(pl_module, LitModule)
        if is_out_of_memory(exception):
            self._rows = pl_module.n_rows
            self._out_of_memory = f"step {trainer.global_step + 1} ran out of memory"
            if trainer.world_size > 1:
                self._out_of_memory += f" in process {trainer.global_rank}"

    def state_dict(self) -> dict[str, Any]:
        """The same on every rank except for the loss. What is still on the device is read now and handled later."""
        self._fetch()
        read = [asdict(step) for step in self._read]
        return {"skipped": list(self.skipped), "in_a_row": self._in_a_row, "read": read}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.skipped, self._in_a_row = list(state_dict["skipped"]), state_dict["in_a_row"]
        self._read = [Step(**one) for one in state_dict["read"]]

    def recovery(self) -> RestartRequested | None:
        """The restart to raise after torch has failed, or None if memory is not the reason.

        If memory ran out in this process, smaller batches are recorded for the restart. If it ran out in another one,
        this process only lost the connection, and they are recorded already.

        Raises:
            UserError: batches cannot be halved.
        """
        if not self._out_of_memory:
            written = read_restart_state(self.folder) if self.folder else self.again
            if written == self.again:
                return None
            return RestartRequested(written)
        remedy = "use a smaller data.max_length or model, or set hardware.recompute=true"
        if not self.config.halve:
            raise UserError(f"{self._out_of_memory}: set guard.halve=true, use a smaller batch.tokens, or {remedy}")
        if self._rows <= 1:
            raise UserError(f"{self._out_of_memory} with one row at a time: {remedy}")
        again = replace(self.again, split=2 * self.again.split, why=self._out_of_memory)
        assert self.folder
        write_restart_state(self.folder, again)
        return RestartRequested(again)

    def _fetch(self) -> None:
        """Read loss and norm of the last steps from the device, which makes the host wait for it."""
        if not self._kept:
            return
        figures = torch.stack(self._figures).tolist()
        for (number, epoch, slot), (loss, norm) in zip(self._kept, figures, strict=True):
            self._read.append(Step(number, epoch, slot, loss, norm))
        self._kept, self._figures = [], []

    def _check_steps(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Handle the failed steps since the last call."""
        self._fetch()
        steps, self._read = self._read, []
        bad: list[Step] = []
        for step in steps:
            is_finite = math.isfinite(step.norm)
            if trainer.scaler is not None:  # it skips steps whose gradients overflow in fp16, and lowers its scale
                self._in_a_row = 0 if is_finite else self._in_a_row + 1
                if self._in_a_row >= SCALINGS:
                    bad.append(step)
            elif not is_finite and step.number not in self.again.left_out:
                bad.append(step)
        if bad:
            self._handle(trainer, module, bad)

    def _handle(self, trainer: pl.Trainer, module: pl.LightningModule, bad: list[Step]) -> None:
        """Record failed steps; then skip them, restart, or end training. All ranks come here with the same steps."""
        assert isinstance(module, LitModule)
        own = torch.as_tensor([step.loss for step in bad], device=module.device)
        losses = module.all_gather(own).reshape(-1, len(bad)).T.tolist()  # type: ignore[union-attr] # by step and rank
        if trainer.is_global_zero and self.folder:
            self._record(trainer, module, bad, losses)
        first, rate = bad[0], rate_of(bad[0], module)
        loss = sum(losses[0]) / len(losses[0])
        for of_rank in losses[0]:
            if not math.isfinite(of_rank):
                loss = of_rank
                break
        what = f"the loss is {loss:g} and the norm of the gradient {first.norm:g}, at a learning rate of {rate:.3g}"
        numbers, mode = [step.number for step in bad], self.config.nonfinite.name
        left_out = sorted({*self.left_out, *numbers})
        trainer.strategy.barrier()  # the file is complete before a process ends
        if mode == "raise" or trainer.scaler is not None or len(left_out) > self.config.at_most:
            self._end(trainer, module, f"at step {first.number}: {what}", n_before=len(left_out) - len(bad))
        said = f"step {first.number} is left out: {what}"
        if mode == "rollback":
            again = replace(self.again, left_out=tuple(left_out), why=said)
            if trainer.is_global_zero and self.folder:
                write_restart_state(self.folder, again)
            trainer.strategy.barrier()
            raise RestartRequested(again)
        self.skipped += numbers
        if len(bad) > 1:
            said += f" (and {len(bad) - 1} more since)"
        log.warning("%s", said)

    def _record(self, trainer: pl.Trainer, module: LitModule, bad: list[Step], losses: list[list[float]]) -> None:
        """Add failed steps to nonfinite.json, one a line; `losses` are by step and rank."""
        assert self.folder
        found = read_json_or_none(self.folder / FILE)
        by_step: dict[int, dict[str, Any]] = {}
        if isinstance(found, list):
            by_step = {record["step"]: record for record in found}
        for step, of_ranks in zip(bad, losses, strict=True):
            by_step[step.number] = described(step, of_ranks, trainer, module)
        lines = ",\n".join(json.dumps(by_step[number]) for number in sorted(by_step))
        write_atomic(self.folder / FILE, f"[\n{lines}\n]\n")

    def _end(self, trainer: pl.Trainer, module: pl.LightningModule, what: str, n_before: int = 0) -> NoReturn:
        assert isinstance(module, LitModule)
        remedy = f"use a smaller rate, such as optim.lr={self.rate / 10:g}, in a new folder"
        if n_before:
            what += f", after {n_before} steps that were left out (guard.at_most={self.config.at_most})"
        elif self.config.nonfinite.name == "raise":
            remedy += ", or leave such steps out by guard.nonfinite=skip"
        if self.folder:
            remedy += f": {self.folder} keeps the figures so far and holds no model"
        raise DivergedError(f"training diverged {what}; {remedy}", module)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch ran out of memory: in its GPU allocator, or, as a `RuntimeError`, in CUDA, cuBLAS, cuDNN, the
    allocator of the CPU or oneDNN."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and NO_MEMORY.search(str(error)) is not None


def rate_of(step: Step, module: LitModule) -> float:
    """The learning rate of `step`."""
    return module.optim.lr * rate_factor(step.number - 1, module.n_steps, module.optim)


def described(step: Step, losses: list[float], trainer: pl.Trainer, module: LitModule) -> dict[str, Any]:
    """The record of a step in nonfinite.json. Figures are strings, as JSON has no NaN; rows are indices into the
    training split, for each rank."""
    data: Any = trainer.datamodule  # type: ignore[attr-defined]
    n_ranks, slots = trainer.world_size, trainer.accumulate_grad_batches
    of_step = slice(step.slot * slots, (step.slot + 1) * slots)
    rows = []
    for rank in range(n_ranks):
        batches = data.plan(step.epoch, n_ranks, rank)[of_step]
        rows.append([row for batch in batches for row in batch.rows.tolist()])
    return {
        "step": step.number,
        "epoch": step.epoch + 1,
        "rate": rate_of(step, module),
        "losses": [f"{loss:g}" for loss in losses],
        "norm": f"{step.norm:g}",
        "rows": rows,
    }
