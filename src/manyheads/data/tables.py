"""Where the table of each split comes from: demo sentences, dates, a file, a folder, or the hub."""

import difflib
from collections.abc import Callable
from pathlib import Path

from manyheads.config import DataConfig, Source
from manyheads.data.class_folders import class_folders, read_class_folders
from manyheads.data.dates import dates_splits
from manyheads.data.demo import demo_splits
from manyheads.data.files import KINDS_IN_WORDS, kind_of, read_file
from manyheads.data.hub import is_saved, open_hub, open_saved, table_of
from manyheads.data.naming import name_dataset_splits, name_files
from manyheads.data.rows import Table, joined
from manyheads.data.split_column import parts_of
from manyheads.data.unread import why_unread

Tables = dict[str, Callable[[], Table]]  # by role: train, validation, test; or `all` alone


def open_tables(data: DataConfig) -> Tables:
    """The tables `data` names, by role; a file is read when its table is called for, but one that holds everything at
    once, as it may say of each row which split it is of.

    Raises:
        ValueError: there is no such file, folder, dataset or split.
    """
    tables = _opened(data)
    return parts_of(tables["all"](), data) if "all" in tables else tables


def _opened(data: DataConfig) -> Tables:
    assert data.path or data.source is not Source.run, "the caller reads the run's own settings"
    if data.path:
        return _local(data)
    if data.source is Source.hub:
        splits = open_hub(data)
        roles = name_dataset_splits(splits, data, data.hub)
        return {role: lambda name=name: table_of(splits[name], f"{data.hub}/{name}") for role, name in roles.items()}
    is_demo = data.source is Source.demo
    names, splits = (["text", "label"], demo_splits()) if is_demo else (["source", "target"], dates_splits())
    made = data.source.name
    return {role: lambda role=role, rows=rows: _made(f"{made}/{role}", names, rows) for role, rows in splits.items()}


def _local(data: DataConfig) -> Tables:
    path = Path(data.path).expanduser()
    if path.is_dir():
        return _saved(path, data) if is_saved(path) else _folder(path, data)
    if not path.exists():
        beside = [one.name for one in path.parent.iterdir()] if path.parent.is_dir() else []
        close = difflib.get_close_matches(path.name, beside, n=1)
        hint = f"did you mean {path.parent / close[0]}?" if close else f"give a file of {KINDS_IN_WORDS}, or a folder"
        raise ValueError(f"data.path={data.path} does not exist: {hint}")
    if kind_of(path) is None:
        raise ValueError(f"data.path={data.path} {why_unread(path)}")
    return {"all": lambda: read_file(path)}


def _saved(path: Path, data: DataConfig) -> Tables:
    splits = open_saved(path)
    roles = {"all": "all"} if "all" in splits else name_dataset_splits(splits, data, f"data.path={data.path}")
    return {role: lambda name=name: table_of(splits[name], f"{path.name}/{name}") for role, name in roles.items()}


def _folder(path: Path, data: DataConfig) -> Tables:
    if classes := class_folders(path, data):
        return {role: lambda folder=folder: read_class_folders(folder) for role, folder in classes.items()}
    found = name_files(path, data)
    return {role: lambda files=files: joined([read_file(file) for file in files]) for role, files in found.items()}


def _made(source: str, names: list[str], rows: list[tuple[str, str]]) -> Table:
    """A table of generated rows of two columns."""
    cells = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    return Table(names, cells.__getitem__, range(1, len(rows) + 1), source)
