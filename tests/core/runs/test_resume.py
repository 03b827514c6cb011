"""Where a run begins, by the words typed and by what its folder holds."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from manyheads.config import BatchConfig, CheckpointConfig, DataConfig, HardwareConfig, OptimConfig, Resume, RunConfig
from manyheads.config.facts import settings
from manyheads.config.trainer_flags import TRAINER_FLAGS, WARNED_FLAGS, default_trainer
from manyheads.runs.checkpoints import MANIFEST, write_checkpoint
from manyheads.runs.config_file import save_run
from manyheads.runs.resolve import with_data
from manyheads.runs.resume import check_limits, find_start, resume_policy


def stopped(folder: Path, step: int = 12, **more: Any) -> None:
    """A run that was stopped at `step`, as far as its folder tells."""
    folder.mkdir(exist_ok=True)
    save_run(RunConfig(output=str(folder)), folder / "config.yaml")
    place = {"step": step, "epoch": 0, "batch": step, "batches": step, "seconds": 3.5, "data": "a hash"}
    progress = json.dumps(place | more).encode()
    write_checkpoint(folder / "checkpoints", step, {"progress.json": lambda file: file.write(progress)}, {}, keep=2)


def run(folder: Path, resume: str = "auto", **more: Any) -> RunConfig:
    return RunConfig(output=str(folder), resume=Resume[resume], **more)


def notes(asked: RunConfig) -> list[str]:
    """What the log says of changed settings, those of training's limits included."""
    start = find_start(asked)
    resolved = with_data(start.with_resolved(asked), n_rows=500, n_classes=2, multi=False)
    return [*start.notes, *check_limits(start, resolved)]


def test_somebody_has_decided_on_every_setting():
    flags = [*TRAINER_FLAGS]
    for name in (*settings(RunConfig), *(f"trainer.{flag}" for flag in flags)):
        assert resume_policy(name) in ("free", "warn", "refuse"), name
    assert set(WARNED_FLAGS) <= set(flags), "there is no such flag"
    with pytest.raises(KeyError):
        resume_policy("a.setting.that.nobody.thought.of")


def test_what_a_change_means_for_a_run_that_is_resumed():
    """By the word of its own field, or of the section around it."""
    assert {resume_policy(name) for name in ("output", "data.path", "trainer.max_time")} == {"free"}
    assert {resume_policy(name) for name in ("hardware.devices", "optim.few_epochs", "trainer.max_steps")} == {"warn"}
    refused = (
        "seed",
        "data.label",
        "model.n_heads",
        "optim.class_weights",
        "trainer.anything",
        "checkpoint.metric",
    )
    assert {resume_policy(name) for name in refused} == {"refuse"}


@pytest.mark.parametrize("resume", ["auto", "must"])
def test_the_newest_checkpoint_is_found(resume, tmp_path):
    stopped(tmp_path)
    stopped(tmp_path, 20)
    (tmp_path / "checkpoints" / ".step-00000030.0123456789abcdef.part").mkdir()
    start = find_start(run(tmp_path, resume))
    assert start.checkpoint == tmp_path / "checkpoints" / "step-00000020"
    assert (start.progress["step"], start.seconds, start.finished, start.notes) == (20, 3.5, False, [])
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2, "what a killed save left is gone"
    (tmp_path / "checkpoints" / "step-00000020" / MANIFEST).unlink()
    assert find_start(run(tmp_path, resume)).progress["step"] == 12
    (tmp_path / "summary.json").touch()
    assert find_start(run(tmp_path, resume)).finished


@pytest.mark.parametrize("kind", ["no folder", "an empty folder", "a run without a whole checkpoint"])
def test_auto_starts_where_there_is_nothing_and_must_refuses(kind, tmp_path):
    folder = tmp_path / "run"
    if kind != "no folder":
        folder.mkdir()
    if kind.startswith("a run"):
        stopped(folder)
        (folder / "checkpoints" / "step-00000012" / MANIFEST).unlink()
    assert find_start(run(folder)) == find_start(run(tmp_path / "new"))
    with pytest.raises(ValueError, match=r"^resume=must, but .* holds no checkpoint that is whole: use resume=auto"):
        find_start(run(folder, "must"))


def test_what_is_never_touched(tmp_path):
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(ValueError, match=r"is not empty and holds no run with its config\.yaml: name another folder"):
        find_start(run(tmp_path))
    with pytest.raises(ValueError, match="exists and is not empty: name a new folder"):
        find_start(run(tmp_path, "never"))
    with pytest.raises(ValueError, match="is a file"):
        find_start(run(tmp_path / "thesis.txt"))
    with pytest.raises(
        ValueError, match=r"^output is empty, but resume=auto and resume=must resume a run by its folder"
    ):
        find_start(RunConfig(resume=Resume.auto))


@pytest.mark.parametrize("finished", [False, True])
def test_a_finished_run_refuses_the_settings_that_an_unfinished_one_refuses(finished, tmp_path):
    stopped(tmp_path)
    if finished:
        (tmp_path / "summary.json").touch()
    assert find_start(run(tmp_path, test=False)).finished is finished
    with pytest.raises(ValueError, match=r"^optim.lr=0.5, but the run in .* has optim.lr=0.001, which its checkpoints"):
        find_start(run(tmp_path, optim=OptimConfig(lr=0.5)))
    later = run(tmp_path, trainer=default_trainer() | {"max_steps": 99})
    if finished:
        with pytest.raises(
            ValueError, match=r"is trained to its end, too late for trainer.max_steps=99: leave that as"
        ):
            notes(later)
        assert find_start(run(tmp_path, hardware=HardwareConfig(threads=1))).finished
    else:
        assert len(notes(later)) == 1


def test_an_interrupted_run_is_gone_on_with_rather_than_deleted(tmp_path):
    stopped(tmp_path)
    with pytest.raises(ValueError, match=r"holds a run that is not finished: add resume=auto to resume it, or name"):
        find_start(run(tmp_path, "never"))
    with pytest.raises(ValueError, match=r"exists and is not empty: name a new folder$"):
        find_start(run(tmp_path, "never", dry=True))  # which goes on with nothing
    (tmp_path / "summary.json").touch()
    with pytest.raises(ValueError, match=r"exists and is not empty: name a new folder$"):
        find_start(run(tmp_path, "never"))


def test_settings_that_changed_are_free_warned_or_refused(tmp_path):
    stopped(tmp_path)
    free = run(tmp_path, checkpoint=CheckpointConfig(every=7, keep=3), data=DataConfig(cache="elsewhere"), test=False)
    assert find_start(free).notes == []
    later = run(tmp_path, trainer=default_trainer() | {"max_steps": 99})
    assert notes(later) == ["trainer.max_steps=99 from step 12 on, where the run began with trainer.max_steps=2500"]
    other = run(tmp_path, optim=OptimConfig(lr=0.5))
    sentence = (
        f"optim.lr=0.5, but the run in {tmp_path} has optim.lr=0.001, which its checkpoints depend on: "
        "leave that as it was, or start a new run in another folder"
    )
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        find_start(other)
    assert str(refused.value) == sentence
    with pytest.raises(ValueError, match=r"^trainer.noon=1, but the run in .* has trainer.noon=null"):
        find_start(run(tmp_path, trainer=default_trainer() | {"noon": 1}))
    weights = run(tmp_path, optim=OptimConfig(class_weights={"joy": 2.0}))
    with pytest.raises(ValueError, match=r"^optim.class_weights={'joy': 2.0}, but the run in .*class_weights=none, w"):
        find_start(weights)
    assert find_start(run(tmp_path, trainer=default_trainer() | {"max_time": {"hours": 1}})).notes == []


@pytest.mark.parametrize(
    ("place", "limit", "refused"),
    [
        ({}, {"max_steps": 12}, True),
        ({}, {"max_steps": 13}, False),
        ({"epoch": 2, "batch": 1}, {"max_epochs": 2}, True),
        ({"epoch": 2, "batch": 1}, {"max_epochs": 3}, False),
        ({"epoch": 3, "batch": 0}, {"max_epochs": 2}, True),
        ({"epoch": 2, "batch": 0}, {"max_epochs": 2}, False),  # saved at the end of its last epoch, which is judged
        ({"epoch": 2, "batch": 0}, {"max_steps": 12}, False),
    ],
)
def test_a_limit_that_was_passed_is_refused(place, limit, refused, tmp_path):
    """It would end the run at once, with weights that were never validated."""
    stopped(tmp_path, **place)
    typed = run(tmp_path, optim=OptimConfig(few_epochs=0), trainer=default_trainer() | limit)
    save_run(replace(typed, trainer=default_trainer()), tmp_path / "config.yaml")
    if not refused:
        assert notes(typed)
        return
    (name, value), what = *limit.items(), next(iter(limit)).removeprefix("max_")
    with pytest.raises(ValueError, match=rf"^trainer.{name}={value}, but the run in .* has done \d+ {what} and is not"):
        notes(typed)


def test_a_budget_that_was_used_up_is_refused_once_it_is_counted_in_steps(tmp_path):
    stopped(tmp_path)
    typed = run(tmp_path, budget="5ktok")
    start = find_start(typed)
    settled = replace(typed, trainer=default_trainer() | {"max_steps": 9})
    with pytest.raises(
        ValueError, match=r"^budget=5ktok, which is 9 steps, but the run in .* has done 12 steps and is"
    ):
        check_limits(start, settled)


def test_a_training_that_is_done_cannot_be_changed(tmp_path):
    stopped(tmp_path, finished=True)
    assert find_start(run(tmp_path)).progress["finished"]
    with pytest.raises(ValueError, match=r"is trained to its end, too late for trainer.max_epochs=9: leave that as it"):
        notes(run(tmp_path, trainer=default_trainer() | {"max_epochs": 9}))


def test_another_number_of_processes_goes_on_and_is_told(tmp_path):
    stopped(tmp_path)
    two = run(tmp_path, hardware=HardwareConfig(devices=2))
    assert find_start(two).notes == ["hardware.devices=2 from step 12 on, where the run began with hardware.devices=1"]
    stopped(tmp_path, 13, finished=True)
    assert find_start(two).progress["finished"], "only its end is left, whoever does it"


def test_only_the_first_process_deletes_leftovers_and_refuses_what_it_is_about_to_write(tmp_path, monkeypatch):
    stopped(tmp_path)
    (tmp_path / "checkpoints" / ".step-00000030.0123456789abcdef.part").mkdir()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert find_start(run(tmp_path)).progress["step"] == 12
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "ranks").mkdir()
    assert find_start(run(tmp_path / "new")).checkpoint is None
    monkeypatch.setenv("RANK", "0")
    assert find_start(run(tmp_path)).progress["step"] == 12
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1


def test_batches_that_were_found_are_found_no_second_time(tmp_path):
    stopped(tmp_path)
    auto = run(tmp_path, batch=BatchConfig(tokens="auto"))
    start = find_start(auto)
    assert (start.notes, start.with_resolved(auto).batch.tokens) == ([], BatchConfig().tokens)
    assert find_start(run(tmp_path / "new", batch=BatchConfig(tokens="auto"))).with_resolved(auto) == auto
