"""A study whole: of a split of a run, as files and tables."""

import csv
import json
import shutil
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from manyheads.config import Accelerator, DataConfig, EvaluateConfig, InferenceHardware, RunConfig
from manyheads.data.rows import Rows
from manyheads.evaluation.evaluate import evaluate
from manyheads.inference.folder import load
from manyheads.plugins.interpret.config import LookConfig
from manyheads.plugins.interpret.look import study
from manyheads.plugins.interpret.study import notes, study_rows
from manyheads.runs.config_file import save_run

LABELS = ["bad", "good", "so-so"]
CPU = InferenceHardware(accelerator=Accelerator.cpu)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Path:
    """A run folder with its data beside it."""
    home = tmp_path_factory.mktemp("study")
    (home / "films").mkdir()
    for split in ("train", "validation", "test"):
        words = [("good", "fine"), ("bad", "awful"), ("so", "not")]
        rows = [
            (f"the {word} {split} film {at} is very {word}", LABELS[at % 3]) for at in range(7) for word, _ in words
        ]
        with (home / "films" / f"{split}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *rows])
    shutil.copytree(model_folder / "model", home / "run" / "model")
    save_run(RunConfig(data=DataConfig(source="files", path=str(home / "films"))), home / "run" / "config.yaml")
    return home / "run"


@pytest.fixture(scope="module")
def studied(run: Path) -> tuple[dict[str, Any], str]:
    """What a study of the test split returns and prints."""
    with redirect_stdout(StringIO()) as printed:
        return study(LookConfig(run=str(run), split="test", hardware=CPU, seed=4)), printed.getvalue()


def test_a_split_is_studied(run: Path, studied: tuple[dict[str, Any], str]) -> None:
    returned, printed = studied
    folder = run / "look" / "test"
    assert sorted(one.name for one in folder.iterdir()) == ["study.html", "study.json"]
    found = json.loads((folder / "study.json").read_text())
    assert found == json.loads(json.dumps(returned))
    assert (found["data"], found["split"], found["n_rows"]) == ("films", "test", 21)
    assert [(one["layer"], one["head"]) for one in found["heads"]] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert all(0 <= one["evenness"] <= 1 for one in found["heads"])
    assert [one["amount"] for one in found["faithfulness"]] == [1, 2, 4, 0.1]
    page = (folder / "study.html").read_text()
    assert "default-src 'none'" in page
    assert "Tokens silenced" in page
    assert "films, test: the heads over 21 rows" in printed
    assert "…" not in printed
    assert max(map(len, printed.replace(str(folder), "").splitlines())) <= 80


def test_the_figures_of_all_heads_are_those_of_evaluate(run: Path, studied: tuple[dict[str, Any], str]) -> None:
    judged, (found, _) = evaluate(EvaluateConfig(run=str(run), hardware=CPU)), studied
    assert found["accuracy"] == judged["accuracy"]
    assert found["macro_f1"] == judged["macro_f1"]


def test_a_linear_model_beside_the_network_is_told(run: Path) -> None:
    rows = Rows(["a good film", "so bad"], None, [0, 1], "x.csv", [1, 2])
    found = study_rows(load(run / "model"), rows)
    assert found.as_json()["linear"] == 0.0
    assert "linear model" not in " ".join(notes(found))
    blended = replace(found, share=0.35)
    assert blended.as_json()["linear"] == 0.35
    assert notes(blended)[0].startswith(
        "All figures are of the network alone, without the linear model, which has a weight of 35%"
    )


def test_a_study_may_be_repeated_and_replaces_the_last(run: Path, tmp_path: Path) -> None:
    config = LookConfig(run=str(run / "model"), split="test", rows=5, hardware=CPU, output=str(tmp_path))
    first = study(config)
    assert study(config) == first
    assert first["n_rows"] == 5
    (tmp_path / "test" / "own.txt").write_text("of somebody else")
    with pytest.raises(ValueError, match=r"own\.txt, which look split= does not write"):
        study(config)
    assert (tmp_path / "test" / "own.txt").exists()


def test_some_rows_are_drawn_by_the_seed_in_their_order() -> None:
    rows = Rows([str(at) for at in range(50)], None, [0] * 50, "rows", range(50))
    assert rows.sample(0, 1) is rows
    assert rows.sample(50, 1) is rows
    drawn = [int(text) for text in rows.sample(9, 1).texts]
    assert drawn == sorted(set(drawn))
    assert len(drawn) == 9
    assert drawn == list(rows.sample(9, 1).numbers)
    assert rows.sample(9, 1).texts != rows.sample(9, 2).texts


def test_mistakes_are_one_sentence(run: Path, tmp_path: Path) -> None:
    model = load(run)
    with pytest.raises(ValueError, match="there are no rows to look at"):
        study_rows(model, Rows([], None, [], "nothing", []))
    with pytest.raises(ValueError, match="the model was trained on single texts"):
        study_rows(model, Rows(["a"], ["b"], [0], "pairs", [1]))
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"^output=.*file is a file: name another place by output="):
        study(LookConfig(run=str(run), split="test", hardware=CPU, output=str(tmp_path / "file")))
    shutil.copytree(run / "model", tmp_path / "alone")
    with pytest.raises(ValueError, match="is a model without its run folder"):
        study(LookConfig(run=str(tmp_path / "alone"), split="test", hardware=CPU))
