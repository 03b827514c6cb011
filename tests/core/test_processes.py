"""One run in two processes, joined by gloo on the CPU: one folder, every row counted once, ranks without rows."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from manyheads.runs.config_file import read_run
from manyheads.runs.folder import OUTPUT_VARIABLE

pytestmark = pytest.mark.slow  # seconds of both cores; in the fast suite tests/core/ranks has runs of two processes
N_TRAIN, N_TEST = 7, 9  # two ranks of four micro-batches of two rows: a rank has micro-batches without rows


def write_split(path: Path, start: int, n_rows: int) -> None:
    with path.open("w", newline="") as file:
        rows = [
            (f"number {n} {('purrs', 'barks')[n % 2]}", ("cat", "dog")[n % 2]) for n in range(start, start + n_rows)
        ]
        csv.writer(file).writerows([("text", "label"), *rows])


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The folder in which the command ran, and what it said."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "data").mkdir()
    for start, (split, n_rows) in enumerate({"train": N_TRAIN, "validation": 1, "test": N_TEST}.items()):
        write_split(folder / "data" / f"{split}.csv", 100 * start, n_rows)
    words = [
        "train", "data.path=data", "debug=fast", "hardware=ddp", "hardware.devices=2", "hardware.accelerator=cpu",
        "hardware.precision=fp32", "batch.rows=2", "batch.accumulate=4", "trainer.max_epochs=2",
        "checkpoint.patience=5",
    ]  # fmt: skip
    environment = os.environ | {"MANYHEADS_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    for name in (OUTPUT_VARIABLE, "LOCAL_RANK", "RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "manyheads", *words]
    return folder, subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def test_it_ends_well_and_says_each_thing_once(done):
    _, run = done
    assert run.returncode == 0, run.stderr
    for epoch in (1, 2):
        assert run.stderr.count(f"epoch {epoch}, step {epoch}: loss ") == 1
    assert run.stderr.count("devices: 2 CPU processes\n") == 1
    for noise in ("Traceback", "Warning", "warn", "sync_dist", "recommended", "RANK"):
        assert noise not in run.stderr, run.stderr
    assert run.stdout.count("95 % intervals") == 1


def test_there_is_one_run_folder_with_everything_in_it(done):
    folder, _ = done
    assert sorted(path.name for path in folder.iterdir()) == ["cache", "data", "outputs"]
    (run,) = (folder / "outputs").iterdir()
    names = {"config.yaml", "summary.json", "metrics.csv", "checkpoints", "model", "report.html", "run.log", "ranks"}
    assert {path.name for path in run.iterdir()} == names
    assert len(list(folder.rglob("summary.json"))) == 1
    assert {path.name for path in (run / "ranks").iterdir()} == {"rank-0.json", "rank-1.json", "rank-1.log"}
    for rank in (0, 1):
        record = json.loads((run / "ranks" / f"rank-{rank}.json").read_text())
        assert (record["rank"], record["step"], record["ended"]) == (rank, 2, "done")
    assert read_run(run).hardware.devices == 2


def test_every_row_is_counted_once(done):
    folder, _ = done
    (file,) = folder.rglob("summary.json")
    summary = json.loads(file.read_text())
    assert summary["rows"] == {"train": N_TRAIN, "validation": 1, "test": N_TEST}
    assert (summary["epochs"], summary["steps"]) == (2, 2)
    assert summary["best"]["epoch"] in (1, 2)
    assert summary["real_tokens_per_s"] > 0
    with (file.parent / "metrics.csv").open() as metrics:
        rows = list(csv.DictReader(metrics))
    accuracies = [float(row["train_accuracy"]) * N_TRAIN for row in rows if row["train_accuracy"]]
    assert len(accuracies) == 2
    assert accuracies == pytest.approx([round(one) for one in accuracies], abs=1e-5)
    assert {float(row["validation_accuracy"]) for row in rows if row["validation_accuracy"]} <= {0.0, 1.0}
    tokens = summary["real_tokens_per_s"] * summary["seconds"]
    assert tokens == pytest.approx(2 * tokens_of_train(folder), rel=1e-6)


def tokens_of_train(folder: Path) -> int:
    """As the shipped tokenizer counts them."""
    from tokenizers import Tokenizer

    (file,) = folder.rglob("tokenizer.json")
    tokenizer = Tokenizer.from_file(str(file))
    with (folder / "data" / "train.csv").open() as rows:
        return sum(len(tokenizer.encode(row["text"]).ids) for row in csv.DictReader(rows))


ENDS = """
import atexit, sys
import torch.distributed as dist
from manyheads.cli.main import main

if __name__ == "__main__":
    atexit.register(lambda: print("groups are", "open" if dist.is_initialized() else "closed"))  # after all others
    code = main(["train", "data.path=data", "debug=fast", "hardware.accelerator=cpu", "batch.rows=4", "output=run"])
    print("groups were", "open" if dist.is_initialized() else "closed")
    sys.exit(code)
"""


def test_ranks_close_their_groups_before_they_end(ranks_run):
    """A thread that a group has left would abort its process."""
    (ranks_run.folder / "data").mkdir()
    for start, (split, n_rows) in enumerate({"train": 16, "validation": 4, "test": 4}.items()):
        write_split(ranks_run.folder / "data" / f"{split}.csv", 100 * start, n_rows)
    for job in ranks_run.script(ENDS):
        assert job.code() == 0, job.err
        assert job.out.endswith("groups were open\ngroups are closed\n")
