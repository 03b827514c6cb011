"""Trackers: what reaches them, in which record, and that none can end a run. The real ones, where they are installed,
are read by their own readers."""

import csv
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from lightning.pytorch.loggers import Logger

from manyheads import compose, train
from manyheads.cli.main import main
from manyheads.cli.presets import composed_by_hydra, merge_presets
from manyheads.config import DataConfig, LoggerConfig, ModelConfig, RunConfig
from manyheads.config.conversion import plain_settings
from manyheads.distributed.signals import Stopped
from manyheads.plugins.trackers import config as settings
from manyheads.plugins.trackers import trackers
from manyheads.plugins.trackers.trackers import GuardedLogger, open_trackers
from manyheads.runs.config_file import read_run
from manyheads.runs.folder import refuse_links

TINY = ["debug=fast", "hardware=cpu", "logger=[tensorboard,mlflow]"]
ENDS = {"test/accuracy": 0.5, "test/accuracy_low": 0.25, "test/accuracy_high": 0.75}


@pytest.fixture
def record(monkeypatch):
    """Let the loggers of a kind note their calls; the call named `fails_at` raises."""
    recording, open_real, log_real = {}, trackers.open_logger, trackers.log_files

    class Recording(Logger):
        name = version = ""

        def __init__(self, calls, fails_at, problem):
            self.calls, self.fails_at, self.problem = calls, fails_at, problem

        def note(self, *call):
            self.calls.append(call)
            if call[0] == self.fails_at:
                raise self.problem

        def log_hyperparams(self, *given):
            raise AssertionError("`open_logger` logs the settings")

        def log_metrics(self, metrics, step=None):
            self.note("log", metrics, step)

        def finalize(self, status):
            self.note("end", status)

    def open_logger(kind, project, folder, run_id, settings):
        if kind not in recording:
            return open_real(kind, project, folder, run_id, settings)
        logger = Recording(*recording[kind])
        logger.version = run_id or "r1"
        logger.note("open", project, run_id, settings)
        return logger

    def log_files(logger, report, model):
        if not isinstance(logger, Recording):
            return log_real(logger, report, model)
        logger.note("files", report, model)
        assert report.is_file()
        assert (model / "model.safetensors").is_file()

    def add(kind, fails_at=None, problem=None):
        calls = []
        problem = problem or RuntimeError("no route to https://me:password123@host/x")
        recording[kind] = (calls, fails_at, problem)
        return calls

    monkeypatch.setattr(trackers, "open_logger", open_logger)
    monkeypatch.setattr(trackers, "log_files", log_files)
    monkeypatch.setattr(settings, "find_spec", lambda name: True)
    return add


def logged(calls, name):
    return {call[2]: call[1][name] for call in calls if call[0] == "log" and name in call[1]}


def test_a_run_tells_its_trackers_all_that_its_folder_holds(tmp_path, record, capsys):
    calls, broken = record("mlflow"), record("tensorboard", "open")
    summary = train(compose("train", [*TINY, f"output={tmp_path / 'run'}", "logger.project=cats"]))
    assert [call[0] for call in calls if call[0] != "log"] == ["open", "files", "end"]
    assert calls[0][1:3] == ("cats", "")
    assert calls[0][3]["model.n_heads"] == 2
    assert calls[-1] == ("end", "FINISHED")
    with (tmp_path / "run" / "metrics.csv").open() as file:
        for row in csv.DictReader(file):
            for name in set(row) - {"step", "epoch"}:
                assert not row[name] or logged(calls, name)[int(row["step"])] == float(row[name])
    for end, name in {"": "value", "_low": "low", "_high": "high"}.items():
        assert logged(calls, f"test/macro_f1{end}") == {summary.steps: getattr(summary.test["macro_f1"], name)}
    assert [call[0] for call in broken] == ["open"]
    said = capsys.readouterr().err
    assert said.count("logger=tensorboard failed (RuntimeError: no route to https://host/x)") == 1
    assert "password123" not in said


def test_a_run_that_goes_on_does_so_in_the_same_record_and_tells_no_step_twice(tmp_path, record):
    from lightning.pytorch.callbacks import Callback

    class Stop(Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            if trainer.global_step == 6:
                raise Stopped("a test", 130)

    words = [
        "debug=fast",
        "hardware=cpu",
        "logger=trackio",
        "trainer.max_epochs=2",
        "checkpoint.every=3",
        "linear=false",
    ]
    words += [f"output={tmp_path / 'run'}", "resume=auto", "test=false"]
    calls = record("trackio")
    with pytest.raises(Stopped):
        train(compose("train", words), callbacks=[Stop()])
    assert calls[-1] == ("end", "KILLED")
    first = len(calls)
    train(compose("train", words))
    assert [call[2] for call in calls if call[0] == "open"] == ["", "r1"]
    steps = [call[2] for call in calls if call[0] == "log" and "loss" in call[1]]
    assert steps == sorted(set(steps)) == list(range(8))
    assert any(call[0] == "log" for call in calls[first:])


@pytest.mark.parametrize("call", ["open", "log", "files", "end"])
@pytest.mark.parametrize("problem", [ConnectionError("gone"), ModuleNotFoundError("sqlalchemy"), MemoryError()])
def test_one_that_fails_is_left_out_and_said_once(call, problem, tmp_path, record, warned):
    bad, good = record("tensorboard", call, problem), record("wandb")
    run_folder(tmp_path)
    with open_trackers(ask("tensorboard", "wandb"), tmp_path) as all_:
        for step in range(3):
            for one in all_:
                one.log_metrics({"loss": 1.0}, step)
        for one in all_:
            one.log_metrics(ENDS, 3)
    (said,) = warned
    assert said.startswith(f"logger=tensorboard failed ({type(problem).__name__}: ")
    assert [one[0] for one in bad].count(call) == 1
    assert bad[-1][0] == call
    assert [one[0] for one in good] == ["open", "log", "log", "log", "log", "files", "end"]


@pytest.mark.parametrize("content", ["", "[]", '{"record": "../../x"}', '{"record": 3}', "{", '{"record": "a/b"}'])
def test_a_record_that_nobody_wrote_is_begun_anew(content, tmp_path, record):
    calls = record("wandb")
    (tmp_path / "trackers").mkdir()
    (tmp_path / "trackers" / "wandb.json").write_text(content)
    with open_trackers(ask("wandb"), tmp_path):
        pass
    assert calls[0][2] == ("" if content != '{"record": 3}' else "3")


@pytest.mark.parametrize("steps", ["[1]", "3", '{"loss": "x"}', '{"loss": null}'])
def test_steps_that_nobody_wrote_end_no_run(steps, tmp_path, record):
    calls = record("wandb")
    (tmp_path / "trackers").mkdir()
    (tmp_path / "trackers" / "wandb.json").write_text(f'{{"record": "r1", "steps": {steps}}}')
    with open_trackers(ask("wandb"), tmp_path) as (one,):
        one.log_metrics({"loss": 1.0}, 2)
    assert logged(calls, "loss") == {2: 1.0}


@pytest.mark.parametrize("kind", ["tensorboard", "mlflow", "wandb", "trackio"])
def test_a_logger_that_is_not_installed_is_one_sentence(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(settings, "find_spec", lambda name: None)
    assert main(["train", "data=demo", f"logger={kind}"]) == 2
    assert capsys.readouterr().err == (
        f"logger={kind} needs a package that is not installed: pip install -e '.[track]' in the clone of manyheads\n"
    )
    assert list(tmp_path.iterdir()) == []
    settings.refuse_not_installed(RunConfig(), "here")


def test_either_package_of_tensorboard_will_do(monkeypatch):
    monkeypatch.setattr(settings, "find_spec", lambda name: name == "tensorboardX" or None)
    settings.refuse_not_installed(ask("tensorboard"), "here")


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ([], []),
        (["logger=wandb"], ["wandb"]),
        (["logger=[csv,trackio,mlflow]"], ["mlflow", "trackio"]),
        (["logger=[tensorboard]", "logger.wandb=true"], ["tensorboard", "wandb"]),
    ],
)
def test_several_trackers_at_once(words, names):
    assert settings.chosen_trackers(compose("train", words)) == names


@pytest.mark.parametrize("name", ["nope", "", "../csv", "csv@x"])
def test_each_of_several_trackers_must_be_one(name):
    with pytest.raises(ValueError, match=r"is not a choice: choose csv, mlflow, tensorboard, trackio or wandb$"):
        compose("train", [f"logger=[csv,{name}]"])


def test_presets_of_several_trackers_are_laid_over_one_another_as_hydra_composes_them():
    groups = {"logger": "[wandb,mlflow]"}
    assert merge_presets("train", groups) == composed_by_hydra("train", groups)


def test_a_project_that_no_tracker_reads_is_one_sentence(capsys):
    assert main(["train", "logger.project=x"]) == 2
    assert capsys.readouterr().err == (
        "logger.project=x does nothing without a tracker that has projects: add logger=wandb, mlflow or trackio, or "
        "remove it\n"
    )
    assert compose("train", ["logger.project=manyheads"]) == compose("train")


def test_a_link_of_a_trackers_own_is_none_of_ours(tmp_path):
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "latest-run").symlink_to("run-20261122")  # as its logger does; nothing of ours goes there
    refuse_links(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "wandb").symlink_to("/etc")
    with pytest.raises(ValueError, match="a/wandb is a link"):
        refuse_links(tmp_path)


@pytest.mark.parametrize("word", ["logger.project=https://password123@wandb.ai/x", "logger.project=0123fake456fake789"])
def test_a_secret_that_is_typed_as_a_project_is_refused_unsaid(word, monkeypatch, capsys):
    monkeypatch.setenv("WANDB_API_KEY", "0123fake456fake789")
    assert main(["train", word]) == 2
    said = capsys.readouterr().err
    assert said.startswith("logger.project holds ")
    assert not [one for one in ("password123", "0123fake") if one in said]


def test_the_project_of_a_folder_is_no_interpolation(tmp_path):
    (tmp_path / "config.yaml").write_text('logger: {wandb: true, project: "${oc.env:HF_TOKEN}"}\n')
    with pytest.raises(ValueError, match="holds an interpolation"):
        read_run(tmp_path)


def ask(*names):
    data, model = DataConfig(path="/data/rows.csv"), ModelConfig(n_heads=2)
    return RunConfig(data=data, model=model, logger=LoggerConfig(**dict.fromkeys(names, True)))


def run_folder(folder):
    (folder / "model").mkdir()
    (folder / "model" / "model.safetensors").write_bytes(b"weights")
    (folder / "report.html").write_text("<title>report</title>")


def stopped(kind, folder):
    with open_trackers(ask(kind), folder) as (one,):
        for step in (3, 6, 9):
            one.log_metrics({"loss": 1 / step, "epoch": 0}, step)
        assert not one.failed
        raise Stopped("a test", 130)


def interrupted_and_finished(kind, folder):
    """Two processes' worth of a run: stopped after step 9, resumed from step 6."""
    run_folder(folder)
    with pytest.raises(Stopped):
        stopped(kind, folder)
    with open_trackers(replace(ask(kind), model=ModelConfig(n_heads=4)), folder) as (one,):
        for step in (6, 9, 12):
            one.log_metrics({"loss": 1 / step, "epoch": 0}, step)
        one.log_metrics(ENDS, 13)
    assert not one.failed
    return one.run_id


STEPS = [(3, 1 / 3), (6, 1 / 6), (9, 1 / 9), (12, 1 / 12)]


@pytest.fixture
def real(tmp_path, monkeypatch):
    """A run folder whose trackers have no server but what a test starts, and secrets that none may write."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "store"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("WANDB_API_KEY", "0123fake456fake789fake0123fake456fake789")
    monkeypatch.setenv("HF_TOKEN", "hf_FakeButSecret0123456789abcdef")
    monkeypatch.setattr(sys, "argv", ["program", "--password=correct-horse-battery-staple"])
    folder = tmp_path / "cats"
    folder.mkdir()
    yield folder
    for path in tmp_path.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not [one for one in (b"0123fake", b"hf_FakeBut", b"correct-horse") if one in content], path


def needs(package):
    return pytest.mark.skipif(
        not find_spec(package), reason=f"{package} is not installed: pip install -e '.[track]', and mlflow"
    )


@pytest.mark.slow
@needs("tensorboard")
def test_tensorboards_own_reader_finds_one_run(real):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    interrupted_and_finished("tensorboard", real)
    found = EventAccumulator(str(real / "tensorboard"))
    found.Reload()
    assert [(one.step, one.value) for one in found.Scalars("loss")] == [(at, pytest.approx(x)) for at, x in STEPS]
    assert {name: found.Scalars(name)[0].value for name in ENDS} == ENDS
    (text,) = found.Tensors("settings/text_summary")
    assert b"model.n_heads: 2" in text.tensor_proto.string_val[0]


@pytest.mark.slow
@needs("sqlalchemy")
@needs("flask")
@needs("mlflow")
def test_a_server_of_mlflow_has_one_run(real, tmp_path, monkeypatch):
    from mlflow import MlflowClient

    with serving(tmp_path) as (address, server):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        record = interrupted_and_finished("mlflow", real)
        client = MlflowClient(address)
        (run,) = client.search_runs([client.get_experiment_by_name("manyheads").experiment_id])
        assert (run.info.run_id, run.info.status, run.info.run_name) == (record, "FINISHED", "cats")
        assert [(one.step, one.value) for one in client.get_metric_history(record, "loss")] == STEPS
        assert ENDS.items() <= run.data.metrics.items()
        assert run.data.params == {name: str(value) for name, value in plain_settings(ask("mlflow")).items()}
        assert [one.path for one in client.list_artifacts(record)] == ["model", "report.html"]
        assert [one.path for one in client.list_artifacts(record, "model")] == ["model/model.safetensors"]
        one = GuardedLogger("mlflow", real)
        one.open("manyheads", {"model.n_heads": 2})
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        began = time.monotonic()
        one.log_metrics({"loss": 0.1}, 20)
        assert one.failed
        assert time.monotonic() - began < 60


class serving:  # noqa: N801 - used as a function
    """A server of MLflow on loopback, with SQLite and a folder for files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        store = ["--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db", "--artifacts-destination", "artifacts"]
        command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1", *store]
        self.server = subprocess.Popen(command, cwd=self.folder, start_new_session=True)
        address, until = f"http://127.0.0.1:{port}", time.monotonic() + 180
        while True:
            try:
                with urllib.request.urlopen(f"{address}/health", timeout=5):
                    return address, self.server
            except OSError:
                assert time.monotonic() < until, "the server did not start"
                assert self.server.poll() is None
                time.sleep(0.5)

    def __exit__(self, *args):
        with suppress(ProcessLookupError):
            os.killpg(self.server.pid, signal.SIGKILL)
        self.server.wait()


@pytest.mark.slow
@needs("wandb")
def test_weights_and_biases_offline_files_are_of_one_run(real):
    record = interrupted_and_finished("wandb", real)
    files = sorted((real / "wandb").glob("offline-run-*/*.wandb"))
    assert [file.name for file in files] == [f"run-{record}.wandb"] * 2
    history, names, logged_settings, ends = [], [], {}, []
    for one in (record for file in files for record in wandb_records(file)):
        if (kind := one.WhichOneof("record_type")) == "history":
            items = {item.key or "/".join(item.nested_key): item.value_json for item in one.history.item}
            history.append({name: json.loads(value) for name, value in items.items()})
        elif kind == "artifact":
            names += [entry.path for entry in one.artifact.manifest.contents]
        elif kind == "config":
            logged_settings |= {item.key: json.loads(item.value_json) for item in one.config.update}
        elif kind == "exit":
            ends.append(one.exit.exit_code)
    assert [(row["trainer/global_step"], row["loss"]) for row in history if "loss" in row] == STEPS
    assert ENDS.items() <= next(row for row in history if "test/accuracy" in row).items()
    assert sorted(names) == ["model/model.safetensors", "report.html"]
    assert logged_settings["data.path"] == "/data/rows.csv"
    assert ends == [1, 0]


def wandb_records(path):
    """The records of a file of W&B, by its own protobuf: a log in the manner of LevelDB, in blocks of 32 KiB."""
    from wandb.proto import wandb_internal_pb2

    data, at, part = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if (left := 2**15 - at % 2**15) < 7:
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        part, at = part + data[at + 7 : at + 7 + size], at + 7 + size
        if kind in (1, 4):  # whole, or the last piece
            yield wandb_internal_pb2.Record.FromString(part)
            part = b""


@pytest.mark.slow
@needs("trackio")
def test_trackios_own_store_has_one_run(real):
    from trackio.sqlite_storage import SQLiteStorage

    record = interrupted_and_finished("trackio", real)
    assert SQLiteStorage.get_runs("manyheads") == [record]
    rows = SQLiteStorage.get_logs("manyheads", record)
    assert [(row["step"], row["loss"]) for row in rows if "loss" in row] == STEPS
    assert ENDS.items() <= next(row for row in rows if "test/accuracy" in row).items()
    assert SQLiteStorage.get_run_config("manyheads", record)["data.path"] == "/data/rows.csv"


def test_the_name_of_a_project_is_checked_as_settings_of_core_are():
    compose("train", ["logger.project=manyheads"])  # the default, though no tracker uses it
    with pytest.raises(ValueError, match=r"^logger\.project=.*holds a NUL, which no name and no file may: remove it$"):
        compose("train", ["logger.project=a\0b"])
    with pytest.raises(ValueError, match=r"^logger\.project="):
        compose("train", ["logger.project="])
