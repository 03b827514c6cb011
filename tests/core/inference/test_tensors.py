"""model.safetensors: exact tensors or one sentence, and nothing large allocated on the way to it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from manyheads import plugin
from manyheads.config import ModelConfig
from manyheads.inference.folder import load, read_network
from manyheads.inference.format import read_settings
from tests.registry import of_plugin


def copied(model_folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(model_folder / "model", tmp_path / "model")


def change_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tensors: tensors.pop("head.bias"), "tensor 'head.bias' is missing"),
        (lambda tensors: tensors.update(more=torch.ones(2)), "tensor 'more' is not part of the model"),
        (lambda tensors: tensors.update({"head.bias": torch.ones(4)}), r"head.bias is F32 \[4\], not F32 \[3\]"),
        (lambda tensors: tensors.update({"head.bias": torch.ones(3).half()}), r"is F16 \[3\], not F32 \[3\]"),
        (lambda tensors: tensors["head.bias"].fill_(float("nan")), "head.bias holds values that are not finite"),
        (
            lambda tensors: [tensors.pop(name) for name in list(tensors)[1:]],
            "but the model of config.json has at least",
        ),
    ],
)
def test_tensors_must_fit_exactly(model_folder: Path, tmp_path: Path, change: Any, words: str) -> None:
    folder = copied(model_folder, tmp_path)
    change_tensors(folder, change)
    with pytest.raises(ValueError, match=words) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("change", [lambda whole: b"", lambda whole: b"no tensors", lambda whole: whole[:-100]])
def test_a_broken_file_is_one_sentence(model_folder: Path, tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    """tests/core/hostile has headers that claim too much."""
    file = copied(model_folder, tmp_path) / "model.safetensors"
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(ValueError, match="is not a whole safetensors file"):
        load(file.parent)


HUGE = {"n_heads": 4096, "d_model": 2**16, "d_k": 2**16, "d_v": 2**16, "d_ff": 2**18, "n_layers": 1000}


@pytest.mark.parametrize("name", [*HUGE, "vocab_size", "n_classes"])
def test_huge_sizes_are_refused_before_memory_is_asked_for(model_folder: Path, tmp_path: Path, name: str) -> None:
    folder = copied(model_folder, tmp_path)
    content = json.loads((folder / "config.json").read_text())
    (content["model"] if name in HUGE else content)[name] = HUGE.get(name, 2**50)
    (folder / "config.json").write_text(json.dumps(content))
    settings = read_settings(folder / "config.json")
    with pytest.raises(ValueError, match=r"model.safetensors holds [\d,]+ numbers, but the model of config.json has"):
        read_network(folder / "model.safetensors", settings)


@pytest.mark.parametrize("positions", plugin.names("positions"))
def test_huge_tables_of_positions_are_refused(tmp_path: Path, ship_model: Any, positions: str) -> None:
    shape = ModelConfig(n_layers=2, n_heads=1, d_model=128, d_k=64, d_v=1, d_ff=1, positions=positions)
    folder = ship_model(tmp_path / "model", shape=shape)
    content = json.loads((folder / "config.json").read_text())
    content["max_length"] = 2**20
    (folder / "config.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"max_length=1048576, which asks for tables of positions with 268,435,456"):
        load(folder)


SQUARE: dict[str, Any] = {"n_heads": 2, "d_model": 128, "d_k": 64, "d_v": 64, "d_ff": 1}
SHAPES = {
    "no projections": ModelConfig(**SQUARE, project=False, project_output=False),
    "general": ModelConfig(score="general", d_model=4, d_k=64),
}
if "gru" in plugin.names("encoder"):
    SHAPES |= {
        "gru": ModelConfig(encoder="gru", pooling="attention", score="additive", n_heads=512),
        "lstm": ModelConfig(encoder="lstm", bidirectional=False, d_ff=2**18),
    }


@pytest.mark.parametrize("name", SHAPES)
def test_every_family_of_models_can_be_opened_again(tmp_path: Path, ship_model: Any, name: str) -> None:
    predictor = load(ship_model(tmp_path / "model", shape=SHAPES[name]))
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    assert all(torch.equal(tensors[key], value) for key, value in predictor.network.state_dict().items())


@pytest.mark.parametrize(
    "change",
    [
        {"d_k": 2**15, "score": "general"},
        *(
            {"d_model": 2**9, "encoder": one, "d_k": 1, "d_v": 1, "d_ff": 1}
            for one in of_plugin("language", "encoder")[:1]
        ),
        {"d_model": 2**10, "pooler": "tanh", "d_k": 1, "d_v": 1, "d_ff": 1},
    ],
)
def test_huge_sizes_of_other_families_are_refused_too(tmp_path: Path, ship_model: Any, change: dict[str, Any]) -> None:
    folder = ship_model(tmp_path / "model", shape=ModelConfig(n_heads=1, d_model=2, d_k=2**11, d_v=1, n_layers=20))
    content = json.loads((folder / "config.json").read_text())
    content["model"] |= change | {"n_layers": 1}
    (folder / "config.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"model.safetensors holds [\d,]+ numbers, but the model of config.json has"):
        load(folder)


def test_the_random_generator_is_left_alone(model_folder: Path) -> None:
    settings = read_settings(model_folder / "model" / "config.json")
    before = torch.get_rng_state()
    read_network(model_folder / "model" / "model.safetensors", settings)
    assert torch.equal(torch.get_rng_state(), before)
