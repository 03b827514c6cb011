"""Finding a model."""

from pathlib import Path

import pytest

import manyheads
from manyheads.config import PredictConfig
from manyheads.inference import format
from manyheads.inference.format import FILES, find_model
from manyheads.inference.predict import predict


def fill(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in FILES:
        (folder / name).write_text("{}")
    return folder


def test_a_run_folder_and_its_model_folder_are_found(tmp_path: Path) -> None:
    model = fill(tmp_path / "run" / "model")
    assert find_model(tmp_path / "run") == find_model(model) == model


def test_what_is_no_run_folder_says_why(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^run=\S+nowhere is not a run folder: there is no such folder; name the"):
        find_model(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"^run=\S+file is not a run folder: it is a file; name the"):
        find_model(tmp_path / "file")
    with pytest.raises(ValueError, match=r"is not a run folder: there is no model/config.json in it; name the"):
        find_model(tmp_path)
    (tmp_path / "config.yaml").write_text("seed: 0")
    with pytest.raises(ValueError, match=r"not a run folder to use: its training has not written model/, and run.log"):
        find_model(tmp_path)
    (fill(tmp_path / "run" / "model") / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match=r"is not a run folder: \S+model has no tokenizer.json; name the"):
        find_model(tmp_path / "run")
    fill(tmp_path / "program")
    (tmp_path / "program" / "model.safetensors").rename(tmp_path / "program" / "model.pt2")
    with pytest.raises(ValueError, match=r"holds a program of torch.export, .*: use that, or name the run that it was"):
        find_model(tmp_path / "program", graph=True)


def test_config_json_is_parsed_once(model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, names = format.read_json, []
    monkeypatch.setattr(format, "read_json", lambda path: names.append(path.name) or read(path))
    manyheads.load(model_folder)
    assert names.count("config.json") == 1
    predict(PredictConfig(run=str(model_folder), text="good", output=str(tmp_path / "out.jsonl")))
    assert names.count("config.json") == 2
