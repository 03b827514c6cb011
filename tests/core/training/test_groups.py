"""Rates by depth against their formula; what is frozen stays as it is."""

import pytest
import torch

from manyheads.config import ModelConfig, OptimConfig, RunConfig
from manyheads.config.conversion import from_plain
from manyheads.layout import Packed
from manyheads.nn import assemble
from manyheads.training.optim import depth, freeze, make_optimizer, make_schedule, parameter_groups, rate_factor

SHAPE = ModelConfig(n_layers=3, n_heads=2, d_model=8, d_k=4, d_v=4, d_ff=16, dropout=0.0, dropout_tokens=0.0)


def network(shape=SHAPE):
    torch.manual_seed(0)
    return assemble(shape, vocab_size=20, n_classes=3, max_length=8)


def rates(classifier, optim):
    """Peak rate of each parameter by name."""
    names = {id(p): name for name, p in classifier.named_parameters()}
    return {names[id(p)]: group["lr"] for group in parameter_groups(classifier, optim) for p in group["params"]}


def test_each_layer_learns_slower_than_the_one_above():
    found = rates(network(), OptimConfig(lr=0.1, layer_decay=0.5))
    assert set(found) == {name for name, _ in network().named_parameters()}
    expected = {"embeddings.": 0.1 * 0.5**3, "encoder.norm": 0.1, "head.": 0.1}
    expected |= {f"encoder.layers.{layer}.": 0.1 * 0.5 ** (2 - layer) for layer in range(3)}
    for name, rate in found.items():
        (wanted,) = (value for start, value in expected.items() if name.startswith(start))
        assert rate == pytest.approx(wanted), name


def test_words_may_change_as_slowly_as_all_else():
    """They are multiplied by √d_model when read: a rate divided by it moves what is read by the rate of the layers."""
    found = rates(network(), OptimConfig(lr=0.1, layer_decay=0.5, scale_embedding_lr=True))
    assert found.pop("embeddings.words.weight") == pytest.approx(0.1 * 0.5**3 / 8**0.5)
    assert found == {
        name: rate
        for name, rate in rates(network(), OptimConfig(lr=0.1, layer_decay=0.5)).items()
        if name != "embeddings.words.weight"
    }


def test_no_rates_of_their_own_are_two_groups():
    groups = parameter_groups(network(), OptimConfig(lr=0.1, weight_decay=0.3))
    assert [(group["lr"], group["weight_decay"]) for group in groups] == [(0.1, 0.3), (0.1, 0.0)]


def test_matrices_decay_at_every_depth():
    classifier = network()
    names = {id(p): name for name, p in classifier.named_parameters()}
    groups = parameter_groups(classifier, OptimConfig(layer_decay=0.5, weight_decay=0.3))
    decaying = {names[id(p)] for group in groups if group["weight_decay"] for p in group["params"]}
    assert decaying == {
        name for name, p in classifier.named_parameters() if p.ndim == 2 and not name.startswith("embeddings.")
    }


def step_of(classifier, optimizer):
    classifier(torch.arange(8), Packed(torch.tensor([0, 3, 8]), 5)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def changed(before, classifier):
    """Depths at which a weight is another than before."""
    return {depth(name, 3) for name, p in classifier.named_parameters() if not torch.equal(before[name], p)}


def test_frozen_layers_stay_and_cost_no_way_back():
    classifier, optim = network(), OptimConfig(freeze=2)
    before = {name: p.detach().clone() for name, p in classifier.named_parameters()}
    freeze(classifier, optim)
    step_of(classifier, make_optimizer(classifier, optim))
    assert changed(before, classifier) == {3, 4}
    assert {name.split(".")[0] for name, p in classifier.named_parameters() if not p.requires_grad} == {
        "embeddings",
        "encoder",
    }


def test_what_all_layers_read_is_no_higher_than_the_lowest():
    assert depth("encoder.table.weight", 3) == depth("embeddings.words.weight", 3)
    assert depth("encoder.norm.weight", 3) == depth("encoder.layers.2.attention.before.weight", 3)


def test_all_depths_follow_the_schedule():
    optim = OptimConfig(lr=0.5, layer_decay=0.5)
    optimizer = make_optimizer(network(), optim)
    schedule = make_schedule(optimizer, optim, 8)
    for step in range(8):
        for group in optimizer.param_groups:
            assert group["lr"] == pytest.approx(group["initial_lr"] * rate_factor(step, 8, optim))
        optimizer.step()
        schedule.step()


def test_a_pace_that_nothing_has_is_refused():
    with pytest.raises(ValueError, match=r"optim\.freeze=4 is more than the model\.n_layers=3"):
        from_plain(RunConfig, {"optim": {"freeze": 4}, "model": {"n_layers": 3}})
