"""Checkpoints on disk: whole or absent, the newest whole one is found, two are always there."""

import errno
import json
import os
import signal
from pathlib import Path

import pytest

from manyheads.distributed import faults
from manyheads.runs.checkpoints import MANIFEST, delete_leftovers, is_valid, newest_checkpoint, write_checkpoint
from manyheads.runs.files import replace_folder, write_atomic

POINTS = [one for one in faults.POINTS if one not in ("step", "loss", "memory", "validation", "chunk", "trained")]


@pytest.fixture(autouse=True)
def _no_fault(monkeypatch):
    monkeypatch.delenv(faults.VARIABLE, raising=False)
    faults.reset_counts()


def put(folder: Path, step: int, keep: int = 2) -> Path:
    text = f"state of {step} " * 100
    files = {"a.bin": lambda file: file.write(text.encode()), "b.json": lambda file: file.write(b"[]")}
    (folder.parent / "best").write_text("the best")
    return write_checkpoint(folder, step, files, {"best": folder.parent / "best"}, keep=keep)


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


@pytest.fixture
def order(monkeypatch) -> list[tuple[str, str]]:
    """What is waited for to be on the disk, and what gets its final name, in their order."""
    seen: list[tuple[str, str]] = []

    def name(path: Path) -> str:
        return "part" if path.name.endswith(".part") else path.name

    def fsync(descriptor: int) -> None:
        seen.append(("on disk", name(Path(os.readlink(f"/proc/self/fd/{descriptor}")))))

    monkeypatch.setattr(os, "fsync", fsync)
    for function in ("rename", "replace"):
        rename = getattr(os, function)

        def renamed(old: Path, new: Path, rename=rename) -> None:
            seen.append(("named", name(Path(new))))
            rename(old, new)

        monkeypatch.setattr(os, function, renamed)
    return seen


def test_a_checkpoint_gets_its_name_once_the_disk_holds_all_of_it(tmp_path, order):
    put(tmp_path / "checkpoints", 5)
    at = order.index(("named", "step-00000005"))
    assert [one for _, one in order[:at]] == ["a.bin", "b.json", MANIFEST, "part"]
    assert order[at + 1 :] == [("on disk", "checkpoints")]


def test_a_file_or_folder_of_results_gets_its_name_once_the_disk_holds_it(tmp_path, order):
    write_atomic(tmp_path / "summary.json", "{}")
    assert order == [("on disk", "part"), ("named", "summary.json")]
    order.clear()
    with replace_folder(tmp_path / "model") as part:
        (part / "weights").write_bytes(b"1")
    assert order == [("on disk", "weights"), ("named", "model"), ("on disk", tmp_path.name)]


def test_a_checkpoint_reads_back_and_the_oldest_goes(tmp_path):
    folder = tmp_path / "checkpoints"
    assert newest_checkpoint(folder) is None
    for step in (5, 10, 100_000_000, 20):
        assert is_valid(put(folder, step))
    assert names(folder) == ["step-00000020", "step-100000000"]
    found = newest_checkpoint(folder)
    assert found == folder / "step-100000000"
    assert found is not None
    assert (found / "a.bin").read_bytes().startswith(b"state of 100000000 ")
    assert (found / "best").read_text() == "the best"


def test_damaged_ones_of_later_steps_do_not_push_out_the_new(tmp_path):
    """A run whose checkpoints are all damaged begins anew, far below their steps."""
    folder = tmp_path / "checkpoints"
    for step in (100, 110):
        (put(folder, step) / "a.bin").write_text("damaged")
    for step in (10, 20, 30):
        assert newest_checkpoint(folder) == (folder / f"step-{step - 10:08d}" if step > 10 else None)
        put(folder, step)
    assert [name for name in names(folder) if is_valid(folder / name)] == ["step-00000020", "step-00000030"]


def test_what_it_took_over_stays_when_a_new_one_takes_its_place(tmp_path):
    one = put(tmp_path / "checkpoints", 1)
    (tmp_path / "new").write_text("better")
    os.replace(tmp_path / "new", tmp_path / "best")
    assert (one / "best").read_text() == "the best"
    assert is_valid(one)


DAMAGES = {
    "a byte is another": lambda one: (one / "a.bin").write_bytes(b"S" + (one / "a.bin").read_bytes()[1:]),
    "a file is cut short": lambda one: (one / "a.bin").write_bytes((one / "a.bin").read_bytes()[:-1]),
    "a file is missing": lambda one: (one / "b.json").unlink(),
    "there is no manifest": lambda one: (one / MANIFEST).unlink(),
    "the manifest is cut short": lambda one: (one / MANIFEST).write_text((one / MANIFEST).read_text()[:-9]),
    "the manifest is of another step": lambda one: one.rename(one.with_name("step-00000003")),
    "the manifest lists nothing": lambda one: (one / MANIFEST).write_text('{"format": 2, "step": 2, "files": {}}'),
    "the manifest is of another format": lambda one: (one / MANIFEST).write_text(
        (one / MANIFEST).read_text().replace('"format": 2', '"format": 1')
    ),
    "the manifest leads out of the folder": lambda one: (one / MANIFEST).write_text(
        (one / MANIFEST).read_text().replace("b.json", "../best")
    ),
    "the manifest is no mapping": lambda one: (one / MANIFEST).write_text("[" * 100_000),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_one_is_passed_over_and_can_be_written_again(damage, tmp_path):
    folder = tmp_path / "checkpoints"
    put(folder, 1)
    DAMAGES[damage](put(folder, 2))
    assert newest_checkpoint(folder) == folder / "step-00000001"
    put(folder, 2)
    assert newest_checkpoint(folder) == folder / "step-00000002"


def killed(folder: Path, step: int, fault: str) -> None:
    """Save in a process of its own, which is to be killed on the way."""
    child = os.fork()
    if child == 0:
        os.environ[faults.VARIABLE] = fault
        put(folder, step)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize(("point", "nth"), [(one, 1) for one in POINTS] + [("within", 2), ("between", 2)])
def test_killed_at_any_point_nothing_is_lost_or_half_written(point, nth, tmp_path):
    folder = tmp_path / "checkpoints"
    put(folder, 1)
    put(folder, 2)
    killed(folder, 3, f"{point}:{nth}")
    done = POINTS.index(point) >= POINTS.index("renamed")
    assert newest_checkpoint(folder) == folder / ("step-00000003" if done else "step-00000002")
    whole = [one for one in folder.iterdir() if one.name.startswith("step-")]
    assert len(whole) >= 2
    assert all(is_valid(one) for one in whole), "a final name is that of a whole checkpoint"
    delete_leftovers(folder)
    assert not [name for name in names(folder) if name.startswith(".")]
    put(folder, 4)
    assert newest_checkpoint(folder) == folder / "step-00000004"


@pytest.mark.parametrize("point", ["begin", "within", "between", "manifest", "rename"])
def test_a_full_disk_leaves_what_there_was(point, tmp_path, monkeypatch):
    folder = tmp_path / "checkpoints"
    put(folder, 1)
    put(folder, 2)
    before = names(folder)
    monkeypatch.setenv(faults.VARIABLE, f"{point}:1:full")
    with pytest.raises(OSError, match="No space left") as full:
        put(folder, 3)
    assert full.value.errno == errno.ENOSPC
    assert names(folder) == before
    assert newest_checkpoint(folder) == folder / "step-00000002"


def test_a_name_that_is_no_checkpoint_is_left_alone(tmp_path):
    folder = tmp_path / "checkpoints"
    put(folder, 1)
    for name in ("step-2", "step-00000009x", "notes", ".step-00000009"):
        (folder / name).mkdir()
    (folder / "best.safetensors").touch()
    (folder / ".best.safetensors.77-0123456789abcdef.part").touch()
    (folder / ".step-00000009.0123456789abcdef.part").mkdir()
    delete_leftovers(folder)
    assert newest_checkpoint(folder) == folder / "step-00000001"
    assert len(names(folder)) == 6


def test_faults_are_off_unless_asked_for(monkeypatch):
    for point in faults.POINTS:
        faults.inject_fault(point)
    monkeypatch.setenv(faults.VARIABLE, "nowhere")
    with pytest.raises(AssertionError, match="no such point"):
        faults.inject_fault("step")
    source = Path(faults.__file__).parents[1]
    used = [line for file in source.rglob("*.py") for line in file.read_text().splitlines() if " inject_fault(" in line]
    for point in faults.POINTS:
        assert any(f'inject_fault("{point}"' in line for line in used), f"{point} is nowhere in the code"


def test_a_manifest_lists_every_file(tmp_path):
    one = put(tmp_path / "checkpoints", 7)
    manifest = json.loads((one / MANIFEST).read_text())
    assert manifest["step"] == 7
    assert {*manifest["files"], MANIFEST} == {file.name for file in one.iterdir()}
