"""Several processes that are stopped or killed go on to the same bits; another number of them, with the same rows."""

import csv
import io
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from manyheads.runs.checkpoints import newest_checkpoint
from manyheads.training.state import load_pytree, save_pytree
from tests.core.ranks.conftest import starting

N_ROWS, EPOCHS = 26, 2  # of 40: what is left for training
WORDS = [
    "debug=fast", "hardware=cpu", "model.dropout=0.1", "model.dropout_tokens=0.1", "batch.rows=3", "batch.accumulate=3",
    "optim.average=20", f"trainer.max_epochs={EPOCHS}", "resume=auto", "logger.every=1",
]  # fmt: skip
STEADY = ["model.dropout=0", "model.dropout_tokens=0"]
STEADY += ["hardware.precision=fp32"]


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shared")
    with (folder / "rows.csv").open("w", newline="") as file:
        texts = [f"number {n} {('purrs', 'barks')[n % 2]} {'so ' * (n * n % 11)}" for n in range(40)]
        rows = [(text, ("cat", "dog")[n % 2]) for n, text in enumerate(texts)]
        csv.writer(file).writerows([("text", "label"), *rows])
    return folder


@pytest.fixture
def words(home, tmp_path) -> Callable[..., list[str]]:
    """`words(name, ...)`: those of a run in tmp_path / name."""
    return lambda name, *more: [
        "train", f"data.path={home / 'rows.csv'}", f"output={tmp_path / name}", *WORDS, *more
    ]  # fmt: skip


@pytest.fixture(scope="module")
def whole(forks, home):
    """A run of two processes that nobody stopped, in home / whole; when it saves changes nothing that it leaves."""
    with starting(forks, home) as start:
        crew = start(["train", f"data.path={home / 'rows.csv'}", f"output={home / 'whole'}", *WORDS])
        assert crew.codes() == [0, 0], crew.said(0)
        yield crew


def ended(folder: Path) -> dict[str, object]:
    """What a run leaves behind that does not tell the time, and the state of all ranks it ended in, as bytes."""
    last = newest_checkpoint(folder / "checkpoints")
    assert last is not None
    found: dict[str, object] = {"name": last.name}
    for file in sorted(last.glob("*.safetensors")):
        found[file.name] = file.read_bytes()
        if file.name.startswith(("rank-", "state")):
            nest = load_pytree(file)
            for its in nest["callbacks"].values():
                its.pop("seconds", None)
            found[file.name] = whole = io.BytesIO()
            save_pytree(nest, whole)
            found[file.name] = whole.getvalue()
    summary = json.loads((folder / "summary.json").read_text())
    times = ("seconds", "wall_seconds", "real_tokens_per_s", "output")
    found["summary"] = {name: value for name, value in summary.items() if name not in times}
    found["metrics"] = (folder / "metrics.csv").read_text()
    found["model"] = (folder / "model" / "model.safetensors").read_bytes()
    return found


def steps(crews) -> dict[int, tuple[int, list[int]]]:
    """Epoch and rows of each step, over all ranks; of a step that was done twice the last time counts."""
    found: dict[int, tuple[int, list[int]]] = {}
    for crew in crews:
        of_crew: dict[int, tuple[int, list[int]]] = {}
        for step, epoch, rows in crew.rows():
            of_crew[step] = epoch, sorted([*of_crew.get(step, (0, []))[1], *rows])
        found |= of_crew
    return dict(sorted(found.items()))


def segments(start, words, stops: list[tuple[int, str]], code: int) -> list:
    """Start the run again and again, each time with a fault and a number of processes, and wait for this exit code."""
    crews = []
    for n, fault in stops:
        crews.append(start(words, n, MANYHEADS_FAULT=fault))
        codes = crews[-1].codes()
        assert codes == [code] * n if code > 0 else code in codes, crews[-1].said(0)
    return crews


def test_three_segments_of_two_processes_are_one_run(whole, words, start, home, tmp_path):
    stops = [(2, "step:3:term:1"), (2, "validation:1:term:0")]
    crews = [*segments(start, words("parts"), stops, 143), start(words("parts"))]
    assert crews[-1].codes() == [0, 0], crews[-1].said(0)
    assert sum(len(crew.rows()) for crew in crews) == len(whole.rows()), "every batch once"
    assert steps(crews) == steps([whole])
    for epoch in range(EPOCHS):
        rows = sorted(row for of, its in steps(crews).values() if of == epoch for row in its)
        assert rows == list(range(len(rows)))
        assert len(rows) > N_ROWS
    parts, once = ended(tmp_path / "parts"), ended(home / "whole")
    assert list(parts) == list(once)
    assert {"rank-0.safetensors", "rank-1.safetensors", "state.safetensors"} <= set(parts)
    for name in parts:
        assert parts[name] == once[name], name
    said = (tmp_path / "parts" / "run.log").read_text()
    assert said.count("stopped by SIGTERM at step") == said.count("resumed at step") == 2


@pytest.mark.slow
@pytest.mark.parametrize("validation", ["trainer.val_check_interval=0.5", "trainer.val_check_interval=4"])
def test_two_then_one_then_two_processes_train_on_the_same_rows_in_the_same_order(validation, words, start, tmp_path):
    more = [*STEADY, validation]
    whole = start(words("whole", *more), 1)
    assert whole.codes() == [0], whole.said(0)
    stops = [(2, "step:3:term"), (1, "step:2:term")]
    crews = [*segments(start, words("parts", *more), stops, 143), start(words("parts", *more))]
    assert crews[-1].codes() == [0, 0], crews[-1].said(0)
    assert steps(crews) == steps([whole])
    said = (tmp_path / "parts" / "run.log").read_text()
    for change in (
        "hardware.devices=1 from step",
        "1 processes resume what 2 began",
        "hardware.devices=2 from step",
    ):
        assert change in said
    one, other = (list(csv.DictReader((tmp_path / name / "metrics.csv").open())) for name in ("whole", "parts"))
    assert len(one) == len(other)
    for row, its in zip(one, other, strict=True):
        assert (row["step"], row["epoch"]) == (its["step"], its["epoch"])
        for name in ("train_loss", "validation_loss", "train_accuracy"):
            assert bool(row[name]) == bool(its[name])
            assert float(row[name] or 0) == pytest.approx(float(its[name] or 0), abs=1e-4)
    summaries = [json.loads((tmp_path / name / "summary.json").read_text()) for name in ("whole", "parts")]
    counted = [one["real_tokens_per_s"] * one["seconds"] for one in summaries]
    assert counted[0] == pytest.approx(counted[1], rel=1e-9), "no token is counted twice or forgotten"


def n_tokens(folder: Path) -> float:
    summary = json.loads((folder / "summary.json").read_text())
    return summary["real_tokens_per_s"] * summary["seconds"]


@pytest.mark.slow
def test_what_two_processes_have_counted_is_so_where_one_judges(whole, words, start, home, tmp_path):
    killed = start(words("parts"), MANYHEADS_FAULT="trained:1:kill")
    assert killed.codes() == [-signal.SIGKILL] * 2, killed.said(0)
    rest = start(words("parts"), 1)
    assert rest.codes() == [0], rest.said(0)
    assert n_tokens(tmp_path / "parts") == pytest.approx(n_tokens(home / "whole"))


@pytest.mark.parametrize("strategy", ["fsdp", pytest.param("ddp", marks=pytest.mark.slow)])
def test_a_limit_that_is_lowered_to_what_is_done_ends_the_run_there(strategy, whole, words, start, home, tmp_path):
    per_epoch = len({step for step, (epoch, _) in steps([whole]).items() if epoch == 0})
    more = [f"hardware.strategy={strategy}", "checkpoint.every=1"]
    killed = start(words("parts", *more), MANYHEADS_FAULT=f"step:{per_epoch + 2}:kill")
    assert killed.codes() == [-signal.SIGKILL] * 2, killed.said(0)
    rest = start(words("parts", *more, "trainer.max_epochs=1"))
    assert rest.codes() == [0, 0], rest.said(0)
    summary = json.loads((tmp_path / "parts" / "summary.json").read_text())
    assert (summary["epochs"], summary["steps"]) == (1, per_epoch)
    assert n_tokens(tmp_path / "parts") == pytest.approx(n_tokens(home / "whole") / EPOCHS)


SAVES = ("begin", "within", "between", "manifest", "rename", "renamed", "delete", "deleting")
FAULTS = {  # the rank, who writes, and the point, by which it comes so many times
    **{(0, mode, one): 2 for one in SAVES for mode in ("never", "always")},
    **{(rank, "always", "step"): 3 for rank in (0, 1)},
    **{(rank, "never", one): 1 for rank in (0, 1) for one in ("validation", "trained")},
}
QUICK = [(1, "always", "step")]


@pytest.mark.parametrize(
    ("rank", "background", "point"),
    [*QUICK, *(pytest.param(*one, marks=pytest.mark.slow) for one in FAULTS if one not in QUICK)],
)
def test_a_rank_that_is_killed_loses_nothing(rank, background, point, whole, words, start, home, tmp_path):
    more = ["checkpoint.every=2", "hardware.timeout=20", f"checkpoint.background={background}"]
    nth = FAULTS[rank, background, point]
    killed = start(words("parts", *more), MANYHEADS_FAULT=f"{point}:{nth}:kill:{rank}")
    codes = killed.codes()
    assert codes[rank] == -signal.SIGKILL
    assert codes[1 - rank] not in (0, -signal.SIGKILL), "the other notices, and does not hang"
    rest = start(words("parts", *more))
    assert rest.codes() == [0, 0], rest.said(0)
    assert steps([killed, rest]) == steps([whole])
    parts, once = ended(tmp_path / "parts"), ended(home / "whole")
    for name in once:
        assert parts[name] == once[name], name


@pytest.mark.parametrize(
    ("one", "code"),
    [
        ("SIGTERM", 143),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in (("SIGUSR1", 138), ("SIGINT", 130))),
    ],
)
def test_a_signal_to_one_rank_stops_all_behind_the_same_step(one, code, words, start, tmp_path):
    crew = start(words("run", "trainer.max_epochs=100000", "trainer.max_steps=-1", "trainer.limit_val_batches=0"))
    wait_for(crew, 20)
    crew.send(signal.Signals[one], 1)
    assert crew.codes() == [code, code], crew.said(0)
    stopped = newest_checkpoint(tmp_path / "run" / "checkpoints")
    assert stopped is not None
    last = {rank: max(step for step, _, _ in rows_of(crew, rank)) for rank in (0, 1)}
    assert last[0] == last[1] == int(stopped.name[5:]) - 1


@pytest.mark.slow
def test_a_disk_that_is_full_for_the_first_ends_both_in_a_sentence(whole, words, start, home, tmp_path):
    """What is written in the background is known by the first alone, which tells the other."""
    more = ["checkpoint.every=2", "checkpoint.background=always"]
    full = start(words("parts", *more), MANYHEADS_FAULT="manifest:2:full:0")
    assert full.codes() == [2, 2], full.said(0)
    why = (
        f"the checkpoint of step 4 cannot be written to {tmp_path / 'parts' / 'checkpoints'} (No space left on device)"
    )
    assert full.said(0).splitlines()[-1].startswith(why)
    rest = start(words("parts", *more))
    assert rest.codes() == [0, 0], rest.said(0)
    assert ended(tmp_path / "parts")["model"] == ended(home / "whole")["model"]


@pytest.mark.slow
def test_time_that_is_up_and_a_signal_within_a_save(words, start, tmp_path):
    endless = ["trainer.max_epochs=100000", "trainer.max_steps=-1", "trainer.limit_val_batches=0"]
    late = start(words("late", *endless, "trainer.max_time=00:00:00:03"))
    assert late.codes() == [124, 124], late.said(0)
    assert "stopped by trainer.max_time at step" in (tmp_path / "late" / "run.log").read_text()
    saving = start(words("saving", *endless, "checkpoint.every=3"), MANYHEADS_FAULT="within:2:term:0")
    assert saving.codes() == [143, 143], saving.said(0)
    stopped = newest_checkpoint(tmp_path / "saving" / "checkpoints")
    assert stopped is not None
    assert int(stopped.name[5:]) in (4, 5), "the save is ended, and a step later another is made"


def test_a_second_signal_leaves_at_once(words, start):
    crew = start(words("run", "trainer.max_epochs=100000", "trainer.max_steps=-1"), MANYHEADS_FAULT="within:1:hang:0")
    wait_for(crew, 1)
    crew.send(signal.SIGINT)  # the lower number first, as Python handles two pending signals in that order
    time.sleep(0.5)
    crew.send(signal.SIGTERM, 0)
    crew.send(signal.SIGTERM, 1)
    codes = crew.codes()
    assert codes[1] == 143, crew.said(1)
    if codes[0] != 143:  # it saw that the other was gone before it had its own signal
        assert (codes[0], "rank 1 died" in crew.said(0)) == (69, True), crew.said(0)


def rows_of(crew, rank: int) -> list:
    return [json.loads(line) for line in (crew.folder / f"rows-{rank}").read_text().splitlines()]


def wait_for(crew, n_batches: int) -> None:
    """Until every rank has trained on so many batches."""
    until = time.monotonic() + 300
    files = [crew.folder / f"rows-{rank}" for rank in range(len(crew.processes))]
    while not all(file.exists() and len(file.read_text().splitlines()) >= n_batches for file in files):
        assert time.monotonic() < until, crew.said(0)
        time.sleep(0.05)
