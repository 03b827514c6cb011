"""What `manyheads export format=onnx` and `format=torch` write: the same logits without us; else nothing."""

import csv
import functools
import json
import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.onnx._internal.exporter._registration import ONNXRegistry

import manyheads
import manyheads.plugin as plugin
from manyheads.cli.main import main
from manyheads.cli.verbs import VERBS, schema_of
from manyheads.config import Accelerator, DataConfig, InferenceHardware, Long, ModelConfig, PairKind, Precision, Terms
from manyheads.data.formats.fields import FIELD, SPELLINGS, join_cells
from manyheads.data.ids.terms import count_terms
from manyheads.data.rows import Rows
from manyheads.inference import graph as opened_graph
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.folder import load, place, save
from manyheads.linear.blend import Blend, Tuned
from manyheads.linear.model import LinearModel, counted
from manyheads.plugin import resolve
from manyheads.plugins.hub import export as verb
from manyheads.plugins.hub import graph_folder
from manyheads.plugins.hub.config import EXPORTED, ExportConfig, Format, Members, Rounding
from manyheads.plugins.hub.export import export
from manyheads.plugins.hub.parity import Compared, changed_by_rounding
from manyheads.runs.verb_output import refuse_occupied
from tests.registry import of_plugin

onnx, *_ = (pytest.importorskip(package) for package in ("onnx", "onnxscript", "onnxruntime"))
# Each export reads torch's table of operations anew, half a second.
ONNXRegistry.from_torchlib = staticmethod(functools.cache(ONNXRegistry.from_torchlib))

SMALL: dict[str, Any] = {"n_layers": 2, "n_heads": 2, "d_model": 16, "d_k": 8, "d_v": 6, "d_ff": 24}
ONE_LAYER = SMALL | {"n_layers": 1}  # a second takes as long again to export
SHAPE = ModelConfig(
    **ONE_LAYER, score="additive", normaliser="entmax15", positions="rotary", window=2,
    pooling="attention", activation="swiglu", norm="rms",
)  # fmt: skip
SECONDS = ["bad film", "good", "", "a film so so", "a very good film"]
TEXTS = ["good film", "", "a very bad film and not so good a film as the others are", "so", "unknown words \u17a3"]
FILLED = [text for text in TEXTS if text]  # which have an answer


def write(model: Path, output: Path, kind: Format = Format.onnx) -> Path:
    return export(ExportConfig(run=str(model), output=str(output), format=kind, members=Members.network))


@pytest.fixture(scope="module")
def model(ship_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ship_model(tmp_path_factory.mktemp("onnx") / "model", data=DataConfig(max_length=12), shape=SHAPE)


@pytest.fixture(scope="module")
def exported(model: Path) -> Path:
    return write(model, model.parent / "exported")


@pytest.fixture(scope="module")
def program(model: Path) -> Path:
    """Asked here whether it answers as the run does; in a process of its own by the test of what it needs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_folder, "running_script", lambda part: nullcontext(lambda *asked: answered(part, *asked)))
        return write(model, model.parent / "program", Format.torch)


def opened(folder: Path) -> Any:
    """What predict.py makes of its folder."""
    sys.path.insert(0, str(folder))  # as where it is run
    try:
        return runpy.run_path(str(folder / "predict.py"))["Classifier"](folder)
    finally:
        sys.path.remove(str(folder))


def answered(folder: Path, texts: list[str], pairs: list[str] | None = None) -> torch.Tensor:
    return torch.from_numpy(opened(folder).logits(texts, *([pairs] if pairs else []))).float()


def ship_both(
    folder: Path, ship_model: Callable[..., Path], terms: Terms, *, pairs: bool = False, multi: bool = False
) -> Path:
    """A small model with a linear member of the terms of `TEXTS`."""
    thresholds = [0.3, 0.2, 0.4] if multi else None
    shape = ModelConfig(**ONE_LAYER)
    plain = load(ship_model(folder / "plain", pairs=pairs, thresholds=thresholds, shape=shape), TextClassifier)
    every = counted(TEXTS, SECONDS if pairs else None, terms).terms_E
    terms_U, made = torch.tensor(sorted(set(every))[::2]), torch.Generator().manual_seed(3)  # every second is unknown
    rarity_U, votes_UC = 1 + torch.rand(len(terms_U), generator=made), torch.randn(len(terms_U), 3, generator=made)
    linear = LinearModel(terms_U, rarity_U, 3 * votes_UC, torch.tensor([0.1, 0.0, -0.2]), terms)
    members = {"network": [0.5, 0.6, 0.4], "linear": [0.2, 0.5, 0.4]} if multi else {}
    tuned = Tuned(Blend(linear, 0.4, 1.5), thresholds, members)
    about: dict[str, Any] = {"tokenizer": plain.tokenizer, "labels": plain.labels, "pairs": pairs, "tuned": tuned}
    save(folder / "model", plain.network, model=plain.model, data=DataConfig(max_length=12), **about)
    return folder / "model"


def test_it_answers_as_we_do_whatever_the_batch(model, exported):
    ours = load(model, TextClassifier).logits(TEXTS)
    torch.testing.assert_close(answered(exported, TEXTS), ours, rtol=0, atol=1e-5)
    for at, text in enumerate(TEXTS):
        torch.testing.assert_close(answered(exported, [text]), ours[at : at + 1], rtol=0, atol=1e-5)
    assert float(ours.std()) > 0.01
    assert opened(exported).predict([]) == []


def test_the_script_runs_without_torch_and_without_us(model, exported):
    barred = "import sys; sys.modules.update(dict.fromkeys(['torch', 'manyheads', 'transformers']));"
    run = f"{barred} import runpy; sys.argv[1:] = {FILLED[:3]}; runpy.run_path('predict.py', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", run], cwd=exported, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = [one.label for one in load(model, TextClassifier).predict(FILLED[:3])]  # type: ignore[union-attr]
    assert done.stdout.split() == expected


@pytest.mark.parametrize(
    ("thresholds", "pairs"), [(None, False), pytest.param([0.5, 0.35, 0.6], True, marks=pytest.mark.slow)]
)
def test_the_script_answers_a_file_as_predict_does(thresholds, pairs, ship_model, tmp_path, request):
    if pairs:
        about = {"data": DataConfig(max_length=12), "shape": ModelConfig(**ONE_LAYER), "thresholds": thresholds}
        model = ship_model(tmp_path / "model", pairs=True, **about)
        folder = write(model, tmp_path / "out")
    else:
        model, folder = (request.getfixturevalue(name) for name in ("model", "exported"))
    rows = [
        {"id": at, "text": text, "text_pair": "a film"} for at, text in enumerate([*TEXTS * 14, 'so "good",\nso bad'])
    ]
    with (tmp_path / "rows.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if pairs else ["id", "text"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    files = [f"input={tmp_path / 'rows.csv'}", f"output={tmp_path / 'ours.csv'}"]
    assert main(["predict", f"run={model}", "hardware.precision=fp32", *files]) == 0
    run = ["predict.py", "--file", str(tmp_path / "rows.csv"), str(tmp_path / "theirs.csv")]
    done = subprocess.run([sys.executable, *run], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ours, theirs = ([*csv.DictReader((tmp_path / f"{one}.csv").open(encoding="utf-8"))] for one in ("ours", "theirs"))
    assert len(ours) == len(theirs) == len(rows)
    same_answers(ours, theirs)
    with (tmp_path / "rows.csv").open("w", encoding="utf-8-sig", newline="") as file:  # as Excel writes it in Europe
        by_semicolon = csv.DictWriter(file, writer.fieldnames, extrasaction="ignore", delimiter=";")
        by_semicolon.writeheader()
        by_semicolon.writerows(rows)
    subprocess.run([sys.executable, *run], cwd=folder, check=True)
    assert [*csv.DictReader((tmp_path / "theirs.csv").open(encoding="utf-8"))] == theirs
    before = (tmp_path / "theirs.csv").read_text(encoding="utf-8")
    broken = {
        b"id,review\n1,x\n": "does not have the columns text",
        b"id,text,text_pair\n1,x,y,z\n": "a row has more or fewer cells than the header",
        b"id,text,text_pair\n1\n": "a row has more or fewer cells than the header",
        b"PK\3\4\x14\0\x06\0\x08\0\0\0!\0\xb5": "rows.csv: 'utf-8' codec can't decode",  # as an .xlsx file begins
        "id,text\n1,café\n".encode("cp1252"): "rows.csv: 'utf-8' codec can't decode",
        b"": "does not have the columns text",
    }
    for content, said in broken.items() if not pairs else ():
        (tmp_path / "rows.csv").write_bytes(content)
        done = subprocess.run([sys.executable, *run], cwd=folder, capture_output=True, text=True)
        assert (done.returncode, said in done.stderr, "Traceback" in done.stderr) == (2, True, False)
    (tmp_path / "rows.csv").unlink()
    for words, lines, said in (
        (run, b"", "No such file"),
        (["predict.py"], b"caf\xe9\n", "stdin: 'utf-8' codec can't"),
    ):
        done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, input=lines)
        assert (done.returncode, said.encode() in done.stderr, b"Traceback" in done.stderr) == (2, True, False)
    assert (tmp_path / "theirs.csv").read_text(encoding="utf-8") == before
    made, asked = opened(folder), (FILLED, ["a film"] * len(FILLED)) if pairs else (FILLED,)
    for best, every in zip(made.top_k(*asked, k=2), made.probabilities(*asked), strict=True):
        assert [value for _, value in best] == sorted(every, reverse=True)[:2]
        assert [made.labels.index(label) for label, _ in best] == (-every).argsort()[:2].tolist()
    lines = "".join(f"{text}\ta film\n" if pairs and text else f"{text}\n" for text in [*TEXTS, "\u200b ", "a\u2028b"])
    (tmp_path / "lines.txt").write_text(lines, encoding="utf-8")
    files = [f"input={tmp_path / 'lines.txt'}", f"output={tmp_path / 'ours.jsonl'}"]
    assert main(["predict", f"run={model}", "hardware.precision=fp32", *files]) == 0
    done = subprocess.run([sys.executable, "predict.py"], cwd=folder, capture_output=True, input=lines.encode())
    assert done.returncode == 0, done.stderr
    ours = [json.loads(line) for line in (tmp_path / "ours.jsonl").read_text(encoding="utf-8").splitlines()]
    theirs = [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]
    same_answers([flat(row) for row in ours], [flat(row) for row in theirs])


def flat(row: dict[str, Any]) -> dict[str, Any]:
    probabilities = row.pop("probabilities")
    return {**row, **{f"p_{name}": value for name, value in probabilities.items()}}


def same_answers(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    """Rows of two files, whose columns are equal, but for the last digits of probabilities."""
    for one, other in zip(ours, theirs, strict=True):
        assert list(one) == list(other)
        for name, cell in one.items():
            if name.startswith("p_"):
                assert float(cell or -1) == pytest.approx(float(other[name] or -1), abs=1e-5)
            else:
                assert cell == other[name]


def test_every_script_is_short_formatted_and_compiles(tmp_path):
    """Of every kind of model."""
    known = SimpleNamespace(encode=lambda *_: SimpleNamespace(ids=[3, 3], sequence_ids=[0, 1], type_ids=[0, 0]))
    for pairs, multi, fields, plain in product((False, True), (False, True), ([], ["title", "body"]), (False, True)):
        about = {"pairs": pairs, "multi": multi, "settings": SimpleNamespace(fields=fields), "tokenizer": known}
        reads = ["", "rows_with_units"] if fields and plain else [""]
        for kind, terms, read in product((Format.onnx, Format.torch), [None] if pairs else [None, *Terms], reads):
            how: dict[str, Any] = {"example": '"a text"', "is_plain": plain, "read": read}
            script = graph_folder.script_for(SimpleNamespace(**about), kind, terms, **how)
            compile(script, "predict.py", "exec")
            assert len(script.splitlines()) <= (132 if pairs or fields else 121) + 5 * bool(read)
            name = f"{pairs}{multi}{bool(fields)}{plain}{kind.name}{terms and terms.name}{read}"
            (tmp_path / f"{name}.py").write_text(script)
    ruff = [sys.executable, "-m", "ruff"] if find_spec("ruff") else [shutil.which("ruff") or pytest.skip("needs ruff")]
    for asked in (
        ["format", "--check"],
        ["check", "--select=E,F,I", "--config=lint.isort.known-first-party=['linear_terms','reading']"],
    ):
        done = subprocess.run(
            [*ruff, *asked, "--isolated", "--line-length=120", tmp_path], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_columns_are_joined_as_in_training():
    about = {"pairs": False, "multi": False, "settings": SimpleNamespace(fields=["a", "b"]), "tokenizer": None}
    script: dict[str, Any] = {"__name__": "predict"}
    exec(graph_folder.script_for(SimpleNamespace(**about), Format.torch, None, example=""), script)
    reader = script["Classifier"].__new__(script["Classifier"])
    reader.columns = ["a", "b"]
    cells = [
        "3.0",
        "-2.",
        "3.0.1",
        "2026-03-04",
        "2026-03-04 00:00:00",
        "2026-03-04T00:00:00.000Z",
        "12:00:00",
        " 3.0 ",
    ]
    cells += ["2026-03-04 09:30:00", "2026-03-04T09:30:00.250", "2026-03-04 00:00:00.500000+00:00", f"x{FIELD}y", ""]
    rows = [{"a": one, "b": other} for one, other in zip(cells, cells[::-1], strict=True)]
    assert reader.inputs(rows) == [[join_cells([row["a"], row["b"]]) for row in rows]]
    page = Path(graph_folder.__file__).parent / "page" / "index.html"
    assert f"/{SPELLINGS.pattern}/" in page.read_text(encoding="utf-8")


def test_the_script_answers_in_a_process_of_its_own_and_its_end_is_no_readers(exported, tmp_path):
    with graph_folder.running_script(exported) as answer:
        torch.testing.assert_close(
            answer(TEXTS, None), torch.from_numpy(opened(exported).logits(TEXTS)), rtol=0, atol=0
        )
    assert not (exported / "__pycache__").exists()
    (tmp_path / "predict.py").write_text("raise SystemExit(3)")
    with (
        graph_folder.running_script(tmp_path) as answer,
        pytest.raises(AssertionError, match=r"predict\.py has ended"),
    ):
        answer(["a text " * 2**16], None)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Format.onnx, Format.transformers])
def test_of_a_calibrated_run_that_reads_long_texts_labels_are_given_as_before_it_to_texts_cut_at_their_end(
    kind, ship_model, tmp_path, capsys
):
    both = DataConfig(max_length=6, long=Long.both)
    model = ship_model(tmp_path / "model", data=both, thresholds=[0.3, 0.6, 0.45], shape=ModelConfig(**ONE_LAYER))
    (model / "calibration.json").write_text('{"method": "vector", "scale": [0.5, 2, 1], "shift": [1.5, -1, 2]}')
    folder = export(ExportConfig(run=str(model), output=str(tmp_path / "out"), format=kind))
    said = capsys.readouterr().out
    assert f"calibration.json of {model} is left out: the export answers as" in said
    assert "It cuts texts at their end after 6 tokens, where the run reads longer ones by data.long=both" in said
    assert json.loads((folder / "thresholds.json").read_text()) in ([0.3, 0.6, 0.45], {"both": [0.3, 0.6, 0.45]})
    if kind is Format.onnx:
        short = [text for text in TEXTS if 0 < len(text.split()) <= 4]
        given = [one.labels for one in load(model, TextClassifier).predict(short)]  # type: ignore[union-attr]
        assert opened(folder).predict(short) == given
        assert [one.labels for one in manyheads.load(folder).predict(short)] == given  # type: ignore[union-attr]


def test_the_folder_says_what_it_was_compared_on(exported, tmp_path):
    """By which it is known as an export, and may be replaced by another."""
    readme = (exported / "README.md").read_text()
    assert "texts made of its vocabulary, as its data cannot be read, and 9 odd ones" in readme
    assert all(word in readme for word in EXPORTED.words)
    assert "more than 1e-04 would have been refused" in readme
    assert json.loads((exported / "labels.json").read_text()) == ["bad", "good", "so-so"]
    used = shutil.copytree(exported, tmp_path / "used")
    (used / "__pycache__").mkdir()
    (used / "__pycache__" / "linear_terms.cpython-311.pyc").write_bytes(b"")  # Python leaves it
    refuse_occupied(used, EXPORTED, overwrite=True)


@pytest.mark.slow
@pytest.mark.parametrize("thresholds", [None, [0.5, 0.35, 0.6]])
def test_a_program_of_torch_answers_as_we_do_without_us(thresholds, model, program, ship_model, tmp_path):
    folder = program
    if thresholds is not None:
        model = ship_model(tmp_path / "model", data=DataConfig(max_length=12), shape=SHAPE, thresholds=thresholds)
        folder = write(model, tmp_path / "program", Format.torch)
    made, ours = opened(folder), load(model, TextClassifier)
    torch.testing.assert_close(torch.from_numpy(made.logits(TEXTS)).float(), ours.logits(TEXTS), rtol=0, atol=1e-5)
    for at, text in enumerate(TEXTS):
        torch.testing.assert_close(
            torch.from_numpy(made.logits([text])).float(), ours.logits(TEXTS)[at : at + 1], rtol=0, atol=1e-5
        )
    barred = "import sys; sys.modules.update(dict.fromkeys(['manyheads', 'transformers', 'onnxruntime']));"
    run = f"{barred} import runpy; sys.argv[1:] = {FILLED[:3]}; runpy.run_path('predict.py', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", run], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(one[0]) for one in ours.predict(FILLED[:3])]
    assert made.predict([]) == []
    assert "It needs torch, tokenizers and numpy.\n`model.pt2` takes" in (folder / "README.md").read_text()


@pytest.mark.parametrize("kind", ["exported", pytest.param("program", marks=pytest.mark.slow)])
def test_no_path_of_this_machine_is_written(kind, tmp_path, request):
    folder = request.getfixturevalue(kind)
    files = [one for one in folder.iterdir() if one.suffix != ".pt2"]
    if kind == "program":
        with zipfile.ZipFile(folder / "model.pt2") as held:
            held.extractall(tmp_path / "held")
        files += [one for one in (tmp_path / "held").rglob("*") if one.is_file()]
    assert len(files) > 5
    for path in (str(Path(graph_folder.__file__).parents[2]), str(folder.parent), "site-packages"):
        assert [one.name for one in files if path.encode() in one.read_bytes()] == []


@pytest.mark.parametrize("thresholds", [None, pytest.param([0.5, 0.35, 0.6], marks=pytest.mark.slow)])
def test_predict_and_evaluate_open_it_like_the_run(thresholds, model, exported, ship_model, tmp_path, capsys):
    if thresholds is None:
        column = "label"
        model, folder = (shutil.copytree(one, tmp_path / one.name) for one in (model, exported))
    else:
        column, shape = "labels", ModelConfig(**ONE_LAYER, pooling="max")
        model = ship_model(tmp_path / "model", data=DataConfig(max_length=12), shape=shape, thresholds=thresholds)
        folder = write(model, tmp_path / "graph")
    ours, theirs = (manyheads.load(one, precision="fp32") for one in (model, folder))
    torch.testing.assert_close(theirs.logits(TEXTS), ours.logits(TEXTS), rtol=0, atol=1e-5)
    assert [one[0] for one in theirs.predict(FILLED)] == [one[0] for one in ours.predict(FILLED)]
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


def test_threads_that_share_out_a_batch_answer_alike(model, exported, monkeypatch):
    many, ours = TEXTS * 5, load(model, TextClassifier).logits(TEXTS * 5)
    graph, before = load(exported), torch.get_num_threads()
    monkeypatch.setattr(opened_graph, "PART", 20)
    try:
        torch.set_num_threads(3)
        torch.testing.assert_close(graph.logits(many), ours, rtol=0, atol=1e-5)  # type: ignore[union-attr]
        assert sorted(graph.network.sessions) == [1]  # type: ignore[union-attr]
        torch.testing.assert_close(graph.logits(TEXTS[2:3]), ours[2:3], rtol=0, atol=1e-5)  # type: ignore[union-attr]
        assert sorted(graph.network.sessions) == [1, 3]  # type: ignore[union-attr]
    finally:
        torch.set_num_threads(before)


def test_a_broken_graph_is_one_sentence(exported, tmp_path, monkeypatch):
    folder = shutil.copytree(exported, tmp_path / "graph")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "n_classes": 2}))
    (folder / "labels.json").write_text('["bad", "good"]')
    with pytest.raises(ValueError, match=r"model\.onnx does not make logits of 2 classes out of ids and real"):
        load(folder)
    (folder / "labels.json").write_text('["bad", "good", "so-so"]')
    (folder / "config.json").write_text(json.dumps({**config, "pairs": True}))
    with pytest.raises(ValueError, match="does not make logits of 3 classes out of ids and real and segments"):
        load(folder)
    (folder / "config.json").write_text(json.dumps({**config, "long": "windows"}))
    with pytest.raises(ValueError, match=r"classifies texts cut at their end, but config\.json says otherwise"):
        load(folder)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.onnx").write_bytes(b"not a graph")
    with pytest.raises(ValueError, match=r"model\.onnx is not a graph that onnxruntime can read: .*Protobuf"):
        load(folder)
    monkeypatch.setattr(opened_graph, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"without the package onnxruntime: pip install -e '\.\[onnx\]' in the clone"):
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
    said = "which predict, evaluate, compare, serve and manyheads.load alone can open: name the run"
    with pytest.raises(ValueError, match=f"^run=.*{said}"):
        write(exported, tmp_path / "again")
    if "look" in VERBS:
        with pytest.raises(ValueError, match=said):
            resolve(VERBS["look"].run)(schema_of("look")(run=str(exported), text="good"))
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
    def other(file: Path, predictor: TextClassifier, kind: Format, *, both: bool) -> list[str]:
        """The graph of another network: its head's bias was changed after the graph was written."""
        file.write_bytes((exported / "model.onnx").read_bytes())
        with torch.no_grad():
            predictor.network.head.bias += wrong
        return ["ids", "real"]

    monkeypatch.setattr(graph_folder, "write_graph", other)
    said = r"^run=.* answers otherwise by format=onnx: the logits of .* differ by .*, more than 1e-04"
    with pytest.raises(ValueError, match=said):
        write(model, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Format.onnx, Format.torch])
def test_pairs_are_read_like_the_run_does(kind, ship_model, tmp_path):
    model = ship_model(tmp_path / "model", pairs=True, shape=ModelConfig(**ONE_LAYER, pair=PairKind.cross))
    folder, ours = write(model, tmp_path / "out", kind), load(model, TextClassifier).logits(TEXTS, SECONDS)
    torch.testing.assert_close(answered(folder, TEXTS, SECONDS), ours, rtol=0, atol=1e-5)
    for at in range(len(TEXTS)):
        one = answered(folder, TEXTS[at : at + 1], SECONDS[at : at + 1])
        torch.testing.assert_close(one, ours[at : at + 1], rtol=0, atol=1e-5)
    assert "pairs made of its vocabulary" in (folder / "README.md").read_text()
    if kind is Format.onnx:
        torch.testing.assert_close(manyheads.load(folder).logits(TEXTS, SECONDS), ours, rtol=0, atol=1e-5)
        run = ["predict.py", *(text for both in zip(TEXTS[3:], SECONDS[3:], strict=True) for text in both)]
        done = subprocess.run([sys.executable, *run], cwd=folder, capture_output=True, text=True)
        expected = [one.label for one in load(model, TextClassifier).predict(TEXTS[3:], SECONDS[3:])]  # type: ignore[union-attr]
        assert done.stdout.split() == expected


@pytest.mark.slow
@pytest.mark.parametrize("pair", [PairKind.joint, PairKind.compare])
def test_a_tokenizer_whose_type_ids_tell_nothing_is_read_like_the_run_does(pair, ship_model, tmp_path):
    """As RoBERTa's: 0 on both texts, with two marks between them."""
    model = ship_model(tmp_path / "model", pairs=True, shape=ModelConfig(**SMALL | {"pair": pair}))
    held = (model / "tokenizer.json").read_text().replace('"type_id": 1', '"type_id": 0')
    content = json.loads(held)
    between = content["post_processor"]["pair"]
    between.insert(2, between[2])
    held = json.dumps(content)
    (model / "tokenizer.json").write_text(held)
    folder, ours = write(model, tmp_path / "out"), load(model, TextClassifier).logits(TEXTS, SECONDS)
    torch.testing.assert_close(answered(folder, TEXTS, SECONDS), ours, rtol=0, atol=1e-5)


LETTERS = ["Straße ǅ e\u0301\u00ad x", "น้ำ ผ\u200bค किताब", "", "好的 電影", "a\ufe0fb \ud800", "so  good\nfilm "]


@pytest.mark.parametrize(
    ("terms", "multi"),
    [
        (Terms.both, True),
        *(pytest.param(one, False, marks=pytest.mark.slow) for one in Terms),
        pytest.param(Terms.words, True, marks=pytest.mark.slow),
    ],
)
def test_the_linear_member_is_inside(terms, multi, ship_model, tmp_path):
    model = ship_both(tmp_path, ship_model, terms, multi=multi)
    folder, run = tmp_path / "out", load(model, TextClassifier)
    export(ExportConfig(run=str(model), output=str(folder), format=Format.onnx, members=Members.all))
    texts, graph = [*TEXTS, *LETTERS[:4], LETTERS[5]], manyheads.load(folder)
    for name, ours in run.member_logits(texts).items():
        torch.testing.assert_close(graph.member_logits(texts)[name], ours, rtol=0, atol=1e-5)
    script = opened(folder)
    for some in (texts, *([text] for text in texts)):
        torch.testing.assert_close(torch.from_numpy(script.logits(some)).float(), run.logits(some), rtol=0, atol=1e-5)
    filled = [text for text in texts if text.strip()]
    assert script.predict(filled) == [one[0] for one in run.predict(filled)]
    assert float((run.logits(texts) - run.network_logits(texts, None, tokens=2**10)).abs().max()) > 0.1
    long = "a" + "\u0301\u0316" * 1000  # its marks are not put in order
    for text in (*LETTERS, long):  # what no tokenizer reads, too
        expected = counted([text], None, terms)
        numbers = dict(zip(expected.terms_E, expected.counts_E, strict=True))
        assert count_terms(text, terms.name) == numbers


@pytest.mark.slow
def test_a_program_of_torch_holds_the_linear_member_too(ship_model, tmp_path):
    model = ship_both(tmp_path, ship_model, Terms.words)
    folder = export(ExportConfig(run=str(model), output=str(tmp_path / "out"), format=Format.torch))
    ours = load(model, TextClassifier).logits(TEXTS)
    torch.testing.assert_close(answered(folder, TEXTS), ours, rtol=0, atol=1e-5)
    for at, text in enumerate(TEXTS):
        torch.testing.assert_close(answered(folder, [text]), ours[at : at + 1], rtol=0, atol=1e-5)


def test_what_a_graph_cannot_carry_is_said_before_anything_is_written(ship_model, tmp_path, monkeypatch, capsys):
    pairs = ship_both(tmp_path, ship_model, Terms.words, pairs=True)
    for kind in (Format.onnx, Format.transformers):
        with pytest.raises(ValueError, match=r"^run=.* has a linear model.* use members=network"):
            export(ExportConfig(run=str(pairs), output=str(tmp_path / "out"), format=kind, members=Members.all))
    monkeypatch.setattr(graph_folder, "write_graph", lambda *_, **__: pytest.fail("what is left out was not said"))
    with pytest.raises(BaseException, match="was not said"):
        export(ExportConfig(run=str(pairs), output=str(tmp_path / "out"), format=Format.onnx))
    assert "the linear model has a weight of 40%" in capsys.readouterr().out
    monkeypatch.setattr(verb, "PACKAGES", {Format.onnx: (("onnx", "no_such_package"), "onnx")})
    with pytest.raises(ValueError, match=r"without the package no_such_package: pip install -e '\.\[onnx\]'"):
        write(ship_model(tmp_path / "plain"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_matrices_in_8_bits_are_judged_on_validation_rows(model, exported, tmp_path):
    rows, run = Rows(TEXTS, None, [1, 0, 0, 2, 1], "rows.csv", range(2, 7)), load(model, TextClassifier)
    folder = shutil.copytree(exported, tmp_path / "int8")
    graph_folder.quantise(folder / graph_folder.GRAPH)
    weights = [onnx.numpy_helper.to_array(one) for one in onnx.load(folder / graph_folder.GRAPH).graph.initializer]
    largest = [int(abs(one.astype(int)).max()) for one in weights if one.dtype == np.int8 and one.ndim == 2]
    assert len(largest) > 4
    assert 2 * 255 * max(largest) < 2**15  # the sum of two products, which some processors hold in 16 bits
    before, after = partial(answered, exported), partial(answered, folder)
    said = changed_by_rounding(run, before, after, rows, 1.0, [])
    right = sum(int(best) == label for best, label in zip(after(TEXTS).argmax(1), rows.labels, strict=True))
    assert re.match(r"int8 changes the answers to \d+\.0% of 5 validation rows, on which accuracy is ", said)
    assert f"accuracy is {right / 5:.4f} (" in said
    ours, theirs = answered(exported, TEXTS), answered(folder, TEXTS)
    assert 0 < float((ours - theirs).abs().max()) < 0.05 * float(ours.abs().max())
    with pytest.raises(ValueError, match=r"gives other answers to .* more than max_changed=-1\.0: nothing is written"):
        changed_by_rounding(run, before, after, rows, -1.0, [])
    with pytest.raises(ValueError, match="has no validation rows to judge precision=int8 on"):
        changed_by_rounding(run, before, after, None, 1.0, [])
    with pytest.raises(
        ValueError, match=r"^precision=int8 needs format=onnx or browser, but format=transformers: set both"
    ):
        ExportConfig(run="x", precision=Rounding.int8)


@pytest.mark.slow
def test_the_readme_of_8_bits_says_what_8_bits_differ_by(model, tmp_path, monkeypatch):
    """Not what the graph before rounding did, nor its bound."""
    rows = Rows(TEXTS, None, [1, 0, 0, 2, 1], "rows.csv", range(2, 7))
    monkeypatch.setattr(graph_folder, "rows_to_compare", lambda *_: Compared(TEXTS, None, "5 texts", rows))
    asked: dict[str, Any] = {"format": Format.onnx, "members": Members.network, "precision": Rounding.int8}
    folder = export(ExportConfig(run=str(model), output=str(tmp_path / "int8"), **asked, max_changed=1.0))
    said = " ".join((folder / "README.md").read_text().split())
    apart = float((answered(folder, TEXTS) - load(model, TextClassifier).logits(TEXTS)).abs().max())
    assert f"5 texts: logits in 8 bits differ by up to {apart:.1e}, which has no bound; int8 changes" in said
    assert said.endswith("more than max_changed=1.0 of them would have been refused.")
    assert said.count("would have been refused") == 1


CARRIED = [
    *({"score": score} for score in plugin.names("score")),
    *({"normaliser": one} for one in plugin.names("normaliser")),
    *({"positions": one} for one in plugin.names("positions")),
    *({"pooling": one} for one in plugin.names("pooling")),
    *({"activation": one} for one in plugin.names("activation")),
    {"window": 3}, {"causal": True}, {"window": 3, "causal": True}, {"n_kv_heads": 1}, {"qk_norm": True},
    {"project": False, "d_k": 8, "d_v": 8}, {"project_output": False, "d_v": 8}, {"d_embedding": 6},
    *({"encoder": one} for one in plugin.names("encoder")[1:]),
    *({"encoder": one, "bidirectional": False} for one in plugin.names("encoder") if one in ("gru", "lstm")),
    *({"encoder": one, "bias": False} for one in of_plugin("language", "encoder")[:1]),
    *({"encoder": one, "pooling": "attention"} for one in of_plugin("language", "encoder")[:1]),
    {"scores": ["additive", "cosine"], "windows": [2, 0]},
]  # fmt: skip
OF_PAIRS = [
    {}, {"matches": False}, {"pair": PairKind.cross, "positions": "alibi"},
    *({"encoder": one} for one in plugin.names("encoder")[2:]),
    *({"pair": PairKind.cross, "score": one} for one in plugin.names("score")),
    {"pair": PairKind.cross, "pooling": "attention"},
    *({"pair": PairKind.cross, "normaliser": one, "matches": False} for one in plugin.names("normaliser")),
    {"pair": PairKind.cross, "windows": [2, 0], "positions": "rotary"}, {"pair": PairKind.compare},
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pairs", "shape"), [*((False, one) for one in CARRIED), *((True, one) for one in OF_PAIRS)], ids=str
)
def test_every_shape_is_carried(pairs: bool, shape: dict[str, Any], ship_model, tmp_path):
    kinds = {"d_model": 16, "n_layers": 2} if "encoder" in shape else SMALL
    data = DataConfig(max_length=12)
    model = ship_model(tmp_path / "model", pairs=pairs, data=data, shape=ModelConfig(**{**kinds, **shape}))
    asked = (TEXTS, SECONDS) if pairs else (TEXTS, None)
    ours = load(model, TextClassifier).logits(*asked)
    for kind in (Format.onnx, Format.torch):
        theirs = answered(write(model, tmp_path / kind.name, kind), *asked)
        torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_the_script_needs_three_packages_alone(ship_model, tmp_path):
    """In an environment that holds nothing else, as a user would make it."""
    made = subprocess.run([sys.executable, "-m", "venv", tmp_path / "alone"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    python = tmp_path / "alone" / "bin" / "python"
    pins = Path(graph_folder.__file__).parents[3] / "constraints.txt"
    packages = ["onnxruntime", "tokenizers", "numpy"]
    got = subprocess.run([python, "-m", "pip", "install", "-q", "-c", pins, *packages], capture_output=True, text=True)
    if got.returncode:
        pytest.skip(f"needs an index of packages: {got.stderr.splitlines()[-1]}")
    listed = subprocess.run([python, "-m", "pip", "list", "--format=freeze"], capture_output=True, text=True).stdout
    assert not re.search("^(torch|manyheads|transformers)==", listed, re.MULTILINE)
    models = [ship_both(tmp_path / one.name, ship_model, one) for one in Terms]
    for at, model in enumerate([*models, ship_model(tmp_path / "labels", thresholds=[0.5, 0.35, 0.6])]):
        folder = export(ExportConfig(run=str(model), output=str(tmp_path / f"out{at}"), format=Format.onnx))
        done = subprocess.run([python, "predict.py", *FILLED], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        run = load(model, TextClassifier)
        assert done.stdout.splitlines() == [str(one[0]) for one in run.predict(FILLED)]
