"""Checkpoints on disk: one folder for each saved step, whole or absent, found by its manifest. Standard library only.

`<run>/checkpoints/step-00000120/` holds the files of the state and, written last, `manifest.json` with the size and
sha256 of each. The folder is written under a temporary name, every file is flushed to the disk, then it is renamed. A
save that is cut short never gets the final name; one that is damaged later is passed over, since its hashes no longer
agree. A checkpoint may come from anybody: whether it fits the run that resumes from it is checked before it is used.

The newest checkpoints stay when the run has ended. Nothing reads them then, so they may be deleted to free the disk;
but they alone hold the optimiser and the weights of the last step, which are not those of the best epoch in `model/`.
"""

import hashlib
import io
import json
import math
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from manyheads.distributed.faults import inject_fault
from manyheads.errors import UserError
from manyheads.runs.files import fsync_path, hardlink_or_copy, read_json_or_none

MANIFEST = "manifest.json"
FORMAT = 2
COUNTS = ("step", "epoch", "batch", "batches")
MAX_COUNT = 2**53  # far beyond any count, and a float holds it exactly
MISFIT = "something in it has another name, type or shape than here"
_NAME = re.compile(r"step-(\d{8,})")
_LEFTOVER = re.compile(r"\..+\.(\d+-)?[0-9a-f]{16}\.(part|old)")  # temporary names, here and in files.py
Write = Callable[[IO[bytes]], object]


class _HashingFile(io.FileIO):
    """A file that is hashed while it is written."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "x")
        self.digest = hashlib.sha256()

    def write(self, content: Any) -> int:
        self.digest.update(content)
        left = memoryview(content).cast("B")
        while left:
            left = left[super().write(left) or 0 :]
            inject_fault("within")
        return memoryview(content).nbytes


def write_checkpoint(
    folder: Path, step: int, files: Mapping[str, Write], linked: Mapping[str, Path], *, keep: int
) -> Path:
    """Write the checkpoint of `step`; once it is verified, delete the oldest beyond `keep`.

    Args:
        files: a function for each file, which writes it.
        linked: files on the same disk that belong to it and are replaced, never written to: they get a second name.

    Returns:
        Its folder.

    Raises:
        OSError: for instance the disk is full; older checkpoints are untouched.
    """
    target = folder / f"step-{step:08d}"
    if is_valid(target):
        return target
    inject_fault("begin")
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{target.name}.{secrets.token_hex(8)}.part"
    try:
        part.mkdir()
        listed: dict[str, list[int | str]] = {}
        for name, write in files.items():
            listed[name] = _write_hashed(part / name, write)
        for name, path in linked.items():
            hardlink_or_copy(path, part / name)
            listed[name] = _size_and_hash(part / name)
        inject_fault("manifest")
        content = json.dumps({"format": FORMAT, "step": step, "files": listed}, indent=1).encode()
        _write_hashed(part / MANIFEST, lambda file: file.write(content))
        fsync_path(part)
        inject_fault("rename")
        shutil.rmtree(target, ignore_errors=True)  # damaged: it was found invalid above
        os.rename(part, target)
        fsync_path(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    inject_fault("renamed")
    if not is_valid(target):
        raise OSError(f"{target} does not read back as it was written: its disk cannot be trusted")
    _delete_oldest(folder, target, keep)
    return target


def newest_checkpoint(folder: Path) -> Path | None:
    """The valid checkpoint of the highest step in `folder`."""
    return next((one for one in _by_step(folder) if is_valid(one)), None)


def is_valid(checkpoint: Path) -> bool:
    """Whether each file that the manifest lists is there, with its size and hash."""
    name = _NAME.fullmatch(checkpoint.name)
    manifest = read_json_or_none(checkpoint / MANIFEST)
    if not name or not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        return False
    files = manifest.get("files")
    if manifest.get("step") != int(name[1]) or not isinstance(files, dict) or not files:
        return False
    try:
        for file, facts in files.items():
            if file != Path(file).name or _size_and_hash(checkpoint / file) != facts:
                return False
    except (OSError, ValueError):  # ValueError: a name with a NUL
        return False
    return True


def delete_leftovers(folder: Path) -> None:
    """Delete what a process that was killed while it wrote has left under temporary names."""
    if not folder.is_dir():
        return
    for one in folder.iterdir():
        if not _LEFTOVER.fullmatch(one.name):
            continue
        if one.is_dir():
            shutil.rmtree(one, ignore_errors=True)
        else:
            one.unlink(missing_ok=True)


def read_progress(checkpoint: Path) -> dict[str, Any]:
    """The checked content of progress.json: where in the training the checkpoint was made.

    Raises:
        UserError: it is not that of a checkpoint of this package.
    """
    progress = read_json_or_none(checkpoint / "progress.json")
    with refuse_unfit(checkpoint):
        counts = [progress[name] for name in COUNTS] + [progress.get(name, 1) for name in ("ranks", "per_step")]
        if not all(type(count) is int and 0 <= count < MAX_COUNT for count in counts):
            raise UserError("progress.json holds a count that is none")
        if not math.isfinite(progress["seconds"]) or type(progress["data"]) is not str:
            raise UserError("progress.json lacks the time or the rows")
        if type(progress.get("finished", True)) is not bool:
            raise UserError("progress.json does not say whether it is the last")
    return progress


@contextmanager
def refuse_unfit(checkpoint: Path) -> Iterator[None]:
    """Turn any error of reading a state that does not fit this run into one sentence, without words of a stranger."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as problem:  # a state that fits raises nothing, and a stranger's may raise anything
        why = MISFIT
        if isinstance(problem, ValueError) and str(problem).strip():
            why = str(problem).strip().splitlines()[0]
        raise UserError(
            f"{checkpoint} does not fit this run, as {why:.300}: delete it to resume from another checkpoint, or start "
            "a new run in another folder"
        ) from problem


def _by_step(folder: Path) -> list[Path]:
    """Folders with the name of a checkpoint, newest first."""
    if not folder.is_dir():
        return []
    named = [(int(name[1]), one) for one in folder.iterdir() if (name := _NAME.fullmatch(one.name))]
    return [one for _, one in sorted(named, reverse=True)]


def _write_hashed(path: Path, write: Write) -> list[int | str]:
    """Size and hash of a file that `write` writes, once the disk holds it."""
    inject_fault("between")
    with _HashingFile(path) as part:
        write(cast(IO[bytes], part))
        os.fsync(part.fileno())
        return [part.tell(), part.digest.hexdigest()]


def _size_and_hash(path: Path) -> list[int | str]:
    if not path.is_file():  # a pipe, which might never end, is no file either
        raise FileNotFoundError(path)
    with path.open("rb") as file:
        return [path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()]


def _delete_oldest(folder: Path, target: Path, keep: int) -> None:
    """Delete all but the `keep` newest checkpoints, and never `target`, which was just written. Damaged checkpoints of
    later steps, which a resumed run left behind, do not count. One that is being deleted is renamed first, so that it
    no longer looks like a checkpoint."""
    checkpoints = _by_step(folder)
    at = checkpoints.index(target)
    counted = [*filter(is_valid, checkpoints[:at]), *checkpoints[at:]]
    for one in counted[keep:]:
        if one == target:
            continue
        inject_fault("delete")
        gone = folder / f".{one.name}.{secrets.token_hex(8)}.old"
        os.rename(one, gone)
        (gone / MANIFEST).unlink(missing_ok=True)
        inject_fault("deleting")
        shutil.rmtree(gone, ignore_errors=True)
