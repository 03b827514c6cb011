"""A run that was stopped goes on as if nothing had been: the same bits, the same rows, once each."""

import csv
import errno
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from manyheads.cli.main import main
from manyheads.distributed import faults
from manyheads.evaluation import results
from manyheads.inference.folder import load
from manyheads.runs.checkpoints import is_valid, newest_checkpoint
from manyheads.training import build
from manyheads.training import checkpoint_writer as saving
from manyheads.training.module import LitModule
from manyheads.training.optim import rate_factor
from manyheads.training.state import load_pytree
from tests.core.ranks.conftest import starting

TINY = [
    "debug=fast", "hardware=cpu", "model.dropout=0.1", "model.dropout_tokens=0.1", "batch.rows=4", "optim.average=20",
    "trainer.max_epochs=3",
]  # fmt: skip
PER_EPOCH = 8  # optimiser steps, of 32 rows, where nothing is accumulated
TIMES = ("seconds", "wall_seconds", "real_tokens_per_s", "output")


@pytest.fixture
def seen(monkeypatch) -> list[tuple[int, list[int]]]:
    """The epoch and the row numbers of each batch that was trained on."""
    steps: list[tuple[int, list[int]]] = []
    step = LitModule.training_step

    def noting(self, batch, index):
        steps.append((self.current_epoch, batch.rows_B.tolist()))
        return step(self, batch, index)

    monkeypatch.setattr(LitModule, "training_step", noting)
    return steps


@pytest.fixture
def train(tmp_path, monkeypatch):
    """`train(name, *words, stops=, finish=)`: a run in tmp_path / name, stopped at each of the faults and resumed."""
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(results, "write_page", lambda path, _: path.touch())
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        texts = [f"number {n} {('purrs', 'barks')[n % 2]} {'so ' * (n % 5)}" for n in range(40)]
        rows = [(text, ("cat", "dog")[n % 2], text.split()[-1]) for n, text in enumerate(texts)]
        csv.writer(file).writerows([("text", "label", "target"), *rows])

    def run(name: str, *words: str, stops: tuple[str, ...] = (), finish: bool = True, code: int = 0) -> Path:
        folder = tmp_path / name
        command = ["train", f"data.path={tmp_path / 'rows.csv'}", f"output={folder}", "resume=auto", *TINY, *words]
        for stop in stops:
            faults.reset_counts()
            monkeypatch.setenv(faults.VARIABLE, f"{stop}:term")
            assert main(command) == 143
            assert newest_checkpoint(folder / "checkpoints")
        monkeypatch.delenv(faults.VARIABLE, raising=False)
        assert not finish or main(command) == code
        return folder

    return run


def content(folder: Path) -> dict:
    """Everything a run leaves behind that does not tell the time, and the state it ended in."""
    last = newest_checkpoint(folder / "checkpoints")
    assert last is not None
    state = {
        one.stem: load_pytree(one) for one in sorted(last.glob("*.safetensors")) if one.stem[:5] in ("state", "rank-")
    }
    for rank in (its for name, its in state.items() if name != "state"):
        for counted in rank["callbacks"].values():
            counted.pop("seconds")
    summary = json.loads((folder / "summary.json").read_text())
    progress = json.loads((last / "progress.json").read_text())
    return {
        "files": sorted(path.name for path in folder.iterdir()),
        "checkpoint": (last.name, progress["step"], progress["epoch"], progress["batches"]),
        "state": state,
        "weights": load_file(last / "weights.safetensors"),
        "model": (folder / "model" / "model.safetensors").read_bytes(),
        "rows": (folder / "metrics.csv").read_text(),
        "summary": {name: value for name, value in summary.items() if name not in TIMES},
    }


def assert_same(one, other, where: str = "") -> None:
    """Equal to the bit, whatever is nested in what."""
    assert type(one) is type(other), where
    if isinstance(one, dict):
        assert list(one) == list(other), where
        for key in one:
            assert_same(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for index, pair in enumerate(zip(one, other, strict=True)):
            assert_same(*pair, f"{where}[{index}]")
    elif isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype, where
        assert one.shape == other.shape, where
        assert torch.equal(one.flatten().view(torch.uint8), other.flatten().view(torch.uint8)), where
    else:
        assert one == other, where


@pytest.fixture(scope="module")
def wholes() -> dict[tuple[str, ...], tuple[dict, list]]:
    return {}


@pytest.fixture
def whole(train, seen, wholes):
    """`whole(*words)`: what a run that nobody stopped leaves behind, and its batches; run once for all tests."""

    def run(*words: str) -> tuple[dict, list]:
        if words not in wholes:
            before = seen[:]
            seen.clear()
            found = content(train("whole", *words))
            wholes[words] = found, seen[:]
            seen[:] = before
        return wholes[words]

    return run


SEGMENTS = {
    "before the first step, and in mid-epoch": ([], ("step:1", "step:5")),
    "twice in one epoch, gradients accumulated": (["batch.accumulate=2"], ("step:2", "step:3")),
    "within a validation, and behind the last step": ([], ("validation:1", "trained:1")),
    "twice in one epoch": ([], ("step:4", "step:3")),
    "at the ends of epochs": ([], (f"step:{PER_EPOCH + 1}", f"step:{PER_EPOCH + 1}")),
    "where gradients are accumulated": (["batch.accumulate=2"], ("step:3", "step:4")),
    "between validations within an epoch": (["trainer.val_check_interval=3"], ("step:4", "validation:2")),
    "with part of an epoch between validations": (["trainer.val_check_interval=0.5"], ("step:5", "step:3")),
    "with a limit of steps": (["trainer.max_steps=13"], ("step:6", "step:7")),
    "with few rows": (["optim.few=50", "optim.few_epochs=5"], ("step:20", "step:12")),
    "with patience": (["checkpoint.patience=1"], ("step:6", "step:3")),
    "in every step": (["trainer.max_epochs=1"], ("step:2",) * 7),
}


QUICK = 3  # the others take a minute together


@pytest.mark.parametrize(
    "kind", [*[*SEGMENTS][:QUICK], *[pytest.param(one, marks=pytest.mark.slow) for one in [*SEGMENTS][QUICK:]]]
)
def test_three_segments_are_one_run(kind, train, whole, seen):
    check_segments(*SEGMENTS[kind], train, whole, seen)


def check_segments(words, stops, train, whole, seen):
    parts, (left, batches) = content(train("parts", *words, stops=stops)), whole(*words)
    assert seen == batches, "every batch once, in the same order"
    assert_same(parts, left)


def test_the_log_tells_of_it_and_a_finished_run_is_left_alone(train, tmp_path, capsys):
    folder = train("run", "trainer.max_epochs=1", stops=("step:3",))
    written = (folder / "run.log").read_text()
    said = re.findall(r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (.+)$", written)
    assert "stopped by SIGTERM at step 2: resume=auto continues from there" in said
    assert "resumed at step 2" in said
    assert re.search(r"(?m)^trained: 1 epoch, 8 steps, ", written), "the table ends it"
    assert written.count("95 % intervals") == 1
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    capsys.readouterr()
    assert main(["train", f"resume={folder}"]) == 0
    assert capsys.readouterr().out == f"{folder} is finished: summary.json and report.html in it have its figures\n"
    with (tmp_path / "rows.csv").open("a") as file:
        file.write("number 40 meows,cat,meows\n")
    assert main(["train", f"resume={folder}"]) == 2
    assert "are not those that the finished run in" in capsys.readouterr().err
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_a_finished_run_is_not_that_of_another_tokenizer(train, model_folder, tmp_path, capsys):
    path = tmp_path / "tokenizer.json"
    shutil.copy(model_folder / "model" / "tokenizer.json", path)
    folder = train("run", "trainer.max_epochs=1", f"tokenizer.path={path}")
    assert main(["train", f"resume={folder}"]) == 0
    path.write_bytes(path.read_bytes() + b"\n")
    capsys.readouterr()
    assert main(["train", f"resume={folder}"]) == 2
    assert capsys.readouterr().err == (
        f"tokenizer.path names other content than the finished run in {folder} read: give the same files, or start a "
        "new run in another folder\n"
    )


@pytest.mark.parametrize(("few", "fitted"), [(16, ["head"]), (15, [])])  # 32 rows of two classes
def test_the_head_is_fitted_once_where_rows_are_few(few, fitted, train, monkeypatch):
    met, fit_head = [], build.fit_head
    monkeypatch.setattr(build, "fit_head", lambda *given: met.append("head") or fit_head(*given))
    train("run", f"optim.few={few}", "trainer.max_epochs=1", stops=("step:3",))
    assert met == fitted


def test_few_rows_are_read_more_often_also_after_a_stop(train):
    few = ["optim.few=50", "optim.few_epochs=3", "trainer.max_epochs=1"]
    folder = train("run", *few, stops=(f"step:{PER_EPOCH + 2}",), finish=False)
    assert main(["train", f"resume={folder}"]) == 0
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["steps"], summary["epochs"]) == (3 * PER_EPOCH, 3)
    assert "rows are few (optim.few=50): 3 epochs instead of 1" in (folder / "run.log").read_text()


def test_limits_typed_beside_those_of_the_data_count_when_a_run_goes_on(train, capsys):
    by_data = ["optim.few=50", "optim.few_epochs=2", "optim.steps_per_class=50", "trainer.max_epochs=9"]
    folder = train("run", *by_data, "trainer.max_steps=12", stops=("step:5",), finish=False)
    train("run", *by_data, "trainer.max_steps=14")
    assert json.loads((folder / "summary.json").read_text())["steps"] == 14
    log = (folder / "run.log").read_text()
    assert "trainer.max_steps=14 from step 4 on, where the run began with trainer.max_steps=12" in log
    command = ["train", f"data.path={folder.parent / 'rows.csv'}", f"output={folder}", "resume=auto", *TINY, *by_data]
    assert main([*command, "trainer.max_steps=14"]) == 0
    capsys.readouterr()
    assert main([*command, "trainer.max_steps=99"]) == 2
    assert "is trained to its end, too late for trainer.max_steps=99" in capsys.readouterr().err


def test_a_run_that_is_ended_where_it_stands_keeps_the_mean_of_its_weights(train, monkeypatch):
    monkeypatch.setattr("manyheads.training.weights.MOST_SEEN", 0.0)  # the checkpoint has the whole table, too
    words, n_steps = ["trainer.limit_val_batches=0", "batch.rows=1"], 64
    folder = train("run", *words, stops=(f"step:{n_steps + 1}",), finish=False)
    last = newest_checkpoint(folder / "checkpoints")
    assert last is not None
    means = load_pytree(last / "state.safetensors")["callbacks"]["EMACallback"]["mean"]  # at step 60
    ends = load_file(last / "weights.safetensors")
    train("run", *words, "trainer.max_epochs=2")
    assert json.loads((folder / "summary.json").read_text())["steps"] == n_steps
    kept = dict(load(folder).network.named_parameters())
    assert len(means) == len(kept)
    for mean, (name, one) in zip(means, kept.items(), strict=True):
        torch.testing.assert_close(one.data, mean.lerp(ends[f"network.{name}"], 4 / (n_steps / 5)))
    assert not torch.allclose(kept["head.weight"], ends["network.head.weight"])


def test_another_end_makes_another_rate_from_the_first_step_on(train, monkeypatch):
    rates, step = {}, LitModule.training_step

    def noting(self, batch, index):
        group = self.trainer.optimizers[0].param_groups[0]
        rates[self.global_step] = (
            group["lr"] / group["initial_lr"],
            rate_factor(self.global_step, self.n_steps, self.optim),
        )
        return step(self, batch, index)

    monkeypatch.setattr(LitModule, "training_step", noting)
    train("run", stops=(f"step:{2 * PER_EPOCH}",), finish=False)
    train("run", "trainer.max_epochs=5")
    assert len(rates) == 5 * PER_EPOCH
    for at, (rate, wanted) in rates.items():
        assert rate == pytest.approx(wanted), at


def test_time_that_is_up_stops_with_a_checkpoint(train, tmp_path):
    train("run", "trainer.max_time=00:00:00:01", "trainer.max_epochs=100000", "trainer.max_steps=-1", code=124)
    assert "stopped by trainer.max_time at step " in (tmp_path / "run" / "run.log").read_text()
    assert newest_checkpoint(tmp_path / "run" / "checkpoints")


@pytest.mark.parametrize(
    ("code", "why", "background"),
    [(errno.ENOSPC, "No space left on device", "always"), (errno.EROFS, "Read-only", "never")],
)
def test_a_disk_that_takes_no_checkpoint_ends_the_run_in_one_sentence(
    code, why, background, train, whole, tmp_path, monkeypatch, capsys
):
    def refuse(path: Path, target: Path) -> None:
        if target.name == "step-00000004":
            raise OSError(code, os.strerror(code))
        rename(path, target)

    rename = os.rename
    with monkeypatch.context() as broken:
        broken.setattr(os, "rename", refuse)
        with pytest.raises(AssertionError):
            train("run", "checkpoint.every=2", f"checkpoint.background={background}", "trainer.max_epochs=1")
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"the checkpoint of step 4 cannot be written to {tmp_path / 'run' / 'checkpoints'} ({why}")
    assert said.endswith("make room there or let it be written to, then continue by resume=auto")
    assert newest_checkpoint(tmp_path / "run" / "checkpoints") == tmp_path / "run" / "checkpoints" / "step-00000002"
    assert_same(content(train("run", "trainer.max_epochs=1")), whole("trainer.max_epochs=1")[0])


def test_a_checkpoint_is_of_its_step_though_training_goes_on_while_it_is_written(
    train, whole, seen, tmp_path, monkeypatch, capsys
):
    """Each save in the background waits for the step that follows it; the run fails, and goes on from such a one."""
    save, steps = saving.write_checkpoint, []

    def late(folder: Path, step: int, *given, **named) -> Path:
        aside, until = threading.current_thread() is not threading.main_thread(), time.monotonic() + 30
        while aside and len(seen) == step:
            assert time.monotonic() < until, "training waits"
            time.sleep(0.001)
        steps.append((step, aside))
        return save(folder, step, *given, **named)

    monkeypatch.setattr(saving, "write_checkpoint", late)
    words = ["checkpoint.every=2", "checkpoint.background=always"]
    folder = train("run", *words, stops=("step:6",), finish=False)
    assert steps == [(2, True), (4, True), (5, False)], "whoever stops waits for it, and then saves"
    whole_ones = {one.name for one in (folder / "checkpoints").glob("step-*") if is_valid(one)}
    assert whole_ones == {"step-00000004", "step-00000005"}
    monkeypatch.setenv(faults.VARIABLE, f"step:{PER_EPOCH}:fail")
    faults.reset_counts()
    assert main(["train", f"data.path={tmp_path / 'rows.csv'}", f"output={folder}", "resume=auto", *TINY, *words]) == 1
    assert "failed on purpose" in capsys.readouterr().err
    assert newest_checkpoint(folder / "checkpoints") == folder / "checkpoints" / "step-00000011", (
        "that was written on the way out"
    )
    assert steps[-1] == (11, True)
    assert not [*(folder / "checkpoints").glob(".*")]
    assert_same(content(train("run", *words)), whole()[0])


def test_other_rows_are_refused(train, tmp_path, capsys):
    folder = train("run", stops=("step:3",), finish=False)
    rows = tmp_path / "rows.csv"
    rows.write_text(rows.read_text().replace("number 7 ", "number 77 "))
    before, last = sorted(folder.rglob("*")), newest_checkpoint(folder / "checkpoints")
    assert main(["train", f"data.path={rows}", f"output={folder}", "resume=auto", *TINY]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"the rows are not those that {last} was trained on: give the same data, or start a new run in another folder"
    )
    assert sorted(folder.rglob("*")) == before


HOLDER = """
import sys, time
from pathlib import Path
from manyheads.runs.lock import lock_run_folder
with lock_run_folder(Path(sys.argv[1])):
    print("in it", flush=True)
    time.sleep(600)
"""


def test_of_two_starts_in_one_folder_the_second_is_refused_until_the_first_is_gone(train, whole, tmp_path, capsys):
    folder = train("run", stops=("step:3",), finish=False)
    before = sorted(folder.rglob("*"))
    command = ["train", f"data.path={tmp_path / 'rows.csv'}", f"output={folder}", "resume=auto", *TINY]
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        holder.stdout.readline()
        codes = [main([*command, *more]) for more in ([], ["hardware.devices=2"])]
        holder.kill()
    sentence = f"output={folder} is written by a command in progress: wait for its end, or name another folder"
    assert codes == [2, 2]
    assert capsys.readouterr().err.splitlines()[-2:] == [sentence] * 2
    assert sorted(folder.rglob("*")) == before
    assert_same(content(train("run")), whole()[0])


@pytest.mark.slow
def test_two_hundred_kills_at_random_moments_lose_nothing(whole, forks, tmp_path):
    """A run that ends makes way for the next, in a new folder."""
    draw, kills, ended = random.Random(0), 0, 0
    words = ["checkpoint.every=3", "trainer.max_epochs=12"]
    left, _ = whole(*words)
    with starting(forks, tmp_path) as start:
        while kills < 200:
            folder, step = tmp_path / f"run-{ended}", 0
            command = ["train", f"data.path={tmp_path / 'rows.csv'}", f"output={folder}", "resume=auto", *TINY, *words]
            code = None
            while code != 0:
                crew = start(command, n=1)
                time.sleep(draw.uniform(0, 4))
                crew.send(signal.SIGKILL)
                (code,) = crew.codes()
                assert code in (0, -signal.SIGKILL)
                kills += code != 0
                found = newest_checkpoint(folder / "checkpoints")
                reached = int(found.name[5:]) if found else 0
                assert reached >= step, "nothing that was saved is lost"
                step = reached
            assert_same(content(folder) | {"summary": None}, left | {"summary": None})
            ended += 1
    print(f"{kills} kills, {ended} runs")
