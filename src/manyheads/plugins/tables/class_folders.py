"""Folders of classes, a text a file, such as train/pos/1.txt: which split each is. Standard library at first."""

from functools import partial
from pathlib import Path

import manyheads.plugin as plugin
from manyheads.config import DataConfig
from manyheads.data.formats.kinds import kind_of
from manyheads.data.formats.split_names import (
    KNOWN,
    files_inside,
    is_called_split,
    require_typed_names,
    take_typed_names,
    unread_notes,
)
from manyheads.data.opening import ROLE_OF, Tables
from manyheads.data.table import RawTable

NO_CLASS = "unsup"  # the folder of texts without a class in the IMDb dataset
TEXTS = "manyheads.plugins.tables.class_texts:table_of_texts"  # imports NumPy


def open_class_folders(folder: Path, data: DataConfig) -> tuple[Tables, list[str]] | None:
    """A part of kind `folder`: the texts of each split, and notes on folders that are not read. None where there are no
    folders of classes, or `folder` holds tables, or texts of a split, next to them.

    Raises:
        UserError: a typed name is that of no folder that holds folders of classes.
    """
    found, notes = class_folders(folder, data)
    return ({role: partial(_read, path) for role, path in found.items()}, notes) if found else None


def class_folders(folder: Path, data: DataConfig) -> tuple[dict[str, Path], list[str]]:
    """Role to the folder that holds those of its classes; `all`: there is just one. And notes on those that are not
    read."""
    for stem, files in files_inside(folder, data).items():
        if stem.lower() in KNOWN or kind_of(files[0]) != ".txt":
            return {}, []
    inside = _visible_folders(folder)
    splits: dict[str, Path] = {}
    for path in inside:
        if is_called_split(path, data) and _holds_classes(path):
            splits[path.name] = path
    by_name = {name.lower(): path for name, path in splits.items()}
    found: dict[str, Path] = {}
    for name, role in ROLE_OF.items():
        if name in by_name:
            found[role] = by_name[name]
    take_typed_names(found, splits, data)
    if "train" in found:
        names = [path.name for path in inside if _holds_classes(path)]
        where = f"data.path={data.path}"
        require_typed_names(names, data, f"the name of no folder of classes in {where}", "its folders are named")
        read = {role: path.name for role, path in found.items()}
        notes = unread_notes({name: name for name in names}, read, data)
        if len(found) == 1:
            found = {"all": found["train"]}
        return found, notes
    if _holds_classes(folder) and not any(path.name.lower() in KNOWN for path in inside):
        return {"all": folder}, []
    return {}, []


def _read(folder: Path) -> RawTable:
    """The texts of all classes, each called as its folder is."""
    files = [file for of_class in _classes(folder) for file in _texts(of_class)]
    table = plugin.resolve(TEXTS)(folder, files)
    others: list[Path] = []
    for of_class in _classes(folder):
        others += [path for path in sorted(of_class.iterdir()) if not _is_text(path) and path.name[0] != "."]
    if others:
        what = f"not read, as they are no .txt: {len(others):,} in the folders of classes"
        table.notes.append(f"{folder.name}: {what} (first: {others[0].relative_to(folder)})")
    unlabelled = folder / NO_CLASS
    if unlabelled.is_dir() and (n_texts := len(_texts(unlabelled))):
        table.notes.append(f"{folder.name}/{NO_CLASS}: {n_texts:,} texts without a class are not read")
    return table


def _visible_folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] != ".")


def _classes(folder: Path) -> list[Path]:
    """The folders in it that hold texts, each of one class."""
    return [path for path in _visible_folders(folder) if path.name != NO_CLASS and _has_texts(path)]


def _holds_classes(folder: Path) -> bool:
    return len(_classes(folder)) > 1


def _has_texts(folder: Path) -> bool:
    try:
        return any(map(_is_text, folder.iterdir()))
    except OSError:  # such as lost+found, which only root may open
        return False


def _is_text(path: Path) -> bool:
    return path.suffix.lower() == ".txt"


def _texts(folder: Path) -> list[Path]:
    return sorted(filter(_is_text, folder.iterdir()))
