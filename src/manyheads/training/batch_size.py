"""The size of a batch, settled before the first step: `batch.tokens=auto`, and whether a typed number fits.

The largest batch of the run is tried, so that a GPU runs out of memory at the start or hardly ever.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from manyheads.config import RunConfig
from manyheads.data.batches import Batch
from manyheads.data.datamodule import TextData
from manyheads.data.tokens import Tokens
from manyheads.errors import UserError
from manyheads.inference.precision import DTYPES, choose_device, choose_precision
from manyheads.nn.layer_calls import set_layer_calls
from manyheads.training.build import Network, make_objective
from manyheads.training.guard import is_out_of_memory
from manyheads.training.trainer import count_devices

CPU_TOKENS = 8192  # of a batch, for batch.tokens=auto on a CPU
MOST_TOKENS = 65_536  # a GPU is busy with these: larger batches make fewer steps, and none of them faster
GRANULARITY = 1024  # tokens between two sizes that are tried


def settle_batch(run: RunConfig, network: Network, tokens: dict[str, Tokens], labels: list[str]) -> RunConfig:
    """`run` with a number for `batch.tokens=auto`: on a GPU the largest that fits into memory.

    A number that was typed is tried as well. Weights, gradients and random generators are left as they were.

    Raises:
        UserError: the batches do not fit, or auto on several devices, which might find different numbers.
    """
    device = choose_device(run.hardware)
    if device.type == "cpu":
        if run.batch.is_auto:
            run = _with_tokens(run, CPU_TOKENS)
        return run
    if count_devices(run.hardware, on_gpu=True) * run.hardware.nodes > 1:
        if run.batch.is_auto:
            raise UserError(
                "batch.tokens=auto tries batches on one device, but this run has several, which must agree: "
                "give a number"
            )
        return run
    objective = make_objective(run, tokens["train"], labels)
    set_layer_calls(network, run.hardware)
    dtype = DTYPES[choose_precision(run.hardware.precision, device)]

    def fits(n_tokens: int) -> bool:
        batch = TextData(tokens, _with_tokens(run, n_tokens).batch, run.seed).largest_batch()
        # AdamW keeps two numbers of each weight, the moving average one more.
        return fits_in_memory(network, objective, batch, device, dtype, copies=3 if run.optim.average else 2)

    try:
        return choose_tokens(run, fits, longest=int(tokens["train"].lengths.max()))
    finally:
        network.cpu()


def choose_tokens(run: RunConfig, fits: Callable[[int], bool], *, longest: int) -> RunConfig:
    """`run` with the number of tokens that was typed, or with the largest that fits; `longest` text, in tokens."""
    if not run.batch.is_auto:
        if not fits(run.batch.tokens):
            raise UserError(
                f"batch.tokens={run.batch.tokens} needs more memory than the GPU has for its largest batch: use a "
                "smaller number, batch.tokens=auto to have it found, or hardware.recompute=true"
            )
        return run
    n_tokens = largest_fitting(fits, least=-(-longest // GRANULARITY), most=max(MOST_TOKENS, longest) // GRANULARITY)
    if not n_tokens:
        raise UserError(
            f"batch.tokens=auto finds no batch that the GPU has memory for, not even one text of {longest} tokens: "
            "set hardware.recompute=true, or use a smaller data.max_length or a smaller model"
        )
    return _with_tokens(run, n_tokens)


def largest_fitting(fits: Callable[[int], bool], *, least: int, most: int) -> int:
    """The largest multiple of `GRANULARITY` that fits, by bisection; 0 if none does.

    Args:
        least, most: the range to search, in multiples of `GRANULARITY`.
    """
    if fits(most * GRANULARITY):
        return most * GRANULARITY
    # Of the sizes from `least` on the first ones fit and the others do not: where that changes is searched.
    n_fitting = bisect_left(range(least, most), True, key=lambda multiple: not fits(multiple * GRANULARITY))
    if not n_fitting:
        return 0
    return (least + n_fitting - 1) * GRANULARITY


def fits_in_memory(
    network: Network, objective: Any, batch: Batch, device: torch.device, dtype: torch.dtype | None, *, copies: int
) -> bool:
    """Whether `device` has memory for a step on `batch`: forward and backward pass, and the optimiser's state.

    Args:
        dtype: of autocast; None: without it.
        copies: tensors of the size of each weight that the optimiser keeps.
    """
    network.to(device)
    objective.to(device)
    weights = [parameter for parameter in network.parameters() if parameter.requires_grad]
    cuda = [device] if device.type == "cuda" else []
    try:
        with torch.random.fork_rng(cuda), torch.autocast(device.type, dtype, enabled=dtype is not None):
            kept = []  # takes the memory of the optimiser's state
            for weight in weights:
                kept += [torch.empty_like(weight) for _ in range(copies)]
            losses_B = objective.training_loss(network, batch.to(device))
            torch.autograd.grad(losses_B.sum(), weights, allow_unused=True)
            del kept
        return True
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return False
    finally:
        objective.train_metrics.reset()
        if cuda:
            torch.cuda.empty_cache()


def _with_tokens(run: RunConfig, n_tokens: int) -> RunConfig:
    return replace(run, batch=replace(run.batch, tokens=n_tokens))
