"""The folder of a run, chosen once however many processes take part in it; its metrics.csv; and files and folders that
appear whole or not at all, open to whom the umask says. Standard library only.

One process alone makes it. Processes that `launch.py` starts are told its path by the environment variable
MANYHEADS_OUTPUT; those started side by side, by torchrun or srun, agree on a name made from that of their job.
Whatever is written into a folder stays in it, also where the folder came from a stranger, with links in it.
"""

import csv
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import manyheads.plugin as plugin
from manyheads.distributed.ranks import job_name, this_process

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
        if old.exists() and not folder.exists():
            os.rename(old, folder)
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


def put(path: Path, content: str | bytes) -> None:
    """Write the file, a text in UTF-8: it appears whole or not at all."""
    with replace_file(path) as part:
        part.write_bytes(content if isinstance(content, bytes) else content.encode())


def put_json(path: Path, content: Any, indent: int = 2) -> None:
    """Likewise what JSON holds."""
    put(path, json.dumps(content, indent=indent, ensure_ascii=False) + "\n")


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
    return path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(8).hex()}.{end}")


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


HANDED_ON = "MANYHEADS_OUTPUT"
RANKS = "ranks"  # the folder of what each process of several writes of itself
LOOK = 0.05  # seconds
REMEDY = "lead out of the folder that is written to: put what it leads to in its place, or use another folder"
_held: set[Path] = set()
Curve = dict[str, float]  # one row of metrics.csv; a figure that was not logged at that step is absent


def start_folder(output: str = "", *, again: bool = False) -> Path:
    """Make the folder of a run and return its absolute path; other processes of the same run get the same.

    Args:
        output: the folder that was asked for; empty: outputs/<date>-<time>-<4 hex digits>.
        again: it may hold a run already, which goes on; else one that is not empty is refused (`ValueError`).
    """
    named = this_process().started_by or again
    if not named and not output:
        return _make_new()
    folder = named_folder(output) if named else Path(output).expanduser()
    if is_first_process():
        if not again:
            refuse_taken(str(folder))
        folder.mkdir(parents=True, exist_ok=True)
    return folder.absolute()


@contextmanager
def reserved_folder(output: str = "") -> Iterator[Path]:
    """The folder for a run of processes that are still to be started: made if `output` names none, so that it is
    nobody else's, and removed in the end where nothing was written."""
    if output:
        yield Path(output).expanduser().absolute()
        return
    was_there = Path("outputs").is_dir()
    folder = _make_new()
    try:
        yield folder
    finally:
        with suppress(OSError):  # it holds something
            folder.rmdir()
            if not was_there:
                folder.parent.rmdir()


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """No other run can be in `folder` while the block lasts, else a `ValueError`. For the first process; the others go
    on as it does.

    The kernel holds the lock, on the folder itself, so that a process that is killed leaves none behind. Disks that
    know no locks hold none.
    """
    if folder in _held or not is_first_process():
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a disk that knows no locks
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(
                    f"output={folder} holds a run that still goes on: wait for its end, or name another folder"
                ) from None
        _held.add(folder)
        yield
    finally:
        _held.discard(folder)
        os.close(descriptor)


def named_folder(output: str) -> Path:
    """The folder that was handed on, that `output` names, or the name of the job: a second start finds it again."""
    started = this_process().started_by
    if started and os.environ.get(HANDED_ON):
        return Path(os.environ[HANDED_ON])
    name = output or (f"outputs/{job_name()}" if job_name() else "")
    if not name and started:
        raise ValueError(
            "output is empty, but several processes run side by side: name the folder of the run by output=FOLDER"
        )
    if not name:
        raise ValueError("output is empty, but resume=auto and resume=must go on in a folder: name it by output=FOLDER")
    return Path(name).expanduser().absolute()


def is_unbegun(folder: Path) -> bool:
    """Whether a run may begin in the folder: it is empty but for what queued it."""
    queued = [name for one in plugin.sections() for name in one.files]
    return all(any(fnmatch(one.name, name) for name in queued) for one in folder.iterdir())


def refuse_taken(output: str, *, by_training: bool = True) -> None:
    """Refuse a file, or a folder that holds something: the first process asks before any work, the others never.

    Args:
        by_training: a run that was interrupted there may go on.
    """
    folder = Path(output).expanduser()
    if not output or not is_first_process():
        return
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"output={folder} is a file: name a new folder")
    if by_training and (folder / "config.yaml").is_file() and not (folder / "summary.json").is_file():
        raise ValueError(
            f"output={folder} holds a run that is not finished: add resume=auto to go on with it, or name a new folder"
        )
    if folder.is_dir() and any(folder.iterdir()):
        raise ValueError(f"output={folder} exists and is not empty: name a new folder")


class Results(NamedTuple):
    """What a verb writes to a folder of its own: `mark` is always among it and holds all of `words`; files that it may
    write, too, are called like one of `others`."""

    verb: str
    mark: str
    words: tuple[str, ...]
    others: tuple[str, ...]


def refuse_kept(folder: Path, of: Results, *, overwrite: bool) -> None:
    """Refuse a folder that holds something, with `overwrite` one that holds anything but results of that verb: the
    first process asks before any work, the others never."""
    if not is_first_process():
        return
    taken = folder.is_dir() and any(folder.iterdir())
    strange = _strange(folder, of) if taken else ""
    if taken and overwrite and strange:
        raise ValueError(
            f"output={folder} holds {strange}, and nothing but results of {of.verb} is replaced: name a new folder"
        )
    if taken and not overwrite and not strange:
        raise ValueError(
            f"output={folder} exists and is not empty: name a new folder, or replace these results of {of.verb} by "
            "overwrite=true"
        )
    if not overwrite or not taken:
        refuse_taken(str(folder), by_training=False)


def _strange(folder: Path, of: Results) -> str:
    """What shows that a folder is not, or not only, what the verb has written there; empty if it is."""
    known = [PurePosixPath(one) for one in (of.mark, *of.others)]

    def is_one_of(name: PurePosixPath, those: list[PurePosixPath]) -> bool:
        return any(len(name.parts) == len(one.parts) and name.match(str(one)) for one in those)

    is_empty = True
    for place, folders, files in os.walk(folder):
        for name in sorted([*folders, *files]):
            path = PurePosixPath(place, name).relative_to(folder)
            if name.startswith(".") and ".part" in name and name in files:
                continue  # what a kill has left
            is_empty = False
            if Path(place, name).is_symlink() or not is_one_of(
                path, known if name in files else [one.parent for one in known]
            ):
                return f"{path}, which {of.verb} does not write"
    mark = folder / of.mark
    text = mark.read_text(encoding="utf-8", errors="replace") if mark.is_file() else ""
    return "" if is_empty or all(word in text for word in of.words) else f"no {of.mark} of {of.verb}"


@contextmanager
def results_folder(folder: Path, of: Results, *, overwrite: bool) -> Iterator[Path]:
    """Where results are to be written: `folder`, made if need be, or with `overwrite` an empty one that takes its place
    once the block ends: after an error nothing has changed."""
    with refuse_unwritable(folder):
        if overwrite:
            with replace_folder(folder.resolve()) as part:
                yield part
                refuse_kept(folder, of, overwrite=True)  # something may have come in between
        else:
            folder.mkdir(parents=True, exist_ok=True)
            yield folder


def ranks_folder(folder: Path, timeout: float) -> Path:
    """The folder, within that of a run, where each of several processes writes of itself. The first makes it, when
    the run's own folder is its own; the others wait for that, `timeout` seconds at the most."""
    place = folder / RANKS
    if is_first_process():
        place.mkdir(exist_ok=True)
    why = f"rank 0 has not made {place} within hardware.timeout={timeout:g} seconds"
    wait_for(place, timeout, f"{why}: name a folder that all machines see by output=FOLDER")
    return place


def wait_for(path: Path, timeout: float, why: str) -> None:
    """Wait until another process has made `path`, `timeout` seconds at the most: `why` says what that means."""
    until = time.monotonic() + timeout
    while not path.exists():
        if time.monotonic() > until:
            raise ValueError(why)
        time.sleep(LOOK)


def is_first_process() -> bool:
    """Whether this process is the one that writes what belongs to the whole run."""
    return this_process().is_first


def _make_new() -> Path:
    """A folder nobody else has: made, not looked for, so that runs that start together stay apart."""
    while True:
        folder = Path("outputs", f"{time.strftime('%Y-%m-%d_%H-%M-%S')}-{os.urandom(2).hex()}").absolute()
        folder.parent.mkdir(exist_ok=True)
        with suppress(FileExistsError):
            folder.mkdir()
            return folder


def within(folder: Path, *names: str) -> Path:
    """`folder` / `names`, none of which may be a link."""
    for name in names:
        folder = folder / name
        if folder.is_symlink():
            raise ValueError(f"{folder} is a link, which may {REMEDY}")
    return folder


def refuse_links(folder: Path) -> None:
    """Refuse a folder with a link anywhere in it but within what a logger keeps there for itself, and never writes to
    through a link."""
    own = {name for one in plugin.sections() for name in one.links}
    for place, folders, files in os.walk(folder):
        for name in sorted([*folders, *files]):
            within(Path(place), name)
        if Path(place) == folder:
            folders[:] = [name for name in folders if name not in own]


def read_curves(path: Path) -> list[Curve]:
    """The rows of metrics.csv that tell their step, empty and unreadable cells left out; none if there is no file."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        rows = [{name: _number(cell) for name, cell in row.items()} for row in csv.DictReader(file, restval="")]
    curves = [{name: cell for name, cell in row.items() if cell is not None} for row in rows]
    return [row for row in curves if "step" in row]


def _number(cell: object) -> float | None:
    try:
        return float(cell) if isinstance(cell, str) and cell else None
    except ValueError:
        return None
