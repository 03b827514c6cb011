"""Whole runs that begin with trained weights: what they leave behind, stopped and resumed, and begun again."""

import json

import pytest

from manyheads.cli.main import main
from manyheads.distributed import faults
from manyheads.inference.folder import load
from manyheads.runs.config_file import read_run
from tests.conftest import write_films

TINY = ["trainer.max_epochs=2", "batch.rows=8", "hardware=cpu", "hardware.precision=fp32", "optim.average=0"]


@pytest.fixture
def words(tmp_path, monkeypatch) -> list[str]:
    """The data: sixty rows of two classes that are no classes of the weights."""
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    return [f"data.path={write_films(tmp_path)}", *TINY]


@pytest.mark.slow
def test_a_run_begins_with_weights_and_says_what_it_is_worth(words, model_folder, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["train", f"init_from={model_folder}", f"output={run}", *words]) == 0
    said = capsys.readouterr().out
    assert "result: in accuracy on test" in said
    assert "linear model" in said
    summary = json.loads((run / "summary.json").read_text())
    assert set(summary["leads"]["linear model"]["accuracy"]) == {"value", "low", "high"}
    written, model = read_run(run), load(run)
    assert written.init_from == str(model_folder)
    assert (written.model.n_layers, written.model.d_v, written.data.max_length) == (2, 6, 12)
    assert model.network.embeddings.words.num_embeddings == 15
    assert sorted(model.labels) == ["down", "up"]


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_with_layers_that_are_frozen(words, model_folder, tmp_path, monkeypatch):
    """The same weights, to the bit, as those of a run that was not stopped."""
    command = [
        "train",
        f"init_from={model_folder}",
        "optim.freeze=1",
        "optim.layer_decay=0.5",
        *words,
    ]
    assert main([*command, f"output={tmp_path / 'whole'}"]) == 0
    faults.reset_counts()
    monkeypatch.setenv(faults.VARIABLE, "step:7:term")
    assert main([*command, f"output={tmp_path / 'parts'}"]) == 143
    monkeypatch.delenv(faults.VARIABLE)
    assert main(["train", f"resume={tmp_path / 'parts'}"]) == 0
    whole, parts = (load(tmp_path / name).network.state_dict() for name in ("whole", "parts"))
    assert all(whole[name].equal(parts[name]) for name in whole)


@pytest.mark.slow
def test_a_run_begins_with_a_run_that_began_with_another(words, model_folder, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    assert main(["train", f"init_from={model_folder}", f"output={first}", *words]) == 0
    assert main(["train", f"init_from={first}", f"output={second}", "optim.freeze=2", *words]) == 0
    before, after = (load(run).network.state_dict() for run in (first, second))
    same = {name for name in before if before[name].equal(after[name])}
    assert {name for name in before if name.startswith(("embeddings.", "encoder."))} - same == set()
    assert not before["head.weight"].equal(after["head.weight"])
