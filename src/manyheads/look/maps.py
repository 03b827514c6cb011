"""The exact weights of a classifier's heads for one text, a layer at a time, beside the kernel that gave the answer.

The model runs once, as fast as it always does; its attention modules are only overheard. Their maps are then computed
from what they were given: one layer's are held at a time, whatever the number of layers.

N tokens . H heads . L query positions . M key positions . V d_v . C classes
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from manyheads.layout import Layout, Packed
from manyheads.nn.multihead import MultiHeadAttention


@dataclass(slots=True)
class Call:
    """One attention module at work: what it was given, and the contexts `(..., H·V)` its fast kernel made of it.

    A tail that fills up the tokens (see layout.py) is left out: what is here belongs to a document.
    """

    layer: int
    attention: MultiHeadAttention
    x: Tensor
    layout: Layout
    memory: Tensor | None
    memory_layout: Layout | None
    context: Tensor


@dataclass(slots=True)
class LayerMaps:
    """The weights of some heads of a layer, fp32 on the CPU; padding has no row and no column.

    `error` is the largest difference between map · V and the context of the fast kernel, over all heads.
    """

    layer: int
    heads: list[int]
    weights_HLM: Tensor
    error: float


@contextmanager
def overheard(model: nn.Module) -> Iterator[list[Call]]:
    """While the model answers, every attention it computes is noted down, in order; layers count from 0."""
    calls: list[Call] = []
    contexts: list[Tensor] = []
    found = [one for one in model.modules() if isinstance(one, MultiHeadAttention)]

    def before_output(output: nn.Module, args: tuple[Tensor]) -> None:
        contexts.append(args[0])

    def after(layer: int) -> Any:
        def hook(attention: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
            calls.append(_call(layer, attention, contexts.pop(), *args, **kwargs))

        return hook

    hooks = [one.output.register_forward_pre_hook(before_output) for one in found]
    hooks += [one.register_forward_hook(after(layer), with_kwargs=True) for layer, one in enumerate(found)]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def _call(
    layer: int,
    attention: MultiHeadAttention,
    context: Tensor,
    x: Tensor,
    layout: Layout,
    memory: Tensor | None = None,
    memory_layout: Layout | None = None,
) -> Call:
    context, _ = layout.unfilled(context)
    x, layout = layout.unfilled(x)
    if memory is not None and memory_layout is not None:
        memory, memory_layout = memory_layout.unfilled(memory)
    return Call(layer, attention, x, layout, memory, memory_layout, context)


@torch.inference_mode()
def layer_maps(call: Call, heads: Sequence[int] | None = None, document: int = 0) -> LayerMaps:
    """Weights of the chosen heads (None: all) for one document of what was overheard, and the check against it."""
    weights_BHLM, context_BHLV = call.attention.maps(call.x, call.layout, call.memory, call.memory_layout)
    keys = call.memory_layout or call.layout
    n_queries, n_keys = (int(each.lengths_B[document]) for each in (call.layout, keys))
    fast_BLX = call.layout.grid(call.context).float()
    ours_BLX = context_BHLV.transpose(1, 2).flatten(2)
    error = (fast_BLX[document, :n_queries] - ours_BLX[document, :n_queries]).abs().max().item()
    chosen = list(range(weights_BHLM.size(1))) if heads is None else list(heads)
    weights_HLM = weights_BHLM[document, chosen, :n_queries, :n_keys]
    return LayerMaps(call.layer, chosen, weights_HLM.float().cpu(), error)


@torch.inference_mode()
def answer(
    model: nn.Module,
    ids_N: Tensor,
    segments_N: Tensor | None,
    autocast: torch.dtype | None,
    lengths: list[int] | None = None,
) -> tuple[Tensor, list[Call]]:
    """Logits `(C,)` of one text in fp32 on the CPU, and what its attention modules were given on the way.

    Args:
        lengths: tokens of its windows; None: it is read at once.
    """
    device = next(model.parameters()).device
    lengths = lengths or [ids_N.numel()]
    layout = Packed.of_lengths(lengths, None if len(lengths) == 1 else [len(lengths)]).to(device)
    segments_N = None if segments_N is None else segments_N.to(device)
    with overheard(model) as calls, torch.autocast(device.type, autocast, enabled=autocast is not None):
        logits_1C = model(ids_N.to(device), layout, segments_N)
    return logits_1C[0].float().cpu(), calls
