"""What the config asks for, in Lightning's words."""

from dataclasses import replace
from datetime import timedelta

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.strategies import DDPStrategy

from manyheads.config import Accelerator, HardwareConfig, Precision, Strategy
from manyheads.inference import precision as processor
from manyheads.training import trainer as hardware


def test_several_processes_mean_ddp(monkeypatch):
    one = HardwareConfig(accelerator=Accelerator.cpu)
    assert hardware.trainer_hardware(one)["strategy"] == "auto"
    assert hardware.trainer_hardware(replace(one, devices=2))["strategy"] == "auto", "nobody has started two"
    assert isinstance(hardware.trainer_hardware(replace(one, strategy=Strategy.ddp))["strategy"], DDPStrategy)
    for name, value in {"RANK": "5", "WORLD_SIZE": "6", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    flags = hardware.trainer_hardware(replace(one, timeout=7))
    assert (flags["devices"], flags["num_nodes"]) == (2, 3)
    trainer = pl.Trainer(**flags, logger=False, enable_checkpointing=False)  # type: ignore[arg-type]
    assert (trainer.world_size, trainer.global_rank, trainer.local_rank, trainer.node_rank) == (6, 5, 1, 2)
    strategy = trainer.strategy
    assert isinstance(strategy, DDPStrategy)
    assert strategy._timeout == timedelta(seconds=7)
    assert strategy.cluster_environment is not None
    assert strategy.cluster_environment.creates_processes_externally, "Lightning starts none"


def test_fp32_is_fp32_for_recurrent_layers_too(monkeypatch):
    rnn = torch.backends.cudnn.rnn
    for asked, found in ((Precision.bf16, "tf32"), (Precision.fp32, "ieee")):
        monkeypatch.setattr(rnn, "fp32_precision", "tf32")  # torch's default
        hardware.trainer_hardware(HardwareConfig(accelerator=Accelerator.cpu, precision=asked))
        assert rnn.fp32_precision == found


def test_threads_are_shared_by_the_processes_of_a_machine(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(7)))
    assert hardware.share_of_threads(HardwareConfig()) == 0, "torch decides"
    for name, value in {"RANK": "0", "WORLD_SIZE": "6", "LOCAL_WORLD_SIZE": "3"}.items():
        monkeypatch.setenv(name, value)
    assert hardware.share_of_threads(HardwareConfig()) == 2
    assert hardware.share_of_threads(HardwareConfig(threads=5)) == 5
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "9")
    assert hardware.share_of_threads(HardwareConfig()) == 1
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "3")
    assert hardware.share_of_threads(HardwareConfig()) == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert hardware.share_of_threads(HardwareConfig()) == 0, "torch has read it"


@pytest.mark.parametrize(("flags", "expected"), [("avx2", Precision.fp32), ("avx512_bf16", Precision.bf16)])
def test_precision_follows_the_processor(flags, expected, monkeypatch):
    monkeypatch.setattr(processor.Path, "read_text", lambda self: f"flags : fpu {flags} sse")
    monkeypatch.setattr(processor.Path, "exists", lambda self: True)
    assert hardware.pick_precision(Precision.auto, on_gpu=False) is expected
    assert hardware.pick_precision(Precision.bf16, on_gpu=False) is Precision.bf16


def test_fp16_is_for_gpus():
    assert hardware.pick_precision(Precision.fp16, on_gpu=True) is Precision.fp16
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
        hardware.pick_precision(Precision.fp16, on_gpu=False)
    assert str(caught.value) == (
        "hardware.precision=fp16 needs a GPU, but this run computes on the CPU: "
        "use hardware.precision=bf16 or hardware.precision=fp32"
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_one_sentence():
    with pytest.raises(
        ValueError, match=r"^hardware\.accelerator=gpu, but torch sees no GPU on this machine: use hard"
    ):
        hardware.trainer_hardware(HardwareConfig(accelerator=Accelerator.gpu))


def test_more_gpus_than_there_are_is_one_sentence(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(
        ValueError, match=r"^hardware\.devices=4, but this machine has 2: use hardware\.devices=2, or 0"
    ):
        hardware.count_devices(HardwareConfig(devices=4), on_gpu=True)
    assert hardware.count_devices(HardwareConfig(devices=0), on_gpu=True) == 2
    assert hardware.count_devices(HardwareConfig(devices=0), on_gpu=False) == 1
