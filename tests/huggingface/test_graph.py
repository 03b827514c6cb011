"""What `manyheads export format=onnx` and `format=torch` write: the same logits without us; else nothing."""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import manyheads
from manyheads.cli.main import main
from manyheads.config import (
    Accelerator,
    Activation,
    DataConfig,
    EncoderKind,
    ExportConfig,
    Format,
    InferenceHardware,
    Long,
    LookConfig,
    Members,
    ModelConfig,
    Norm,
    Normaliser,
    Pooling,
    Positions,
    Precision,
    Rounding,
    Score,
)
from manyheads.data.rows import Rows
from manyheads.huggingface import graph as graphs
from manyheads.huggingface import torch_predict
from manyheads.huggingface.write import export
from manyheads.inference import classifier
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.folder import load, place
from manyheads.interpret.look import look

onnx, *_ = (pytest.importorskip(package) for package in ("onnx", "onnxscript", "onnxruntime"))

SMALL: dict[str, Any] = {"n_layers": 2, "n_heads": 2, "d_model": 16, "d_k": 8, "d_v": 6, "d_ff": 24}
SHAPE = ModelConfig(
    **SMALL, scores=[Score.additive, Score.cosine], normaliser=Normaliser.entmax15, positions=Positions.rotary,
    windows=[2, 0], pooling=Pooling.attention, activation=Activation.swiglu, norm=Norm.rms,
)  # fmt: skip
TEXTS = ["good film", "", "a very bad film and not so good a film as the others are", "so", "unknown words \u17a3"]


def write(model: Path, output: Path, kind: Format = Format.onnx) -> Path:
    return export(ExportConfig(run=str(model), output=str(output), format=kind, members=Members.network))


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
    assert json.loads((exported / "labels.json").read_text()) == ["bad", "good", "so-so"]


@pytest.mark.parametrize("thresholds", [None, [0.5, 0.35, 0.6]])
def test_a_program_of_torch_answers_as_we_do_without_us(thresholds, ship_model, tmp_path):
    model = ship_model(tmp_path / "model", data=DataConfig(max_length=12), shape=SHAPE, thresholds=thresholds)
    folder = write(model, tmp_path / "program", Format.torch)
    made, ours = torch_predict.Classifier(folder), load(model, TextClassifier)
    torch.testing.assert_close(made.logits(TEXTS), ours.logits(TEXTS), rtol=0, atol=1e-5)
    for at, text in enumerate(TEXTS):
        torch.testing.assert_close(made.logits([text]), ours.logits(TEXTS)[at : at + 1], rtol=0, atol=1e-5)
    barred = "import sys; sys.modules.update(dict.fromkeys(['manyheads', 'transformers', 'onnxruntime']));"
    run = f"{barred} import runpy; sys.argv[1:] = {TEXTS[:3]}; runpy.run_path('predict.py', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", run], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = [one[0] if thresholds is None else [name for name in ours.labels if name in one[0]] for one in
            ours.predict(TEXTS[:3])]  # fmt: skip
    assert done.stdout.splitlines() == [str(one) for one in told]
    assert "It needs torch and tokenizers. `model.pt2` takes" in (folder / "README.md").read_text()


@pytest.mark.parametrize("kind", [Format.onnx, Format.torch])
def test_no_path_of_this_machine_is_written(kind, model, tmp_path):
    folder = write(model, tmp_path / "out", kind)
    files = [one for one in folder.iterdir() if one.suffix != ".pt2"]
    if kind is Format.torch:
        with zipfile.ZipFile(folder / "model.pt2") as held:
            held.extractall(tmp_path / "held")
        files += [one for one in (tmp_path / "held").rglob("*") if one.is_file()]
    assert len(files) > 5
    for path in (str(Path(graphs.__file__).parents[2]), str(tmp_path), "site-packages"):
        assert [one.name for one in files if path.encode() in one.read_bytes()] == []


@pytest.mark.parametrize("thresholds", [None, [0.5, 0.35, 0.6]])
def test_predict_and_evaluate_open_it_like_the_run(thresholds, ship_model, tmp_path, capsys):
    shape = ModelConfig(**SMALL, pooling=Pooling.max)
    model = ship_model(tmp_path / "model", data=DataConfig(max_length=12), shape=shape, thresholds=thresholds)
    folder, column = write(model, tmp_path / "graph"), "label" if thresholds is None else "labels"
    ours, theirs = (manyheads.load(one, precision="fp32") for one in (model, folder))
    torch.testing.assert_close(theirs.logits(TEXTS), ours.logits(TEXTS), rtol=0, atol=1e-5)
    assert [one[0] for one in theirs.predict(TEXTS)] == [one[0] for one in ours.predict(TEXTS)]
    assert theirs.logits([]).shape == (0, 3)
    rows = tmp_path / "rows.csv"
    rows.write_text(f"text,{column}\n" + "".join(f"{text},good\n" for text in TEXTS if text), encoding="utf-8")
    judged, said = [], []
    for one in (model, folder):
        main(["predict", f"run={one}", f"input={rows}", f"output={one}.jsonl", "hardware.precision=fp32"])
        said.append([json.loads(line) for line in Path(f"{one}.jsonl").read_text().splitlines()])
        main(["evaluate", f"run={one}", f"data.path={rows}", f"output={one}-judged"])
        judged.append(json.loads(Path(f"{one}-judged", "metrics.json").read_text()))
    answers = [[row[column] for row in one] for one in said]
    assert answers[0] == answers[1]
    assert len(answers[0]) == 4
    assert judged[0]["members"]["network"].keys() == judged[1]["members"]["network"].keys()
    for name, figure in judged[0]["members"]["network"].items():
        assert judged[1]["members"]["network"][name] == pytest.approx(figure, abs=1e-4)


def test_a_broken_graph_is_one_sentence(exported, tmp_path, monkeypatch):
    folder = shutil.copytree(exported, tmp_path / "graph")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "n_classes": 2}))
    (folder / "labels.json").write_text('["bad", "good"]')
    with pytest.raises(ValueError, match=r"model\.onnx does not make logits of 2 classes out of ids and real"):
        load(folder)
    (folder / "labels.json").write_text('["bad", "good", "so-so"]')
    (folder / "config.json").write_text(json.dumps({**config, "pairs": True}))
    with pytest.raises(ValueError, match=r"reads single texts, cut at their end, but config\.json says otherwise"):
        load(folder)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.onnx").write_bytes(b"not a graph")
    with pytest.raises(ValueError, match=r"model\.onnx is not a graph that onnxruntime can read: .*Protobuf"):
        load(folder)
    monkeypatch.setattr(classifier, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"without the package onnxruntime: pip install 'manyheads\[onnx\]'$"):
        load(folder)


def test_a_graph_reads_no_file_outside_its_folder(exported, tmp_path):
    folder = shutil.copytree(exported, tmp_path / "graph")
    (tmp_path / "secret.bin").write_bytes(bytes(2**20))
    program = onnx.load(folder / "model.onnx")
    held = max(program.graph.initializer, key=lambda one: len(one.raw_data))
    place = {"location": "../secret.bin", "offset": "0", "length": str(len(held.raw_data))}
    held.ClearField("raw_data")
    held.data_location = onnx.TensorProto.EXTERNAL
    for key, value in place.items():
        held.external_data.add(key=key, value=value)
    (folder / "model.onnx").write_bytes(program.SerializeToString())
    with pytest.raises(
        ValueError, match=r"model\.onnx is not a graph that onnxruntime can read: .*escapes model directory"
    ):
        load(folder)


def test_what_a_graph_does_not_have_is_refused(exported, tmp_path, monkeypatch):
    said = "holds a graph for onnxruntime, which predict, evaluate and manyheads.load alone can open: name the run"
    with pytest.raises(ValueError, match=f"^run=.*{said}"):
        write(exported, tmp_path / "again")
    with pytest.raises(ValueError, match=said):
        look(LookConfig(run=str(exported), text="good"))
    with pytest.raises(
        ValueError, match=r"^hardware\.precision=bf16 does nothing, as .* is computed on the CPU, as it was"
    ):
        place(load(exported), InferenceHardware(precision=Precision.bf16))
    with pytest.raises(ValueError, match=r"^hardware\.precision=bf16 does nothing, "):
        manyheads.load(exported, precision="bf16")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert next(place(load(exported), InferenceHardware()).network.parameters()).device.type == "cpu"
    with pytest.raises(ValueError, match=r"^hardware\.accelerator=gpu does nothing, as "):
        place(load(exported), InferenceHardware(accelerator=Accelerator.gpu))


@pytest.mark.parametrize("wrong", [1e-3, float("nan")])
def test_a_graph_that_answers_otherwise_is_refused_with_the_text_and_leaves_nothing(
    wrong, model, exported, tmp_path, monkeypatch
):
    def other(file: Path, network: torch.nn.Module, kind: Format) -> None:
        """The graph of another network: its head's bias was changed after the graph was written."""
        file.write_bytes((exported / "model.onnx").read_bytes())
        with torch.no_grad():
            network.head.bias += wrong  # type: ignore[union-attr, operator]

    monkeypatch.setattr(graphs, "write_graph", other)
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
    monkeypatch.setattr(graphs, "PACKAGES", {Format.onnx: ("onnx", "no_such_package")})
    with pytest.raises(ValueError, match=r"without the package no_such_package: pip install 'manyheads\[onnx\]'"):
        write(ship_model(tmp_path / "plain"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_matrices_in_8_bits_are_judged_on_validation_rows(exported, tmp_path):
    from manyheads.huggingface.onnx_predict import Classifier

    rows = Rows(TEXTS, None, [1, 0, 0, 2, 1], "rows.csv", range(2, 7))
    folder = shutil.copytree(exported, tmp_path / "int8")
    said = graphs.quantise(folder, Classifier(folder), rows, 1.0)
    right = sum(one == Classifier(folder).labels[label] for one, label in
                zip(Classifier(folder).predict(TEXTS), rows.labels, strict=True))  # fmt: skip
    assert re.match(r"int8 changes the answers to \d+\.0% of 5 validation rows, on which accuracy is ", said)
    assert f"accuracy is {right / 5:.4f} (" in said
    ours, theirs = answered(exported, TEXTS), answered(folder, TEXTS)
    assert 0 < float((ours - theirs).abs().max()) < 0.05 * float(ours.abs().max())
    again = shutil.copytree(exported, tmp_path / "again")
    with pytest.raises(ValueError, match=r"changes the answers to .* more than max_changed=-1\.0: nothing is written"):
        graphs.quantise(again, Classifier(again), rows, -1.0)
    with pytest.raises(ValueError, match="judged on the validation rows of the run, whose data cannot be read"):
        graphs.quantise(again, Classifier(again), None, 1.0)
    with pytest.raises(ValueError, match=r"^precision=int8 needs format=onnx, but format=transformers: set both"):
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
    ours = load(model, TextClassifier).logits(TEXTS)
    torch.testing.assert_close(answered(write(model, tmp_path / "out"), TEXTS), ours, rtol=0, atol=1e-5)
    program = torch_predict.Classifier(write(model, tmp_path / "program", Format.torch))
    torch.testing.assert_close(program.logits(TEXTS), ours, rtol=0, atol=1e-5)
