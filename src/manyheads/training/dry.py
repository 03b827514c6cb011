"""`dry=true`: what a run would be, without training it."""

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.func import functional_call

from manyheads.config import RunConfig, Task
from manyheads.data.batches import Batch, padding_share, plan_epoch
from manyheads.data.datamodule import TextData
from manyheads.data.rows import Splits
from manyheads.data.tokens import Tokens
from manyheads.layout import Packed
from manyheads.nn.cost import count_parameters, flops_per_answer, flops_per_token
from manyheads.nn.masked_lm import MaskedLM
from manyheads.nn.seq2seq import Seq2Seq
from manyheads.terminal import as_text, console
from manyheads.training.module import Network
from manyheads.training.trainer import count_devices, trainer_hardware


def plan_figures(run: RunConfig, splits: Splits, tokens: dict[str, Tokens], network: Network) -> dict[str, str]:
    """Sizes, steps, memory, device and data of the run, by name."""
    hardware = trainer_hardware(run.hardware)
    lengths = tokens["train"].lengths
    data = TextData(tokens, run.batch, run.seed)
    plan = plan_epoch(lengths, tokens=run.batch.tokens, rows=run.batch.rows, seed=run.seed, epoch=0)
    n_parameters = count_parameters(network)
    cut = tokens["train"].n_truncated / len(lengths)
    n_devices = count_devices(run.hardware, on_gpu=hardware["accelerator"] == "gpu") * run.hardware.nodes
    n_steps = data.n_steps(run.trainer.get("max_epochs"), run.trainer.get("max_steps", -1))
    state = 16 * n_parameters  # weights, gradients and AdamW's two moments, four bytes each
    activations = activation_bytes(
        network, data.largest_batch(), precision=str(hardware["precision"]), mask_share=run.pretrain.mask_share
    )
    return {
        **of_task(run, splits.labels, tokens["train"], words(network).num_embeddings),
        "rows": ", ".join(f"{name} {len(one):,}" for name, one in tokens.items()),
        "tokens a text": f"{mean(tokens['train']):.1f} on average, {int(tokens['train'].offsets.diff().max())} at most",
        "truncated": f"{cut:.1%} of the training texts, at {run.data.max_length}",
        "vocabulary": f"{words(network).num_embeddings:,}",
        "parameters": f"{n_parameters:,}",
        "steps": f"{n_steps:,} of at most {run.batch.tokens * run.batch.accumulate:,} tokens",
        "padding": f"{padding_share(plan, lengths):.1%}",
        "memory": f"{(state + activations) / 2**20:,.0f} MiB: {state / 2**20:,.0f} weights and optimiser, "
        f"{activations / 2**20:,.0f} activations of the largest batch",
        "device": f"{n_devices} x {hardware['accelerator']}, {hardware['precision']}",
    }


def of_task(run: RunConfig, labels: list[str], tokens: Tokens, vocab_size: int) -> dict[str, str]:
    """The classes of a classifier, or what is hidden, and what a text of mean length costs: as a whole where another
    text answers it."""
    length = float(tokens.documents.double().mean())
    if tokens.targets is not None:
        target = mean(tokens.targets)
        forward = flops_per_answer(run.model, length, target, vocab_size)
        return {
            "tokens a target": f"{target:.1f} on average",
            "FLOPs a text": f"{forward:,.0f} forward with its target, {3 * forward:,.0f} with backward",
        }
    forward = flops_per_token(run.model, length)
    if run.task is Task.pretrain:
        share, width = run.pretrain.mask_share, run.model.width_of_words
        forward += share * 2 * width * (run.model.d_model + vocab_size)
        return {
            "hidden": f"{share:.1%} of the tokens",
            "FLOPs a token": f"{forward:,.0f} forward, {3 * forward:,.0f} with backward",
        }
    kind = "classes" if tokens.labels.ndim == 1 else "labels, any number a text"
    return {
        kind: f"{len(labels)}: {', '.join(labels[:8])}{' ...' if len(labels) > 8 else ''}",
        "FLOPs a token": f"{forward:,.0f} forward, {3 * forward:,.0f} with backward",
    }


def mean(tokens: Tokens) -> float:
    """Tokens of a text on average, its target not counted."""
    return float(tokens.offsets.diff().double().mean())


def show_plan(figures: dict[str, str], notes: Sequence[str] = ()) -> None:
    """Print the figures as a table, and what was noticed in the data below it."""
    from rich.table import Table

    table = Table(title="dry run: nothing was trained", show_header=False)
    for name, figure in figures.items():
        table.add_row(as_text(name), as_text(figure))
    screen = console()
    screen.print(table)
    for note in notes:
        screen.print(as_text(note), soft_wrap=True)


def words(network: Network) -> torch.nn.Embedding:
    """The embedding of the vocabulary."""
    return network.source.words if isinstance(network, Seq2Seq) else network.embeddings.words


def activation_bytes(network: Network, batch: Batch, *, precision: str, mask_share: float = 0.0) -> int:
    """Bytes that a forward pass of `batch` keeps for the backward pass; where words are hidden, with `mask_share` of
    its tokens told. The pass is gone through with shapes alone, which takes no memory; a network that reads lengths
    back from its tensors (texts of a pair apart, a recurrent one) computes once on the CPU."""
    network.train()
    if isinstance(network, MaskedLM):
        places_P = torch.arange(max(1, round(mask_share * batch.layout.n_tokens)))
        given = (batch.ids_N, batch.layout, batch.segments_N, places_P)
    elif batch.targets is None:
        given = (batch.ids_N, batch.layout, batch.segments_N)
    else:
        given = (batch.ids_N, batch.layout, batch.targets.ids_N, batch.targets.layout)
    held = dict(network.named_parameters()) | dict(network.named_buffers())
    known = tuple(
        one.rounded(1) if isinstance(one, Packed) else one for one in given
    )  # the same, that know their sizes
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as shapes:
            return _kept(network, {name: shapes.from_tensor(one) for name, one in held.items()}, known, precision)
    except (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException):
        return _kept(network, held, given, precision)


def _kept(network: Network, held: dict[str, torch.Tensor], given: tuple[Any, ...], precision: str) -> int:
    """Bytes that are kept beside the tensors of the network, `held`."""
    kept: dict[int, int] = {}
    own = {tensor.untyped_storage()._cdata for tensor in held.values()}

    def weigh(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage.nbytes()
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(weigh, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=precision != "32-true"),
    ):
        logits = functional_call(network, held, given)
    assert logits.requires_grad, "held until here, so that no storage is freed and counted twice"
    return sum(kept.values())
