"""Files and folders are replaced whole or not at all, and are open to whom the umask says."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from manyheads.errors import UserError
from manyheads.runs.files import refuse_unwritable, replace_file, replace_folder


@pytest.fixture(params=[0o022, 0o077, 0o002])
def mode(request: pytest.FixtureRequest) -> Iterator[int]:
    """The mode of a new file under some umask."""
    before = os.umask(request.param)
    yield 0o666 & ~request.param
    os.umask(before)


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "model"
    for content in ("first", "second"):
        with replace_folder(folder) as part:
            assert list(part.iterdir()) == []
            (part / content).write_text(content)
        assert [one.name for one in folder.iterdir()] == [content]
    assert [one.name for one in folder.parent.iterdir()] == ["model"]


def test_after_an_error_nothing_has_changed(tmp_path: Path) -> None:
    folder, file = tmp_path / "model", tmp_path / "file"
    with replace_folder(folder) as part:
        (part / "file").write_text("old")
    file.write_text("old")
    for replace, inside, target in ((replace_folder, "file", folder), (replace_file, "", file)):
        with suppress(KeyboardInterrupt), replace(target) as part:
            (part / inside).write_text("half")
            raise KeyboardInterrupt
    assert (folder / "file").read_text() == file.read_text() == "old"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "model"]


def test_a_file_that_was_never_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), replace_file(tmp_path / "file"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_processes_of_one_number_on_two_machines_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They write the same files of a disk they share, each its own part; the last one to finish stays."""
    monkeypatch.setattr(os, "getpid", lambda: 7)
    file, folder = tmp_path / "file", tmp_path / "model"
    with replace_file(file) as first, replace_folder(folder) as first_folder:
        with replace_file(file) as second, replace_folder(folder) as second_folder:
            assert len({first, second, first_folder, second_folder}) == 4
            first.write_text("first")
            second.write_text("second")
            (first_folder / "a").write_text("first")
            (second_folder / "a").write_text("second")
        assert (file.read_text(), (folder / "a").read_text()) == ("second", "second")
    assert (file.read_text(), (folder / "a").read_text()) == ("first", "first")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "model"]


def test_every_file_honours_the_umask(tmp_path: Path, mode: int) -> None:
    tensors = {"weight": torch.ones(2)}
    with replace_file(tmp_path / "best.safetensors") as part:
        save_file(tensors, part)  # for its owner alone, whatever the umask
    with replace_folder(tmp_path / "model") as part:
        save_file(tensors, part / "model.safetensors")
        (part / "config.json").write_text("{}")
    for name in ("best.safetensors", "model/model.safetensors", "model/config.json"):
        assert mode_of(tmp_path / name) == mode, name
    assert torch.equal(load_file(tmp_path / "best.safetensors")["weight"], tensors["weight"])


def test_a_tree_that_cannot_be_copied_says_why(tmp_path) -> None:
    """shutil.copytree collects what failed in an error that has no strerror."""
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").touch()

    def full(source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", source)

    with pytest.raises(UserError, match=r"cannot be written to .*No space left on device"), refuse_unwritable(tmp_path):
        shutil.copytree(tmp_path / "tree", tmp_path / "copy", copy_function=full)
