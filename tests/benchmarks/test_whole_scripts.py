"""Scripts whose figures are wall times: each runs to its end, once and small."""

import importlib
import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["ranks", "checkpoints", "guards", "seen_words"])
def test_it_writes_its_figures(name, tmp_path, monkeypatch, capsys):
    script = importlib.import_module(name)
    monkeypatch.setattr("sys.argv", [f"{name}.py"])
    monkeypatch.setattr(script, "RESULTS", tmp_path / "found.json")
    for times in ("TURNS", "ROUNDS"):
        monkeypatch.setattr(script, times, 1, raising=False)
    script.main()
    found = json.loads((tmp_path / "found.json").read_text())
    assert json.loads(capsys.readouterr().out) == found
    assert found.keys() == json.loads(Path(script.__file__).with_suffix(".json").read_text()).keys()


def test_every_contestant_of_prediction_answers(tmp_path):
    for package in ("transformers", "onnxruntime", "onnxscript"):
        pytest.importorskip(package)
    import prediction

    kinds = ["sports", "business", "science", "world"]
    rows = [f"all about {kinds[at % 4]} and number {at},{kinds[at % 4]}" for at in range(80)]
    for split in ("train", "test"):
        (tmp_path / f"{split}.csv").write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    tokenizer, texts = prediction.read(tmp_path)
    answers = {name: of(texts[:3]) for name, of in prediction.contestants(tokenizer, texts, tmp_path).items()}
    ours = [one.label for one in answers["manyheads fp32"]]
    assert [one.label for one in answers["manyheads, onnxruntime fp32"]] == ours
    assert len(answers) == 11
    assert all(len(one) == 3 for name, one in answers.items() if "loop" not in name and one is not None)
