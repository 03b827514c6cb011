"""Two real trainings, tiny: what the stand-ins of the other tests stand for."""

import json
import os
import signal
import subprocess
import sys

import lightning.pytorch as pl
import pytest

from manyheads import compose
from manyheads.distributed.signals import OUT_OF_TIME, Stopped
from manyheads.plugins.sweep.outcomes import Outcome, RunState, read_outcome, validations
from manyheads.runs.config_file import read_yaml
from manyheads.training_run import train


@pytest.mark.slow
def test_two_runs_are_trained_and_ranked(tmp_path):
    words = ["optim.lr=1e-4,1e-2", "jobs=2", "trainer.max_epochs=2", "output=search", "hardware=cpu"]
    small = ["model.n_layers=1", "model.d_model=16", "model.d_ff=16", "data.rows=64", "tokenizer.vocab_size=64"]
    done = subprocess.run(
        [sys.executable, "-m", "manyheads", "tune", *words, *small],
        cwd=tmp_path, capture_output=True, text=True, timeout=500, start_new_session=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "search" / "journal.jsonl").read_text().splitlines()[1:]]
    assert {line["state"] for line in lines} == {"done"}, lines
    for line in lines:
        folder = tmp_path / "search" / "trials" / f"{line['trial']:03d}-seed-0"
        summary = json.loads((folder / "summary.json").read_text())
        assert line["value"] == summary["best"]["value"]
        assert line["low"] <= line["value"] <= line["high"], "of one model, the network"
        assert summary["test"] == {}
        assert (folder / "model" / "model.safetensors").exists()
        assert not (folder / "checkpoints").exists()
        assert read_yaml(folder / "config.yaml")["optim"]["lr"] == line["setting"]["optim.lr"]
    assert "manyheads train" in done.stdout


class StopAt(pl.Callback):
    """A signal after so many steps, as where the minutes of a run are up."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: pl.Trainer, *args: object, **kwargs: object) -> None:
        if trainer.global_step == self.step:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize(("step", "epochs"), [(11, 1), (12, 2), (13, 2)])
def test_a_run_that_is_ended_has_the_steps_and_epochs_that_it_made(tmp_path, monkeypatch, step, epochs):
    """It is validated twice an epoch of six steps, and logged less often than each step."""
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    rows = "".join(f"it {('purrs', 'barks')[at % 2]} {at},{'ab'[at % 2]}\n" for at in range(50))
    (tmp_path / "rows.csv").write_text(f"text,label\n{rows}")
    words = [f"data.path={tmp_path}/rows.csv", f"output={tmp_path}/run", "hardware=cpu", "trainer.val_check_interval=3"]
    small = ["model.n_layers=1", "model.d_model=16", "model.d_ff=16", "batch.rows=8", "trainer.max_epochs=4"]
    with pytest.raises(Stopped):
        train(compose("train", [*words, *small]), callbacks=[StopAt(step)])
    known = Outcome(1, 0, {}, RunState.done)
    found = read_outcome(known, OUT_OF_TIME, tmp_path / "run", tmp_path / "run.log", "accuracy")
    assert (found.state, found.steps, found.epochs) == (RunState.late, step, epochs)
    assert len(validations(tmp_path / "run", "accuracy")) > epochs
