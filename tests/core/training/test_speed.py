"""What is compiled, and into what."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from manyheads import plugin
from manyheads.config import HardwareConfig, ModelConfig, RunConfig
from manyheads.config.training import Compile
from manyheads.data.batches import Planned, gather, plan_epoch
from manyheads.data.tokens import Tokens
from manyheads.nn import Pooling, assemble
from manyheads.nn.classifier import OwnNetwork
from manyheads.nn.layer_calls import COMPILE_FROM, GRAPHS_BELOW, compile_mode, set_layer_calls
from manyheads.nn.transformer import call_layer
from manyheads.training.objectives import Classify
from manyheads.training.trainer import speed_up

LONG = {"n_steps": COMPILE_FROM, "mean_tokens": GRAPHS_BELOW, "allows_graphs": True}


@pytest.mark.parametrize(
    ("choice", "on_gpu", "change", "mode"),
    [
        (Compile.auto, True, {}, "default"),
        (Compile.auto, True, {"n_steps": COMPILE_FROM - 1}, ""),
        (Compile.auto, False, {}, ""),
        (Compile.never, True, {}, ""),
        (Compile.always, True, {"n_steps": 1}, "default"),
        (Compile.always, False, {"mean_tokens": 10}, "default"),
        (Compile.auto, True, {"mean_tokens": GRAPHS_BELOW - 1}, "reduce-overhead"),
        (Compile.auto, True, {"mean_tokens": 10, "allows_graphs": False}, "default"),
    ],
)
def test_when_layers_are_compiled(choice, on_gpu, change, mode):
    assert compile_mode(HardwareConfig(compile=choice), on_gpu=on_gpu, **(LONG | change)) == mode


def test_recomputed_layers_are_no_cuda_graphs():
    hardware = HardwareConfig(compile=Compile.always, recompute=True)
    assert compile_mode(hardware, on_gpu=True, **(LONG | {"mean_tokens": 1})) == "default"


def trainer(device: str) -> SimpleNamespace:
    return SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device(device)), world_size=1)


@pytest.mark.parametrize(("device", "few"), [("cpu", False), ("cuda", True)])
def test_batches_get_few_token_counts_where_cuda_graphs_are_made(device, few):
    network = assemble(ModelConfig(), vocab_size=20, n_classes=3, max_length=16)
    data = SimpleNamespace(mean_tokens=lambda: 100.0, few_counts=False)
    run = RunConfig(hardware=HardwareConfig(compile=Compile.auto))
    speed_up(run, network, data, trainer(device), 10**6)
    assert data.few_counts is few
    assert (network.encoder.call is call_layer) is not few


def test_recomputing_is_for_layers_of_attention():
    network = assemble(ModelConfig(), vocab_size=20, n_classes=3, max_length=16)
    set_layer_calls(network, HardwareConfig(recompute=True))
    assert network.encoder.call is not call_layer


@pytest.mark.parametrize("pooling", plugin.names("pooling"))
@pytest.mark.parametrize("change", [{"positions": "rotary"}, {"positions": "alibi", "qk_norm": True}, {"window": 2}])
def test_a_tail_changes_neither_losses_nor_gradients(pooling, change):
    torch.manual_seed(0)
    model = ModelConfig(
        **{"n_layers": 2, "n_heads": 2, "d_model": 8, "d_k": 4, "d_v": 4, "d_ff": 8},
        **{"dropout": 0.0, "dropout_tokens": 0.0, "pooling": pooling},
        **change,
    )
    network = assemble(model, vocab_size=30, n_classes=3, max_length=16).double()
    offsets = torch.tensor([0, 5, 8, 17, 21])
    rows = Tokens(torch.randint(5, 30, (21,)).int(), offsets, None, torch.tensor([0, 2, 1, 0]))
    (planned,) = plan_epoch(rows.lengths, tokens=99, rows=9, seed=0, epoch=0)
    task, found = Classify(torch.ones(3), label_smoothing=0.1), []
    for few_counts in (False, True):
        losses_B = task.training_loss(network, gather(rows, planned, few_counts=few_counts))
        found.append([losses_B, *torch.autograd.grad(losses_B.sum(), list(network.parameters()))])
    torch.testing.assert_close(*found)


def split_sums(x: Tensor, layout: Any) -> Tensor:
    """A user's pooling or network, which takes the tokens of documents to be all there are."""
    return torch.stack([of_one.sum(0) for of_one in x.split(layout.lengths_B.tolist())])


def test_users_parts_and_networks_never_see_a_tail():
    model = ModelConfig(n_layers=1, n_heads=2, d_model=8, d_k=4, d_v=4, d_ff=8)
    network = assemble(model, vocab_size=30, n_classes=3, max_length=16).eval()
    network.pooling = Pooling(split_sums)
    rows = Tokens(torch.arange(7).int(), torch.tensor([0, 5, 7]), None, torch.tensor([0, 2]))
    planned = Planned(torch.tensor([1, 0]), 1.0)
    bare, filled = (gather(rows, planned, few_counts=few) for few in (False, True))
    assert filled.layout.tail
    torch.testing.assert_close(network(filled.ids_N, filled.layout), network(bare.ids_N, bare.layout))

    own = OwnNetwork(nn.Sequential(nn.Embedding(30, 3)), 30)
    data = SimpleNamespace(mean_tokens=lambda: 100.0, few_counts=False)
    speed_up(RunConfig(hardware=HardwareConfig(compile=Compile.auto)), own, data, trainer("cuda"), 10**6)
    assert not data.few_counts
