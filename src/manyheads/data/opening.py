"""The tables that the settings name: files, folders of files or of classes, datasets, rows that are made."""

import difflib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import manyheads.plugin as plugin
from manyheads.config import DataConfig
from manyheads.config.sentences import format_value, list_names
from manyheads.data.class_names import normalise_name
from manyheads.data.disk_cache import cache_folder, cached_on_disk
from manyheads.data.formats.hub import Stream, is_saved, open_saved, streamed, table_of
from manyheads.data.formats.kinds import KINDS_IN_WORDS, is_large, kind_of, why_not_read
from manyheads.data.formats.source import text_of
from manyheads.data.formats.split_names import (
    ALIASES,
    KNOWN,
    files_inside,
    is_called_split,
    name_dataset_splits,
    name_files,
    require_typed_names,
    take_typed_names,
    typed_names,
    typed_split,
    unread_notes,
)
from manyheads.data.table import Coded, RawTable, coded, concatenate, take
from manyheads.errors import UserError

NO_CLASS = "unsup"
COLUMN = "split"
ROLES = {name: role for role, names in ALIASES.items() for name in names}


def read_file(path: Path, *, large: bool | None = None, cache: Path | None = None) -> RawTable:
    """Read a file whose `kind_of` is known. One that is not `large`, by default as `is_large` says, is held in memory;
    of another, where its rows are is kept in the folder `cache`.

    Raises:
        UserError: the file is unreadable, truncated, undecodable or has no header; names file and row.
    """
    large = is_large([path]) if large is None else large
    if kind_of(path) == ".parquet":
        from manyheads.data.formats.parquet import read_parquet

        return read_parquet(path, large=large)
    from manyheads.data.formats.blocks import read_text_file

    return read_text_file(path, large=large, cache=cache)


def class_folders(folder: Path, data: DataConfig) -> tuple[dict[str, Path], list[str]]:
    """Role to the folder that holds those of its classes; `all`: there is just one. None where `folder` holds tables,
    or texts of a split, next to them. And notes on those that are not read.

    Raises:
        UserError: a typed name is that of no folder that holds folders of classes.
    """
    for stem, files in files_inside(folder, data).items():
        if stem.lower() in KNOWN or kind_of(files[0]) != ".txt":
            return {}, []
    inside = [path for path in sorted(folder.iterdir()) if path.is_dir() and path.name[0] != "."]
    splits = {path.name: path for path in inside if is_called_split(path, data) and len(_classes(path)) > 1}
    by_name = {name.lower(): path for name, path in splits.items()}
    found = {role: by_name[name] for role, names in ALIASES.items() for name in names if name in by_name}
    take_typed_names(found, splits, data)
    if "train" in found:
        names = [path.name for path in inside if len(_classes(path)) > 1]
        where = f"data.path={data.path}"
        require_typed_names(names, data, f"the name of no folder of classes in {where}", "its folders are named")
        notes = unread_notes(
            dict(zip(names, names, strict=True)), {role: one.name for role, one in found.items()}, data
        )
        return found if len(found) > 1 else {"all": found["train"]}, notes
    is_flat = not any(path.name.lower() in KNOWN for path in inside) and len(_classes(folder)) > 1
    return {"all": folder} if is_flat else {}, []


def read_class_folders(folder: Path) -> RawTable:
    """The texts of all classes, each called as its folder is.

    Raises:
        UserError: a file cannot be read; names it.
    """
    from manyheads.data.column import in_memory, sliced_column

    files = [path for one in _classes(folder) for path in _texts(one)]
    facts = [(str(path), path.stat()) for path in files]
    known = blake2b(repr([(path, one.st_size, one.st_mtime_ns) for path, one in facts]).encode()).hexdigest()
    weight = sum(one.st_size for _, one in facts) / max(1, len(files))

    def read(_: int, rows: slice) -> list[str]:
        return [text_of(path).strip() for path in files[rows]]

    texts = sliced_column(read, [len(files)], known, weight)
    cells = {"text": texts, "label": in_memory([path.parent.name for path in files])}
    left_out = len(_texts(folder / NO_CLASS)) if (folder / NO_CLASS).is_dir() else 0
    return RawTable(
        names=["text", "label"],
        column=cells.__getitem__,
        numbers=range(1, len(files) + 1),
        source=folder.name,
        broken={at: f"the file {files[at]} is empty" for at, text in enumerate(texts) if not text},
        notes=[f"{folder.name}/{NO_CLASS}: {left_out:,} texts without a class are not read"] if left_out else [],
    )


def _classes(folder: Path) -> list[Path]:
    inside = sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] != ".")
    return [one for one in inside if one.name != NO_CLASS and _has_texts(one)]


def _has_texts(folder: Path) -> bool:
    try:
        return any(path.suffix == ".txt" for path in folder.iterdir())
    except OSError:  # such as lost+found, which only root may open
        return False


def _texts(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix == ".txt")


Tables = dict[str, Callable[[], RawTable]]  # by role: train, validation, test; or `all` alone


def open_tables(data: DataConfig, *, typed: bool = True) -> tuple[Tables, list[str]]:
    """The tables `data` names, by role; a file is read when its table is called for, but one that holds everything at
    once, as it may say of each row which split it is of. And notes on what lies next to them and is not read.

    Raises:
        UserError: there is no such file, folder, dataset or split; or a name that must be `typed` right is not.
    """
    tables, notes = _opened(data, typed=typed)
    return follow_split_column(tables["all"](), data, typed=typed) if "all" in tables else tables, notes


def _opened(data: DataConfig, *, typed: bool) -> tuple[Tables, list[str]]:
    assert data.path or data.source != "run", "the caller reads the run's own settings"
    if data.path:
        return _local(data, typed=typed)
    splits = plugin.make("source", data.source)(data)
    if not isinstance(splits, Mapping):
        raise UserError(f"data.source={data.source} gives a {type(splits).__name__}: it must give splits by name")
    splits = dict(splits)
    if data.source == "hub":
        return _named_splits(splits, data, data.hub, data.hub)
    roles, notes = name_dataset_splits(splits, data, f"data={data.source}")
    return {role: partial(table_from, splits[name], f"{data.source}/{name}") for role, name in roles.items()}, notes


def nothing(data: DataConfig) -> dict[str, Any]:
    """Of sources that settings alone do not open.

    Raises:
        UserError: the rows were given in Python.
    """
    raise UserError(
        f"data={data.source} are rows that were given in Python, which are not here any more: name a file with them by "
        "data.path=<file or folder>"
    )


def _named_splits(splits: dict[str, Any], data: DataConfig, name: str, where: str) -> tuple[Tables, list[str]]:
    """The splits of a dataset that is called `name`, by role."""
    roles, notes = name_dataset_splits(splits, data, where)
    return {role: _of_dataset(splits[one], data, f"{name}/{one}") for role, one in roles.items()}, notes


def open_split(data: DataConfig, split: str) -> RawTable:
    """The table of one split; a single file is read whole. ValueError: there is no such split."""
    tables, _ = open_tables(data)
    if split not in tables and "all" not in tables:
        raise UserError(f"split={split} is not in the data, which holds {', '.join(tables)}: choose one of them")
    return tables["all" if "all" in tables else split]()


def _local(data: DataConfig, *, typed: bool) -> tuple[Tables, list[str]]:
    path = Path(data.path).expanduser()
    if data.streaming and not (path.is_dir() and is_saved(path)):
        raise UserError(
            f"data.streaming=true streams datasets of the Hub and of save_to_disk, but data.path={data.path} is "
            "neither: remove it, as large files are read where they are"
        )
    if path.is_dir():
        return _saved(path, data) if is_saved(path) else _folder(path, data, typed=typed)
    if not path.exists():
        siblings = [one.name for one in path.parent.iterdir()] if path.parent.is_dir() else []
        close = difflib.get_close_matches(path.name, siblings, n=1)
        hint = f"did you mean {path.parent / close[0]}?" if close else f"give a file of {KINDS_IN_WORDS}, or a folder"
        raise UserError(f"data.path={data.path} does not exist: {hint}")
    if kind_of(path) is None:
        raise UserError(f"data.path={data.path} {why_not_read(path)}")
    return {"all": lambda: _shards([path], data)}, []


def _saved(path: Path, data: DataConfig) -> tuple[Tables, list[str]]:
    splits = open_saved(path)
    if data.streaming:
        splits = {name: Stream(one.to_iterable_dataset(), one._fingerprint) for name, one in splits.items()}
    if "all" in splits:
        return {"all": _of_dataset(splits["all"], data, f"{path.name}/all")}, []
    return _named_splits(splits, data, path.name, f"data.path={data.path}")


def _of_dataset(split: Any, data: DataConfig, source: str) -> Callable[[], RawTable]:
    return lambda: streamed(split, data, source) if data.streaming else table_of(split, source)


def _folder(path: Path, data: DataConfig, *, typed: bool) -> tuple[Tables, list[str]]:
    classes, notes = class_folders(path, data)
    if classes:
        return {role: partial(read_class_folders, folder) for role, folder in classes.items()}, notes
    found, notes = name_files(path, data, typed=typed)
    return {role: partial(_shards, files, data) for role, files in found.items()}, notes


def _shards(files: list[Path], data: DataConfig) -> RawTable:
    large = is_large(files)
    return concatenate([read_file(file, large=large, cache=cache_folder(data)) for file in files])


def table_from(rows: Any, source: str, classes: Sequence[str] = ()) -> RawTable:
    """Rows that are held in memory as a table.

    Args:
        rows: a pandas DataFrame, a `datasets.Dataset`, columns by name, or a list: of mappings by name, of pairs of a
            text and its label, of triples of two texts and their label, or of texts.
        classes: their names, where labels are numbers of them.

    Raises:
        UserError: they are none of these, or columns differ in length.
    """
    from manyheads.data.column import in_memory

    if hasattr(rows, "features") and hasattr(rows, "with_format"):
        return table_of(rows, source)
    if hasattr(rows, "columns") and hasattr(rows, "isna"):  # of pandas, without importing it
        held = rows.astype(object).where(~rows.isna(), None)
        found = {str(name): held[name].tolist() for name in rows.columns}
    elif isinstance(rows, Mapping):
        found = {str(name): one.tolist() if hasattr(one, "tolist") else list(one) for name, one in rows.items()}
    else:
        found = _columns_of(list(rows), source)
    lengths = {name: len(cells) for name, cells in found.items()}
    if len({*lengths.values()}) != 1:
        raise UserError(f"{source} has columns of different lengths, {lengths}: give each row a cell in each")
    cells = {name: in_memory(one) for name, one in found.items()}
    named = {"label": [*classes]} if classes else {}
    return RawTable([*cells], cells.__getitem__, range(1, max(lengths.values()) + 1), source, named)


def _columns_of(rows: list[Any], source: str) -> dict[str, list[Any]]:
    """The columns of a list of rows, by name."""
    if rows and all(isinstance(one, Mapping) for one in rows):
        names = dict.fromkeys(name for one in rows for name in one)
        return {str(name): [one.get(name) for one in rows] for name in names}
    if rows and all(isinstance(one, str) for one in rows):
        return {"text": rows}
    for names in (["text", "label"], ["text", "text_pair", "label"]):
        if rows and all(isinstance(one, tuple | list) and len(one) == len(names) for one in rows):
            return {name: [one[at] for one in rows] for at, name in enumerate(names)}
    raise UserError(
        f"{source} holds no rows that can be read: give a DataFrame, columns by name, or a list of (text, label)"
    )


def follow_split_column(table: RawTable, data: DataConfig, *, typed: bool) -> dict[str, Callable[[], RawTable]]:
    """Role to rows, where each row of the table is given one and some are for training; else `all`.

    Raises:
        UserError: a typed name is in no row of the column, or names a part of a file that has none.
    """
    whole = {"all": lambda: table}
    named = next((name for name in table.names if name.casefold() == COLUMN), None)
    if named is None or named in (data.text, data.text_pair, data.label, data.target):
        path = Path(data.path).expanduser()
        for role, name in typed_names(data).items() if typed and (path.is_file() or is_saved(path)) else ():
            raise UserError(
                f"data.{role}_split={format_value(name)} is the name of no split of data.path={data.path}, which is "
                "one table "
                f"without a column {COLUMN}: remove it, or give a folder with a file for each split"
            )
        return whole
    import numpy as np

    said = _said(table, named, data)
    by_typed = {one.lower(): one for role in ALIASES if (one := typed_split(data, role))}
    known = by_typed | ROLES
    n_rows = np.bincount(said.codes, minlength=len(said.values)).tolist()
    names = [known.get(one) if n else "" for one, n in zip(said.values, n_rows, strict=True)]
    counts = Counter({name: 0 for name in names if name})
    for name, n in zip(names, n_rows, strict=True):
        counts.update({name: n} if name else {})
    found = {role: role for role in ALIASES if role in counts}
    take_typed_names(found, {name: name for name in counts}, data)
    if "train" not in found or len(counts) < 2:
        return whole
    if Path(data.path).expanduser().is_file():  # else it is the name of a file, or of a split
        where = f"in no row of the column {format_value(named)} of data.path={data.path}"
        require_typed_names(
            sorted({str(by_typed.get(one, one)) for one in said.used()}), data, where, "its rows are of"
        )
    if None in names:
        others = list_names(sorted({str(one) for one, name in zip(said.values, names, strict=True) if name is None}))
        table.notes.append(
            f"{table.source}: its column {format_value(named)} is not followed, as it also holds {others or 'nothing'}"
        )
        return whole
    shown = sorted(counts, key=[*ALIASES, *counts].index)
    table.notes.append(
        f"{table.source}: its column {format_value(named)} says which rows are "
        f"{list_names([f'{name} ({counts[name]:,})' for name in shown])}; rename it to have them drawn"
    )

    def rows_of(name: str) -> Callable[[], RawTable]:
        return lambda: _part(table, np.flatnonzero(np.array([one == name for one in names])[said.codes]))

    return {role if len(found) > 1 else "all": rows_of(name) for role, name in found.items()}


def _said(table: RawTable, named: str, data: DataConfig) -> Coded:
    """What a column says of each row, in lower case; of a row that is broken train."""
    column = table.column(named)

    def make() -> dict[str, Any]:
        every = coded(column)
        codes = every.codes.copy()
        codes[[*table.broken]] = len(every.values)
        return {"codes": codes, "values": [*(normalise_name(one).lower() for one in every.values), "train"]}

    def fits(found: dict[str, Any]) -> bool:
        codes = found["codes"]
        is_whole = codes.shape == (len(column),) and codes.dtype.kind == "i"
        return is_whole and 0 <= codes.min() <= codes.max() < len(found["values"])

    found = cached_on_disk(None if column.is_kept else cache_folder(data), "column", column.digest, make, fits)
    return Coded(found["codes"], found["values"])


def _part(table: RawTable, indices: Any) -> RawTable:
    places = {at: int(indices.searchsorted(at)) for at in table.broken}
    return RawTable(
        names=table.names,
        column=lambda name: table.column(name).take(indices),
        numbers=take(table.numbers, indices),
        source=table.source,
        classes=table.classes,
        broken={new: table.broken[at] for at, new in places.items() if new < len(indices) and indices[new] == at},
        notes=table.notes,
        positions=indices,
    )
