"""What a run would be, for `dry=true`: its sizes, steps, device, and the memory of its weights, optimiser and
activations, without training."""

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses import fake_tensor
from torch.func import functional_call

from manyheads.config import RunConfig
from manyheads.config.training import Strategy
from manyheads.data.batches import padding_share
from manyheads.data.datamodule import TextData
from manyheads.data.rows import Splits
from manyheads.data.tokens import Tokens
from manyheads.layout import Packed
from manyheads.nn.cost import count_parameters
from manyheads.nn.transformer import Stack, call_layer
from manyheads.terminal import as_text, console, say
from manyheads.training.build import Network, make_objective
from manyheads.training.optim import freeze
from manyheads.training.trainer import count_devices, trainer_hardware
from manyheads.training.weights import only_seen_words

NEEDS_VALUES = (  # what FakeTensorMode raises where a network reads values of a tensor, and not its shape alone
    fake_tensor.DataDependentOutputException,
    fake_tensor.DynamicOutputShapeException,
    fake_tensor.UnsupportedOperatorException,
)


def plan_figures(run: RunConfig, splits: Splits, tokens: dict[str, Tokens], network: Network) -> dict[str, str]:
    """The figures of a planned run, by name, as they are shown."""
    hardware, rows = trainer_hardware(run.hardware), tokens["train"]
    texts, data = rows.offsets.diff(), TextData(tokens, run.batch, run.seed)
    n_words = network.words.num_embeddings
    objective = make_objective(run, rows, splits.labels)
    n_devices = count_devices(run.hardware, on_gpu=hardware["accelerator"] == "gpu") * run.hardware.nodes
    n_steps = data.n_steps(run.trainer.get("max_epochs"), run.trainer.get("max_steps", -1))
    with only_seen_words(network, rows):
        freeze(network, run.optim)
        state = state_bytes(run, network, n_devices)
    inputs, precision = objective.given(data.largest_batch()), str(hardware["precision"])
    activations = activation_bytes(network, inputs, precision=precision, recompute=run.hardware.recompute)
    return {
        **objective.plan(run, rows, splits.labels, n_words),
        "rows": ", ".join(f"{name} {len(one):,}" for name, one in tokens.items()),
        "tokens a text": f"{float(texts.double().mean()):.1f} on average, {int(texts.max())} at most",
        "truncated": f"{rows.n_truncated / len(rows):.1%} of the training texts, at {run.data.max_length}",
        "vocabulary": f"{n_words:,}",
        "parameters": f"{count_parameters(network):,}",
        "steps": f"{n_steps:,} of at most {run.batch.tokens * run.batch.accumulate:,} tokens",
        "padding": f"{padding_share(data.plan(0), rows):.1%}",
        "memory": f"{(state + activations) / 2**20:,.0f} MiB: {state / 2**20:,.0f} weights and optimiser, "
        f"{activations / 2**20:,.0f} activations of the largest batch",
        "device": f"{n_devices} x {hardware['accelerator']}, {hardware['precision']}",
    }


def show_plan(figures: dict[str, str], notes: Sequence[str] = ()) -> None:
    """Print the figures as a table, and notes on the data below it."""
    from rich.table import Table

    screen, table = console(), Table(title="dry run: nothing was trained", show_header=False)
    for name, figure in figures.items():
        table.add_row(as_text(name, screen), as_text(figure, screen))
    screen.print(table)
    say(*notes)


def state_bytes(run: RunConfig, network: Network, n_devices: int) -> int:
    """Bytes that each device holds between two steps: weights and their moving average; of weights that learn the
    gradient, AdamW's two moments and, with DDP, the buckets in which gradients are sent; and, whole on each device,
    what is never trained, such as the word vectors that no training text reads."""
    is_sharded = run.hardware.strategy is Strategy.fsdp and n_devices > 1
    n_learning = sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)
    of_each = 2 if run.optim.average else 1
    of_learning = 3 if n_devices == 1 or is_sharded else 4
    total = 4 * (of_each * count_parameters(network) + of_learning * n_learning)  # 4 bytes a number
    if is_sharded:
        total //= n_devices
    return total + sum(buffer.nbytes for buffer in network.buffers())


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
    known = []
    for one in inputs:
        known.append(one.rounded(1) if isinstance(one, Packed) else one)
    try:
        with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True) as shapes:
            fakes: dict[str, torch.Tensor] = {name: shapes.from_tensor(tensor) for name, tensor in tensors.items()}
            return _kept_bytes(network, fakes, tuple(known), precision, recompute=recompute)
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

    stacks = [module for module in network.modules() if isinstance(module, Stack)]
    for stack in stacks:
        stack.call = call if recompute else call_layer
    with recording(outside), torch.autocast("cpu", torch.bfloat16, enabled=precision != "32-true"):
        logits = functional_call(network, tensors, inputs)
    for stack in stacks:
        stack.call = call_layer
    assert logits.requires_grad, "kept alive until here, so that no storage is freed and another takes its address"
    largest_layer = 0  # in the backward pass one layer is recomputed at a time
    for layer in layers:
        within = sum(n_bytes for storage, n_bytes in layer.items() if storage not in outside)
        largest_layer = max(largest_layer, within)
    return sum(outside.values()) + largest_layer
