"""A run that begins again by itself: a step left out, batches halved where memory runs out; in one process and two."""

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from manyheads.cli.main import main
from manyheads.distributed import faults
from manyheads.runs.checkpoints import newest_checkpoint
from manyheads.runs.folder import OUTPUT_VARIABLE

WORDS = [
    "debug=fast", "hardware=cpu", "hardware.precision=fp32", "batch.rows=8", "trainer.max_epochs=2", "optim.eps=1e-4",
    "model.dropout=0", "model.dropout_tokens=0", "optim.average=20",
]  # fmt: skip
STEPS = 8  # of 2 epochs of 32 rows


@pytest.fixture
def train(tmp_path, monkeypatch):
    """`train(name, *words, fault=)`: the exit code of a run in tmp_path / name; settings are those of WORDS."""
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        rows = [(f"number {n} {('purrs', 'barks')[n % 2]} {'so ' * (n % 5)}", ("cat", "dog")[n % 2]) for n in range(40)]
        csv.writer(file).writerows([("text", "label"), *rows])

    def run(name: str, *words: str, fault: str = "") -> int:
        faults.reset_counts()
        monkeypatch.setenv(faults.VARIABLE, fault)
        return main(["train", f"data.path={tmp_path / 'rows.csv'}", f"output={tmp_path / name}", *WORDS, *words])

    return run


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Where training ended, and the model that came of it."""
    last = newest_checkpoint(folder / "checkpoints")
    assert last
    assert last.name == f"step-{STEPS:08d}"
    return load_file(last / "weights.safetensors") | load_file(folder / "model" / "model.safetensors")


def summary(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


@pytest.mark.parametrize(
    "step",
    [pytest.param(3, marks=pytest.mark.slow, id="from the start"), pytest.param(6, id="from a checkpoint")],
)
def test_a_step_is_left_out_after_a_rollback_as_if_it_had_been_skipped(step, train, tmp_path):
    words = ["model.dropout=0.1", "model.dropout_tokens=0.1", "checkpoint.every=4"]
    assert train("skip", "guard.nonfinite=skip", *words, fault=f"loss:{step}:nan") == 0
    assert train("rollback", "guard.nonfinite=rollback", *words, fault=f"loss:{step}:nan") == 0
    torch.testing.assert_close(weights(tmp_path / "rollback"), weights(tmp_path / "skip"), rtol=0, atol=0)
    logs = [(tmp_path / name / "run.log").read_text() for name in ("skip", "rollback")]
    assert all(log.count(f"step {step} is left out: the loss is nan and the norm of the gradient") == 1 for log in logs)
    assert [log.count("resumed at step 4") for log in logs] == [0, int(step == 6)]
    told = [json.loads((tmp_path / name / "nonfinite.json").read_text()) for name in ("skip", "rollback")]
    assert told[0] == told[1]
    for name in ("skip", "rollback"):
        figures = summary(tmp_path / name)
        assert (figures["left_out"], figures["split"], figures["steps"]) == ([step], 1, STEPS)
        assert f"step {step}, whose loss or gradient was not finite" in (tmp_path / name / "report.html").read_text()


def test_batches_are_halved_until_they_fit(train, tmp_path, capsys):
    assert train("whole") == 0
    assert train("halved", "checkpoint.every=2", fault="memory:30:oom") == 0
    figures = summary(tmp_path / "halved")
    assert (figures["split"], figures["steps"]) == (4, STEPS)
    torch.testing.assert_close(weights(tmp_path / "halved"), weights(tmp_path / "whole"), rtol=0, atol=1e-6)
    said = f"ran out: micro-batches were cut into {figures['split']}, and that many more are summed in each step"
    assert f"memory: {said}" in " ".join(capsys.readouterr().out.split())
    assert said in (tmp_path / "halved" / "report.html").read_text()
    log = (tmp_path / "halved" / "run.log").read_text()
    assert " ran out of memory\n" in log
    assert f"micro-batches are cut into {figures['split']}, and as many more summed into a step\n" in log


def test_what_a_smaller_batch_does_not_help_is_one_sentence(train, tmp_path, capsys):
    remedy = "use a smaller data.max_length or model, or set hardware.recompute=true"
    assert train("run", fault="memory:0:oom") == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"step 1 ran out of memory with one row at a time: {remedy}"
    assert json.loads((tmp_path / "run" / "again.json").read_text())["split"] == 8
    assert train("off", "guard.halve=false", fault="memory:0:oom") == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"step 1 ran out of memory: set guard.halve=true, use a smaller batch.tokens, or {remedy}"
    )
    assert not (tmp_path / "off" / "again.json").exists()


@pytest.mark.slow
def test_what_was_written_down_counts_for_the_same_run_alone(train, tmp_path, capsys):
    assert train("run", fault="memory:0:oom") == 2
    assert train("run", "resume=auto", "batch.rows=4", fault="memory:40:oom") == 0, "another run, which is not halved"
    assert summary(tmp_path / "run")["split"] == 1
    assert not (tmp_path / "run" / "again.json").exists()
    assert train("same", fault="memory:0:oom") == 2
    assert train("same", "resume=auto", fault="memory:40:oom") == 0
    assert summary(tmp_path / "same")["split"] == 8


def together(folder: Path, *words: str, fault: str) -> tuple[int, str]:
    """The exit code of a run of two processes in `folder`, and what it said."""
    command = [sys.executable, "-m", "manyheads", "train", f"data.path={folder.parent / 'rows.csv'}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", faults.VARIABLE: fault}
    for name in (OUTPUT_VARIABLE, "RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"):
        environment.pop(name, None)
    process = subprocess.Popen(
        [*command, f"output={folder}", *WORDS, "hardware.devices=2", *words],
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        _, said = process.communicate(timeout=300)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert "Traceback" not in said, said
    return process.returncode, said


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        pytest.param("memory:30:oom:1", ["checkpoint.every=2"], marks=pytest.mark.slow),
        pytest.param("loss:6:nan:1", ["guard.nonfinite=skip"], marks=pytest.mark.slow),
        pytest.param("loss:6:nan:1", ["guard.nonfinite=skip", "hardware.strategy=fsdp"], marks=pytest.mark.slow),
        pytest.param("loss:6:nan:1", ["guard.nonfinite=rollback", "checkpoint.every=2"], marks=pytest.mark.slow),
    ],
)
def test_two_processes_agree_though_one_alone_went_wrong(fault, words, train, tmp_path):
    memory = fault.startswith("memory")
    alone = [word for word in words if not word.startswith("hardware.")]
    assert train("one", *alone, fault="" if memory else "loss:6:nan") == 0
    folder = tmp_path / "two"
    assert together(folder, *words, fault=fault)[0] == 0
    torch.testing.assert_close(weights(folder), weights(tmp_path / "one"), rtol=0, atol=2e-6)
    figures = summary(folder)
    assert figures["steps"] == STEPS
    assert (figures["split"] > 1, figures["left_out"]) == (memory, [] if memory else [6])
    if memory:
        assert " ran out of memory in process 1\n" in (folder / "run.log").read_text()
        return
    ((two,), (one,)) = (json.loads((path / "nonfinite.json").read_text()) for path in (folder, tmp_path / "one"))
    assert [loss == "nan" for loss in two["losses"]] == [False, True]
    assert sorted(row for rows in two["rows"] for row in rows) == sorted(one["rows"][0])
    assert all(two["rows"])


@pytest.mark.slow
def test_two_processes_end_in_one_sentence_behind_the_last_good_step(train, tmp_path):
    assert train("one", "checkpoint.every=5") == 0  # data and cache
    folder = tmp_path / "two"
    code, said = together(folder, "checkpoint.every=5", fault="loss:6:nan:1")
    assert code == 2
    sentence = "training diverged at step 6: the loss is nan and the norm of the gradient nan, at a learning rate of "
    assert said.splitlines()[-1].startswith(sentence)
    assert said.count(sentence) == 1
    last = newest_checkpoint(folder / "checkpoints")
    assert last
    assert last.name == "step-00000005"
    assert together(folder, "checkpoint.every=5", "resume=auto", "guard.nonfinite=skip", fault="loss:6:nan:1")[0] == 0
    assert train("skipped", "guard.nonfinite=skip", fault="loss:6:nan") == 0
    torch.testing.assert_close(weights(folder), weights(tmp_path / "skipped"), rtol=0, atol=2e-6)
