"""What the config asks for, in Lightning's words."""

import pytest
import torch

from manyheads import processor
from manyheads.config import Accelerator, HardwareConfig, Precision, Strategy
from manyheads.fit import hardware


def test_several_devices_or_nodes_mean_ddp():
    def strategy(config: HardwareConfig) -> object:
        return hardware.trainer_hardware(config)["strategy"]

    cpu = Accelerator.cpu
    assert strategy(HardwareConfig(accelerator=cpu)) == "auto"
    assert strategy(HardwareConfig(accelerator=cpu, devices=2)) == "ddp"
    assert strategy(HardwareConfig(accelerator=cpu, nodes=2)) == "ddp"
    assert strategy(HardwareConfig(accelerator=cpu, strategy=Strategy.ddp)) == "ddp"


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
