"""benchmarks/gpu.py runs as far as the device lets it."""

import json
import subprocess
import sys
from pathlib import Path

import gpu
import pytest
import torch

SCRIPT = Path(gpu.__file__)


def test_a_rehearsal_measures_everything_of_ours(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gpu, "cold_start", lambda size, mode: 1.5)  # another process, and seconds of imports
    monkeypatch.setattr(gpu, "find_spec", lambda name: None)  # Hugging Face likewise
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--rehearse", "--out", str(tmp_path / "gpu.json")])
    gpu.main()
    figures = json.loads((tmp_path / "gpu.json").read_text())
    for texts in ("short", "long"):
        (run,) = figures[f"{texts}, compile=never"]
        assert run["tokens/s"] > 0
        assert run["share of 989 TFLOP/s"] == pytest.approx(run["TFLOP/s"] / 989)
    assert figures["batch of 32"]["steps/s, compile=never"][0] > 0
    printed = capsys.readouterr().out
    for bar in gpu.BARS:
        assert bar in printed


def test_lengths_are_those_of_the_data():
    size = gpu.Size(rehearse=False)
    size.rows = 4000
    short, long = (gpu.rows_of(size, texts).lengths.double() for texts in ("short", "long"))
    assert float(short.mean()) == pytest.approx(42, abs=2)  # ag_news_10k: 41.99
    assert float(long.mean()) == pytest.approx(268, abs=12)  # imdb, cut at 512: 268.3
    assert int(long.max()) == 512


def test_ids_are_of_the_vocabulary():
    size = gpu.Size(rehearse=True)
    ids_N = gpu.rows_of(size, "short").ids_N
    assert 0 <= int(ids_N.min()) <= int(ids_N.max()) < size.vocabulary


def test_operations_are_counted_by_the_formula_in_the_code():
    """Of BERT-base, at a text of 50 tokens: 6 N + 12 L d s, N = 84.9 million weights of the layers."""
    expected = 6 * 12 * (4 * 768**2 + 2 * 768 * 3072) + 12 * 12 * 768 * 50
    assert 3 * gpu.flops_per_token(gpu.Size(rehearse=False).model(), 50) == pytest.approx(expected)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_says_so(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["gpu.py"])
    with pytest.raises(SystemExit, match="torch sees no GPU here"):
        gpu.main()


@pytest.mark.slow
def test_a_rehearsal_with_everything():
    done = subprocess.run([sys.executable, str(SCRIPT), "--rehearse"], capture_output=True, text=True, check=True)
    assert "times the steps/s of Hugging Face" in done.stdout
    assert "not compiled" in done.stdout
