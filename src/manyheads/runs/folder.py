"""The folder of a run, chosen once for all processes that take part in the run. Standard library only.

The first process makes the folder. Processes that `launch.py` starts find its path in the environment variable
MANYHEADS_OUTPUT; those that torchrun or srun starts derive the same name from that of their job.
Nothing is written through a link: a folder from a stranger may hold links that lead out of it.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path

import manyheads.plugin as plugin
from manyheads.distributed.ranks import job_name, this_process
from manyheads.errors import UserError

OUTPUT_VARIABLE = "MANYHEADS_OUTPUT"
RANKS = "ranks"  # the folder in which each of several processes keeps its own log and heartbeat
POLL_SECONDS = 0.05
OF_FILES = {".csv", ".tsv", ".jsonl", ".json", ".parquet", ".html"}  # endings that mean a file
REMEDY = "lead out of the folder that is written to: put what it leads to in its place, or use another folder"


def start_folder(output: str = "", *, resume: bool = False) -> Path:
    """Make the folder of a run and return its absolute path, the same in all processes of the run.

    Args:
        output: the folder by name; empty: outputs/<date>-<time>-<4 hex digits>.
        resume: it may hold a run, which is resumed.

    Raises:
        UserError: the folder is not empty and `resume` is false, or the processes cannot agree on a name.
    """
    shared = this_process().started_by or resume
    if not shared and not output:
        return _make_new()
    folder = named_folder(output) if shared else Path(output).expanduser()
    if this_process().is_first:
        if not resume:
            refuse_taken(str(folder))
        refuse_unwritable_output(str(folder))
        folder.mkdir(parents=True, exist_ok=True)
    return folder.absolute()


@contextmanager
def reserved_folder(output: str = "") -> Iterator[Path]:
    """The folder for a run whose processes are still to be started. Where `output` is empty a new one is made, so that
    no other run takes it, and removed in the end if nothing was written."""
    if output:
        refuse_unwritable_output(output)
        yield Path(output).expanduser().absolute()
        return
    was_there = Path("outputs").is_dir()
    folder = _make_new()
    try:
        yield folder
    finally:
        with suppress(OSError):  # it is not empty
            folder.rmdir()
            if not was_there:
                folder.parent.rmdir()


def named_folder(output: str) -> Path:
    """The folder that a second start finds again: the one that the launcher passed on, else `output`, else the name of
    the job.

    Raises:
        UserError: there is no such name.
    """
    started = this_process().started_by
    if started and os.environ.get(OUTPUT_VARIABLE):
        return Path(os.environ[OUTPUT_VARIABLE])
    if output:
        return Path(output).expanduser().absolute()
    if job_name():
        return Path("outputs", job_name()).absolute()
    if started:
        raise UserError(
            "output is empty, but several processes run side by side: name the folder of the run by output=FOLDER"
        )
    raise UserError("output is empty, but resume=auto and resume=must resume a run by its folder: add output=FOLDER")


def is_unbegun(folder: Path) -> bool:
    """Whether the folder is empty, apart from what a queue left there for a run that has not begun."""
    patterns: list[str] = []
    for section in plugin.sections():
        patterns += section.files
    return all(any(fnmatch(one.name, pattern) for pattern in patterns) for one in folder.iterdir())


def refuse_taken(output: str, *, by_training: bool = True) -> None:
    """Refuse a file, or a folder that is not empty. Only the first process asks, before any work.

    Args:
        by_training: an interrupted run could be resumed there, which the sentence then says.
    """
    folder = Path(output).expanduser()
    if not output or not this_process().is_first:
        return
    if any("\ud800" <= letter <= "\udfff" for letter in output):  # which no JSON of the run could name
        raise UserError(f"output={folder} is not UTF-8: name another folder, or set a locale such as LC_ALL=C.UTF-8")
    if (folder.exists() or folder.suffix.lower() in OF_FILES) and not folder.is_dir():
        is_what = "is a file" if folder.exists() else "names a file, but a folder is written"
        raise UserError(f"output={folder} {is_what}: name a new folder")
    if by_training and (folder / "config.yaml").is_file() and not (folder / "summary.json").is_file():
        raise UserError(
            f"output={folder} holds a run that is not finished: add resume=auto to resume it, or name a new folder"
        )
    if folder.is_dir() and any(folder.iterdir()):
        raise UserError(f"output={folder} exists and is not empty: name a new folder")


def refuse_unwritable_output(output: str, folder: Path | None = None, setting: str = "output") -> None:
    """Raise UserError if the folder `output` of a setting, or the `folder` of such a file, cannot be made or
    written to: before any work."""
    place = (folder or Path(output)).expanduser().absolute()
    there = next(one for one in (place, *place.parents) if one.exists() or one.is_symlink())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return
    if not there.exists():
        reason = f"is a link to {os.readlink(there)}, which does not exist"
    elif not there.is_dir():
        reason = "is a file"
    else:
        reason = "may not be written to"
    raise UserError(f"{setting}={output}: {there} {reason}: name another place by {setting}=")


def ranks_folder(folder: Path, timeout: float) -> Path:
    """The folder `ranks` of a run. The first process makes it once the run has its folder; the others wait for it, at
    most `timeout` seconds."""
    place = folder / RANKS
    if this_process().is_first:
        place.mkdir(exist_ok=True)
    until = time.monotonic() + timeout
    while not place.exists():
        if time.monotonic() > until:
            raise UserError(
                f"rank 0 has not made {place} within hardware.timeout={timeout:g} seconds: name a folder that all "
                "machines see by output=FOLDER"
            )
        time.sleep(POLL_SECONDS)
    return place


def within(folder: Path, *names: str) -> Path:
    """`folder` / `names`; a UserError where one of them is a link."""
    for name in names:
        folder = folder / name
        if folder.is_symlink():
            raise UserError(f"{folder} is a link, which may {REMEDY}")
    return folder


def refuse_links(folder: Path) -> None:
    """Refuse a folder with a link anywhere in it, except within the folders that a logger keeps for itself and never
    writes to through a link."""
    of_loggers: set[str] = set()
    for section in plugin.sections():
        of_loggers.update(section.links)
    for place, folders, files in os.walk(folder):
        for name in sorted([*folders, *files]):
            within(Path(place), name)
        if Path(place) == folder:
            folders[:] = [name for name in folders if name not in of_loggers]


def _make_new() -> Path:
    """A new folder below outputs/. It is made rather than looked for, so that runs that start together stay apart."""
    refuse_unwritable_output("outputs")
    while True:
        folder = Path("outputs", f"{time.strftime('%Y-%m-%d_%H-%M-%S')}-{os.urandom(2).hex()}").absolute()
        folder.parent.mkdir(exist_ok=True)
        with suppress(FileExistsError):
            folder.mkdir()
            return folder
