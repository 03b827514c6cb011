"""Where a deliverable lies, and how a folder is written whole or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FILES = ("config.json", "labels.json", "tokenizer.json", "model.safetensors")


def find_model(folder: Path) -> Path:
    """The folder of the deliverable: `folder` itself, or model/ in a run folder.

    Raises:
        ValueError: `folder` is neither, or a file is missing.
    """
    if not folder.is_dir():
        what = "it is a file" if folder.exists() else "there is no such folder"
        raise ValueError(f"run={folder} is not a run folder: {what}; {_REMEDY}")
    found = next((place for place in (folder, folder / "model") if (place / "config.json").is_file()), None)
    if found is None:
        began = (folder / "config.yaml").is_file()
        what = "its training has not written model/ yet" if began else "there is no model/config.json in it"
        raise ValueError(f"run={folder} is not a run folder{' to use' if began else ''}: {what}; {_REMEDY}")
    missing = [name for name in FILES if not (found / name).is_file()]
    if missing:
        raise ValueError(f"run={folder} is not a run folder: {found} has no {' and no '.join(missing)}; {_REMEDY}")
    return found


_REMEDY = "name the folder that training wrote, or its model/ folder"


@contextmanager
def replace_folder(folder: Path) -> Iterator[Path]:
    """An empty folder beside `folder` that takes its place once the block ends; after an error nothing has changed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    part, old = (folder.with_name(f".{folder.name}.{os.getpid()}.{end}") for end in ("part", "old"))
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    try:
        yield part
        for file in part.iterdir():
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
        yield part
        _flush(part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Wait until the disk holds it, so that a power cut cannot leave an empty file under a final name."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
