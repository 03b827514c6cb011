"""The lock of a run folder or another output: at most one command writes to it at a time. Standard library only."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from manyheads.distributed.ranks import this_process
from manyheads.errors import UserError

_locked: set[Path] = set()  # by this process, which may enter a folder again


@contextmanager
def lock_run_folder(folder: Path) -> Iterator[None]:
    """Keep other commands out of `folder` while the block lasts. Only the first process locks; the others follow it.

    The kernel holds the lock, on the folder itself, so a process that is killed leaves none. A disk without locks has
    none to give, and there the block runs unlocked.

    Raises:
        UserError: another command is in the folder.
    """
    if folder in _locked or not this_process().is_first:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a disk without locks
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"output={folder} is written by a command in progress: wait for its end, or name another folder"
                ) from None
        _locked.add(folder)
        yield
    finally:
        _locked.discard(folder)
        os.close(descriptor)
