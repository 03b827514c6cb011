"""A stand-in for the process of a run, whose figures are a formula of its settings: many runs take seconds."""

import csv
import json
import os
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from manyheads.cli.compose import compose
from manyheads.plugins.sweep import scheduler
from manyheads.plugins.sweep.tune import tune_settings
from manyheads.runs import many

STAND_IN = """
import csv, fcntl, json, os, pathlib, signal, sys, time

words = {}
for key, value in json.loads(sys.stdin.readline()).items():
    words |= {f"{key}.{name}": one for name, one in value.items()} if isinstance(value, dict) else {key: value}
lr, folder = words["optim.lr"], pathlib.Path(words["output"])
how = json.loads(pathlib.Path(HOW).read_text()).get(repr(lr), "")
with open(CALLS, "a") as calls:
    calls.write(json.dumps(words | {"gpu": os.environ.get("CUDA_VISIBLE_DEVICES", "")}) + "\\n")
assert words["test"] is bool(words["data.folds"]) and words["resume"] == "auto"
assert how != "assert"
folder.mkdir(exist_ok=True)
(folder / "checkpoints").mkdir(exist_ok=True)
(folder / "config.yaml").write_text("")
best = round(0.9 - abs(lr - 0.003) * 50 + 0.01 * words["seed"], 6)
if how == "seeds":
    held = open(folder / "held", "w")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit("it holds a run that still goes on")
    if words["seed"] == 1 and not (folder / "broke").exists():
        (folder / "broke").touch()
        while not (folder.parent / "001-seed-2" / "held").exists():
            time.sleep(0.01)
        sys.exit("broke off")
    if words["seed"] == 2 and not (folder / "second").exists():
        (folder / "second").touch()
        time.sleep(3)
if how == "sentence":
    sys.exit("the disk is full")
if how == "diverge":
    sys.exit("training diverged in epoch 1: use a smaller rate")
values = [best / 2, best]
with open(folder / "metrics.csv.part", "w") as file:
    table = csv.writer(file)
    table.writerow(["step", "epoch", "validation_accuracy"])  # both counted from 0, as Lightning does
    table.writerows([10 * n - 1, n - 1, v] for n, v in enumerate(values, 1))
os.replace(folder / "metrics.csv.part", folder / "metrics.csv")
if how == "late":
    sys.exit(124)
if how == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if how == "wait":
    def saved(*_):
        (folder / "saved").touch()
        os._exit(143)
    signal.signal(signal.SIGTERM, saved)
    (folder / "waits").write_text(str(os.getpid()))
    time.sleep(100)
    sys.exit("nobody ended it")
interval = {"value": best, "low": best - 0.1, "high": best + 0.1}
(folder / "summary.json").write_text(json.dumps({"best": {"value": best}, "validation": {"accuracy": interval},
    "test": {"accuracy": interval | {"value": best - 0.05 * words["data.fold"]}} if words["data.folds"] else {},
    "epochs": 2, "steps": 20, "wall_seconds": 3.0}))
"""


class Place:
    """A folder with data, a stand-in, and what became of the searches in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.output = folder, folder / "search"
        self.how, self._calls, self.script = folder / "how.json", folder / "calls.jsonl", folder / "stand_in.py"
        self.script.write_text(f"HOW, CALLS = {str(self.how)!r}, {str(self._calls)!r}\n{STAND_IN}")
        self.behave({})
        with (folder / "rows.csv").open("w", newline="") as file:
            rows = [(f"number {n} {('purrs', 'barks')[n % 2]}", ("cat", "dog")[n % 2]) for n in range(80)]
            csv.writer(file).writerows([("text", "label"), *rows])

    def behave(self, how: dict[float, str]) -> None:
        """What the run of a learning rate does: sentence, diverge, late, kill, wait, seeds."""
        self.how.write_text(json.dumps({repr(float(lr)): one for lr, one in how.items()}))

    def words(self, *words: str) -> list[str]:
        return [f"data.path={self.folder / 'rows.csv'}", f"output={self.output}", "hardware=cpu", *words]

    def tune(self, *words: str):
        return tune_settings(compose("tune", self.words(*words)))

    def start(self, *words: str, first: str = "pass") -> subprocess.Popen:
        """A search of stand-ins as a process of its own, which does `first` before."""
        script = (
            f"import sys; from manyheads.runs import many; {first}; "
            f"many.COMMAND = (sys.executable, '-S', {str(self.script)!r}); "
            "from contextlib import nullcontext; "
            "from manyheads.plugins.sweep import scheduler; scheduler.Warm = nullcontext; "
            "from manyheads.cli.main import main; sys.exit(main(sys.argv[1:]))"
        )
        command = [sys.executable, "-c", script, "tune", *self.words(*words)]
        return subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def wait_for(self, condition, seconds: float = 120.0) -> None:
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, "it never came"
            time.sleep(0.05)

    def calls(self) -> list[dict]:
        """The settings of each process since the last look, by dotted name."""
        made = [json.loads(line) for line in self._calls.read_text().splitlines()] if self._calls.exists() else []
        self._calls.unlink(missing_ok=True)
        return made

    def lines(self) -> list[dict]:
        """The journal behind its first line."""
        return [json.loads(line) for line in (self.output / "journal.jsonl").read_text().splitlines()[1:]]


@pytest.fixture
def place(tmp_path, monkeypatch) -> Place:
    made = Place(tmp_path)
    monkeypatch.setattr(many, "COMMAND", (sys.executable, "-S", str(made.script)))
    monkeypatch.setattr(scheduler, "Warm", nullcontext)  # each process is started anew, as COMMAND says
    monkeypatch.setattr(scheduler, "PAUSE", 0.01)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name in [name for name in os.environ if name.startswith(("SLURM_", "RANK", "WORLD_SIZE"))]:
        monkeypatch.delenv(name)
    return made
