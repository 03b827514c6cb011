"""How training calls the layers of an encoder or decoder: compiled, recomputed, both, or as they are written.

Compiled is what treats each token alone, the parts of `EncoderLayer.in_parts`; attention between them is called as it
is written. So no graph depends on where documents lie.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from manyheads.config import HardwareConfig, Strategy
from manyheads.config.training import Compile
from manyheads.layout import Layout
from manyheads.nn.transformer import LayerCall, Run, Stack, call_layer

COMPILE_FROM = 1000
"""Optimiser steps from which compiling pays on a GPU. Published for a model of 1,000 million parameters: a cold start
of 22 s, regained after about 600 steps. On a CPU it gained nothing where it was measured."""
GRAPHS_BELOW = 8192
"""Mean tokens of a batch below which kernel launches limit a GPU, so that CUDA graphs pay. Published: 1.5 times the
steps of compiling alone where launches dominate, nothing where matrix products do."""
TOKENS = 4096  # of a batch that code for a CPU is made for. It serves all, and that for the first would differ by run
log = logging.getLogger("manyheads")


class Compiled:
    """Calls parts of layers compiled: one graph of each, whatever the number of tokens. If one cannot be compiled, a
    line in the log says so, and from then on all are called as they are written.

    Args:
        mode, backend: of torch.compile.
    """

    def __init__(self, mode: str, backend: str) -> None:
        self.call: Run | None = torch.compile(_call_part, backend=backend, mode=mode, fullgraph=True)

    def __call__(self, part: Callable[..., Any], *args: Any) -> Any:
        if self.call is None:
            return part(*args)
        from torch._dynamo import exc, mark_dynamic  # takes seconds to import, and few runs compile
        from torch.fx.experimental import _config

        tokens = [one for one in args if isinstance(one, Tensor)]
        on_cpu = not tokens[0].is_cuda
        for one in tokens:
            if one.size(0) > 1:  # torch makes graphs of their own for 0 and 1
                mark_dynamic(one, 0, hint_override=TOKENS if on_cpu else None)
        try:
            # Otherwise torch makes one graph for up to 4,096 tokens and one for more, which add up in another way.
            with _config.patch(backed_size_oblivious=on_cpu):  # pyright: ignore[reportAttributeAccessIssue]
                return self.call(part, *args)
        except (exc.TorchDynamoException, exc.FailOnRecompileLimitHit) as error:
            first_line = str(error).strip().partition("\n")[0]
            log.warning("layers cannot be compiled, and are run as they are written: %s", first_line)
            self.call = None
            return part(*args)


def _call_part(part: Callable[..., Any], *args: Any) -> Any:
    return part(*args)


def _call_in_parts(run: Run, layer: Any, x: Tensor, *context: Tensor | Layout) -> Tensor:
    return layer.in_parts(run, x, *context)


def make_call(*, mode: str = "", recompute: bool = False, backend: str = "inductor") -> LayerCall:
    """A `call_layer` with the same outputs and gradients that is compiled, or keeps less for the backward pass.

    All layers of a stack share two graphs.

    Args:
        mode: of torch.compile: `default`, or `reduce-overhead` for CUDA graphs; empty: not compiled.
        recompute: keep only the input of a layer and recompute the rest in the backward pass, with the same random
            numbers: Chen et al. (2016), "Training Deep Nets with Sublinear Memory Cost", section 4.
        backend: of torch.compile.
    """
    call: LayerCall = call_layer
    if mode:
        call = partial(_call_in_parts, Compiled(mode, backend))
    if recompute:
        call = partial(checkpoint, call, use_reentrant=False)
    return call


def set_layer_calls(network: nn.Module, hardware: HardwareConfig, mode: str = "") -> None:
    """Let training call the layers of `network` as `hardware` says; `mode` is that of `make_call`."""
    call = make_call(mode=mode, recompute=hardware.recompute)
    for module in network.modules():
        if isinstance(module, Stack):
            module.call = call


def compile_mode(
    hardware: HardwareConfig, *, on_gpu: bool, n_steps: int, mean_tokens: float, allows_graphs: bool
) -> str:
    """The mode of torch.compile: `default`, or `reduce-overhead` for CUDA graphs; "" to compile nothing.

    A CUDA graph writes to the same memory each time. So there are none where gradients outlive a step or are sent to
    other devices: with accumulated batches, several devices, or recomputed layers. With FSDP nothing is compiled: the
    compiled code would not gather the layers.

    Args:
        n_steps: optimiser steps of the run.
        mean_tokens: of a batch.
        allows_graphs: whether a step is one batch on one device, of a network that reads batches with a tail: a graph
            is made for each number of tokens, of which the tail leaves few.
    """
    if hardware.strategy is Strategy.fsdp or hardware.compile is Compile.never:
        return ""
    if hardware.compile is Compile.auto and not on_gpu:
        return ""
    if hardware.compile is Compile.auto and n_steps < COMPILE_FROM:
        return ""
    if on_gpu and allows_graphs and mean_tokens < GRAPHS_BELOW and not hardware.recompute:
        return "reduce-overhead"
    return "default"
