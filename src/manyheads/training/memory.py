"""The memory that a run needs: of its weights and optimiser, and of the activations of a batch."""

from typing import Any

import torch
from torch._subclasses import fake_tensor
from torch.func import functional_call

from manyheads.config import RunConfig
from manyheads.config.training import Strategy
from manyheads.layout import Packed
from manyheads.nn.assemble import count_parameters
from manyheads.nn.transformer import Decoder, Encoder, call_layer
from manyheads.training.build import Network

NEEDS_VALUES = (  # what FakeTensorMode raises where a network reads values of a tensor, and not its shape alone
    fake_tensor.DataDependentOutputException,
    fake_tensor.DynamicOutputShapeException,
    fake_tensor.UnsupportedOperatorException,
)


def state_bytes(run: RunConfig, network: Network, n_devices: int) -> int:
    """Bytes that each device holds between two steps: weights and their moving average; and of weights that learn the
    gradient, AdamW's two moments and, with DDP, the buckets in which gradients are sent."""
    is_sharded = run.hardware.strategy is Strategy.fsdp and n_devices > 1
    n_learning = sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)
    of_each = 2 if run.optim.average else 1
    of_learning = 3 if n_devices == 1 or is_sharded else 4
    total = 4 * (of_each * count_parameters(network) + of_learning * n_learning)
    return total // n_devices if is_sharded else total


def activation_bytes(network: Network, inputs: tuple[Any, ...], *, precision: str, recompute: bool = False) -> int:
    """Bytes that a forward pass on `inputs` keeps for the backward pass.

    The pass computes with shapes alone, which takes no memory. A network that reads values of its tensors (lengths, in
    a recurrent one or with `model.pair=cross`) computes once on the CPU.

    Args:
        precision: Lightning's name, such as "bf16-mixed".
        recompute: of each layer only the input is kept, and the rest of one layer at a time.
    """
    network.train()
    tensors = dict(network.named_parameters()) | dict(network.named_buffers())
    # A copy of a packed layout keeps the number of tokens as a Python int: it need not be read from a fake tensor.
    known = tuple(one.rounded(1) if isinstance(one, Packed) else one for one in inputs)
    try:
        with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True) as shapes:
            fakes: dict[str, torch.Tensor] = {name: shapes.from_tensor(tensor) for name, tensor in tensors.items()}
            return _kept_bytes(network, fakes, known, precision, recompute=recompute)
    except NEEDS_VALUES:
        return _kept_bytes(network, tensors, inputs, precision, recompute=recompute)


def _kept_bytes(
    network: Network, tensors: dict[str, torch.Tensor], inputs: tuple[Any, ...], precision: str, *, recompute: bool
) -> int:
    """Bytes of the storages that autograd saves, other than those of the network's own `tensors`."""
    own = {tensor.untyped_storage()._cdata for tensor in tensors.values()}

    def recording(sizes: dict[int, int]) -> torch.autograd.graph.saved_tensors_hooks:
        """Note the size of each saved storage in `sizes`; one that is saved twice counts once."""

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage._cdata not in own:
                sizes[storage._cdata] = storage.nbytes()
            return tensor

        return torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)

    outside: dict[int, int] = {}  # what is kept all the time: of each layer its input
    layers: list[dict[int, int]] = []  # what each layer keeps within

    def call(layer: torch.nn.Module, x: torch.Tensor, *context: Any) -> torch.Tensor:
        storage = x.untyped_storage()
        outside[storage._cdata] = storage.nbytes()
        layers.append({})
        with recording(layers[-1]):
            return layer(x, *context)

    stacks = [module for module in network.modules() if isinstance(module, Encoder | Decoder)]
    for stack in stacks:
        stack.call = call if recompute else call_layer
    with recording(outside), torch.autocast("cpu", torch.bfloat16, enabled=precision != "32-true"):
        logits = functional_call(network, tensors, inputs)
    for stack in stacks:
        stack.call = call_layer
    assert logits.requires_grad, "kept alive until here, so that no storage is freed and another takes its address"
    recomputed = [sum(layer[key] for key in layer.keys() - outside.keys()) for layer in layers]
    return sum(outside.values()) + max(recomputed, default=0)
