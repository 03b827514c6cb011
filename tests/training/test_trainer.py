"""What the machine and Lightning refuse, each as one sentence."""

import warnings

import pytest
import torch

from manyheads.config import Accelerator, HardwareConfig, Precision, RunConfig
from manyheads.training.trainer import build_trainer, check_trainer


def complaint(run: RunConfig) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - every test compares the sentence
        check_trainer(run)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def run_with(**flags) -> RunConfig:
    return RunConfig(hardware=HardwareConfig(accelerator=Accelerator.cpu), trainer={"max_epochs": 1, **flags})


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("max_epochs", -2, "`max_epochs` must be a non-negative integer or -1. You passed in -2."),
        ("gradient_clip_algorithm", "abs", "`gradient_clip_algorithm` abs is invalid. Allowed algorithms: "),
        ("gradient_clip_val", "much", "`gradient_clip_val` should be an int or a float. Got much."),
        ("profiler", "no such", "When passing string value for the `profiler` parameter of `Trainer`, it can only be "),
        ("limit_val_batches", 1.5, "You have passed invalid value 1.5 for limit_val_batches, it has to be in [0.0,"),
    ],
)
def test_a_flag_that_lightning_refuses_is_one_sentence(flag, value, words):
    assert complaint(run_with(**{flag: value})).startswith(
        f"Lightning refuses the flags of hardware and trainer: {words}"
    )


def test_two_intervals_of_validation_are_one_sentence():
    assert complaint(run_with(val_check_interval=50, check_val_every_n_epoch=2)) == (
        "trainer.check_val_every_n_epoch=2 cannot be combined with trainer.val_check_interval=50, an interval in "
        "batches, which are counted over the whole run: remove one of them"
    )
    check_trainer(run_with(val_check_interval=0.5, check_val_every_n_epoch=2))
    check_trainer(run_with(val_check_interval=50, check_val_every_n_epoch=None))


def test_flags_that_lightning_takes_are_not_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_trainer(run_with(detect_anomaly=False, max_time="00:01:00:00"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_hardware_that_is_not_there_is_one_sentence():
    gpu = RunConfig(hardware=HardwareConfig(accelerator=Accelerator.gpu))
    assert complaint(gpu).startswith("hardware.accelerator=gpu, but torch sees no GPU on this machine: ")
    fp16 = RunConfig(hardware=HardwareConfig(accelerator=Accelerator.cpu, precision=Precision.fp16))
    assert complaint(fp16) == (
        "hardware.precision=fp16 needs a GPU, but this run computes on the CPU: "
        "use hardware.precision=bf16 or hardware.precision=fp32"
    )


@pytest.mark.parametrize(("name", "heard"), [("train_loss", 0), ("validation_accuracy", 0), ("mine", 1)])
def test_advice_about_figures_that_ranks_have_shared_is_not_heard(name, heard):
    with warnings.catch_warnings(record=True) as said:
        build_trainer(run_with(), None, [], [])
        advice = f"It is recommended to use `self.log('{name}', ..., sync_dist=True)` when logging on epoch level"
        warnings.warn_explicit(advice, UserWarning, "result.py", 434, module="lightning.pytorch.trainer.result")
    assert len(said) == heard
