"""What needs pyarrow or datasets, which data imports here alone, when they are asked for.

Parquet files to tables; datasets of the Hugging Face hub, and folders of `save_to_disk`.
"""

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from manyheads.config import DataConfig
from manyheads.config.data import AT_ONCE
from manyheads.config.fields import first_line, show
from manyheads.data.columns import class_names, find_columns
from manyheads.data.files import most_unpacked, require_unchanged
from manyheads.data.rows import text_faults
from manyheads.data.seen import cache_folder, fingerprint, remembered
from manyheads.data.table import Coded, Table, coded
from manyheads.errors import UserError

DAMAGED = "cannot be read as parquet: the file is truncated, damaged or of another kind; copy it again"
CELL = 8  # bytes of a list that each takes
SAMPLE = 200_000  # rows of a stream whose texts are kept
SAVED_MARKS = ("dataset_dict.json", "state.json")
SECONDS_TO_CONNECT = 5.0


def read_parquet(path: Path, *, large: bool) -> Table:
    """Read the schema now, a column when it is asked for, row group by row group; a file that is not `large` is held.

    Class names that `datasets` wrote into the schema are kept.

    Raises:
        UserError: not parquet, truncated, a text that is not UTF-8, or cells that fill the memory; names the file.
    """
    import pyarrow
    import pyarrow.parquet

    from manyheads.data.column import sliced

    try:
        content = path if large else pyarrow.BufferReader(path.read_bytes())
        with pyarrow.parquet.ParquetFile(content) as file:
            schema, metadata = file.schema_arrow, file.metadata
        texts = [one.name for one in schema if pyarrow.types.is_string(one.type)]
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError):
        raise UserError(f"{path} {DAMAGED}") from None
    most, facts, checked = most_unpacked(path), path.stat(), set[tuple[str, int]]()

    def opened(**how: Any) -> Any:  # anew, as an open file keeps what was read of it
        return pyarrow.parquet.ParquetFile(content, metadata=metadata, **how)

    def check(name: str, groups: Sequence[int]) -> None:
        with opened(read_dictionary=texts) as packed:
            if _n_bytes(packed, name, most, [*groups]) > most:
                much = f"{most:,} bytes once decompressed"
                raise UserError(f"{path} holds more than {much}: split it, or write it as csv")

    def array(name: str, group: int) -> Any:
        if large:
            require_unchanged(path, facts)
        if large and (name, group) not in checked:
            check(name, [group])
            checked.add((name, group))
        with opened() as file:
            return file.read_row_group(group, columns=[name]).column(name)

    def cells(name: str, group: int, rows: slice) -> list[Any]:
        with _decoding(path, name):
            return _once(array, name, group)[rows].to_pylist()

    @lru_cache
    def column(name: str) -> Any:
        groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
        if not large:  # all of it will be held
            with _decoding(path, name):
                check(name, range(len(groups)))
        weight = sum(one.total_byte_size for one in groups) / max(1, metadata.num_rows)
        return sliced(partial(cells, name), [one.num_rows for one in groups], f"{fingerprint(path)} {name}", weight)

    return Table(
        names=schema.names,
        column=column,
        numbers=range(1, metadata.num_rows + 1),
        source=path.name,
        classes=_classes(schema.metadata or {}),
    )


@contextmanager
def _decoding(path: Path, name: str) -> Iterator[None]:
    """Say in a sentence that a column of a parquet file cannot be read."""
    import pyarrow

    try:
        yield
    except UnicodeDecodeError:
        raise UserError(f"{path}: the column '{show(name)}' holds text that is not UTF-8; write it as UTF-8") from None
    except (pyarrow.ArrowException, OSError, KeyError):
        raise UserError(f"{path} {DAMAGED}") from None


@lru_cache(maxsize=2)
def _once(read: Callable[..., Any], *words: Any) -> Any:
    return read(*words)


def _n_bytes(packed: Any, name: str, most: int, groups: list[int]) -> int:
    """What the cells take, or some more than `most`: a text that stands in the file once may be in a million rows."""
    import pyarrow

    n_bytes = 0
    for batch in packed.iter_batches(columns=[name], row_groups=groups):
        cells = batch.column(0)
        n_bytes += CELL * len(cells)
        n_bytes += unpacked(cells) if isinstance(cells, pyarrow.DictionaryArray) else cells.nbytes
        if n_bytes > most:
            break
    return n_bytes


def unpacked(texts: Any) -> int:
    """Bytes of texts that are each held once in a dictionary, and that any number of rows may have."""
    import pyarrow.compute

    lengths = pyarrow.compute.call_function("binary_length", [texts.dictionary]).take(texts.indices)
    return pyarrow.compute.call_function("sum", [lengths]).as_py() or 0


def _classes(metadata: dict[bytes, bytes]) -> dict[str, list[str]]:
    try:
        return class_names(json.loads(metadata[b"huggingface"])["info"]["features"])
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return {}


def is_saved(folder: Path) -> bool:
    """Whether `datasets.save_to_disk` wrote this folder."""
    return any((folder / mark).is_file() for mark in SAVED_MARKS)


def open_saved(folder: Path) -> dict[str, Any]:
    """Splits of a `save_to_disk` folder by name; one Dataset alone is named `all`.

    Raises:
        UserError: the folder is incomplete or damaged.
    """
    import datasets

    try:
        saved = datasets.load_from_disk(str(folder))
    except (OSError, ValueError, LookupError, TypeError, RuntimeError, AttributeError, AssertionError) as problem:
        raise UserError(
            f"{folder} cannot be read as a save_to_disk folder ({first_line(problem)}); save it again"
        ) from None
    return _by_name(saved)


def open_hub(data: DataConfig) -> dict[str, Any]:
    """Splits of a hub dataset by name, from the local copy `datasets` keeps where there is no network; with
    `data.streaming` nothing of them is stored.

    Raises:
        UserError: no network and no copy, no such dataset, config or revision.
    """
    if not can_connect():
        if not _has_copy(data.hub):
            raise UserError(
                f"data.hub={data.hub} needs the network, which is off or cannot reach the Hugging Face hub: "
                "connect, or read a local copy by data.path=<file or folder>"
            )
        os.environ["HF_HUB_OFFLINE"] = "1"  # `datasets` reads it when it is imported, and then asks its copy alone
    import datasets
    from datasets.exceptions import DatasetsError

    datasets.disable_progress_bars()
    # a revision converted to parquet keeps each config in a folder of its own and declares none
    converted = data.revision.startswith("refs/convert")
    try:
        load: Any = datasets.load_dataset_builder if data.streaming else datasets.load_dataset
        loaded = load(
            data.hub,
            None if converted else data.hub_config or None,
            data_dir=data.hub_config or None if converted else None,
            revision=data.revision or None,
        )
        if data.streaming:
            loaded, known = loaded.as_streaming_dataset(), loaded.cache_dir
            return {name: Stream(one, f"{known} {name}") for name, one in _by_name(loaded).items()}
    except (OSError, ValueError, RuntimeError, DatasetsError) as problem:
        raise UserError(
            f"data.hub={data.hub} cannot be loaded ({first_line(problem)}): check data.hub, "
            f"data.hub_config={data.hub_config} and data.revision={data.revision}, "
            "or read a local copy by data.path=<file or folder>"
        ) from None
    return _by_name(loaded)


def table_of(dataset: Any, source: str) -> Table:
    """A `datasets.Dataset` as a table; class names come from its features.

    Cells are what is stored: to decode a picture or a sound would open the file or the address that a cell names.
    """
    from manyheads.data.column import sliced

    stored, n_bytes = dataset.with_format("arrow"), dataset.data.nbytes

    @lru_cache
    def column(name: str) -> Any:
        one = stored.select_columns([name])
        return sliced(
            lambda at, rows: one[rows].column(name).to_pylist(),
            [len(dataset)],
            f"{dataset._fingerprint} {name}",
            n_bytes / max(1, len(dataset)),
        )

    return Table(
        names=list(dataset.column_names),
        column=column,
        numbers=range(1, len(dataset) + 1),
        source=source,
        classes=class_names(dataset.features.to_dict()),
    )


class Stream:
    """A split that `datasets` streams, in blocks of `AT_ONCE` rows: one after another, or from the beginning again.
    `known` stands for what it holds."""

    def __init__(self, dataset: Any, known: str) -> None:
        self.dataset, self.known = dataset, known
        self._at, self._coming = 0, iter(())

    def blocks(self, first: int) -> Iterator[Any]:
        """From block `first` on.

        Raises:
            UserError: the library fails, as where the network does.
        """
        import pyarrow

        rest: list[Any] = []
        coming = self.dataset.skip(first * AT_ONCE).with_format("arrow").iter(batch_size=AT_ONCE)
        while True:
            try:
                table = next(coming, None)
            except Exception as problem:  # of any network, file system or format
                said = f"the stream of the dataset ends too early ({first_line(problem)})"
                raise UserError(f"{said}: start again; tokens that are made are kept") from problem
            rest += [] if table is None else [table]
            while (n_rows := sum(map(len, rest))) >= AT_ONCE or (n_rows and table is None):
                whole = pyarrow.concat_tables(rest, promote_options="default")
                yield whole[:AT_ONCE]
                rest = [whole[AT_ONCE:]]
            if table is None:
                return

    def cells(self, at: int, name: str) -> list[Any]:
        """Those of a column in a block."""
        return _once(self.block, at).column(name).to_pylist()

    def block(self, at: int) -> Any:
        """One block: forwards from where the last ended nothing is streamed twice."""
        if at < self._at or not self._at:
            self._at, self._coming = at, self.blocks(at)
        while self._at < at:
            next(self._coming)
            self._at += 1
        self._at += 1
        return next(self._coming)


def streamed(stream: Stream, data: DataConfig, source: str) -> Table:
    """A stream as a table: hashes and labels of all its rows are found in one pass, which the cache remembers, and the
    texts of at most `SAMPLE` rows are kept, those with the smallest hashes. Its texts are streamed again to be
    tokenised.

    Raises:
        UserError: it cannot be read, or lacks a column.
    """
    import numpy as np

    from manyheads.data.column import Column, Sampled

    features = stream.dataset.features
    names = [*features] if features else next(stream.blocks(0)).column_names
    columns = find_columns(Table(names, lambda name: [], range(0), source), data)
    texts = [one for one in (columns.text, columns.pair) if one]

    def fits(found: dict[str, Any]) -> bool:
        n_rows, held, codes = found["n_rows"], found["held"], found["codes"]
        shapes = found["hashes"].shape == (len(texts), n_rows) and codes.shape == (n_rows,)
        within = ((codes >= 0) & (codes < len(found["values"]))).all() and (held < n_rows).all()
        return bool(shapes and within and all(len(one) == len(held) for one in found["cells"]))

    key = stream.known, source, texts, columns.answer, SAMPLE
    found = remembered(cache_folder(data), "stream", key, lambda: _passed(stream, texts, columns.answer), fits)
    n_rows, starts = found["n_rows"], np.append(np.arange(0, found["n_rows"], AT_ONCE), found["n_rows"])
    weight = sum(len(cell) for cell in found["cells"][0] if isinstance(cell, str)) / max(1, len(found["held"]))

    @lru_cache
    def column(name: str) -> Any:
        if name == columns.answer:
            return Coded(found["codes"], found["values"])
        reads = [partial(stream.cells, at, name) for at in range(len(starts) - 1)]
        whole = Column(reads, starts, f"{stream.known} {name}", weight)
        if name not in texts:
            return whole
        at = texts.index(name)
        checked = found["hashes"][at], {int(row): why for row, why in found["faults"][at]}
        return Sampled(whole, found["held"], found["cells"][at], checked)

    table = Table(names, column, range(1, n_rows + 1), source, class_names(features.to_dict() if features else {}))
    if len(found["held"]) < n_rows:
        table.notes.append(
            f"{source}: {n_rows:,} rows are streamed; the texts of {len(found['held']):,} are kept, from which the "
            "tokenizer and the linear model learn and on which the model is judged"
        )
    return table


def _passed(stream: Stream, texts: list[str], answer: str) -> dict[str, Any]:
    """What is remembered of a stream."""
    import numpy as np

    from manyheads.data.column import of_pairs, stable

    known, values, codes, n_rows = dict[Any, int](), list[Any](), list[Any](), 0
    hashes: list[list[Any]] = [[] for _ in texts]
    faults: list[list[tuple[int, str]]] = [[] for _ in texts]
    order, held, kept = np.empty(0, np.uint64), np.empty(0, np.int64), [list[Any]() for _ in texts]
    bound = 2**64
    for block in stream.blocks(0):
        every = [block.column(name).to_pylist() for name in texts]
        for at, cells in enumerate(every):
            hashes[at].append(stable(cells))
            said = text_faults(cells, ("the text", "the second text")[at])
            faults[at] += [(n_rows + row, why) for row, why in said.items()]
        labels = coded(block.column(answer).to_pylist())
        for value in labels.values:
            if known.setdefault((type(value), repr(value)), len(known)) == len(values):
                values.append(value)
        codes.append(labels.numbers([known[type(one), repr(one)] for one in labels.values]))
        of_rows = hashes[0][-1] if len(texts) == 1 else of_pairs(hashes[0][-1], hashes[1][-1])
        order = np.concatenate([order, of_rows.view(np.uint64)])
        held = np.concatenate([held, np.arange(n_rows, n_rows + len(block))])
        kept = [of_one + cells for of_one, cells in zip(kept, every, strict=True)]
        n_rows += len(block)
        if len(order) > SAMPLE:
            bound = min(bound, int(np.partition(order, SAMPLE)[SAMPLE]))
        if bound < 2**64:  # it only falls, so that equal texts are kept, or not, together
            some = np.flatnonzero(order < np.uint64(bound))
            order, held, kept = order[some], held[some], [[one[at] for at in some.tolist()] for one in kept]
    found = {"n_rows": n_rows, "values": values, "faults": faults, "cells": kept, "held": held}
    whole = np.stack([np.concatenate(one) for one in hashes]) if n_rows else np.empty((len(texts), 0), np.int64)
    return found | {"hashes": whole, "codes": np.concatenate(codes) if codes else np.empty(0, np.int32)}


def _by_name(loaded: Any) -> dict[str, Any]:
    return {str(name): split for name, split in loaded.items()} if isinstance(loaded, Mapping) else {"all": loaded}


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE")


def _has_copy(hub: str) -> bool:
    """Whether `datasets` keeps a copy of this dataset."""
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    folder = Path(os.environ.get("HF_DATASETS_CACHE") or home / "datasets").expanduser()
    name = hub.replace("/", "___")
    return any((folder / one).is_dir() for one in (name.lower(), name))


def can_connect() -> bool:
    """Whether the hub, or the proxy in front of it, takes a connection within seconds; name lookup included."""
    if _is_set("HF_HUB_OFFLINE") or _is_set("HF_DATASETS_OFFLINE"):
        return False
    url = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    proxy = os.environ.get(f"{url.scheme}_proxy") or os.environ.get(f"{url.scheme.upper()}_PROXY") or ""
    if proxy:
        url = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    reached: list[bool] = []

    def connect() -> None:
        port = url.port or (80 if url.scheme == "http" else 443)
        with suppress(OSError):  # not reached, which is the answer
            socket.create_connection((url.hostname or "", port), timeout=SECONDS_TO_CONNECT).close()
            reached.append(True)

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(SECONDS_TO_CONNECT + 1)
    return bool(reached)
