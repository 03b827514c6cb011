"""Strangers' files are opened by one process that watches itself; what it says of each is judged here."""

import csv
import io
import json
import os
import pickle
import select
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from manyheads.runs.warm import WarmProcess

SECRET = "hf_thisIsNotForYou0123456789"  # in the environment
MOST_MEGABYTES = 400  # that one command may take beyond what it began with
MOST_SECONDS = 120.0  # generous: the machine may be busy
RUN = ["debug=fast", "hardware=cpu", "batch.rows=8", "trainer.max_epochs=2", "checkpoint.every=1", "seed=3"]


class Victim:
    """`attempt` runs one command line in a folder, where alone it may write."""

    def __init__(self, python: Any, home: Path, warm: list[list[str]]) -> None:
        self.python, self.folder = python, home
        self.warm = json.dumps({"words": warm, "folder": str(home)})
        self.process: WarmProcess | None = None

    def attempt(self, words: list[str], folder: Path) -> dict[str, Any]:
        self.start()
        self.questions.write(json.dumps({"words": words, "folder": str(folder)}) + "\n")
        self.questions.flush()
        answer = self._answer(MOST_SECONDS)
        if not answer:
            self.stop()
            pytest.fail(f"no answer in {MOST_SECONDS:g} s, or the process died: {' '.join(words)[:300]}")
        return json.loads(answer)

    def refused(self, words: list[str], folder: Path, *parts: str, alone: bool = True) -> str:
        """The one sentence in which it ends; nothing happened but that, and what the log said before unless `alone`."""
        answer = self.attempt(words, folder)
        *before, said = answer["err"].splitlines() or [""]
        assert (answer["code"], answer["err"][-1:]) == (2, "\n"), (answer["code"], answer["err"][-1500:])
        assert not (alone and before), before
        assert "Traceback" not in answer["err"]
        assert 20 < len(said) < 1500, "a sentence, not a page"
        for part in parts:
            assert part.replace(f"{folder}/", "") in said, said
        self.harmless(answer)
        return said

    def harmless(self, answer: dict[str, Any]) -> None:
        assert answer["acts"] == []
        assert answer["grown"] < MOST_MEGABYTES, f"{answer['grown']} MB"

    def stop(self) -> None:
        if self.process:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def start(self) -> None:
        if self.process is not None:
            return
        environment = os.environ | {"MANYHEADS_CACHE": "cache", "HF_TOKEN": SECRET, "RUST_BACKTRACE": "0"}
        (stdin, questions), (answers, stdout) = os.pipe(), os.pipe()
        self.questions, self.answers = os.fdopen(questions, "w"), os.fdopen(answers)
        with os.fdopen(stdin) as given, os.fdopen(stdout, "w") as said, (self.folder / "said").open("w") as error:
            words = ("-W", "ignore", Path(__file__).with_name("victim.py"))
            self.process = self.python.start(*words, stdin=given, stdout=said, stderr=error, env=environment)
            self.questions.write(f"{self.warm}\n")
            self.questions.flush()
            assert self._answer(300.0), "it starts"

    def _answer(self, seconds: float) -> str:
        ready, _, _ = select.select([self.answers], [], [], seconds)
        return self.answers.readline() if ready else ""


def write_rows(path: Path, n_rows: int = 40) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = [(f"number {n} {('purrs', 'barks')[n % 2]} {'so ' * (n % 5)}", ("cat", "dog")[n % 2])
                for n in range(n_rows)]  # fmt: skip
        csv.writer(file).writerows([("text", "label"), *rows])
    return path


@pytest.fixture(scope="session")
def victim(python: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    home = tmp_path_factory.mktemp("victim")
    write_rows(home / "rows.csv")
    train = ["train", "data.path=rows.csv", "output=run", *RUN]
    warm = [["train", "model.n_heads=0"], train, ["evaluate", "run=run"], ["predict", "run=run", "text=it purrs"]]
    one = Victim(python, home, warm)
    one.start()
    yield one
    one.stop()


@pytest.fixture(scope="session")
def finished(victim: Victim) -> Path:
    """The folder in which `run` was trained from `rows.csv`; read only."""
    assert (victim.folder / "run" / "summary.json").is_file()
    return victim.folder


@pytest.fixture
def stopped(finished: Path, tmp_path: Path) -> Path:
    """A copy of the run, to be changed, that was stopped in its middle: `tmp_path`/run."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    run = tmp_path / "run"
    for name in ("summary.json", "report.html"):
        (run / name).unlink()
    shutil.rmtree(run / "model")
    newest = max((run / "checkpoints").glob("step-*"))
    shutil.rmtree(newest)  # training was at its end there
    config = run / "config.yaml"
    config.write_text(config.read_text().replace(str(finished), str(tmp_path)))
    return run


@pytest.fixture
def model(finished: Path, tmp_path: Path) -> Path:
    """A copy of the model folder alone, to be changed: `tmp_path`/model."""
    return shutil.copytree(finished / "run" / "model", tmp_path / "model")


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """What no file may make: hostile code would."""
    return tmp_path / "canary"


class Touch:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


@pytest.fixture
def payloads(canary: Path) -> dict[str, bytes]:
    """Files that make the canary where they are unpickled, whatever they pretend to be."""
    import torch

    def saved(content: Any, **how: Any) -> bytes:
        buffer = io.BytesIO()
        torch.save(content, buffer, **how)
        return buffer.getvalue()

    touch = Touch(canary)
    optimizer = {"optimizers": [{"state": {0: {"step": touch}}, "param_groups": []}], "schedules": [], "callbacks": {}}
    lightning = {
        "hyper_parameters": {"_instantiator": "os.system", "command": f"touch {canary}"},
        "state_dict": {"x": torch.ones(1)},
        "pytorch-lightning_version": "2.6.6",
        "callbacks": touch,
    }
    files = {
        "a pickle": pickle.dumps(touch),
        "a pickle of protocol 0": pickle.dumps(touch, protocol=0),
        "torch's zip": saved(touch),
        "torch's old form": saved(touch, _use_new_zipfile_serialization=False),
        "an optimiser that reduces": saved(optimizer),
        "a checkpoint of Lightning": saved(lightning),
    }
    zipped = files["torch's zip"]
    return files | {"half a zip": zipped[: len(zipped) // 2], "no file at all": b"", "noise": bytes(range(256)) * 40}


@pytest.fixture
def rows() -> Callable[..., Path]:
    """`rows(path, n_rows=40)` writes texts of two classes."""
    return write_rows
