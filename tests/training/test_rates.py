"""Rates of Muon, and where it cannot be."""

import pytest
import torch

from manyheads.cli.compose import compose
from manyheads.config import ModelConfig, OptimConfig, RunConfig
from manyheads.config.fields import from_plain
from manyheads.config.training import OptimKind
from manyheads.nn import assemble
from manyheads.training.optim import make_optimizer, make_schedule

SHAPE = ModelConfig(n_layers=2, n_heads=2, d_model=8, d_k=4, d_v=4, d_ff=16)


def rates(groups, network) -> dict[str, float]:
    names = {id(p): name for name, p in network.named_parameters()}
    return {names[id(p)]: group["lr"] for group in groups for p in group["params"]}


def test_matrices_of_layers_have_the_rate_of_muon():
    network = assemble(SHAPE, vocab_size=20, n_classes=3, max_length=8)
    settings = OptimConfig(kind=OptimKind.muon, lr=0.1, muon_lr=0.3, layer_decay=0.5, warmup=0.0)
    optimizer = make_optimizer(network, settings)
    make_schedule(optimizer, settings, 10)
    found = rates(optimizer.param_groups, network)
    assert set(found) == {name for name, _ in network.named_parameters()}
    for name, rate in found.items():
        of_layer = 0.5 if name.startswith("encoder.layers.0") else 1.0
        is_matrix = name.startswith("encoder.layers") and name.endswith("weight") and "before" not in name
        if name.startswith("encoder.layers"):
            assert rate == pytest.approx((0.3 if is_matrix else 0.1) * of_layer), name
    assert torch.tensor(optimizer.hidden[network.encoder.layers[0].attention.block.project.weight]).tolist() == [
        8,
        8,
        8,
    ]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"optim": {"muon_lr": 0.1}}, "optim.muon_lr=0.1 is a rate of Muon, but optim.kind=adamw"),
        (
            {"optim": {"kind": "muon"}, "hardware": {"strategy": "fsdp", "devices": 2, "accelerator": "cpu"}},
            "optim.kind=muon makes whole matrices orthogonal",
        ),
    ],
)
def test_a_rate_without_its_optimiser_and_muon_in_parts_are_refused(values, sentence):
    with pytest.raises(ValueError, match=sentence):
        from_plain(RunConfig, values)


def test_a_translator_has_no_head_to_begin_with():
    with pytest.raises(
        ValueError, match=r"optim\.few=9 fits the head of a classifier, which task=seq2seq does not have"
    ):
        compose("train", ["experiment=dates", "optim.few=9"])
