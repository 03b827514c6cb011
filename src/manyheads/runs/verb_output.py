"""The output folder of a verb that judges or exports: what may be replaced in it, and how. Standard library only."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from manyheads.distributed.ranks import this_process
from manyheads.errors import UserError
from manyheads.runs.files import is_irreplaceable, refuse_irreplaceable, refuse_unwritable, replace_folder
from manyheads.runs.folder import refuse_taken, refuse_unwritable_output
from manyheads.runs.lock import lock_run_folder


class VerbOutput(NamedTuple):
    """The files that a verb writes to its output folder.

    Attributes:
        mark: the file that is always there, and by which the results of this verb are recognised.
        words: texts that `mark` contains.
        others: names or patterns of files that it may write, too.
    """

    verb: str
    mark: str
    words: tuple[str, ...]
    others: tuple[str, ...]


def refuse_occupied(folder: Path, output: VerbOutput, *, overwrite: bool) -> None:
    """Refuse a folder that is not empty; with `overwrite`, one that holds anything but results of the same verb. Only
    the first process asks, before any work."""
    if not this_process().is_first:
        return
    occupied = folder.is_dir() and any(folder.iterdir())
    foreign = _foreign_content(folder, output) if occupied else ""
    if occupied and overwrite and foreign:
        raise UserError(
            f"output={folder} holds {foreign}, and nothing but results of {output.verb} is replaced: name a new folder"
        )
    if occupied and not overwrite and not foreign:
        raise UserError(
            f"output={folder} exists and is not empty: name a new folder, or replace these results of {output.verb} by "
            "overwrite=true"
        )
    if overwrite:
        refuse_irreplaceable(folder)
    if not overwrite or not occupied:
        refuse_taken(str(folder), by_training=False)
    refuse_unwritable_output(str(folder))


def _foreign_content(folder: Path, output: VerbOutput) -> str:
    """What shows that the folder does not hold just the results of this verb; empty where it does, or holds nothing."""
    files = [PurePosixPath(one) for one in (output.mark, *output.others)]
    folders = [one.parent for one in files]
    is_empty = True
    for place, folder_names, file_names in os.walk(folder):
        for name in sorted([*folder_names, *file_names]):
            if name in file_names and name.startswith(".") and ".part" in name:
                continue  # left by a process that was killed while it wrote
            is_empty = False
            path = PurePosixPath(place, name).relative_to(folder)
            known = files if name in file_names else folders
            matches = [one for one in known if len(one.parts) == len(path.parts) and path.match(str(one))]
            if Path(place, name).is_symlink() or not matches:
                return f"{path}, which {output.verb} does not write"
    if is_empty:
        return ""
    mark = folder / output.mark
    text = mark.read_text(encoding="utf-8", errors="replace") if mark.is_file() else ""
    return "" if all(word in text for word in output.words) else f"no {output.mark} of {output.verb}"


@contextmanager
def lock_output(folder: Path) -> Iterator[None]:
    """Keep other commands out of an output folder, made if need be, while the block lasts; a UserError where one is in
    it. If nothing was written, the folder is removed again."""
    with refuse_unwritable(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with lock_run_folder(folder):
        try:
            yield
        finally:
            with suppress(OSError):
                folder.rmdir()


@contextmanager
def output_folder(folder: Path, output: VerbOutput, *, overwrite: bool) -> Iterator[Path]:
    """Where to write results: an empty folder that takes the place of `folder` when the block ends, so that after an
    error nothing has changed; but without `overwrite` the folder itself, where earlier results are replaced file by
    file, and one that no other can take the place of (`is_irreplaceable`).
    """
    with refuse_unwritable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        place = folder.resolve()
        if overwrite or not (is_irreplaceable(place) or any(place.iterdir())):
            with replace_folder(place) as part:
                yield part
                refuse_occupied(folder, output, overwrite=overwrite)  # something may have come in between
        else:
            yield folder
