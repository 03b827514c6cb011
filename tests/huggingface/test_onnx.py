"""What `manyheads export format=onnx` writes: the same logits by onnxruntime, without torch; else nothing."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from manyheads.config import (
    Activation,
    DataConfig,
    EncoderKind,
    ExportConfig,
    Format,
    Long,
    Members,
    ModelConfig,
    Norm,
    Normaliser,
    Pooling,
    Positions,
    Rounding,
    Score,
)
from manyheads.data.rows import Rows
from manyheads.huggingface import onnx_graph
from manyheads.huggingface.write import export
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.folder import load

for package in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(package)

SMALL: dict[str, Any] = {"n_layers": 2, "n_heads": 2, "d_model": 16, "d_k": 8, "d_v": 6, "d_ff": 24}
SHAPE = ModelConfig(
    **SMALL, scores=[Score.additive, Score.cosine], normaliser=Normaliser.entmax15, positions=Positions.rotary,
    windows=[2, 0], pooling=Pooling.attention, activation=Activation.swiglu, norm=Norm.rms,
)  # fmt: skip
TEXTS = ["good film", "", "a very bad film and not so good a film as the others are", "so", "unknown words \u17a3"]


def write(model: Path, output: Path) -> Path:
    return export(ExportConfig(run=str(model), output=str(output), format=Format.onnx, members=Members.network))


@pytest.fixture(scope="module")
def model(ship_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ship_model(tmp_path_factory.mktemp("onnx") / "model", data=DataConfig(max_length=12), shape=SHAPE)


@pytest.fixture(scope="module")
def exported(model: Path) -> Path:
    return write(model, model.parent / "exported")


def answered(folder: Path, texts: list[str]) -> torch.Tensor:
    from manyheads.huggingface.onnx_predict import Classifier

    return torch.from_numpy(Classifier(folder).logits(texts))


def test_it_answers_as_we_do_whatever_the_batch(model, exported):
    ours = load(model, TextClassifier).logits(TEXTS)
    torch.testing.assert_close(answered(exported, TEXTS), ours, rtol=0, atol=1e-5)
    for at, text in enumerate(TEXTS):
        torch.testing.assert_close(answered(exported, [text]), ours[at : at + 1], rtol=0, atol=1e-5)
    assert float(ours.std()) > 0.01


def test_the_script_runs_without_torch_and_without_us(model, exported):
    assert len((exported / "predict.py").read_text().splitlines()) <= 40
    barred = "import sys; sys.modules.update(dict.fromkeys(['torch', 'manyheads', 'transformers']));"
    run = f"{barred} import runpy; sys.argv[1:] = {TEXTS[:3]}; runpy.run_path('predict.py', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", run], cwd=exported, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = [one.label for one in load(model, TextClassifier).predict(TEXTS[:3])]  # type: ignore[union-attr]
    assert done.stdout.split() == expected


def test_the_folder_says_what_it_was_compared_on(exported):
    readme = (exported / "README.md").read_text()
    assert "texts made of its vocabulary, as its data cannot be read, and 4 odd ones" in readme
    assert "more than 1e-04 would have been refused" in readme
    assert json.loads((exported / "labels.json").read_text())["labels"] == ["bad", "good", "so-so"]


@pytest.mark.parametrize("wrong", [1e-3, float("nan")])
def test_a_graph_that_answers_otherwise_is_refused_with_the_text_and_leaves_nothing(
    wrong, model, exported, tmp_path, monkeypatch
):
    def other(file: Path, network: torch.nn.Module) -> None:
        """The graph of another network: its head's bias was changed after the graph was written."""
        file.write_bytes((exported / "model.onnx").read_bytes())
        with torch.no_grad():
            network.head.bias += wrong  # type: ignore[union-attr, operator]

    monkeypatch.setattr(onnx_graph, "write_graph", other)
    said = r"answers otherwise as a graph: the logits of .* differ by .*, more than 1e-04"
    with pytest.raises(ValueError, match=said):
        write(model, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_what_a_graph_cannot_carry_is_said_before_anything_is_written(ship_model, tmp_path, monkeypatch):
    pairs = ship_model(tmp_path / "pairs", pairs=True)
    with pytest.raises(ValueError, match="reads pairs of texts, but format=onnx carries single texts alone"):
        write(pairs, tmp_path / "out")
    recurrent = ship_model(tmp_path / "gru", shape=ModelConfig(encoder=EncoderKind.gru, d_model=16, n_layers=1))
    with pytest.raises(ValueError, match=r"has model\.encoder=gru, whose steps format=onnx cannot carry"):
        write(recurrent, tmp_path / "out")
    monkeypatch.setattr(onnx_graph, "PACKAGES", ("onnx", "no_such_package"))
    with pytest.raises(ValueError, match=r"without the package no_such_package: pip install 'manyheads\[onnx\]'"):
        write(ship_model(tmp_path / "plain"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_matrices_in_8_bits_are_judged_on_validation_rows(exported, tmp_path):
    from manyheads.huggingface.onnx_predict import Classifier

    rows = Rows(TEXTS, None, [1, 0, 0, 2, 1], "rows.csv", range(2, 7))
    folder = shutil.copytree(exported, tmp_path / "int8")
    said = onnx_graph.quantise(folder, Classifier(folder), rows, 1.0)
    right = sum(one == Classifier(folder).labels[label] for one, label in
                zip(Classifier(folder).predict(TEXTS), rows.labels, strict=True))  # fmt: skip
    assert re.match(r"int8 changes the answers to \d+\.0% of 5 validation rows, on which accuracy is ", said)
    assert f"accuracy is {right / 5:.4f} (" in said
    ours, theirs = answered(exported, TEXTS), answered(folder, TEXTS)
    assert 0 < float((ours - theirs).abs().max()) < 0.05 * float(ours.abs().max())
    again = shutil.copytree(exported, tmp_path / "again")
    with pytest.raises(ValueError, match=r"changes the answers to .* more than max_changed=-1\.0: nothing is written"):
        onnx_graph.quantise(again, Classifier(again), rows, -1.0)
    with pytest.raises(ValueError, match="judged on the validation rows of the run, whose data cannot be read"):
        onnx_graph.quantise(again, Classifier(again), None, 1.0)
    with pytest.raises(ValueError, match=r"^precision=int8 needs format=onnx, but format=huggingface: set both"):
        ExportConfig(run="x", precision=Rounding.int8)


def test_texts_that_the_run_reads_otherwise_are_compared_as_the_script_cuts_them(ship_model, tmp_path, capsys):
    both = DataConfig(max_length=6, long=Long.both)
    write(ship_model(tmp_path / "model", data=both, shape=ModelConfig(**SMALL)), tmp_path / "out")
    said = capsys.readouterr().out
    assert "It cuts texts at their end after 6 tokens, where the run reads longer ones by data.long=both" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape",
    [
        *({"score": score} for score in Score),
        *({"normaliser": one} for one in Normaliser),
        *({"positions": one} for one in Positions),
        *({"pooling": one} for one in Pooling),
        *({"activation": one} for one in Activation),
        {"window": 3}, {"causal": True}, {"window": 3, "causal": True}, {"n_kv_heads": 1}, {"qk_norm": True},
        {"project": False, "d_k": 8, "d_v": 8}, {"project_output": False, "d_v": 8}, {"d_embedding": 6},
    ],
    ids=str,
)  # fmt: skip
def test_every_shape_is_carried(shape: dict[str, Any], ship_model, tmp_path):
    model = ship_model(tmp_path / "model", data=DataConfig(max_length=12), shape=ModelConfig(**{**SMALL, **shape}))
    folder = write(model, tmp_path / "out")
    ours = load(model, TextClassifier).logits(TEXTS)
    torch.testing.assert_close(answered(folder, TEXTS), ours, rtol=0, atol=1e-5)
