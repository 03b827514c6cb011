"""What h heads of width d / h cost beside one head of width d: parameters, operations, memory, time.

Vaswani et al. (2017), section 3.2.2, last paragraph: "similar to that of single-head attention".

T tokens of a text . B texts . D d_model
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from manyheads.config.explain import ExplainConfig
from manyheads.explain.drawing import BLUE, GREY, RED, TEAL, draw, name, png, powers_of_two
from manyheads.explain.finding import Finding
from manyheads.explain.timing import median_seconds, peak_bytes, processor
from manyheads.layout import Packed
from manyheads.nn.cost import count_parameters
from manyheads.nn.multihead import MultiHeadAttention

D_MODEL = 256
N_HEADS = [1, 2, 4, 8, 16, 32, 64]
LENGTHS = [64, 256]
TOKENS = 512  # of a batch: 8 texts of 64 tokens, 2 of 256


def heads(config: ExplainConfig) -> Finding:
    """Count and time one attention layer of d_model 256, for 1 head of 256 up to 64 heads of 4."""
    torch.manual_seed(config.seed)
    layers = {n_heads: make_layer(D_MODEL, n_heads) for n_heads in N_HEADS}
    costs: list[dict[str, Any]] = [
        {
            "n_heads": n_heads,
            "d_k": D_MODEL // n_heads,
            "parameters": count_parameters(layer),
            "flops": {str(length): count_flops(layer, *batch(length, D_MODEL)) for length in LENGTHS},
            "exponentials": {str(length): n_heads * TOKENS * length for length in LENGTHS},
            "megabytes": {str(length): _peak(layer, length) for length in LENGTHS},
        }
        for n_heads, layer in layers.items()
    ]
    for length in LENGTHS:
        works = {
            str(n_heads): partial(forward_backward, layer, *batch(length, D_MODEL)) for n_heads, layer in layers.items()
        }
        for cost, taken in zip(costs, median_seconds(works, config.repeats).values(), strict=True):
            cost.setdefault("milliseconds", {})[str(length)] = 1000 * taken
    slowest = costs[-1]["milliseconds"]["256"] / costs[0]["milliseconds"]["256"]
    says = (
        f"1 to {N_HEADS[-1]} heads: {costs[0]['parameters']:,} parameters each and the same matrix products, "
        f"but {N_HEADS[-1]} heads take {slowest:.1f} times as long at 256 tokens"
    )
    numbers = {
        "processor": processor(),
        "d_model": D_MODEL,
        "tokens": TOKENS,
        "repeats": config.repeats,
        "heads": costs,
    }
    return Finding(says, numbers, {"heads": _picture(costs)})


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


def _peak(layer: MultiHeadAttention, length: int) -> float:
    return peak_bytes(partial(forward_backward, layer, *batch(length, D_MODEL))) / 2**20


def _picture(costs: list[dict[str, Any]]) -> bytes:
    figure, panels = draw(1, 2, width=9.6, height=3.7)
    for axes, length in zip(panels.flat, map(str, LENGTHS), strict=True):
        lines = (
            ("time", "milliseconds", RED, "o-"),
            ("peak memory", "megabytes", BLUE, "s-"),
            ("exponentials", "exponentials", GREY, "^:"),
            ("matrix products (FLOPs)", "flops", TEAL, "-"),
        )
        for label, key, colour, style in lines:
            ratios = [cost[key][length] / costs[0][key][length] for cost in costs]
            axes.plot(N_HEADS, ratios, style, color=colour, markersize=4, label=label)
        powers_of_two(axes, N_HEADS, "heads h, each of width 256 / h")
        axes.set_yscale("log", base=2)
        axes.set_yticks([1, 2, 4, 8, 16, 32, 64], ["1", "2", "4", "8", "16", "32", "64"])
        name(axes, f"texts of {length} tokens")
        axes.set(ylabel="times one head of width 256", ylim=(0.6, 80))
    panels[0, 0].legend(frameon=False, fontsize=8, loc="upper left")
    return png(figure)
