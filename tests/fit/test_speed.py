"""What is compiled, and into what."""

from types import SimpleNamespace

import pytest
import torch

from manyheads.config import HardwareConfig, ModelConfig, RunConfig
from manyheads.config.hardware import Compile
from manyheads.config.model import EncoderKind
from manyheads.fit.speed import COMPILE_FROM, GRAPHS_BELOW, compile_mode, set_walks, speed_up
from manyheads.nn import assemble
from manyheads.nn.walk import through

LONG = {"n_steps": COMPILE_FROM, "mean_tokens": GRAPHS_BELOW, "alone": True}


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
        (Compile.auto, True, {"mean_tokens": 10, "alone": False}, "default"),
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
    speed_up(RunConfig(), network, data, trainer(device), 10**6)
    assert data.few_counts is few
    assert (network.encoder.walk is through) is not few


def test_recurrent_models_go_as_they_are():
    run = RunConfig(model=ModelConfig(encoder=EncoderKind.gru))
    data = SimpleNamespace(mean_tokens=lambda: 100.0, few_counts=False)
    speed_up(run, assemble(run.model, vocab_size=20, n_classes=3, max_length=16), data, trainer("cuda"), 10**6)
    assert not data.few_counts


def test_recomputing_is_for_layers_of_attention():
    network = assemble(ModelConfig(), vocab_size=20, n_classes=3, max_length=16)
    set_walks(network, HardwareConfig(recompute=True))
    assert network.encoder.walk is not through
    with pytest.raises(ValueError, match=r"^hardware\.recompute=true computes layers .* which model\.encoder=gru"):
        RunConfig(model=ModelConfig(encoder=EncoderKind.gru), hardware=HardwareConfig(recompute=True))
