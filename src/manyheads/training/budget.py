"""The number of steps, settled before the first one: convert `budget` to max_steps, timing a few steps.

The learning rate falls towards the last step, so its number must be known. A budget of tokens is divided by the tokens
of a step, a budget of time by the seconds of a step, which are measured on this machine.
"""

import copy
import math
import time
from dataclasses import replace
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback

import manyheads.plugin as plugin
from manyheads.config import RunConfig
from manyheads.config.training import Budget, Compile, read_budget
from manyheads.data.batches import Batch
from manyheads.data.datamodule import TextData
from manyheads.data.tokens import Tokens
from manyheads.distributed.signals import Stop, ending
from manyheads.errors import UserError
from manyheads.inference.precision import choose_device
from manyheads.nn.layer_calls import compile_mode
from manyheads.training.build import Network
from manyheads.training.trainer import count_devices, run_trainer

VALIDATION_SHARE = 0.1  # of the time of a run, at most, for validations between epochs
TIMED_SHARE, LEAST_TIMED, MOST_TIMED = 0.05, 2.0, 20.0  # of the budget, but at least and at most these seconds
WARM_UP = 3  # steps that are not timed: the first ones of a process are slow
FORWARD = 1 / 3  # of the time of a training step: the backward pass takes twice as long


def settle_budget(run: RunConfig, network: Network, tokens: dict[str, Tokens], labels: list[str]) -> RunConfig:
    """`run` with the number of steps that `run.budget` pays for.

    The budget pays for training steps and the validations between them: at most `Task.max_validations`, evenly spaced,
    or one an epoch where that is 0. Weights and random generators are left as they were.

    Raises:
        UserError: a time on several devices, each of which would measure its own.
        Stopped: a signal came meanwhile.
    """
    budget = read_budget(run.budget)
    assert budget is not None
    n_devices = count_devices(run.hardware, on_gpu=choose_device(run.hardware).type == "cuda") * run.hardware.nodes
    if budget.seconds and n_devices != 1:
        raise UserError(
            f"a budget of {run.budget} is a time, which is measured on one device, but this run has several: give a "
            "number of tokens, such as 20Mtok"
        )
    tokens_per_step = TextData(tokens, run.batch, run.seed).tokens_of_step()
    validation = FORWARD * float(tokens["validation"].lengths.sum()) / tokens_per_step  # its cost, in training steps
    if budget.seconds:
        limits = limits_by_timing(run, network, tokens, labels, budget, validation)
    else:
        n_steps = math.ceil(budget.tokens / tokens_per_step)
        limits = evenly_spaced(n_steps, n_validations(plugin.task(run.task).max_validations, n_steps, validation))
    if "val_check_interval" in limits:  # Lightning counts batches
        n_batches = limits["val_check_interval"] * run.batch.accumulate
        limits["val_check_interval"] = run.trainer.get("val_check_interval") or n_batches
    return replace(run, trainer={**run.trainer, "max_epochs": -1, **limits})


def limits_of_time(most: int, n_steps: float, validation: float, steps_of_epoch: int) -> dict[str, int]:
    """The Trainer's limits for a run that has the time of `n_steps` steps.

    Args:
        most: validations, at most, evenly spaced; 0: one an epoch.
        validation: the time of a validation, in steps.
    """
    if not most:
        return {"max_steps": max(1, int(n_steps / (1 + validation / steps_of_epoch)))}
    times = n_validations(most, n_steps, validation)
    return evenly_spaced(max(1, int(n_steps - times * validation)), times)


def n_validations(most: int, n_steps: float, validation: float) -> int:
    """How many validations take at most `VALIDATION_SHARE` of the time: from 1 to `most`, or 0 if `most` is 0."""
    if not most:
        return 0
    return max(1, min(most, int(VALIDATION_SHARE * n_steps / validation)))


def evenly_spaced(n_steps: int, times: int) -> dict[str, int]:
    """The Trainer's limits for `n_steps` steps, or a few more, with `times` validations, the last one at the end; with
    none, validation stays at the end of each epoch."""
    if not times:
        return {"max_steps": n_steps}
    interval = math.ceil(n_steps / times)
    return {"max_steps": math.ceil(n_steps / interval) * interval, "val_check_interval": interval}


def limits_by_timing(
    run: RunConfig, network: Network, tokens: dict[str, Tokens], labels: list[str], budget: Budget, validation: float
) -> dict[str, int]:
    """The Trainer's limits for `budget.seconds`, from the time of a few steps.

    With hardware.compile=auto the number of steps decides whether layers are compiled; where they will be, compiled
    steps are timed as well.
    """

    def timed(choice: Compile) -> dict[str, int]:
        chosen = replace(run, hardware=replace(run.hardware, compile=choice))
        n_steps = budget.seconds / seconds_of_step(chosen, network, tokens, labels, budget)
        steps_of_epoch = TextData(tokens, run.batch, run.seed).steps_of(0)
        return limits_of_time(plugin.task(run.task).max_validations, n_steps, validation, steps_of_epoch)

    hardware = run.hardware
    if hardware.compile is not Compile.auto:
        return timed(hardware.compile)
    limits, on_gpu = timed(Compile.never), choose_device(hardware).type == "cuda"
    compiles = compile_mode(hardware, on_gpu=on_gpu, n_steps=limits["max_steps"], mean_tokens=0.0, allows_graphs=False)
    return timed(Compile.always) if compiles else limits


def seconds_of_step(
    run: RunConfig, network: Network, tokens: dict[str, Tokens], labels: list[str], budget: Budget
) -> float:
    """Seconds of a training step of this run, measured on a copy of the network. Steps with a non-finite loss are timed
    like others: the run itself will react to them."""
    timer = StepTimer(min(MOST_TIMED, max(LEAST_TIMED, TIMED_SHARE * budget.seconds)))
    endless: dict[str, Any] = {"max_epochs": -1, "max_steps": 2**31, "limit_val_batches": 0}
    flags = {key: value for key, value in run.trainer.items() if key not in ("val_check_interval", "max_time")}
    timed = replace(run, trainer={**flags, **endless}, checkpoint=replace(run.checkpoint, patience=0))
    cuda = [0] if torch.cuda.is_available() else []
    with torch.random.fork_rng(cuda), timer.stop.listening():
        run_trainer(timed, copy.deepcopy(network), tokens, labels, [timer])
    return timer.seconds / timer.steps


class StepTimer(Callback):
    """Times steps and ends training after `most` seconds and at least one step, or at a signal.

    Nothing is saved at a signal, since nothing has begun. It waits for a GPU when the clock starts and when time is up;
    in between it does not, as a run does not.
    """

    def __init__(self, most: float) -> None:
        self.most = most
        self.stop = Stop()
        self.steps, self.seconds = 0, 0.0
        self._last_step = 0
        self._started: float | None = None

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.stop.disable_lightning(trainer)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        if stopped := ending(self.stop.votes()):
            raise stopped
        if trainer.global_step == self._last_step:
            return  # gradients are still being accumulated
        self._last_step = trainer.global_step
        if self._last_step < WARM_UP:
            return
        if self._started is not None and time.perf_counter() - self._started < self.most:
            return
        if pl_module.device.type == "cuda":
            torch.cuda.synchronize(pl_module.device)
        if self._started is None:
            self._started = time.perf_counter()
        else:
            self.steps, self.seconds = self._last_step - WARM_UP, time.perf_counter() - self._started
            trainer.should_stop = True
