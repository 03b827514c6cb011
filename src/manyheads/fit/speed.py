"""How training goes through the layers on this machine: the one place that decides what is compiled, and into what."""

import logging

import lightning.pytorch as pl
from torch import nn

from manyheads.config import PairKind, RunConfig, Task
from manyheads.config.hardware import Compile, HardwareConfig, Strategy
from manyheads.data.module import TextData
from manyheads.nn.decoder import Decoder
from manyheads.nn.encoder import Encoder
from manyheads.nn.walk import make_walk

log = logging.getLogger("manyheads")

COMPILE_FROM = 1000
"""Optimiser steps from which compiling pays on a GPU. Published for a model of a thousand million parameters: 22 s of a
cold start, won back after about 600 steps. On a CPU nothing was won where it was measured."""

GRAPHS_BELOW = 8192
"""Mean tokens of a batch below which a GPU waits for its launches, so that CUDA graphs pay: published, 1.5 times the
steps of compiling alone where launches are all, nothing where products are."""


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
