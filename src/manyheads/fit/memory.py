"""The largest batch is tried before anything is trained: so memory runs out at the start, or hardly ever."""

import gc
from collections.abc import Callable
from dataclasses import replace

import torch

from manyheads.config import RunConfig
from manyheads.data.batches import Batch
from manyheads.data.module import TextData
from manyheads.data.tokens import Tokens
from manyheads.fit.hardware import autocast_type, count_devices, uses_gpu
from manyheads.fit.module import Lesson, Network
from manyheads.fit.session import make_task
from manyheads.fit.speed import set_walks

ON_CPU = 8192  # tokens that batch.tokens=auto stands for where no GPU is
MOST = 65_536  # tokens that keep any GPU busy: from there on a larger batch makes fewer steps and none of them faster
STEP = 1024  # tokens between two numbers that are tried


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
