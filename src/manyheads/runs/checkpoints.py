"""Checkpoints on disk: a folder a step, whole or absent, found by its manifest. Standard library only.

`<run>/checkpoints/step-00000120/` holds some files and, written last, `manifest.json` with the size and sha256 of each.
It is written under a temporary name in the same folder, every file is flushed to the disk, then it is renamed. What is
cut short never has the final name; what is damaged later is passed over, since its hashes no longer agree. A
checkpoint may be anybody's: whether it fits the run that resumes from it is checked before it is used.

The newest stay when the run has ended. Nothing reads them then, so whoever wants the room may delete the folder; but
they alone hold the weights and the optimiser of the last step, which are not those of the best epoch in `model/`.

`<run>/again.json` says what a run does otherwise when it is started again, in this process or in others.
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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, cast

from manyheads.distributed.signals import fault
from manyheads.runs.folder import flush, put

MANIFEST = "manifest.json"
FORMAT = 2
MOST_JSON = 2**26  # bytes of a JSON file of ours
COUNTS = ("step", "epoch", "batch", "batches")
MOST = 2**53  # of any count: far beyond, and a float holds it exactly
OTHERWISE = "something in it has another name, type or shape than here"
FILE = "again.json"
EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h: try again
MOST_SPLIT = 2**20  # more parts than a micro-batch has rows
_NAME = re.compile(r"step-(\d{8,})")
_PASSING = re.compile(r"\..+\.(\d+-)?[0-9a-f]{16}\.(part|old)")  # ours, and those of folder.py
Write = Callable[[IO[bytes]], object]


class _Hashing(io.FileIO):
    """A file that is hashed while it is written."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "x")
        self.digest = hashlib.sha256()

    def write(self, content: Any) -> int:
        self.digest.update(content)
        left = memoryview(content).cast("B")
        while left:
            left = left[super().write(left) or 0 :]
            fault("within")
        return memoryview(content).nbytes


def save(folder: Path, step: int, files: Mapping[str, Write], kept: Mapping[str, Path], *, keep: int) -> Path:
    """Write the checkpoint of `step` and delete the oldest beyond `keep`, once the new one is verified. After an
    `OSError` (a full disk) older checkpoints are untouched.

    Args:
        files: what writes each file.
        kept: files on the same disk that belong to it, as of `take_over`.
    """
    target = folder / f"step-{step:08d}"
    if valid(target):
        return target
    fault("begin")
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{target.name}.{secrets.token_hex(8)}.part"
    try:
        part.mkdir()
        listed = {name: _written(part / name, write) for name, write in files.items()}
        for name, path in kept.items():
            take_over(path, part / name)
            listed[name] = _facts(part / name)
        fault("manifest")
        content = json.dumps({"format": FORMAT, "step": step, "files": listed}, indent=1).encode()
        _written(part / MANIFEST, lambda file: file.write(content))
        flush(part)
        fault("rename")
        shutil.rmtree(target, ignore_errors=True)  # damaged: found invalid above
        os.rename(part, target)
        flush(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    fault("renamed")
    if not valid(target):
        raise OSError(f"{target} does not read back as it was written: its disk is not to be trusted")
    _delete_beyond(folder, target, keep)
    return target


def take_over(path: Path, name: Path) -> None:
    """Give a file, which a run replaces and never writes to, a second name; where disks know no links, a copy."""
    try:
        os.link(path, name)
    except OSError:
        shutil.copyfile(path, name)
        flush(name)


def newest(folder: Path) -> Path | None:
    """The checkpoint of the highest step in `folder` whose files are all there and as they were written."""
    return next((one for one in _by_step(folder) if valid(one)), None)


def valid(checkpoint: Path) -> bool:
    """Whether each file that the manifest lists has its size and hash."""
    name = _NAME.fullmatch(checkpoint.name)
    manifest = json_or_none(checkpoint / MANIFEST)
    if not name or not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        return False
    files = manifest.get("files")
    if manifest.get("step") != int(name[1]) or not isinstance(files, dict) or not files:
        return False
    try:
        return all(name == Path(name).name and _facts(checkpoint / name) == facts for name, facts in files.items())
    except (OSError, ValueError):  # ValueError: a name with a NUL
        return False


def json_or_none(path: Path) -> Any:
    """What the file holds, or None where it cannot be read, or is too large or a pipe, which might never end."""
    try:
        return json.loads(path.read_bytes()) if path.is_file() and path.stat().st_size <= MOST_JSON else None
    except (OSError, ValueError, RecursionError):
        return None


def clear_passing(folder: Path) -> None:
    """Delete what a process that was killed while it wrote has left behind under a passing name."""
    for one in folder.iterdir() if folder.is_dir() else ():
        if _PASSING.fullmatch(one.name) and one.is_dir():
            shutil.rmtree(one, ignore_errors=True)
        elif _PASSING.fullmatch(one.name):
            one.unlink(missing_ok=True)


def _by_step(folder: Path) -> list[Path]:
    """Folders with the name of a checkpoint, newest first."""
    if not folder.is_dir():
        return []
    named = [(int(name[1]), one) for one in folder.iterdir() if (name := _NAME.fullmatch(one.name))]
    return [one for _, one in sorted(named, reverse=True)]


def _written(path: Path, write: Write) -> list[int | str]:
    fault("between")
    with _Hashing(path) as part:
        write(cast(IO[bytes], part))
        os.fsync(part.fileno())
        return [part.tell(), part.digest.hexdigest()]


def _facts(path: Path) -> list[int | str]:
    """Size and hash of a file, as the manifest has them; what is no file may be a pipe, which never ends."""
    if not path.is_file():
        raise FileNotFoundError(path)
    with path.open("rb") as file:
        return [path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()]


def _delete_beyond(folder: Path, target: Path, keep: int) -> None:
    """Delete the oldest but `target`, the new one; one that is being deleted has no checkpoint's name any more. Of
    later steps the damaged do not count."""
    order = _by_step(folder)
    at = order.index(target)
    counted = [*filter(valid, order[:at]), *order[at:]]
    for one in (one for one in counted[keep:] if one != target):
        fault("delete")
        gone = folder / f".{one.name}.{secrets.token_hex(8)}.old"
        os.rename(one, gone)
        (gone / MANIFEST).unlink(missing_ok=True)
        fault("deleting")
        shutil.rmtree(gone, ignore_errors=True)


def read_progress(checkpoint: Path) -> dict[str, Any]:
    """What progress.json says of the place in the training, checked."""
    progress = json_or_none(checkpoint / "progress.json")
    with fitting(checkpoint):
        counts = [progress[name] for name in COUNTS] + [progress.get(name, 1) for name in ("ranks", "per_step")]
        if not all(type(count) is int and 0 <= count < MOST for count in counts):
            raise ValueError("progress.json holds a count that is none")
        if not math.isfinite(progress["seconds"]) or type(progress["data"]) is not str:
            raise ValueError("progress.json lacks the time or the rows")
        if type(progress.get("finished", True)) is not bool:
            raise ValueError("progress.json does not say whether it is the last")
    return progress


@contextmanager
def fitting(checkpoint: Path) -> Iterator[None]:
    """Turn whatever a state that does not fit brings about into one sentence, in which only our own words stand."""
    try:
        yield
    except Exception as problem:  # a state that fits raises nothing, and a stranger's may raise anything
        why = str(problem).strip().splitlines() if isinstance(problem, ValueError) else []
        raise ValueError(
            f"{checkpoint} does not fit this run, as {why[0] if why else OTHERWISE:.300}: delete it to go on from "
            "another checkpoint, or start a new run in another folder"
        ) from problem


@dataclass(frozen=True, slots=True)
class Again:
    """Each micro-batch is cut into `split`, a power of two; the optimiser steps `left_out`, from 1, update nothing.

    `why` says what came of the last start, in a sentence.
    """

    split: int = 1
    left_out: tuple[int, ...] = ()
    why: str = ""

    def notes(self) -> list[str]:
        """What the log says of it when the run begins."""
        said = [self.why] if self.why else []
        said += [f"micro-batches are cut into {self.split}, and as many more summed into a step"] * (self.split > 1)
        return said + [f"left out: steps {', '.join(map(str, self.left_out))}"] * (len(self.left_out) > 1)


class StartAgain(SystemExit):
    """The run is to begin again as `again` says, which is written down. Its exit code tells whoever started it."""

    def __init__(self, again: Again) -> None:
        super().__init__(EXIT_CODE)
        self.again = again


def read_again(folder: Path) -> Again:
    """What is written down for the run in `folder`; where nothing is, or nothing that can be read, nothing changes."""
    found = json_or_none(folder / FILE)
    if not isinstance(found, dict):
        return Again()
    split, left_out, why = found.get("split"), found.get("left_out"), found.get("why")
    steps = left_out if isinstance(left_out, list) else []
    return Again(
        split if isinstance(split, int) and 0 < split <= MOST_SPLIT and split & (split - 1) == 0 else 1,
        tuple(step for step in steps if isinstance(step, int)),
        why if isinstance(why, str) else "",
    )


def write_again(folder: Path, again: Again) -> None:
    """The file appears whole or not at all; several processes that find the same write the same."""
    put(folder / FILE, json.dumps(asdict(again)) + "\n")
