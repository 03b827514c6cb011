"""Files and folders that appear whole or not at all, open to whom the umask says. Standard library only."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replace_folder(folder: Path) -> Iterator[Path]:
    """An empty folder beside `folder` that takes its place once the block ends; after an error nothing has changed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    part, old = (folder.with_name(f".{folder.name}.{os.getpid()}.{end}") for end in ("part", "old"))
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    try:
        yield part
        files = [file for file in part.rglob("*") if file.is_file()]
        mode = _usual_mode(part / ".mode")
        for file in files:
            file.chmod(mode)
            _flush(file)
        if folder.exists():
            os.rename(folder, old)
        os.rename(part, folder)
        _flush(folder.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; it takes its place once the block ends, after an error nothing has changed."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        mode = _usual_mode(part)
        yield part
        part.chmod(mode)
        _flush(part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _usual_mode(probe: Path) -> int:
    """The mode of a new file here, 0o666 less the umask. safetensors for one makes its files for their owner alone.

    A file is made to see it: to ask for the umask is to set it, for all threads, for a moment.
    """
    probe.unlink(missing_ok=True)
    probe.touch()
    mode = probe.stat().st_mode & 0o777
    probe.unlink()
    return mode


def _flush(path: Path) -> None:
    """Wait until the disk holds it, so that a power cut cannot leave an empty file under a final name."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
