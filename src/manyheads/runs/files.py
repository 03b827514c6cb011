"""Files and folders that appear whole or not at all, open to whom the umask says; and JSON that is read with care.

They are written under a hidden name in the same folder, flushed to the disk and renamed last, so a kill, a power cut or
a full disk leaves what was there before. Standard library only.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from manyheads.errors import UserError

MAX_JSON_BYTES = 2**28
MAX_STATE_BYTES = 2**26  # of a JSON file that is read in silence


@contextmanager
def replace_folder(folder: Path) -> Iterator[Path]:
    """An empty folder next to `folder` that takes its place when the block ends. After an error nothing has changed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    part, old = _temporary_name(folder, "part"), _temporary_name(folder, "old")
    part.mkdir()
    try:
        yield part
        mode = _default_mode(part / ".mode")
        for file in part.rglob("*"):
            if file.is_file():
                file.chmod(mode)
                fsync_path(file)
        if folder.exists():
            os.rename(folder, old)
        os.rename(part, folder)
        fsync_path(folder.parent)
    finally:
        if old.exists() and not folder.exists():
            os.rename(old, folder)
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def is_irreplaceable(folder: Path) -> bool:
    """Whether no other folder can take its place: it is mounted, the current one, or its parent is not ours."""
    place = folder.resolve()
    if not place.is_dir():
        return False
    return place.is_mount() or place.samefile(os.curdir) or not os.access(place.parent, os.W_OK | os.X_OK)


def refuse_irreplaceable(folder: Path) -> None:
    """Raise UserError if no other folder can take its place."""
    if is_irreplaceable(folder):
        raise UserError(
            f"output={folder} is the current folder, a mounted one or in one of others, and cannot be replaced as a "
            "whole: name a folder within it"
        )


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """A path next to `path` to write to, which takes its place when the block ends. After an error nothing has
    changed."""
    part = _temporary_name(path, "part")
    try:
        mode = _default_mode(part)
        yield part
        part.chmod(mode)
        fsync_path(part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a file, which appears whole or not at all. Text is encoded as UTF-8."""
    with replace_file(path) as part:
        part.write_bytes(content if isinstance(content, bytes) else content.encode())


def write_json(path: Path, content: Any, indent: int = 2) -> None:
    """Write `content` as JSON in a file that appears whole or not at all."""
    write_atomic(path, json.dumps(content, indent=indent, ensure_ascii=False) + "\n")


def fsync_path(path: Path) -> None:
    """Wait until the disk holds a file or folder, so that a power cut cannot leave an empty file under a final name."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def hardlink_or_copy(path: Path, name: Path) -> None:
    """Give a file, which is replaced and never written to, a second name; a copy where the disk has no hard links."""
    try:
        os.link(path, name)
    except OSError:
        shutil.copyfile(path, name)
        fsync_path(name)


@contextmanager
def refuse_unwritable(folder: Path) -> Iterator[None]:
    """Turn an `OSError` of the disk into a `UserError`."""
    try:
        yield
    except OSError as error:
        # shutil.copytree collects (source, target, why) of each file that failed
        why = error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror
        raise UserError(f"{folder} cannot be written to ({why}): name another folder by output=<folder>") from error


def read_json(path: Path) -> Any:
    """The content of a JSON file.

    Raises:
        UserError: it is too large, not UTF-8, not JSON, nested too deeply, or gives a key twice.
    """
    if path.stat().st_size > MAX_JSON_BYTES:
        raise UserError(f"{path} is larger than {MAX_JSON_BYTES // 2**20} MiB: it is not a file that manyheads wrote")
    try:
        return json.loads(path.read_bytes().decode("utf-8"), object_pairs_hook=_without_duplicate_keys)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid JSON: {error}") from error


def read_json_or_none(path: Path) -> Any:
    """The content of a JSON file, or None where it is absent, unreadable, too large, or a pipe, which might never
    end."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_STATE_BYTES:
            return None
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def _without_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise UserError("a key is given twice")
    return content


def _temporary_name(path: Path, end: str) -> Path:
    """A hidden name in the same folder that nobody else uses, also where several machines share the disk."""
    return path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(8).hex()}.{end}")


def _default_mode(probe: Path) -> int:
    """The mode of a new file here, 0o666 less the umask; safetensors, for one, makes its files readable by their owner
    alone. A file is made to find it, because reading the umask means setting it for a moment, for all threads."""
    probe.touch()
    mode = probe.stat().st_mode & 0o777
    probe.unlink()
    return mode
