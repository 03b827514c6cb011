"""One run: the clock that ends it, what is judged, and that seeds alone decide it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from manyheads.cli.compose import compose
from manyheads.config.facts import replace_settings
from manyheads.plugins.sweep import ablation
from manyheads.plugins.sweep.ablation import train_run
from manyheads.plugins.sweep.sets import read_sets
from manyheads.plugins.sweep.tokenized_sets import tokenize
from manyheads.training.trainer import build_trainer


@pytest.fixture
def prepared(words):
    config = compose("ablate", words)
    run = config.run(config.variants()[0])
    return run, tokenize(read_sets(config)[0], run)


def test_the_same_seed_gives_the_same_figures(prepared):
    run, data = prepared
    one, two = (train_run(run, data, 60.0) for _ in range(2))
    assert (one.right, one.loss, one.tokens, one.steps) == (two.right, two.loss, two.tokens, 4)
    assert one.accuracy == one.right.count("1") / len(data.tokens["validation"])
    assert not one.stopped
    assert not one.diverged


def test_the_weights_at_the_end_are_judged_as_lightning_judges_them(prepared, monkeypatch):
    seen = {}

    def build(*given):
        seen["trainer"] = build_trainer(*given)
        return seen["trainer"]

    monkeypatch.setattr("manyheads.training.trainer.build_trainer", build)
    monkeypatch.setattr("manyheads.training.weights.MOST_SEEN", 0.0)  # so that the average has the shape of the table
    run, data = prepared
    figures = train_run(run, data, 60.0)
    trainer = seen["trainer"]
    trainer.limit_val_batches = 1.0
    (judged,) = trainer.validate(trainer.lightning_module, trainer.datamodule, verbose=False)
    assert judged["validation_accuracy"] == pytest.approx(figures.accuracy)
    assert judged["validation_loss"] == pytest.approx(figures.loss, rel=1e-5)


@pytest.fixture
def rates(monkeypatch):
    """The rate of each step, each of which takes a second of the clock that limits a run."""
    found, step = [], torch.optim.AdamW.step

    def watch(optimizer, closure=None):
        found.append(optimizer.param_groups[0]["lr"])
        return step(optimizer, closure)

    monkeypatch.setattr(torch.optim.AdamW, "step", watch)
    monkeypatch.setattr(ablation, "time", SimpleNamespace(perf_counter=lambda: float(len(found))))
    return found


def test_a_limit_ends_a_run_and_says_so(prepared, rates):
    run, data = prepared
    run.trainer["max_steps"] = 100_000
    run.trainer["max_epochs"] = -1
    figures = train_run(run, data, 30.0)
    assert figures.stopped
    assert figures.steps == len(rates) == 30
    assert figures.seconds > 0


def test_rows_without_a_finite_answer_are_wrong(prepared):
    run, data = prepared
    run = replace_settings(run, {"optim.lr": 1e30})
    figures = train_run(run, data, 60.0)
    assert figures.diverged
    assert figures.accuracy == 0.0
    assert set(figures.right) == {"0"}


def test_the_head_is_fitted_before_the_first_step_as_train_does(prepared):
    run, data = prepared
    run = replace(run, trainer={**run.trainer, "max_steps": 1})
    without, fitted = (train_run(replace(run, optim=replace(run.optim, few=n)), data, 60.0) for n in (0, 10_000))
    assert fitted.loss < without.loss


def test_rows_are_judged_on_the_device_of_the_run(prepared, monkeypatch):
    run, data = prepared
    asked, device = [], torch.device("cpu")
    monkeypatch.setattr(ablation, "choose_device", lambda hardware: asked.append(hardware) or device)
    judge, seen = ablation.network_logits, []
    monkeypatch.setattr(ablation, "network_logits", lambda *given: seen.append(given[2:]) or judge(*given))
    train_run(run, data, 60.0)
    assert asked == [run.hardware]
    assert seen == [(device,)]
