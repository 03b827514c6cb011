"""What the settings name: files, folders of files or of classes, datasets, rows that are made. Each role of a run
(train, validation, test; or `all`, of which the roles are drawn) gets a function that reads its table.

Standard library at first: what reads is imported when the first table is read.
"""

import difflib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import manyheads.plugin as plugin
from manyheads.config import DataConfig, RunConfig
from manyheads.config.facts import hooks, require
from manyheads.config.sentences import format_value, list_names
from manyheads.data.class_names import normalise_name
from manyheads.data.disk_cache import cache_folder, cached_on_disk
from manyheads.data.formats.fields import joined_columns, with_joined_text
from manyheads.data.formats.hub import StreamedSplit, is_saved, open_saved
from manyheads.data.formats.kinds import KINDS_IN_WORDS, is_large, kind_of, refuse_other_kind, why_not_read
from manyheads.data.formats.split_names import (
    ALIASES,
    name_dataset_splits,
    name_files,
    require_typed_names,
    take_typed_names,
    typed_names,
    typed_split,
)
from manyheads.data.rows import Splits
from manyheads.data.table import Coded, RawTable, coded, require_whole, select_rows
from manyheads.errors import UserError

COLUMN = "split"
ROLE_OF = {name: role for role, names in ALIASES.items() for name in names}
Tables = dict[str, Callable[[], RawTable]]  # by role: train, validation, test; or `all` alone


# What reads each kind of data, imported on first use: NumPy and pyarrow take 0.3 s, for which no mistake in the
# settings should wait, nor a csv for parquet.
TEXT_FILE = "manyheads.data.formats.blocks:read_text_file"
PARQUET = "manyheads.data.formats.parquet:read_parquet"
SHARDS = "manyheads.data.formats.pieces:join_shards"
ROWS = "manyheads.data.formats.pieces:given_rows"
DATASET = "manyheads.data.formats.dataset:table_of"
STREAMED = "manyheads.data.formats.dataset:streamed"
JOINED = "manyheads.data.column:join_rows"


def read_file(path: Path, *, large: bool | None = None, cache: Path | None = None) -> RawTable:
    """Read a file whose `kind_of` is known. One that is not `large`, by default as `is_large` says, is held in memory;
    of another, where its rows are is kept in the folder `cache`.

    Raises:
        UserError: the file is unreadable, truncated, undecodable or has no header; names file and row.
    """
    if large is None:
        large = is_large([path])
    refuse_other_kind(path)
    kind = kind_of(path) or ""
    if kind in plugin.names("file"):
        return plugin.make("file", kind)(path)
    if kind == ".parquet":
        return plugin.resolve(PARQUET)(path, large=large)
    return plugin.resolve(TEXT_FILE)(path, large=large, cache=cache)


def table_from(rows: Any, source: str, classes: Sequence[str] = ()) -> RawTable:
    """Rows that are held in memory as a table.

    Args:
        rows: a DataFrame of pandas or polars, a `datasets.Dataset`, columns by name, or a list: of mappings by name, of
            pairs of a text and its label, of triples of two texts and their label, or of texts.
        classes: their names, where labels are numbers of them.

    Raises:
        UserError: they are none of these, or columns differ in length.
    """
    if hasattr(rows, "features") and hasattr(rows, "with_format"):
        if not hasattr(rows, "data"):  # a `datasets.IterableDataset`
            raise UserError(
                f"{source} is a stream of datasets, whose rows are not counted: load it with streaming=False"
            )
        return plugin.resolve(DATASET)(rows, source)
    return plugin.resolve(ROWS)(rows, source, classes)


def open_tables(data: DataConfig, *, typed: bool = True) -> tuple[Tables, list[str]]:
    """The tables `data` names, by role, and notes on what lies next to them and is not read. A file is read when its
    table is called for; one that holds everything is read here, as a column of it may say which split each row is of.

    Raises:
        UserError: there is no such file, folder, dataset or split; or a name that must be `typed` right is not.
    """
    tables, notes = _open(data, typed=typed)
    if "all" in tables:
        tables = follow_split_column(tables["all"](), data, typed=typed)
    return change_tables(tables, data, typed=typed), notes


def change_tables(tables: Tables, data: DataConfig, *, typed: bool = True) -> Tables:
    """The tables as plugins change them, if `data` was `typed` for these, and with the column of the text that is
    joined of several."""
    for change in hooks(data, "tables") if typed else ():
        tables = change(data, tables)
    names = joined_columns(data)
    if not names:
        return tables
    return {role: partial(_read_joined, read, names) for role, read in tables.items()}


def _read_joined(read: Callable[[], RawTable], names: list[str]) -> RawTable:
    return with_joined_text(read(), names)


def open_split(data: DataConfig, split: str) -> RawTable:
    """The table of one split; a single file is read whole.

    Raises:
        UserError: there is no such split.
    """
    tables, _ = open_tables(data)
    if "all" in tables:
        return tables["all"]()
    if split not in tables:
        raise UserError(f"split={split} is not in the data, which holds {', '.join(tables)}: choose one of them")
    return tables[split]()


def add_further_rows(run: RunConfig, splits: Splits) -> None:
    """Add to train what plugins give to learn from in addition: see `Section.rows`."""
    found = [rows for give in hooks(run, "rows") if (rows := give(run, splits)) is not None]
    if found:
        splits.own_train = splits.train
        splits.train = plugin.resolve(JOINED)([splits.train, *found], len(splits.labels))


def further_table(path: str, data: DataConfig, setting: str, file: str = "<file>") -> RawTable:
    """The table of a further file, or the training split of a folder, read by the settings `data`.

    Args:
        setting: that names it, for sentences, and how a `file` is typed as its value.

    Raises:
        UserError: there is none.
    """
    theirs = replace(data, source="files", path=str(Path(path).expanduser()), hub="", streaming=False)
    try:
        tables, _ = open_tables(theirs, typed=False)
    except ValueError as error:  # which names the settings of the run's own data
        sentence = str(error).replace(f"data.path={theirs.path}", f"{setting}={path}")
        raise UserError(sentence.replace("data.path=<file>", f"{setting}={file}")) from error
    return tables["all" if "all" in tables else "train"]()


def named_table(setting: str, path: str, names: Sequence[str]) -> RawTable:
    """The small file that a setting names, which has the columns `names`.

    Raises:
        UserError: it does not exist, cannot be read whole, or lacks a column.
    """
    file, where = Path(path).expanduser(), f"{setting}={path}"
    require(file.is_file(), f"{where} is no file: name a csv with the columns {' and '.join(names)}")
    require(kind_of(file) is not None, f"{where} {why_not_read(file)}")
    table = read_file(file)
    require_whole(table, where)
    has = f"{where} has the columns {list_names(table.names)}"
    require({*names} <= {*table.names}, f"{has}: it must have {' and '.join(names)}")
    return table


def refuse_lost_rows(data: DataConfig) -> dict[str, Any]:
    """A source that settings alone cannot open.

    Raises:
        UserError: always; the rows were given in Python.
    """
    raise UserError(
        f"data={data.source} are rows that were given in Python, which are not here any more: name a file with them by "
        "data.path=<file or folder>"
    )


def _open(data: DataConfig, *, typed: bool) -> tuple[Tables, list[str]]:
    assert data.path or data.source != "run", "the caller reads the run's own settings"
    if data.path:
        return _open_path(data, typed=typed)
    splits = plugin.make("source", data.source)(data)
    if not isinstance(splits, Mapping):
        raise UserError(f"data.source={data.source} gives a {type(splits).__name__}: it must give splits by name")
    if data.source == "hub":
        return _name_splits(dict(splits), data, data.hub, data.hub)
    return _name_splits(dict(splits), data, data.source, f"data={data.source}")


def _name_splits(splits: dict[str, Any], data: DataConfig, name: str, where: str) -> tuple[Tables, list[str]]:
    """The splits of the dataset `name`, by role."""
    roles, notes = name_dataset_splits(splits, data, where)
    tables: Tables = {}
    for role, split in roles.items():
        tables[role] = partial(_read_split, splits[split], data, f"{name}/{split}")
    return tables, notes


def _open_path(data: DataConfig, *, typed: bool) -> tuple[Tables, list[str]]:
    path = Path(data.path).expanduser()
    if path.is_dir() and is_saved(path):
        splits = open_saved(path, streaming=data.streaming)
        if "all" in splits:
            return {"all": partial(_read_split, splits["all"], data, f"{path.name}/all")}, []
        return _name_splits(splits, data, path.name, f"data.path={data.path}")
    if data.streaming:
        raise UserError(
            f"data.streaming=true streams datasets of the Hub and of save_to_disk, but data.path={data.path} is "
            "neither: remove it, as large files are read where they are"
        )
    if path.is_dir():
        for name in plugin.names("folder"):
            if (tables := plugin.make("folder", name)(path, data)) is not None:
                return tables
        found, notes = name_files(path, data, typed=typed)
        return {role: partial(_read_shards, files, data) for role, files in found.items()}, notes
    if not path.exists():
        hint = f"give a file of {KINDS_IN_WORDS}, or a folder"
        if path.is_symlink():
            hint = f"it is a link to {path.readlink()}, which is not there"
        elif path.parent.is_dir():
            siblings = [sibling.name for sibling in path.parent.iterdir()]
            for close in difflib.get_close_matches(path.name, siblings, n=1):
                hint = f"did you mean {path.parent / close}?"
        raise UserError(f"data.path={data.path} does not exist: {hint}")
    if kind_of(path) is None:
        raise UserError(f"data.path={data.path} {why_not_read(path)}")
    return {"all": partial(_read_shards, [path], data)}, []


def _read_shards(files: list[Path], data: DataConfig) -> RawTable:
    """The files of one split as one table."""
    large = is_large(files)
    tables = [read_file(file, large=large, cache=cache_folder(data)) for file in files]
    if len(tables) == 1:
        return tables[0]
    return plugin.resolve(SHARDS)(tables)


def _read_split(split: Any, data: DataConfig, source: str) -> RawTable:
    if isinstance(split, StreamedSplit):
        return plugin.resolve(STREAMED)(split, data, source)
    return table_from(split, source)


def follow_split_column(table: RawTable, data: DataConfig, *, typed: bool) -> Tables:
    """Role to rows, where each row of the table is given one and some are for training; else `all`.

    Raises:
        UserError: a typed name is in no row of the column, or names a part of a file that has none.
    """
    whole: Tables = {"all": lambda: table}
    path = Path(data.path).expanduser()
    column = next((name for name in table.names if name.casefold() == COLUMN), None)
    read_names = joined_columns(data) or [data.text]
    if column is None or column in (*read_names, data.text_pair, data.label, data.target):
        if typed and (path.is_file() or is_saved(path)):
            for role, name in typed_names(data).items():
                raise UserError(
                    f"data.{role}_split={format_value(name)} is the name of no split of data.path={data.path}, which "
                    f"is one table without a column {COLUMN}: remove it, or give a folder with a file for each split"
                )
        return whole
    import numpy as np

    of_row = _split_of_row(table, column, data)
    typed_as: dict[str, str] = {}  # from what a cell says, in lower case, to the name that the settings have
    for role in ALIASES:
        if name := typed_split(data, role):
            typed_as[name.lower()] = name
    split_of = typed_as | ROLE_OF  # and to the name of a split
    n_of_value = np.bincount(of_row.codes, minlength=len(of_row.values)).tolist()
    counts = Counter[str]()  # rows of each split
    strange: list[str] = []  # what names no split
    for value, n_rows in zip(of_row.values, n_of_value, strict=True):
        if not n_rows:
            continue
        if value in split_of:
            counts[split_of[value]] += n_rows
        else:
            strange.append(value)
    found = {role: role for role in ALIASES if role in counts}
    take_typed_names(found, {name: name for name in counts}, data)
    if "train" not in found or len(counts) < 2:
        return whole
    if path.is_file():  # else a typed name is that of a file, or of a split
        names = sorted({str(typed_as.get(value, value)) for value in of_row.used()})
        where = f"in no row of the column {format_value(column)} of data.path={data.path}"
        require_typed_names(names, data, where, "its rows are of")
    if strange:
        others = list_names(sorted({*strange})) or "nothing"
        table.notes.append(
            f"{table.source}: its column {format_value(column)} is not followed, as it also holds {others}"
        )
        return whole
    in_order = sorted(counts, key=[*ALIASES, *counts].index)
    described = [f"{name} ({counts[name]:,})" for name in in_order]
    table.notes.append(
        f"{table.source}: its column {format_value(column)} says which rows are {list_names(described)}; rename it to "
        "have them drawn"
    )
    tables: Tables = {}
    for role, name in found.items():
        is_named = np.array([split_of.get(value) == name for value in of_row.values])
        tables[role] = partial(_rows_where, table, is_named, of_row.codes)
    if len(tables) == 1:
        return {"all": tables["train"]}
    return tables


def _split_of_row(table: RawTable, name: str, data: DataConfig) -> Coded:
    """What a column says of each row, in lower case; of a row that is broken train."""
    column = table.column(name)

    def make() -> dict[str, Any]:
        cells = coded(column)
        codes = cells.codes.copy()
        codes[[*table.broken]] = len(cells.values)
        return {"codes": codes, "values": [*(normalise_name(value).lower() for value in cells.values), "train"]}

    def fits(found: dict[str, Any]) -> bool:
        codes = found["codes"]
        is_whole = codes.shape == (len(column),) and codes.dtype.kind == "i"
        return is_whole and 0 <= codes.min() <= codes.max() < len(found["values"])

    cache = None if column.is_kept else cache_folder(data)
    found = cached_on_disk(cache, "column", column.digest, make, fits)
    return Coded(found["codes"], found["values"])


def _rows_where(table: RawTable, is_chosen: Any, codes: Any) -> RawTable:
    """The rows of a table whose codes are chosen: bool `(values,)`, int32 `(rows,)`."""
    return select_rows(table, is_chosen[codes].nonzero()[0])
