"""The output folder of a verb: one command at a time, and where it may not be replaced."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from manyheads.runs.verb_output import VerbOutput, lock_output, output_folder, refuse_occupied

AUDITED = VerbOutput("audit", "audit.json", ("{}",), ())
OTHER = """import sys
from pathlib import Path
from manyheads.runs.verb_output import lock_output
with lock_output(Path(sys.argv[1])):
    pass
"""


def other_command(folder: Path) -> str:
    """What another command says that writes to the folder."""
    return subprocess.run([sys.executable, "-c", OTHER, str(folder)], capture_output=True, text=True).stderr


def test_a_command_that_is_refused_does_not_let_a_third_in(tmp_path: Path) -> None:
    with lock_output(tmp_path / "out"):
        for _ in range(2):
            assert "is written by a command in progress" in other_command(tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert other_command(tmp_path / "out") == ""


@pytest.mark.parametrize("why", ["current", "mounted", "parent"])
def test_an_empty_folder_that_none_can_replace_is_written_to_itself(why: str, tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    before = folder.stat().st_ino
    may, is_mount = os.access, Path.is_mount
    if why == "parent":  # the root user may write anywhere
        monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path and may(path, mode))
    if why == "mounted":
        monkeypatch.setattr(Path, "is_mount", lambda path: path == folder or is_mount(path))
    monkeypatch.chdir(folder if why == "current" else tmp_path)
    with lock_output(folder), output_folder(folder, AUDITED, overwrite=False) as place:
        (place / "audit.json").write_text("{}")
    assert folder.stat().st_ino == before
    assert [one.name for one in folder.iterdir()] == ["audit.json"]
    with pytest.raises(
        ValueError, match=f"^output={folder} is the current folder, a mounted one or .*: name a folder "
    ):
        refuse_occupied(folder, AUDITED, overwrite=True)
