"""benchmarks/gpu.py runs as far as the device lets it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import gpu
import pytest
import torch

from manyheads.distributed.machine import is_alive

SCRIPT = Path(gpu.__file__)
DAY = SCRIPT.with_name("gpu_day.sh")


def test_what_was_measured_before_is_kept(tmp_path):
    out = tmp_path / "gpu.json"
    out.write_text(json.dumps({"long": {"compile=never": {"tokens/s": [1.0]}}}))
    figures = gpu.measure(["peak"], out, rehearse=True, until=time.time())
    assert figures["peak"]["error"] == "no time was left"
    assert json.loads(out.read_text()) == figures
    assert figures["long"]["compile=never"]["tokens/s"] == [1.0]


def test_a_part_that_raises_leaves_its_error(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu, "__file__", str(tmp_path / "script.py"))
    (tmp_path / "script.py").write_text("raise RuntimeError('CUDA error: unspecified launch failure')")
    figures = gpu.measure(["peak"], None, rehearse=True, until=time.time() + 60)
    assert "CUDA error: unspecified launch failure" in figures["peak"]["error"]
    assert "peak FAILED" in gpu.table(figures)


def test_a_part_that_takes_too_long_is_killed_with_what_it_has_started(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu, "__file__", str(tmp_path / "script.py"))
    started = [sys.executable, "-c", "import time; time.sleep(60)"]
    code = f"import subprocess; child = subprocess.Popen({started}); open({str(tmp_path / 'pid')!r}, 'w')"
    (tmp_path / "script.py").write_text(f"{code}.write(str(child.pid)); child.wait()")
    monkeypatch.setattr(gpu, "LEAST", 0.0)
    found = gpu.measure_part("peak", rehearse=True, seconds=3.0)
    assert found == {"error": "it took more than 3 s"}
    pid, until = int((tmp_path / "pid").read_text()), time.monotonic() + 10
    while is_alive(pid):  # it is killed, but not at once
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.slow
def test_a_rehearsal_measures_speed_and_parity(capsys):
    size = gpu.Size(rehearse=True)
    figures = {"machine": gpu.machine(), "peak": gpu.peak(size), "long": gpu.speed(size, "long")}
    figures["parity"] = gpu.parity(size)
    run = figures["long"]["compile=never"]
    assert run["tokens/s"][0] > 0
    assert run["TFLOP/s"] == pytest.approx(run["tokens/s"][0] * run["FLOPs a token"] / 1e12)
    assert figures["parity"]["cpu, fp32"] == 0.0
    assert 0 < figures["parity"]["cpu, bf16"] < 0.05
    printed = gpu.table(figures)
    assert "of the measured peak" in printed
    assert "aim 600,000, then 780,000" in printed


def test_one_rank_of_ddp_and_fsdp_has_the_losses_of_none(monkeypatch):
    monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)  # of another test, by which DDP would seed anew
    figures = gpu.strategies(gpu.Size(rehearse=True))
    assert [figures[name]["largest difference"] for name in ("none", "ddp", "fsdp")] == [0.0, 0.0, 0.0]


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


def test_a_part_that_is_not_one_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["gpu.py", "lnog"])
    with pytest.raises(SystemExit, match="lnog is not a part: choose from peak, long"):
        gpu.main()


@pytest.mark.slow
def test_a_rehearsal_of_the_whole_day(tmp_path):
    environment = os.environ | {"PYTHON": sys.executable, "GPU_DAY_SECONDS": "1500"}
    done = subprocess.run([DAY, "--rehearse", tmp_path], env=environment, capture_output=True, text=True, check=False)
    figures = json.loads((tmp_path / "gpu.json").read_text())
    assert set(figures) == {"machine", *gpu.PARTS}, done.stdout
    assert not [part for part, found in figures.items() if "error" in found], done.stdout
    assert figures["resume"]["same bits"]
    assert figures["resume"]["exit codes"] == [0, 143, 0]
    assert "tokens/s" in done.stdout
    assert done.returncode == 0, done.stdout
