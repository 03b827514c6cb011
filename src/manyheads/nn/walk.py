"""How training walks through the layers of an encoder: as written, compiled, or keeping less for the way back.

The layers are alike, so what is compiled is one step through any of them: it is compiled once, not once a layer.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from manyheads.layout import Layout

Walk = Callable[..., Tensor]


def through(layer: nn.Module, x: Tensor, *context: Tensor | Layout) -> Tensor:
    """Tokens `(..., D)` through one layer."""
    return layer(x, *context)


def make_walk(*, mode: str = "", recompute: bool = False, backend: str = "inductor") -> Walk:
    """A `through` with the same answers and gradients.

    Args:
        mode: of torch.compile: `default`, or `reduce-overhead` for CUDA graphs; empty: not compiled.
        recompute: keep the input of a layer alone and compute the rest once more for the gradient, with the same
            random numbers: Chen et al. (2016), "Training Deep Nets with Sublinear Memory Cost", section 4.
        backend: what compiles.
    """
    walk: Walk = through
    if mode:  # the second token count makes torch compile once more, for all counts
        walk = torch.compile(through, backend=backend, mode=mode)
    return partial(_recomputed, walk) if recompute else walk


def _recomputed(walk: Walk, layer: nn.Module, x: Tensor, *context: Any) -> Tensor:
    return checkpoint(walk, layer, x, *context, use_reentrant=False)  # type: ignore[return-value]
