"""The mean of the weights: what it is, that it is what is kept, and that training does not see it."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from manyheads.config import Metric, ModelConfig, OptimConfig
from manyheads.nn import assemble
from manyheads.training.checkpoint import KeepBest
from manyheads.training.module import LitModule
from manyheads.training.objectives import Classify
from manyheads.training.optim import Average


@pytest.fixture
def module():
    model = ModelConfig(n_layers=1, d_model=8, d_k=4, d_v=4, d_ff=8)
    classifier = assemble(model, vocab_size=9, n_classes=2, max_length=4)
    return LitModule(classifier, Classify(torch.ones(2), label_smoothing=0.0), optim=OptimConfig(), n_steps=1)


def walk(average: Average, module: LitModule, n_steps: int, judged: int = 1) -> list[float]:
    """Every weight is the number of the step: what is where, and what the mean is where it is judged."""
    means = []
    for step in range(1, n_steps + 1):
        fill(module, step)
        trainer = SimpleNamespace(global_step=step, optimizers=[])
        average.on_train_batch_end(trainer, module, None, None, 0)
        if step % judged:
            continue
        average.on_validation_start(trainer, module)
        means.append(weight_of(module))
        average.on_validation_end(None, module)
        assert weight_of(module) == step, "training goes on from its own weights"
    return means


def fill(module: LitModule, value: float) -> None:
    for parameter in module.parameters():
        parameter.data.fill_(value)


def weight_of(module: LitModule) -> float:
    values = torch.cat([parameter.detach().flatten() for parameter in module.parameters()]).unique()
    assert len(values) == 1
    return values.item()


def test_the_mean_forgets_exponentially_over_the_steps_asked_for_but_a_fifth_of_the_way_at_most(module):
    means = walk(Average(100), module, 1000, judged=10)
    mean, by_hand = 10.0, []
    for step in range(10, 1001, 10):
        share = min(1.0, 10 / min(100, step / 5))
        mean = (1 - share) * mean + share * step
        by_hand.append(mean)
    np.testing.assert_allclose(means, by_hand, rtol=1e-5)
    assert means[-1] == pytest.approx(1000 - 90, abs=5), "a mean that lags by about the steps asked for"


@pytest.mark.parametrize("judged", [1, 3, 7])
def test_the_mean_that_is_judged_is_of_the_last_step(module, judged):
    means = walk(Average(100), module, 60, judged=judged)
    mean, seen, by_hand = 0.0, 0, []
    for step in range(1, 61):
        if step % judged == 0 or step % 10 == 0:
            share = min(1.0, (step - seen) / min(100, step / 5))
            mean, seen = (1 - share) * mean + share * step, step
        if step % judged == 0:
            by_hand.append(mean)
    np.testing.assert_allclose(means, by_hand, rtol=1e-5)
    assert len(set(means)) == len(means), "never the same weights twice"
    assert all(step - mean <= step / 5 for step, mean in zip(range(judged, 61, judged), means, strict=True))


def test_steps_that_only_gather_gradients_do_not_count(module):
    once, often = Average(50), Average(50)
    for step in range(1, 101):
        fill(module, step)
        once.on_train_batch_end(SimpleNamespace(global_step=step, optimizers=[]), module, None, None, 0)
        for _ in range(3):
            often.on_train_batch_end(SimpleNamespace(global_step=step, optimizers=[]), module, None, None, 0)
    assert torch.equal(once._mean[0], often._mean[0])


def test_the_mean_is_what_is_kept_and_what_training_ends_with(module, tmp_path):
    average, keep = Average(100), KeepBest(Metric.accuracy, module.network, tmp_path)
    walk(average, module, 200)
    figures = {"validation_accuracy": torch.tensor(0.5), "validation_loss": torch.tensor(0.1)}
    trainer = SimpleNamespace(
        callback_metrics=figures, current_epoch=0, global_step=200, is_global_zero=True, optimizers=[]
    )
    average.on_validation_start(trainer, module)
    for callback in (keep, average):
        callback.on_validation_end(trainer, module)
    (kept,) = torch.cat([weight.flatten() for weight in load_file(keep.path).values()]).unique()
    assert 100 < kept < 199
    assert weight_of(module) == 200
    average.on_train_end(trainer, module)
    assert weight_of(module) == kept


def test_a_run_too_short_for_a_mean_keeps_its_last_weights(module):
    average = Average(100)
    walk(average, module, 4)
    average.on_train_end(SimpleNamespace(global_step=4, optimizers=[]), module)
    assert weight_of(module) == 4
