"""A column of labels: trained, shipped, asked, judged, resumed, and looked at."""

import csv
import json
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

import manyheads
from manyheads.cli.main import main
from manyheads.cli.verbs import VERBS

pytestmark = pytest.mark.slow  # tests/core/training/test_tag.py and tests/core/evaluation/test_labels.py have its parts

TINY = ["debug=fast", "hardware=cpu", "hardware.precision=fp32", "model.dropout=0", "model.dropout_tokens=0"]
SOUNDS = {"cat": "purrs", "dog": "barks", "cow": "moos"}


def some_rows(n: int) -> list[tuple[str, str]]:
    """Text n says which of three animals there are by their sounds, as the bits of n."""
    found = []
    for number in range(n):
        names = [name for bit, name in enumerate(SOUNDS) if number >> bit & 1]
        found.append((f"number {number} {' '.join(SOUNDS[name] for name in names)}", "|".join(names)))
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; its data lies beside it."""
    folder = tmp_path_factory.mktemp("labels")
    with (folder / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "labels"), *some_rows(120)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYHEADS_CACHE", str(folder / "cache"))
        words = [
            f"data.path={folder / 'rows.csv'}",
            f"output={folder / 'run'}",
            *TINY,
            "trainer.max_epochs=20",
            "data.rows=0",
        ]
        assert main(["train", *words, "optim.lr=1e-2", "batch.rows=16"]) == 0
    return folder / "run"


def test_each_label_is_learnt_by_itself(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    assert summary["test"]["micro_f1"]["value"] > 0.9
    assert summary["best"]["metric"] == "micro_f1"
    assert yaml.safe_load((run / "config.yaml").read_text())["checkpoint"]["metric"] == "micro_f1"
    texts, labels = zip(*some_rows(8), strict=True)
    answers = manyheads.load(run).predict(list(texts))
    assert (
        sum(set(one.labels) == set(filter(None, want.split("|"))) for one, want in zip(answers, labels, strict=True))
        >= 7
    )
    assert json.loads((run / "model" / "config.json").read_text())["multi"] is True
    assert len(json.loads((run / "model" / "thresholds.json").read_text())) == 3


def test_the_figures_of_a_run_are_those_of_evaluate(run: Path) -> None:
    assert main(["evaluate", f"run={run}", "hardware.accelerator=cpu"]) == 0
    figures = json.loads((run / "evaluate" / "rows-test" / "metrics.json").read_text())
    summary = json.loads((run / "summary.json").read_text())
    for name in ("micro_f1", "macro_f1", "accuracy", "loss"):
        assert figures[name] == pytest.approx(summary["test"][name])
    assert {"f1.png", "loss.png"} <= {one.name for one in (run / "evaluate" / "rows-test").iterdir()}


def test_predict_and_look_name_the_labels(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "number 3 purrs barks"
    (said,) = manyheads.load(run).predict([text])
    assert main(["predict", f"run={run}", f"text={text}", "hardware.accelerator=cpu"]) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == said.labels
    if "look" not in VERBS:
        return
    assert main(["look", f"run={run}", f"text={text}", "hardware.accelerator=cpu"]) == 0
    names = [name for name in sorted(SOUNDS) if name in said.labels]
    assert f"1.html: {', '.join(names)} " in capsys.readouterr().out
    assert main(["look", f"run={run}", "split=validation"]) == 2
    assert "gives texts any number of labels, but split=validation judges heads" in capsys.readouterr().err


def test_a_run_that_is_interrupted_goes_on_to_the_same_figures(run: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    words = [f"data.path={run.parent / 'rows.csv'}", f"output={tmp_path / 'run'}", *TINY, "optim.lr=1e-2"]
    words += ["batch.rows=16", "checkpoint.every=7"]
    assert main(["train", *words, "trainer.max_epochs=2"]) == 0
    for name in ("summary.json", "report.html"):
        (tmp_path / "run" / name).unlink()
    before = (tmp_path / "run" / "model" / "model.safetensors").read_bytes()
    newest = max((tmp_path / "run" / "checkpoints").glob("step-*"))
    for one in newest.iterdir():
        one.unlink()
    newest.rmdir()
    assert main(["train", *words, "trainer.max_epochs=2", "resume=must"]) == 0
    assert (tmp_path / "run" / "model" / "model.safetensors").read_bytes() == before


def test_bits_of_numbers_are_in_order() -> None:
    assert [labels for _, labels in some_rows(4)] == ["", "cat", "dog", "cat|dog"]
    assert all(one != other for one, other in pairwise(some_rows(9)))
