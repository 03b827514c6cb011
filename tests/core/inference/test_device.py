"""Where a finished model computes."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from manyheads.config import Accelerator, InferenceHardware, Precision
from manyheads.inference.folder import load, place
from manyheads.inference.precision import choose_device

TEXTS = ["a good film", "very bad", ""]


def test_single_precision_unless_typed(model_folder: Path) -> None:
    model = load(model_folder)
    exact = model.logits(TEXTS)
    on_cpu = InferenceHardware(accelerator=Accelerator.cpu)
    assert torch.equal(place(model, on_cpu).logits(TEXTS), exact)
    on_cpu = replace(on_cpu, precision=Precision.bf16)
    half = place(model, on_cpu).logits(TEXTS)
    assert half.dtype == torch.float32
    assert not torch.equal(half, exact)
    torch.testing.assert_close(half, exact, atol=0.1, rtol=0.1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_missing_is_one_sentence(model_folder: Path) -> None:
    model = load(model_folder)
    assert place(model, InferenceHardware()).network.head.weight.device.type == "cpu"
    with pytest.raises(ValueError, match=r"^hardware\.accelerator=gpu, but torch sees no GPU on this machine: use"):
        place(model, InferenceHardware(accelerator=Accelerator.gpu))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_same_logits(model_folder: Path) -> None:
    exact = load(model_folder).logits(TEXTS)
    placed = place(load(model_folder), InferenceHardware(accelerator=Accelerator.gpu))
    assert placed.network.head.weight.is_cuda
    torch.testing.assert_close(placed.logits(TEXTS), exact, atol=1e-4, rtol=1e-4)


def test_processes_side_by_side_share_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes the GPU of its number."""
    for name, word in {"RANK": 3, "LOCAL_RANK": 1, "WORLD_SIZE": 4, "LOCAL_WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(word))
    with monkeypatch.context() as patch:
        patch.setattr(torch, "set_num_threads", lambda _: pytest.fail("a device is chosen, and nothing is set"))
        assert choose_device(InferenceHardware(accelerator=Accelerator.cpu)).type == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device(InferenceHardware()) == torch.device("cuda", 1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match=r"hardware.devices=2, but this machine has 1: use hardware.devices=1, or 0"):
        choose_device(InferenceHardware())
