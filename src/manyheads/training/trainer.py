"""RunConfig to Lightning's Trainer: devices, precision, compilation, malloc tuning, callbacks; and training itself.

`fit` trains the network of a run and returns its figures. `run_trainer` trains one of which nothing is saved, for
timing, or in a comparison.
"""

import ctypes
import logging
import sys
import warnings
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.exceptions import MisconfigurationException  # pyright: ignore[reportPrivateImportUsage]
from torch import nn

import manyheads.plugin as plugin
from manyheads.config import HardwareConfig, Precision, RunConfig, Strategy
from manyheads.data.datamodule import TextData
from manyheads.data.tokens import Tokens
from manyheads.distributed.collectives import Votes
from manyheads.distributed.max_time import parse_max_time
from manyheads.distributed.ranks import this_process
from manyheads.distributed.signals import Stop
from manyheads.errors import UserError
from manyheads.inference.precision import choose_device, choose_precision, set_threads, without_tf32
from manyheads.nn.classifier import OwnNetwork
from manyheads.nn.cost import count_parameters
from manyheads.nn.layer_calls import compile_mode, set_layer_calls
from manyheads.runs.resume import Start, first_difference
from manyheads.training.build import Network, make_objective, optim_of, prepare_weights
from manyheads.training.callbacks import KeepBest, NetworkGuard, Patience
from manyheads.training.checkpoint import Checkpoint
from manyheads.training.context import RunContext
from manyheads.training.guard import Guard
from manyheads.training.logs import Bar, EpochLines, Meter, MetricsFile, shows_bar
from manyheads.training.module import LitModule
from manyheads.training.optim import EMACallback
from manyheads.training.state import hash_tokens
from manyheads.training.strategies import ExternalCluster, FullyShardedStrategy, HeartbeatCallback, RendezvousDDP
from manyheads.training.weights import only_seen_words

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # M_... of glibc's malloc.h
LIGHTNING_PRECISION = {Precision.fp32: "32-true", Precision.bf16: "bf16-mixed", Precision.fp16: "16-mixed"}
log = logging.getLogger("manyheads")
LIGHTNING_NOISE = (  # warnings about what Lightning itself does, or what is intended here
    ".*does not have many workers",
    ".*`broadcast_buffers` is deprecated",  # its replacement is not in torch 2.11
    ".*`srun` command is available on your system but is not used",
    ".*smaller than the logging interval",
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",
    r".*recommended to use `self\.log\('(train|validation)_",  # torchmetrics has already reduced over the ranks
)


def keep_freed_memory() -> None:
    """Tell glibc's malloc not to return freed memory to Linux, which has to clear every page that it hands out again.

    By default every tensor above 32 MB, and many smaller ones, get fresh pages in every step. Without that a training
    step on the CPU takes 2 to 4 % less time. Nothing is done on other systems and C libraries.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, 2**30)
        mallopt(TRIM_THRESHOLD, 2**31 - 1)


def count_devices(hardware: HardwareConfig, *, on_gpu: bool) -> int:
    """The number of devices of each node; `hardware.devices=0` is all GPUs, or one process on a CPU."""
    if hardware.devices == 0:
        return torch.cuda.device_count() if on_gpu else 1
    return hardware.devices


def trainer_hardware(hardware: HardwareConfig) -> dict[str, object]:
    """The Trainer's flags for accelerator, devices, nodes, strategy and precision, for the processes that run."""
    device = choose_device(hardware)
    on_gpu = device.type == "cuda"
    precision = choose_precision(hardware.precision, device)
    set_threads(hardware)
    ranks, strategy = this_process(), "auto"
    if ranks.n_ranks > 1:
        several = FullyShardedStrategy if hardware.strategy is Strategy.fsdp else RendezvousDDP
        strategy = several(
            process_group_backend="nccl" if on_gpu else "gloo",
            timeout=timedelta(seconds=hardware.timeout),
            broadcast_buffers=False,  # no buffer changes in training
        )
    return {
        "accelerator": "gpu" if on_gpu else "cpu",
        "devices": ranks.n_local,
        "num_nodes": max(1, ranks.n_ranks // ranks.n_local),
        "plugins": [ExternalCluster()],
        "strategy": strategy,
        "precision": LIGHTNING_PRECISION[precision],
    }


def speed_up(run: RunConfig, network: nn.Module, data: TextData, trainer: pl.Trainer, n_steps: int) -> None:
    """Compile the layers of `network` if `run` allows it and it pays.

    Args:
        n_steps: optimiser steps of the run.
    """
    is_own = isinstance(network, OwnNetwork)
    reads_tail = plugin.task(run.task).has_classes and not run.model.reads_apart and not is_own
    mode = compile_mode(
        run.hardware,
        on_gpu=trainer.strategy.root_device.type == "cuda",
        n_steps=n_steps,
        mean_tokens=data.mean_tokens(),
        allows_graphs=reads_tail and run.batch.accumulate == 1 and trainer.world_size == 1,
    )
    set_layer_calls(network, run.hardware, mode)
    data.few_counts = mode == "reduce-overhead" and run.model.has_heads
    if mode and run.model.has_heads:
        log.info("layers are compiled%s", ", and CUDA graphs made of them" if data.few_counts else "")


def check_trainer(run: RunConfig) -> None:
    """Build the Trainer and drop it, so that what the machine or Lightning refuses is reported before a file is
    written."""
    build_trainer(run, None, [], [])


def build_trainer(run: RunConfig, folder: Path | None, callbacks: list[Callback], loggers: list[Logger]) -> pl.Trainer:
    """The Trainer of a run in `folder`; `run.trainer` adds to and overrides the flags here.

    Args:
        callbacks: of this training, called in this order, before those that only report or stop early.

    Raises:
        UserError: devices or precision do not exist on this machine, Lightning refuses a flag, two intervals of
            validation are set, or `trainer.max_time` is not a time.
    """
    for part in ("pytorch", "fabric"):
        logging.getLogger(f"lightning.{part}").setLevel(logging.WARNING)
    for noise in LIGHTNING_NOISE:
        warnings.filterwarnings("ignore", module=r"lightning\.", message=noise)
    flags: dict[str, Any] = {**trainer_hardware(run.hardware), **run.trainer}
    batches, epochs = flags.get("val_check_interval"), flags.get("check_val_every_n_epoch")
    if isinstance(batches, int):
        if epochs is not None:
            raise UserError(
                f"trainer.check_val_every_n_epoch={epochs} cannot be combined with trainer.val_check_interval="
                f"{batches}, an interval in batches, which are counted over the whole run: remove one of them"
            )
        flags["check_val_every_n_epoch"] = None  # so that the interval may be longer than an epoch
    parse_max_time(flags.pop("max_time", None))  # `Stop` keeps it: Lightning would end as if the run were done
    every: list[Callback] = []
    if this_process().n_ranks > 1:
        every.append(HeartbeatCallback())
    every += [BetweenSteps(), *callbacks]
    if run.checkpoint.patience:
        every.append(Patience(run.checkpoint.metric, run.checkpoint.patience))
    every.append(EpochLines(run.checkpoint.metric))
    if shows_bar():
        every.append(Bar(run.checkpoint.metric))
    try:
        return pl.Trainer(
            accumulate_grad_batches=run.batch.accumulate,
            callbacks=every,
            logger=loggers,
            enable_progress_bar=False,
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
        raise UserError(f"Lightning refuses the flags of hardware and trainer: {why}") from refusal


def count_in_steps(trainer: pl.Trainer, accumulate: int, per_step: int) -> None:
    """Make a step and the interval of validation the same on any number of processes.

    Args:
        accumulate: batches of a step in the settings, by which `val_check_interval` counts.
        per_step: batches of a step of each process.
    """
    trainer.accumulate_grad_batches = per_step
    if isinstance(trainer.val_check_interval, int):
        trainer.val_check_interval = -(-trainer.val_check_interval // accumulate) * per_step


class BetweenSteps(Callback):
    """Makes the interval between two validations within an epoch a whole number of steps."""

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        per_step, interval = trainer.accumulate_grad_batches, trainer.val_check_batch  # both in batches
        if isinstance(interval, int) and interval < trainer.num_training_batches:
            trainer.val_check_batch = max(per_step, interval // per_step * per_step)


def check_same(start: Start, tokens: dict[str, Tokens], files: dict[str, str]) -> None:
    """Raise UserError unless texts, their order and labels are those the run began with: the rows that were trained on
    are known by their numbers. So are the `files` it began with: a checkpoint may lack vectors that are not trained."""
    if start.checkpoint is None:
        return
    if name := first_difference(start.progress.get("files"), files):
        raise UserError(
            f"{name} names other content than the run of {start.checkpoint} began with: give the same files, or start "
            "a new run in another folder"
        )
    if start.progress["data"] != hash_tokens(tokens):
        raise UserError(
            f"the rows are not those that {start.checkpoint} was trained on: give the same data, "
            "or start a new run in another folder"
        )


def fit(context: RunContext) -> dict[str, Any] | None:
    """Train `context.network` in place and leave it with the best epoch's weights, on the CPU.

    Returns:
        The figures of Summary that only the training loop knows; None in all processes but the first.

    Raises:
        UserError: training diverged, or memory runs out whatever the size of a batch.
        RestartRequested: it is to resume from its newest checkpoint in another way, which is written down.
        Stopped: it was asked to end, and its state is saved.
    """
    keep_freed_memory()
    run, network, tokens, labels = context.run, context.network, context.tokens, context.splits.labels
    folder, start = context.folder, context.start
    with only_seen_words(network, tokens["train"]):
        # Each process does it, so that none waits for the first, whose weights they all get in the end.
        prepare_weights(run, network, tokens["train"], labels, first=start.checkpoint is None)
        module = LitModule(network, make_objective(run, tokens["train"], labels), optim=optim_of(run))

        guard = Guard(run, folder, start.restart)
        meter, keep = Meter(), KeepBest(run.checkpoint.metric, network, folder / "checkpoints")
        stop = Stop(parse_max_time(run.trainer.get("max_time")))
        votes = Votes(run.hardware.timeout)
        checkpoint = Checkpoint(
            run.checkpoint,
            stop,
            votes,
            keep,
            start,
            data=hash_tokens(tokens),
            files=context.files,
            started=context.began,
        )
        callbacks: list[Callback] = [guard, meter, keep, *averaging(run)]
        callbacks.append(checkpoint)  # after those whose state it saves
        if context.callbacks:
            # Users' callbacks come last: what they do before a batch comes after the checkpoint that is saved there, so
            # a resumed run does it only once.
            callbacks += [*context.callbacks, NetworkGuard(module, context.callbacks)]
        metrics = MetricsFile(folder / "metrics.csv")

        trainer = build_trainer(run, folder, callbacks, [metrics, *context.loggers])
        data = prepare_data(run, network, tokens, trainer, split=start.restart.split)
        try:
            with exact_products(trainer):
                checkpoint.fit(trainer, module, data)
        except RuntimeError as error:
            if again := guard.recovery():
                raise again from error
            raise
        if not trainer.is_global_zero:
            return None
        network.cpu().eval()
        best = keep.restore()
    return {
        "parameters": count_parameters(network),
        "epochs": trainer.current_epoch,
        "steps": trainer.global_step,
        "seconds": meter.seconds,
        "real_tokens_per_s": meter.tokens_per_s,
        "padding_share": meter.padding_share,
        "truncated_share": tokens["train"].n_truncated / max(1, len(tokens["train"])),
        "precision": str(trainer.precision),
        "split": start.restart.split,
        "left_out": guard.left_out,
        "best": best,
        "train": metrics.of_training(best.get("epoch", trainer.current_epoch)),
    }


def run_trainer(
    run: RunConfig, network: Network, tokens: dict[str, Tokens], labels: list[str], callbacks: list[Callback]
) -> LitModule:
    """Train `network` in place to the end of its steps, or until a callback ends it. Nothing is saved."""
    keep_freed_memory()
    with only_seen_words(network, tokens["train"]):
        module = LitModule(network, make_objective(run, tokens["train"], labels), optim=optim_of(run))
        trainer = build_trainer(run, None, [*callbacks, *averaging(run)], [])
        data = prepare_data(run, network, tokens, trainer)
        with exact_products(trainer):
            trainer.fit(module, data)
    return module


def averaging(run: RunConfig) -> list[Callback]:
    """The callback that averages the weights, if `optim.average` asks for it."""
    return [EMACallback(run.optim.average)] if run.optim.average else []


def prepare_data(
    run: RunConfig, network: Network, tokens: dict[str, Tokens], trainer: pl.Trainer, *, split: int = 1
) -> TextData:
    """The batches of a training; what depends on their number and size is set in `network` and `trainer`.

    Args:
        split: parts that each batch is cut into, for less memory.
    """
    data = TextData(tokens, run.batch, run.seed, split=split)
    count_in_steps(trainer, run.batch.accumulate, data.per_step(trainer.world_size))
    speed_up(run, network, data, trainer, data.n_steps(trainer.max_epochs, trainer.max_steps))
    return data


def exact_products(trainer: pl.Trainer) -> AbstractContextManager[None]:
    """With precision fp32, convolutions and recurrent layers on a GPU multiply in fp32 as well, where cuDNN would round
    to TF32."""
    return without_tf32() if trainer.precision == "32-true" else nullcontext()
