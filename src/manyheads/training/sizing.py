"""How large a batch is and how many steps there are, settled before the first step.

The largest batch is tried before anything is trained, so memory runs out at the start or hardly ever. A budget of time
or tokens becomes a number of optimiser steps, towards whose end the learning rate falls.
"""

import copy
import gc
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback

from manyheads.config import RunConfig, Task
from manyheads.config.training import BASE_STEPS, Budget, Compile, read_budget
from manyheads.data.batches import Batch
from manyheads.data.datamodule import TextData
from manyheads.data.tokens import Tokens
from manyheads.distributed.signals import Stop, ending
from manyheads.training.module import Lesson, Network, are_few, make_task
from manyheads.training.session import run_trainer
from manyheads.training.trainer import autocast_type, compile_mode, count_devices, set_walks, uses_gpu

ON_CPU = 8192  # tokens that batch.tokens=auto stands for where no GPU is
MOST = 65_536  # tokens that keep any GPU busy: from there on a larger batch makes fewer steps and none of them faster
STEP = 1024  # tokens between two numbers that are tried


LOOKS = 20  # validations of a pretraining
MOST_LOOKING = 0.1  # of its time
TIMED_SHARE, LEAST_TIMED, MOST_TIMED = 0.05, 2.0, 20.0  # of the budget, in seconds
FIRST = 3  # steps that are not timed: those of a process are slow at first
FORWARD = 1 / 3  # of the time of a step: the gradient takes twice as long


def settle_batch(run: RunConfig, network: Network, tokens: dict[str, Tokens], labels: list[str]) -> RunConfig:
    """`run` with a number for batch.tokens=auto, on a GPU the largest of which every batch fits.

    A number that was typed is tried, too. Weights, their gradients and all generators stay as they are.

    Raises:
        ValueError: it does not fit, or nothing does; auto on several devices, which might find several numbers.
    """
    on_gpu = uses_gpu(run.hardware.accelerator)
    if not on_gpu:
        return with_tokens(run, ON_CPU) if run.batch.is_auto else run
    if count_devices(run.hardware, on_gpu=True) * run.hardware.nodes > 1:
        if run.batch.is_auto:
            raise ValueError(
                "batch.tokens=auto tries batches on one device, but this run has several, which must agree: "
                "give a number"
            )
        return run
    task = make_task(run, tokens["train"], labels)
    set_walks(network, run.hardware)
    device, dtype = torch.device("cuda", 0), autocast_type(run.hardware)

    def fits(n_tokens: int) -> bool:
        batch = TextData(tokens, with_tokens(run, n_tokens).batch, run.seed).largest_batch()
        return tried(network, task, batch, device, dtype, copies=3 if run.optim.average else 2)

    try:
        return found(run, fits, longest=int(tokens["train"].lengths.max()))
    finally:
        network.cpu()


def found(run: RunConfig, fits: Callable[[int], bool], *, longest: int) -> RunConfig:
    """`run` with the number it says, if that fits, or with the largest that does.

    Raises:
        ValueError: as of `settle_batch`.
    """
    remedy = "set hardware.recompute=true, or use a smaller data.max_length or a smaller model"
    if not run.batch.is_auto:
        if not fits(run.batch.tokens):
            raise ValueError(
                f"batch.tokens={run.batch.tokens} needs more memory than the GPU has for its largest batch: use a "
                "smaller number, batch.tokens=auto to have it found, or hardware.recompute=true"
            )
        return run
    most = largest(fits, least=-(-longest // STEP), most=max(MOST, longest) // STEP)
    if not most:
        raise ValueError(
            f"batch.tokens=auto finds no batch that the GPU has memory for, not even one text of {longest} tokens: "
            f"{remedy}"
        )
    return with_tokens(run, most * STEP)


def largest(fits: Callable[[int], bool], *, least: int, most: int) -> int:
    """The largest multiple of `STEP` from `least` to `most` that fits, as a factor; 0 if none does.

    What fits is taken to fit in smaller numbers, too.
    """
    if fits(most * STEP):
        return most
    below, above = least - 1, most
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if fits(middle * STEP) else (below, middle)
    return below if below >= least else 0


def tried(
    network: Network,
    task: Lesson,
    batch: Batch,
    device: torch.device,
    dtype: torch.dtype | None,
    *,
    copies: int,
) -> bool:
    """Whether there is memory for a step: forward, backward, and `copies` of the weights as the optimiser keeps them.

    Args:
        dtype: that of autocast; None: none.
    """
    network.to(device)
    task.to(device)
    weights = [one for one in network.parameters() if one.requires_grad]
    cuda = [device] if device.type == "cuda" else []
    try:
        with torch.random.fork_rng(cuda), torch.autocast(device.type, dtype, enabled=dtype is not None):
            kept = [torch.empty_like(one) for one in weights for _ in range(copies)]
            losses_B = task.learn(network, batch.to(device))  # type: ignore[arg-type]  # the task of this network
            torch.autograd.grad(losses_B.sum(), weights, allow_unused=True)
            del kept
        return True
    except torch.OutOfMemoryError:
        return False
    finally:
        task.train_metrics.reset()
        if cuda:
            torch.cuda.empty_cache()


def give_back() -> None:
    """Give the device the memory of what nobody holds any more: a Trainer and its module hold each other."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def with_tokens(run: RunConfig, n_tokens: int) -> RunConfig:
    return replace(run, batch=replace(run.batch, tokens=n_tokens))


def settle_budget(run: RunConfig, network: Network, tokens: dict[str, Tokens], labels: list[str]) -> RunConfig:
    """`run` with the steps that `run.budget` is enough for, of which a time is told by timing some, and validated at
    even distances where words are hidden; without one, with the limits of `limited_by_data`. Weights and generators
    stay as they are.

    What a budget pays for are the steps and the validations among them.

    Raises:
        ValueError: a time, but several devices, each of which would time its own steps.
        Stopped: a signal came while steps were timed.
    """
    budget = read_budget(run.budget)
    if budget is None:
        return limited_by_data(run, few=are_few(run, tokens["train"], labels), n_classes=len(labels))
    n_devices = count_devices(run.hardware, on_gpu=uses_gpu(run.hardware.accelerator)) * run.hardware.nodes
    if budget.seconds and n_devices != 1:
        raise ValueError(
            f"a budget of {run.budget} is a time, which is measured on one device, but this run has several: give a "
            "number of tokens, such as 20Mtok"
        )
    data = TextData(tokens, run.batch, run.seed)
    per_step = float(tokens["train"].lengths.sum()) / data.steps_of(0)
    look = FORWARD * float(tokens["validation"].lengths.sum()) / per_step  # in steps
    if budget.seconds:
        limits = rehearsed(run, network, tokens, labels, budget, look)
    else:
        n_steps = math.ceil(budget.tokens / per_step)
        limits = even(run.task, n_steps, n_looks(n_steps, look))
    if "val_check_interval" in limits:
        limits["val_check_interval"] = run.trainer.get("val_check_interval") or (
            limits["val_check_interval"] * run.batch.accumulate
        )
    return replace(run, trainer={**run.trainer, "max_epochs": -1, **limits})


def settled_notes(asked: RunConfig, run: RunConfig) -> Iterator[str]:
    """What `batch.tokens=auto`, a budget and the limits that the data decides came to in `run`."""
    if asked.batch != run.batch:
        yield f"batch.tokens=auto: {run.batch.tokens}"
    if asked.trainer == run.trainer:
        return
    if run.budget:
        yield f"budget={run.budget}: {run.trainer['max_steps']} steps"
        return
    if asked.trainer.get("max_epochs") != run.trainer.get("max_epochs"):
        yield f"rows are few: {run.trainer['max_epochs']} epochs instead of {asked.trainer['max_epochs']}"
    if asked.trainer.get("max_steps") != run.trainer.get("max_steps"):
        yield (
            f"trainer.max_steps={run.trainer['max_steps']}: {BASE_STEPS} and {run.optim.steps_per_class} for each class"
        )


def limited_by_data(run: RunConfig, *, few: bool, n_classes: int) -> RunConfig:
    """`run` with the limits that its data decides."""
    return replace(run, trainer=run.optim.limited(run.trainer, few=few, n_classes=n_classes))


def of_time(task: Task, n_steps: float, look: float, steps_of_epoch: int) -> dict[str, int]:
    """The limits of a run that has the time of `n_steps` and takes that of `look` steps to look at validation."""
    if task is not Task.pretrain:
        return {"max_steps": max(1, int(n_steps / (1 + look / steps_of_epoch)))}
    looks = n_looks(n_steps, look)
    return even(task, max(1, int(n_steps - looks * look)), looks)


def n_looks(n_steps: float, look: float) -> int:
    """Validations that take a tenth of the time at the most; at least one."""
    return max(1, min(LOOKS, int(MOST_LOOKING * n_steps / look)))


def even(task: Task, n_steps: int, looks: int) -> dict[str, int]:
    """So many steps or a few more, with `looks` validations at even distances, the last of them at the end."""
    if task is not Task.pretrain:
        return {"max_steps": n_steps}
    each = -(-n_steps // looks)
    return {"max_steps": -(-n_steps // each) * each, "val_check_interval": each}


def rehearsed(
    run: RunConfig, network: Network, tokens: dict[str, Tokens], labels: list[str], budget: Budget, look: float
) -> dict[str, int]:
    """The limits of a run that has `budget.seconds`, found by timing its steps.

    With hardware.compile=auto the number of steps decides whether layers are compiled. So steps are timed as they are,
    and once more compiled where there are so many that the run will compile them.
    """

    def timed(choice: Compile) -> dict[str, int]:
        one = replace(run, hardware=replace(run.hardware, compile=choice))
        n_steps = budget.seconds / seconds_of_step(one, network, tokens, labels, budget)
        return of_time(run.task, n_steps, look, TextData(tokens, run.batch, run.seed).steps_of(0))

    hardware = run.hardware
    if hardware.compile is not Compile.auto:
        return timed(hardware.compile)
    limits, on_gpu = timed(Compile.never), uses_gpu(hardware.accelerator)
    compiles = compile_mode(hardware, on_gpu=on_gpu, n_steps=limits["max_steps"], mean_tokens=0.0, alone=False)
    return timed(Compile.always) if compiles else limits


def seconds_of_step(
    run: RunConfig, network: Network, tokens: dict[str, Tokens], labels: list[str], budget: Budget
) -> float:
    """What a step of this very run takes, on a copy of the network. A step whose loss is not finite takes as long as
    another: the run itself will meet and answer it."""
    pace = Pace(min(MOST_TIMED, max(LEAST_TIMED, TIMED_SHARE * budget.seconds)))
    endless: dict[str, Any] = {"max_epochs": -1, "max_steps": 2**31, "limit_val_batches": 0}
    flags = {key: value for key, value in run.trainer.items() if key not in ("val_check_interval", "max_time")}
    timed = replace(run, trainer={**flags, **endless})
    cuda = [0] if torch.cuda.is_available() else []
    with torch.random.fork_rng(cuda), pace.stop.listening():
        run_trainer(timed, copy.deepcopy(network), tokens, labels, [pace])
    return pace.seconds / pace.steps


class Pace(Callback):
    """Ends training when `most` seconds of whole steps were timed; there is at least one such step. A signal ends it
    sooner: nothing was begun that would have to be saved.

    A GPU is waited for when the clock starts and when time is up, not in between: the run itself does not wait either.
    """

    def __init__(self, most: float) -> None:
        self.most = most
        self.stop = Stop()
        self.steps, self.seconds = 0, 0.0
        self._last = 0
        self._since: float | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.stop.listen()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        if stopped := ending(self.stop.votes()):
            raise stopped
        if trainer.global_step == self._last:
            return  # gradients are still being summed
        self._last = trainer.global_step
        if self._last < FIRST:
            return
        if self._since is None:
            self._since = _clock(pl_module)
        elif time.perf_counter() - self._since >= self.most:
            self.steps, self.seconds = self._last - FIRST, _clock(pl_module) - self._since
            trainer.should_stop = True


def _clock(module: pl.LightningModule) -> float:
    """The time when all that was asked of the device is done."""
    if module.device.type == "cuda":
        torch.cuda.synchronize(module.device)
    return time.perf_counter()
