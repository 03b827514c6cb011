"""Budgets as steps: what they come to, and that they are kept."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from manyheads.cli.compose import compose
from manyheads.config import BatchConfig, CheckpointConfig, HardwareConfig, OptimConfig, Precision, RunConfig
from manyheads.config.facts import replace_settings
from manyheads.config.training import Compile
from manyheads.data.datamodule import TextData
from manyheads.data.tokens import Tokens
from manyheads.distributed import faults
from manyheads.distributed.signals import Stopped
from manyheads.runs.resolve import explain_choices, with_limits
from manyheads.training import budget
from manyheads.training.budget import evenly_spaced, limits_of_time, settle_budget

LOOKS = 20


@pytest.mark.parametrize("n_steps", [1, 7, 20, 21, 399, 2000, 12_345])
def test_validations_of_a_pretraining_are_even_and_the_last_is_at_the_end(n_steps):
    limits = evenly_spaced(n_steps, LOOKS)
    assert limits["max_steps"] % limits["val_check_interval"] == 0
    assert 0 <= limits["max_steps"] - n_steps < limits["val_check_interval"]
    assert limits["max_steps"] // limits["val_check_interval"] <= LOOKS
    assert evenly_spaced(n_steps, 0) == {"max_steps": n_steps}


@pytest.mark.parametrize(("n_steps", "look"), [(6000, 20.0), (120, 20.0), (3.3, 0.01), (0.2, 12.0)])
def test_steps_and_looks_fill_the_time(n_steps, look):
    limits = limits_of_time(LOOKS, n_steps, look, 100)
    looks = limits["max_steps"] // limits["val_check_interval"]
    assert limits["max_steps"] + looks * look <= max(n_steps, 1 + look) + limits["val_check_interval"]
    assert looks == 1 or looks * look <= 0.1 * n_steps
    limits = limits_of_time(0, n_steps, look, 100)
    assert limits["max_steps"] * (1 + look / 100) <= max(n_steps, 1 + look)


def test_tokens_are_turned_into_steps(small_run):
    assert_steps_of_tokens(*small_run("train"))


def assert_steps_of_tokens(run, network, tokens, labels):
    """A budget of tokens ends within a look of the step that spends it."""
    run = replace_settings(run, {"budget": "5ktok"})
    limits = settle_budget(run, network, tokens, labels).trainer
    lengths = tokens["train"].lengths
    per_step = int(lengths.sum()) / TextData(tokens, run.batch, run.seed).steps_of(0)
    assert limits["max_epochs"] == -1
    assert abs(limits["max_steps"] - 5000 / per_step) <= limits.get("val_check_interval", 1)


def test_a_signal_ends_a_run_whose_steps_are_timed(small_run, monkeypatch):
    run, network, tokens, labels = small_run("train")
    run = replace_settings(run, {"budget": "10min"})
    monkeypatch.setenv(faults.VARIABLE, "loss:5:term")
    with pytest.raises(Stopped) as ended:
        settle_budget(run, network, tokens, labels)
    assert (ended.value.exit_code, ended.value.why) == (143, "SIGTERM")


def test_a_loss_that_is_no_number_is_left_to_the_run_itself(small_run, monkeypatch):
    run, network, tokens, labels = small_run("train", "guard.nonfinite=rollback")
    run = replace_settings(run, {"budget": "5s"})
    monkeypatch.setenv(faults.VARIABLE, "loss:2:nan")
    assert settle_budget(run, network, tokens, labels).trainer["max_steps"] > 0


def test_several_devices_do_not_time_their_steps(small_run):
    run, network, tokens, labels = small_run("train")
    run = replace_settings(run, {"budget": "1min", "hardware.devices": 2})
    with pytest.raises(
        ValueError, match=r"a budget of 1min is a time, which is measured on one device, but this run has"
    ):
        settle_budget(run, network, tokens, labels)


def test_all_devices_of_a_machine_that_has_one_are_not_several(small_run):
    run, network, tokens, labels = small_run("train", "hardware.devices=0")
    run = replace_settings(run, {"budget": "5s"})
    assert settle_budget(run, network, tokens, labels).trainer["max_steps"] > 0


@pytest.mark.parametrize("accumulate", [1, 4])
def test_whole_steps_are_timed_and_the_device_is_waited_for_twice(accumulate, monkeypatch):
    timer, now, waits = budget.StepTimer(10.0), [100.0], []
    monkeypatch.setattr(torch.cuda, "synchronize", waits.append)
    monkeypatch.setattr(budget.time, "perf_counter", lambda: now[0])
    trainer, on_gpu = SimpleNamespace(global_step=0, should_stop=False), SimpleNamespace(device=torch.device("cuda"))
    for batch in range(1, 100):  # each takes a second
        now[0] += 1
        trainer.global_step = batch // accumulate
        timer.on_train_batch_end(trainer, on_gpu, None, None, batch)
        if trainer.should_stop:
            break
    assert timer.seconds >= 10
    assert timer.seconds / timer.steps == accumulate
    assert len(waits) == 2


@pytest.mark.parametrize(
    ("choice", "seconds", "timed"),
    [
        ("auto", 0.5, ["never"]),  # 240 steps, which the run does not compile
        ("auto", 0.05, ["never", "always"]),
        ("never", 0.05, ["never"]),
        ("always", 0.5, ["always"]),
    ],
)
def test_steps_are_timed_compiled_where_the_run_compiles_them(choice, seconds, timed, small_run, monkeypatch):
    seen = []

    def seconds_of_step(run, *given):
        seen.append(run.hardware.compile.name)
        return seconds / (2 if run.hardware.compile is Compile.always else 1)

    monkeypatch.setattr(budget, "seconds_of_step", seconds_of_step)
    monkeypatch.setattr(budget, "choose_device", lambda hardware: torch.device("cuda", 0))
    monkeypatch.setattr(budget, "count_devices", lambda hardware, on_gpu: 1)
    run, network, tokens, labels = small_run("train", f"hardware.compile={choice}", "data.validation_share=0.01")
    run = replace_settings(run, {"budget": "2min"})
    settled = budget.settle_budget(run, network, tokens, labels)
    assert seen == timed
    assert settled.hardware == run.hardware
    per_step = seconds / (2 if timed[-1] == "always" else 1)
    assert 0.5 * 120 / per_step < settled.trainer["max_steps"] <= 120 / per_step


@pytest.mark.parametrize(
    ("epochs", "least", "trained"), [(8, 30, 30), (40, 30, 40), (8, 0, 8), (-1, 30, -1), (None, 30, None)]
)
def test_few_rows_are_read_more_often(epochs, least, trained):
    run = RunConfig(optim=OptimConfig(few=50, few_epochs=least), trainer={"max_epochs": epochs, "max_steps": 2500})
    assert with_limits(run, n_rows=450, n_classes=9).trainer == {"max_epochs": trained, "max_steps": 2500}
    assert with_limits(run, n_rows=451, n_classes=9) == run


@pytest.mark.parametrize(
    ("steps", "per_class", "n_classes", "most"),
    [
        (1500, 50, 2, 700),
        (1500, 50, 77, 1500),
        (-1, 50, 4, 800),
        (None, 10, 1, 610),
        (500, 50, 9, 500),
        (900, 0, 3, 900),
        (1500, 50, 0, 1500),  # as of pretraining: there are no classes to count
    ],
)
def test_the_more_classes_the_more_steps(steps, per_class, n_classes, most):
    run = RunConfig(optim=OptimConfig(steps_per_class=per_class), trainer={"max_epochs": 8, "max_steps": steps})
    assert with_limits(run, n_rows=10_000, n_classes=n_classes).trainer == {"max_epochs": 8, "max_steps": most}


@pytest.mark.parametrize(("few", "epochs"), [(8, 9), (7, 1)])
def test_rows_are_few_by_their_number_a_class(few, epochs, small_run):
    run, _, tokens, labels = small_run("train", f"optim.few={few}", *["optim.few_epochs=9"] * bool(few))
    assert (len(tokens["train"]), len(labels)) == (64, 9)
    assert with_limits(run, n_rows=64, n_classes=9).trainer["max_epochs"] == epochs


@pytest.mark.parametrize("limit", ["trainer.max_epochs=3", "trainer.max_steps=20"])
def test_a_limit_that_is_typed_is_kept(limit):
    assert compose("train", ["optim=finetune"]).optim.few_epochs > 0
    assert compose("train", ["optim=finetune", limit]).optim.few_epochs == 0
    assert compose("train", ["optim=finetune", limit, "optim.few_epochs=70"]).optim.few_epochs == 70
    assert compose("train", ["optim=finetune"]).optim.steps_per_class == 50
    assert compose("train", ["optim=finetune", limit]).optim.steps_per_class == 0


@pytest.mark.parametrize(("own", "per_class"), [("", 0), ("optim: {steps_per_class: 70}\n", 70)])
def test_a_limit_of_an_experiment_is_kept(own, per_class, tmp_path):
    (tmp_path / "experiment").mkdir()
    limits = "# @package _global_\ntrainer: {max_steps: 5000, max_epochs: -1}\n"
    (tmp_path / "experiment" / "x.yaml").write_text(limits + own)
    run = compose("train", ["optim=finetune", "experiment=x"], config_dir=str(tmp_path))
    assert (run.optim.few_epochs, run.optim.steps_per_class) == (0, per_class)
    assert (run.trainer["max_steps"], run.trainer["max_epochs"]) == (5000, -1)
    typed = ["optim=finetune", "experiment=x", "optim.steps_per_class=90"]
    assert compose("train", typed, config_dir=str(tmp_path)).optim.steps_per_class == 90


def test_what_was_settled_is_said():
    asked = RunConfig(
        optim=OptimConfig(few=50, few_epochs=90), trainer={"max_epochs": 30}, batch=BatchConfig(tokens="auto")
    )
    chosen = partial(explain_choices, precision="bf16")
    (every,) = chosen(replace(asked, checkpoint=CheckpointConfig(metric="loss")), asked)
    assert every == ("bf16", "hardware.precision=auto: bf16, as this device multiplies in it")
    asked = replace(asked, hardware=HardwareConfig(precision=Precision.fp32))
    settled = replace(asked, checkpoint=CheckpointConfig(metric="macro_f1"))
    (best,) = chosen(asked, settled)
    assert best[0] == "best epoch by macro F1"
    asked = settled
    found = replace(asked, batch=BatchConfig(tokens=4096))
    assert list(chosen(asked, found)) == [("4,096 tokens a batch", "batch.tokens=auto: 4096, as memory has room for")]
    assert list(chosen(found, with_limits(found, n_rows=100, n_classes=2))) == [
        (
            "90 epochs, as rows are few",
            "rows are few (optim.few=50): 90 epochs instead of 30; type trainer.max_epochs to choose",
        )
    ]
    by_classes = replace(found, optim=OptimConfig(steps_per_class=50), trainer={"max_epochs": 8, "max_steps": 1500})
    limited = with_limits(by_classes, n_rows=1000, n_classes=3)
    (steps,) = chosen(by_classes, limited)
    assert steps == (
        "750 steps at most (600 + 50 per class)",
        "trainer.max_steps=750: 600 + 50 per class; type it to choose",
    )
    bought = replace(found, budget="2ktok", trainer={"max_epochs": -1, "max_steps": 7})
    assert list(chosen(replace(found, budget="2ktok"), bought)) == [
        ("7 steps for budget=2ktok", "budget=2ktok: 7 steps")
    ]


def test_tokens_are_those_of_rows_as_they_are_drawn(small_run):
    """Rows of the rare class are long: drawn more often, they fill a budget of tokens in fewer epochs."""
    run, network, tokens, labels = small_run("train", "batch.balance=uniform", "batch.tokens=64")
    run = replace_settings(run, {"budget": "20ktok"})
    lengths = torch.tensor([50 if at % 10 == 0 else 5 for at in range(200)])
    rows = Tokens(torch.zeros(int(lengths.sum())).int(), torch.nn.functional.pad(lengths.cumsum(0), (1, 0)), None,
                  (torch.arange(200) % 10 == 0).int())  # fmt: skip
    limits = settle_budget(run, network, tokens | {"train": rows}, labels).trainer
    data, read, steps = TextData({"train": rows}, run.batch, run.seed), 0, 0
    for epoch in range(100):
        plan = data.plan(epoch)[: limits["max_steps"] - steps]
        steps, read = steps + len(plan), read + sum(int(lengths[one.rows].sum()) for one in plan)
    assert steps == limits["max_steps"]
    assert read == pytest.approx(20_000, rel=0.05)
