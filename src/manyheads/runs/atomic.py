"""Files and folders that appear whole or not at all, open to whom the umask says; and JSON of a bounded size.

Standard library only.
"""

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MOST_BYTES = 2**28  # of a JSON file


@contextmanager
def replace_folder(folder: Path) -> Iterator[Path]:
    """An empty folder beside `folder` that takes its place once the block ends; after an error nothing has changed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    part, old = _beside(folder, "part"), _beside(folder, "old")
    part.mkdir()
    try:
        yield part
        files = [file for file in part.rglob("*") if file.is_file()]
        mode = _usual_mode(part / ".mode")
        for file in files:
            file.chmod(mode)
            flush(file)
        if folder.exists():
            os.rename(folder, old)
        os.rename(part, folder)
        flush(folder.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; it takes its place once the block ends, after an error nothing has changed."""
    part = _beside(path, "part")
    try:
        mode = _usual_mode(part)
        yield part
        part.chmod(mode)
        flush(part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def refuse_unwritable(folder: Path) -> Iterator[None]:
    """Turn an `OSError`, what the disk refuses, into a `ValueError` of one sentence."""
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"{folder} cannot be written to ({error.strerror}): name another folder by output=<folder>"
        ) from error


def _beside(path: Path, end: str) -> Path:
    """A hidden name in the same folder that nobody else has, also where several machines share the disk."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(8)}.{end}")


def _usual_mode(probe: Path) -> int:
    """The mode of a new file here, 0o666 less the umask: safetensors for one makes its files for their owner alone.
    A file is made to see it, as asking for the umask sets it for a moment, for all threads."""
    probe.touch()
    mode = probe.stat().st_mode & 0o777
    probe.unlink()
    return mode


def flush(path: Path) -> None:
    """Wait until the disk holds it, so that a power cut cannot leave an empty file under a final name."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json(path: Path) -> Any:
    """The content of a JSON file; a `ValueError` says that it is too large, not UTF-8, not JSON, nested too deeply, or
    gives a key twice."""
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path} is larger than {MOST_BYTES // 2**20} MiB: it is not a file that manyheads wrote")
    try:
        return json.loads(path.read_bytes().decode("utf-8"), object_pairs_hook=_no_key_twice)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a key is given twice")
    return content
