"""Time and memory of attention grow with the square of the text's length, unless it looks no further than a window.

T tokens of a text . H heads . D d_model
"""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyheads.config.explain import ExplainConfig
from manyheads.explain.drawing import BLUE, GREY, RED, TEAL, draw, name, png, powers_of_two
from manyheads.explain.finding import Finding
from manyheads.explain.heads import batch, forward_backward, make_layer
from manyheads.explain.timing import median_seconds, peak_bytes, processor
from manyheads.layout import Packed
from manyheads.nn.attention import attend
from manyheads.nn.multihead import MultiHeadAttention

D_MODEL, N_HEADS, WINDOW = 128, 2, 64
SHORTEST = 64
KINDS = {
    "textbook": ("the formula, all T² weights kept", RED, "o-"),
    "fused": ("the library, fused kernel from 384 tokens on", BLUE, "s-"),
    "window": (f"the library, model.window={WINDOW}", TEAL, "^-"),
}


def length(config: ExplainConfig) -> Finding:
    """One attention layer of d_model 128, two heads, forward and backward, for texts from 64 tokens on."""
    torch.manual_seed(config.seed)
    full, local = make_layer(D_MODEL, N_HEADS), make_layer(D_MODEL, N_HEADS, WINDOW)
    costs: list[dict[str, Any]] = []
    for n_tokens in lengths(config.longest):
        x, layout = batch(n_tokens, D_MODEL, n_tokens)
        works = {
            "textbook": partial(textbook, full, x),
            "fused": partial(forward_backward, full, x, layout),
            "window": partial(forward_backward, local, x, layout),
        }
        seconds = median_seconds(works, max(1, min(config.repeats, config.repeats * 512 // n_tokens)))
        costs.append(
            {
                "tokens": n_tokens,
                "milliseconds": {kind: 1000 * taken for kind, taken in seconds.items()},
                "megabytes": {kind: peak_bytes(work) / 2**20 for kind, work in works.items()},
            }
        )
    growth = {
        figure: {kind: exponent(costs, figure, kind) for kind in KINDS} for figure in ("milliseconds", "megabytes")
    }
    last = costs[-1]
    says = (
        f"at {last['tokens']:,} tokens the formula takes {last['milliseconds']['textbook']:.0f} ms and "
        f"{last['megabytes']['textbook']:.0f} MiB, a window of {WINDOW} {last['milliseconds']['window']:.0f} ms and "
        f"{last['megabytes']['window']:.0f} MiB"
    )
    numbers = {
        "processor": processor(),
        "d_model": D_MODEL,
        "n_heads": N_HEADS,
        "window": WINDOW,
        "square_outweighs_projections_beyond": 2 * D_MODEL,
        "lengths": costs,
        "exponents": growth,
    }
    return Finding(says, numbers, {"length": _picture(costs)})


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
    """The power of T by which a figure grows over the last four lengths: the slope between their logarithms."""
    tail = costs[-4:]
    slope, _ = np.polyfit(np.log([one["tokens"] for one in tail]), np.log([one[figure][kind] for one in tail]), deg=1)
    return float(slope)


def _picture(costs: list[dict[str, Any]]) -> bytes:
    figure, panels = draw(1, 2, width=9.6, height=3.9)
    tokens = [cost["tokens"] for cost in costs]
    for axes, key, label in (
        (panels[0, 0], "milliseconds", "forward and backward, ms of one core"),
        (panels[0, 1], "megabytes", "peak memory of tensors, MiB"),
    ):
        for kind, (what, colour, style) in KINDS.items():
            axes.plot(tokens, [cost[key][kind] for cost in costs], style, color=colour, markersize=4, label=what)
        end = costs[-1][key]["textbook"]
        axes.plot(tokens, [end * (one / tokens[-1]) ** 2 for one in tokens], "--", color=GREY, linewidth=1, label="T²")
        name(axes, label)
        axes.set(yscale="log", ylim=(min(cost[key][kind] for cost in costs for kind in KINDS) / 2, None))
        powers_of_two(axes, tokens, "T, tokens of the text")
    panels[0, 0].legend(frameon=False, fontsize=8)
    return png(figure)
