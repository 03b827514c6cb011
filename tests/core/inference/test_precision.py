"""The type a finished model multiplies in: chosen in one place, cast once, the same to the last bit."""

from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import manyheads
from manyheads import plugin
from manyheads.config import (
    Accelerator,
    InferenceHardware,
    ModelConfig,
    PairKind,
    Precision,
)
from manyheads.inference import precision
from manyheads.inference.folder import load, place
from manyheads.inference.packed import PackedAttention
from manyheads.inference.precision import inference_dtype
from tests.registry import of_plugin

TEXTS = ["a good film", "", "very very bad", "not so awful, the film", "good " * 100]
ONE_CHOICE = [{kind: one} for kind in ("positions", "score", "pooling") for one in plugin.names(kind)]
SEVERAL = zip(  # each choice once
    plugin.names("score"), cycle(plugin.names("positions")), cycle(plugin.names("pooling")), strict=False
)
SHAPES: list[Any] = [
    {},
    *(pytest.param(one, marks=pytest.mark.slow) for one in ONE_CHOICE),
    *({"score": score, "positions": positions, "pooling": pooling} for score, positions, pooling in SEVERAL),
    *({"encoder": one, "positions": "none"} for one in of_plugin("language", "encoder")[:1]),
    {"n_kv_heads": 1, "causal": True},
    {"d_v": 4},  # which `PackedAttention` computes
    {"pair": PairKind.cross},
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_matrices_cast_once_answer_as_autocast_does(shape: dict[str, Any], tmp_path: Path, ship_model: Any) -> None:
    pairs = "pair" in shape
    sizes = {"n_layers": 2, "n_heads": 2, "d_model": 16, "d_k": 4, "d_v": 6, "d_ff": 24}
    opened = load(ship_model(tmp_path / "model", shape=ModelConfig(**sizes | shape), pairs=pairs))
    before = {name: value.clone() for name, value in opened.network.state_dict().items()}
    seconds = TEXTS[::-1] if pairs else None
    exactly = opened.logits(TEXTS, seconds)
    halved = opened.on("cpu", torch.bfloat16)
    casting = replace(halved, _cast=None)
    assert halved._cast is not None
    answer = halved.logits(TEXTS, seconds)
    if any(isinstance(module, PackedAttention) for module in halved._cast.modules()):
        torch.testing.assert_close(answer, casting.logits(TEXTS, seconds), atol=0.02, rtol=0.02)
    else:
        assert torch.equal(answer, casting.logits(TEXTS, seconds))
    torch.testing.assert_close(answer, exactly, atol=0.15, rtol=0.1)
    for name, value in opened.network.state_dict().items():  # the exact model is left as it was
        assert value.dtype == torch.float32
        assert torch.equal(value, before[name])
    assert torch.equal(opened.logits(TEXTS, seconds), exactly)
    assert torch.equal(halved.on("cpu").logits(TEXTS, seconds), exactly)


@given(st.lists(st.text(max_size=30) | st.sampled_from(TEXTS), max_size=10), st.sampled_from([1, 9, 4096]))
def test_many_texts_are_answered_as_each_alone(model_folder: Path, texts: list[str], tokens: int) -> None:
    model = load(model_folder)
    alone = [model.logits([text])[0] for text in texts]
    together = model.logits(texts, tokens=tokens)
    for one, row in zip(alone, together, strict=True):
        torch.testing.assert_close(row, one, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("multiplies", [True, False])
def test_auto_is_bf16_where_the_processor_multiplies_in_it(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch, multiplies: bool
) -> None:
    monkeypatch.setattr(precision, "cpu_multiplies_bf16", lambda: multiplies)
    fastest = torch.bfloat16 if multiplies else None
    assert manyheads.load(model_folder).autocast is fastest
    assert manyheads.load(model_folder, precision="fp32").autocast is None
    assert manyheads.load(model_folder, precision="bf16").autocast is torch.bfloat16
    cpu = torch.device("cpu")
    assert inference_dtype(Precision.auto, ModelConfig(), cpu) is fastest
    hardware = InferenceHardware(accelerator=Accelerator.cpu)
    assert place(load(model_folder), hardware).autocast is None
    assert place(load(model_folder), hardware, fast=True).autocast is fastest


def test_a_precision_that_is_none_is_one_sentence(model_folder: Path) -> None:
    with pytest.raises(ValueError, match=r"^precision=int8 is not a choice: choose auto, fp32 or bf16$"):
        manyheads.load(model_folder, precision="int8")


def test_fp32_on_a_gpu_is_not_rounded_to_tf32() -> None:
    cudnn, cuda = torch.backends.cudnn, torch.device("cuda")
    for before in ("tf32", "ieee", "tf32"):
        cudnn.conv.fp32_precision = cudnn.rnn.fp32_precision = before
        with precision.multiplying_in(None, cuda):
            assert (cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision) == ("ieee", "ieee")
        assert (cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision) == (before, before)
        with precision.multiplying_in(torch.bfloat16, torch.device("cpu")):
            assert (cudnn.conv.fp32_precision, torch.is_autocast_enabled("cpu")) == (before, True)
