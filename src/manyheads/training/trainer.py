"""RunConfig to Lightning's Trainer: devices, precision, what is compiled, and what becomes of freed memory."""

import ctypes
import logging
import os
import sys
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping, TQDMProgressBar
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.exceptions import MisconfigurationException  # pyright: ignore[reportPrivateImportUsage]
from torch import nn

from manyheads.config import (
    Accelerator,
    HardwareConfig,
    Metric,
    PairKind,
    Precision,
    RunConfig,
    Strategy,
    Task,
)
from manyheads.config.training import Compile
from manyheads.data.datamodule import TextData
from manyheads.distributed.ranks import this_process
from manyheads.distributed.signals import seconds_of
from manyheads.inference.precision import TYPES, cpu_multiplies_bf16
from manyheads.nn.transformer import Decoder, Encoder, make_walk
from manyheads.training.logs import EpochLines, shows_bar
from manyheads.training.strategies import Joined, Marks, Sharded, Started

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # M_... of glibc's malloc.h
LIGHTNING_PRECISION = {Precision.fp32: "32-true", Precision.bf16: "bf16-mixed", Precision.fp16: "16-mixed"}
log = logging.getLogger("manyheads")
COMPILE_FROM = 1000
"""Optimiser steps from which compiling pays on a GPU. Published for a model of a thousand million parameters: 22 s of a
cold start, won back after about 600 steps. On a CPU nothing was won where it was measured."""
GRAPHS_BELOW = 8192
"""Mean tokens of a batch below which a GPU waits for its launches, so that CUDA graphs pay: published, 1.5 times the
steps of compiling alone where launches are all, nothing where products are."""
BAR_EVERY = 20  # steps between two looks of the bar at the loss, each of which waits for a GPU
LIGHTNING_NOISE = (  # warnings about what Lightning does itself, or what we mean to do
    ".*does not have many workers",
    ".*`broadcast_buffers` is deprecated",  # what stands in for it is not in torch 2.11
    ".*`srun` command is available on your system but is not used",
    ".*smaller than the logging interval",
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",
    r".*recommended to use `self\.log\('(train|validation)_",  # torchmetrics has added up the ranks before
)


def keep_freed_memory() -> None:
    """Ask glibc not to give memory back to Linux, which clears each page of it before it lends it again.

    By its defaults every tensor above 32 MB, and many smaller ones, are such pages anew in every step. Kept, a
    training step on the CPU takes 2 to 4 % less time. Other systems and libraries of C are left as they are.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, 2**30)
        mallopt(TRIM_THRESHOLD, 2**31 - 1)


def uses_gpu(accelerator: Accelerator) -> bool:
    """Whether the run computes on GPUs; refused is to ask for one where there is none."""
    has_gpu = torch.cuda.is_available()
    if accelerator is Accelerator.gpu and not has_gpu:
        raise ValueError(
            "hardware.accelerator=gpu, but torch sees no GPU on this machine: use hardware=cpu, "
            "or install a build of torch for your GPU"
        )
    return has_gpu and accelerator is not Accelerator.cpu


def pick_precision(precision: Precision, *, on_gpu: bool) -> Precision:
    """The precision asked for, but fp16 on the CPU; `auto` is bf16 where the processor multiplies in it, else fp32."""
    if precision is Precision.fp16 and not on_gpu:
        raise ValueError(
            "hardware.precision=fp16 needs a GPU, but this run computes on the CPU: "
            "use hardware.precision=bf16 or hardware.precision=fp32"
        )
    if precision is not Precision.auto:
        return precision
    fast = torch.cuda.is_bf16_supported(including_emulation=False) if on_gpu else cpu_multiplies_bf16()
    return Precision.bf16 if fast else Precision.fp32


def count_devices(hardware: HardwareConfig, *, on_gpu: bool) -> int:
    """Devices of each node, at most as many GPUs as there are; 0 in the config is all GPUs, or one CPU process."""
    available = torch.cuda.device_count() if on_gpu else 0
    if hardware.devices == 0:
        return available or 1
    if on_gpu and hardware.devices > available:
        raise ValueError(
            f"hardware.devices={hardware.devices}, but this machine has {available}: use "
            f"hardware.devices={available}, or 0 for all"
        )
    return hardware.devices


def autocast_type(hardware: HardwareConfig) -> torch.dtype | None:
    """What products are computed in; None: in the type of the weights."""
    return TYPES[pick_precision(hardware.precision, on_gpu=uses_gpu(hardware.accelerator))]


def share_of_threads(hardware: HardwareConfig) -> int:
    """Threads of this process: as many as were asked for, or where several are on this machine its share of the
    processors; 0 leaves it to torch."""
    n_local = this_process().n_local
    if hardware.threads or n_local == 1 or "OMP_NUM_THREADS" in os.environ:
        return hardware.threads
    if "SLURM_CPUS_PER_TASK" in os.environ:
        return int(os.environ["SLURM_CPUS_PER_TASK"])
    return max(1, len(os.sched_getaffinity(0)) // n_local)


def trainer_hardware(hardware: HardwareConfig) -> dict[str, object]:
    """The Trainer's flags of accelerator, devices, nodes, strategy and precision: of the processes that there are."""
    on_gpu = uses_gpu(hardware.accelerator)
    count_devices(hardware, on_gpu=on_gpu)
    if n_threads := share_of_threads(hardware):
        torch.set_num_threads(n_threads)
    precision = pick_precision(hardware.precision, on_gpu=on_gpu)
    ranks, spread = this_process(), Sharded if hardware.strategy is Strategy.fsdp else Joined
    backend, timeout = "nccl" if on_gpu else "gloo", timedelta(seconds=hardware.timeout)
    several = ranks.n_ranks > 1 or hardware.strategy is Strategy.ddp
    joined = spread(process_group_backend=backend, timeout=timeout, broadcast_buffers=False)  # which no step changes
    return {
        "accelerator": "gpu" if on_gpu else "cpu",
        "devices": ranks.n_local,
        "num_nodes": max(1, ranks.n_ranks // ranks.n_local),
        "plugins": [Started()],
        "strategy": joined if several else "auto",
        "precision": LIGHTNING_PRECISION[precision],
    }


def speed_up(run: RunConfig, network: nn.Module, data: TextData, trainer: pl.Trainer, n_steps: int) -> None:
    """Let training go through `network` in the fastest way that `run` allows; `n_steps` are the optimiser's."""
    plain = run.task is Task.classify and run.model.pair is PairKind.joint  # the others do not know a tail
    mode = compile_mode(
        run.hardware,
        on_gpu=trainer.strategy.root_device.type == "cuda",
        n_steps=n_steps,
        mean_tokens=data.mean_tokens(),
        alone=plain and run.batch.accumulate == 1 and trainer.world_size == 1,
    )
    set_walks(network, run.hardware, mode)
    data.few_counts = mode == "reduce-overhead" and not run.model.is_recurrent
    if mode and not run.model.is_recurrent:
        log.info("layers are compiled%s", ", and CUDA graphs made of them" if data.few_counts else "")


def set_walks(network: nn.Module, hardware: HardwareConfig, mode: str = "") -> None:
    """Let training go through the layers of `network` as `hardware` says; `mode` as of `make_walk`."""
    walk = make_walk(mode=mode, recompute=hardware.recompute)
    for module in network.modules():
        if isinstance(module, Encoder | Decoder):
            module.walk = walk


def compile_mode(hardware: HardwareConfig, *, on_gpu: bool, n_steps: int, mean_tokens: float, alone: bool) -> str:
    """`default` or `reduce-overhead` (CUDA graphs), or nothing where layers are not compiled.

    A CUDA graph writes to the same memory each time. So it is left out where gradients live longer than a step or are
    given to others: with accumulated batches, several devices and recomputed layers. Where layers are gathered one by
    one nothing is compiled: a program would not see it.

    Args:
        mean_tokens: of a batch.
        alone: a step is one batch on one device.
    """
    if hardware.strategy is Strategy.fsdp or hardware.compile is Compile.never:
        return ""
    if hardware.compile is Compile.auto and not on_gpu:
        return ""
    if hardware.compile is Compile.auto and n_steps < COMPILE_FROM:
        return ""
    is_small = mean_tokens < GRAPHS_BELOW
    return "reduce-overhead" if on_gpu and alone and is_small and not hardware.recompute else "default"


def check_trainer(run: RunConfig) -> None:
    """Build the Trainer once for nothing: whatever the machine or Lightning refuses is said before a file is
    written."""
    build_trainer(run, None, [], [])


def build_trainer(run: RunConfig, folder: Path | None, callbacks: list[Callback], loggers: list[Logger]) -> pl.Trainer:
    """The Trainer of a run that lives in `folder`; `run.trainer` adds to these flags.

    A `ValueError` says of what is asked for that devices or a precision are not there, Lightning refuses it, there are
    two intervals of validation, or a time limit is no time.
    """
    for part in ("pytorch", "fabric"):
        logging.getLogger(f"lightning.{part}").setLevel(logging.WARNING)
    for noise in LIGHTNING_NOISE:
        warnings.filterwarnings("ignore", module=r"lightning\.", message=noise)
    flags: dict[str, Any] = {**trainer_hardware(run.hardware), **run.trainer}
    batches, epochs = flags.get("val_check_interval"), flags.get("check_val_every_n_epoch")
    if isinstance(batches, int):
        if epochs is not None:
            raise ValueError(
                f"trainer.check_val_every_n_epoch={epochs} cannot be combined with trainer.val_check_interval="
                f"{batches}, an interval in batches, which are counted over the whole run: remove one of them"
            )
        flags["check_val_every_n_epoch"] = None  # so that the interval may be longer than an epoch
    seconds_of(flags.pop("max_time", None))  # kept by distributed/signals.py: Lightning ends as if the run were done
    shows, watched = shows_bar(), [Marks()] if this_process().n_ranks > 1 else []
    after: list[Callback] = [EpochLines(), *([TQDMProgressBar(refresh_rate=BAR_EVERY)] if shows else [])]
    if patience := run.checkpoint.patience:
        metric = run.checkpoint.metric
        mode = "min" if metric is Metric.loss else "max"
        after.insert(0, EarlyStopping(f"validation_{metric.name}", mode=mode, patience=patience))
    try:
        return pl.Trainer(
            accumulate_grad_batches=run.batch.accumulate,
            callbacks=[*watched, BetweenSteps(), *callbacks, *after],
            logger=loggers,
            enable_progress_bar=shows,
            log_every_n_steps=run.logger.every,
            default_root_dir=folder,
            use_distributed_sampler=False,
            reload_dataloaders_every_n_epochs=1,
            enable_checkpointing=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            **flags,
        )
    except (ValueError, TypeError, MisconfigurationException, ModuleNotFoundError) as refusal:
        why = " ".join(str(refusal).split())
        raise ValueError(f"Lightning refuses the flags of hardware and trainer: {why}") from refusal


def count_in_steps(trainer: pl.Trainer, accumulate: int, per_step: int) -> None:
    """Let a step be `per_step` batches of each process, and an interval of validation, which counts batches of which a
    step has `accumulate`, be the same steps on however many processes: those that these batches make, or begin."""
    trainer.accumulate_grad_batches = per_step
    if isinstance(trainer.val_check_interval, int):
        trainer.val_check_interval = -(-trainer.val_check_interval // accumulate) * per_step


class BetweenSteps(Callback):
    """Lets a part of an epoch between two validations end with a step, the same on however many processes."""

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        each, batches = trainer.accumulate_grad_batches, trainer.val_check_batch
        if isinstance(batches, int) and batches < trainer.num_training_batches:
            trainer.val_check_batch = max(each, batches // each * each)
