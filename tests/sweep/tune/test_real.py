"""Two real trainings, tiny: what the stand-ins of the other tests stand for."""

import json
import subprocess
import sys

import pytest

from manyheads.runs.config_file import read_yaml


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
