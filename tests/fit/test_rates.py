"""Rates of the bag's votes and of Muon, and where neither can be."""

import pytest
import torch

from manyheads.compose import compose
from manyheads.config import ModelConfig, OptimConfig, RunConfig
from manyheads.config.optim import OptimKind
from manyheads.config.plain import from_plain
from manyheads.fit.groups import parameter_groups
from manyheads.fit.optim import make_optimizer, make_schedule
from manyheads.nn import assemble

SHAPE = ModelConfig(n_layers=2, n_heads=2, d_model=8, d_k=4, d_v=4, d_ff=16, bag=32)


def rates(groups, network) -> dict[str, float]:
    names = {id(p): name for name, p in network.named_parameters()}
    return {names[id(p)]: group["lr"] for group in groups for p in group["params"]}


def test_votes_have_a_rate_of_their_own_and_do_not_decay():
    network = assemble(SHAPE, vocab_size=20, n_classes=3, max_length=8)
    groups = parameter_groups(network, OptimConfig(lr=0.1, head_lr=0.2, layer_decay=0.5, bag_lr=0.7))
    found = rates(groups, network)
    assert found["bag.votes.weight"] == 0.7
    assert found["head.weight"] == 0.2
    assert sum(rate == 0.7 for rate in found.values()) == 1
    assert all(group["weight_decay"] == 0 for group in groups if group["lr"] == 0.7)


@pytest.mark.parametrize("eps", [1e-4, 1e-8])
def test_votes_of_small_gradients_move_by_small_steps(eps):
    network = assemble(SHAPE, vocab_size=20, n_classes=3, max_length=8)
    optimizer = make_optimizer(network, OptimConfig(bag_lr=0.5, bag_eps=eps))
    for parameter in network.parameters():
        parameter.grad = torch.full_like(parameter, 1e-6)
    before = network.head.weight.detach().clone()
    optimizer.step()
    moved = 0.5 * 1e-6 / (1e-6 + eps)  # AdamW's first step
    torch.testing.assert_close(network.bag.votes.weight, torch.full((32, 3), -moved))
    assert (before - network.head.weight).min() > 0.9e-3, "others have an ε of their own"


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
    with pytest.raises(ValueError, match=r"optim\.few=9 fits the head of a classifier, which task=seq2seq has"):
        compose("train", ["experiment=dates", "optim.few=9"])
