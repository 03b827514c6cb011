"""What heads and lengths cost: parameters, operations, memory and time, measured so that pieces can be compared.

h heads of width d / h cost about as much as one head of width d: Vaswani et al. (2017), section 3.2.2, last paragraph,
"similar to that of single-head attention". Time and memory of attention grow with the square of a text's length, unless
it looks no further than a window.

T tokens of a text . B texts . H heads . D d_model
"""

from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from manyheads.config import ExplainConfig
from manyheads.distributed.ranks import processor
from manyheads.explain.explain import Finding
from manyheads.layout import Packed
from manyheads.nn.assemble import count_parameters
from manyheads.nn.attention import attend
from manyheads.nn.multihead import MultiHeadAttention

Work = Callable[[], object]
D_MODEL = 256
N_HEADS = [1, 2, 4, 8, 16, 32, 64]
LENGTHS = [64, 256]
TOKENS = 512  # of a batch: 8 texts of 64 tokens, 2 of 256
WIDTH, HEADS, WINDOW = 128, 2, 64
SHORTEST = 64


def median_seconds(works: Mapping[str, Work], repeats: int) -> dict[str, float]:
    """Median seconds of each work on one core. They take turns, so that a slow moment falls on all alike.

    What is counted is the processor's time, which other programs on the machine do not take from us.
    """
    seconds: dict[str, list[float]] = {name: [] for name in works}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for turn in range(repeats + 1):
            for name, work in works.items():
                started = process_time()
                work()
                if turn:  # the first warms up
                    seconds[name].append(process_time() - started)
    finally:
        torch.set_num_threads(threads)
    return {name: median(taken) for name, taken in seconds.items()}


def peak_bytes(work: Work) -> int:
    """Most bytes of tensors that `work` makes and holds at one time; scratch inside a kernel is not seen."""
    with _Allocations() as seen:
        work()
    return seen.peak


class _Allocations(TorchDispatchMode):
    """Follows every storage that an operation returns until it is freed, backward passes included."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {one.untyped_storage()._cdata for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)}
        returned = func(*args, **(kwargs or {}))
        self.live = {key: held for key, held in self.live.items() if not held[0].expired()}
        for storage in (one.untyped_storage() for one in tree_leaves(returned) if isinstance(one, Tensor)):
            if storage._cdata not in given and storage._cdata not in self.live:
                self.live[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.peak = max(self.peak, sum(size for _, size in self.live.values()))
        return returned


def heads(config: ExplainConfig) -> Finding:
    """Count and time one attention layer of d_model 256, for 1 head of 256 up to 64 heads of 4."""
    torch.manual_seed(config.seed)
    layers = {n_heads: make_layer(D_MODEL, n_heads) for n_heads in N_HEADS}
    figures = ("flops", "megabytes", "milliseconds")
    costs: list[dict[str, Any]] = [
        {"n_heads": n, "d_k": D_MODEL // n, "parameters": count_parameters(layer), **{one: {} for one in figures}}
        for n, layer in layers.items()
    ]
    for length in LENGTHS:
        x, layout = batch(length, D_MODEL)
        works = {str(n_heads): partial(forward_backward, layer, x, layout) for n_heads, layer in layers.items()}
        seconds = median_seconds(works, config.repeats)
        for (n_heads, layer), cost in zip(layers.items(), costs, strict=True):
            cost["flops"][str(length)] = count_flops(layer, x, layout)
            cost["megabytes"][str(length)] = peak_bytes(works[str(n_heads)]) / 2**20
            cost["milliseconds"][str(length)] = 1000 * seconds[str(n_heads)]
    slowest = costs[-1]["milliseconds"]["256"] / costs[0]["milliseconds"]["256"]
    says = (
        f"1 to {N_HEADS[-1]} heads: {costs[0]['parameters']:,} parameters each and the same matrix products, "
        f"but {N_HEADS[-1]} heads take {slowest:.1f} times as long at 256 tokens"
    )
    about = {"processor": processor(), "d_model": D_MODEL, "tokens": TOKENS, "repeats": config.repeats}
    return Finding(says, {**about, "heads": costs})


def make_layer(d_model: int, n_heads: int, window: int = 0) -> MultiHeadAttention:
    """Heads that share the width out among them."""
    width = d_model // n_heads
    return MultiHeadAttention(d_model=d_model, n_heads=n_heads, d_k=width, d_v=width, window=window)


def batch(length: int, d_model: int, tokens: int = TOKENS) -> tuple[Tensor, Packed]:
    """Random texts of `length` tokens, `tokens` of them together."""
    return torch.randn(tokens, d_model, requires_grad=True), Packed.of_lengths([length] * (tokens // length))


def forward_backward(layer: MultiHeadAttention, x: Tensor, layout: Packed) -> None:
    """What a training step asks of the layer; gradients are dropped again."""
    layer(x, layout).sum().backward()
    layer.zero_grad(set_to_none=True)
    x.grad = None


def count_flops(layer: MultiHeadAttention, x: Tensor, layout: Packed) -> int:
    """Floating-point operations of the matrix products of one forward pass, as torch counts them.

    With gradients: without them a kernel serves on a CPU whose products torch does not count.
    """
    with FlopCounterMode(display=False) as counter:
        layer(x, layout)
    return counter.get_total_flops()


def length(config: ExplainConfig) -> Finding:
    """One attention layer of d_model 128, two heads, forward and backward, for texts from 64 tokens on."""
    torch.manual_seed(config.seed)
    full = make_layer(WIDTH, HEADS)
    layers = {"fused": full, "window": make_layer(WIDTH, HEADS, WINDOW)}
    costs: list[dict[str, Any]] = []
    for n_tokens in lengths(config.longest):
        x, layout = batch(n_tokens, WIDTH, n_tokens)
        works = {"textbook": partial(textbook, full, x)}
        works |= {kind: partial(forward_backward, layer, x, layout) for kind, layer in layers.items()}
        seconds = median_seconds(works, max(1, min(config.repeats, config.repeats * 512 // n_tokens)))
        costs.append(
            {
                "tokens": n_tokens,
                "milliseconds": {kind: 1000 * taken for kind, taken in seconds.items()},
                "megabytes": {kind: peak_bytes(work) / 2**20 for kind, work in works.items()},
            }
        )
    growth = {
        figure: {kind: exponent(costs, figure, kind) for kind in costs[0][figure]}
        for figure in ("milliseconds", "megabytes")
    }
    time, memory = costs[-1]["milliseconds"], costs[-1]["megabytes"]
    says = (
        f"at {costs[-1]['tokens']:,} tokens the formula takes {time['textbook']:.0f} ms and {memory['textbook']:.0f} "
        f"MiB, a window of {WINDOW} {time['window']:.0f} ms and {memory['window']:.0f} MiB"
    )
    numbers = {
        **{"processor": processor(), "d_model": WIDTH, "n_heads": HEADS, "window": WINDOW},
        "square_outweighs_projections_beyond": 2 * WIDTH,
        "lengths": costs,
        "exponents": growth,
    }
    return Finding(says, numbers)


def lengths(longest: int) -> list[int]:
    """64, 128, ... up to `longest`."""
    return [SHORTEST * 2**step for step in range(32) if SHORTEST * 2**step <= longest]


def textbook(layer: MultiHeadAttention, x: Tensor) -> None:
    """The same layer by `attend` alone: every weight is written down, for the backward pass too."""
    layout = Packed.of_lengths([x.size(0)])
    q_NHK, k_NGK, v_NGV = layer.queries_keys_values(x, None, layout, layout)
    context_BHLV = attend(*(layout.grid(one).transpose(1, 2) for one in (q_NHK, k_NGK, v_NGV)))
    layer.output(layout.flat(context_BHLV.transpose(1, 2)).flatten(-2)).sum().backward()
    layer.zero_grad(set_to_none=True)
    x.grad = None


def exponent(costs: list[dict[str, Any]], figure: str, kind: str) -> float:
    """The power of T by which a figure grows over the last three lengths: the slope between their logarithms."""
    tail = costs[-3:]
    slope, _ = np.polyfit(np.log([one["tokens"] for one in tail]), np.log([one[figure][kind] for one in tail]), deg=1)
    return float(slope)
