"""How training calls the layers of an encoder or decoder: compiled, recomputed, both, or as they are written.

Compiled is what treats each token alone, the parts of `EncoderLayer.in_parts`; attention between them is called as it
is written. So no graph depends on where documents lie.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from manyheads.layout import Layout
from manyheads.nn.transformer import LayerCall, Run, call_layer

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
