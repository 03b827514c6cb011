"""Datasets of the Hugging Face Hub, also streamed, and folders of `save_to_disk`. `datasets` is imported when it is
asked for."""

import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from manyheads.config import DataConfig
from manyheads.config.data import AT_ONCE
from manyheads.config.sentences import first_line
from manyheads.data.columns import class_names, find_columns
from manyheads.data.disk_cache import cache_folder, cached_on_disk
from manyheads.data.table import Coded, RawTable, cached_read, coded
from manyheads.data.texts import text_faults
from manyheads.errors import UserError

SAMPLE = 200_000  # rows of a stream whose texts are kept
SAVED_MARKS = ("dataset_dict.json", "state.json")
SECONDS_TO_CONNECT = 5.0


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


def table_of(dataset: Any, source: str) -> RawTable:
    """A `datasets.Dataset` as a table; class names come from its features.

    Cells are what is stored: to decode a picture or a sound would open the file or the address that a cell names.
    """
    from manyheads.data.column import sliced_column

    stored, n_bytes = dataset.with_format("arrow"), dataset.data.nbytes

    @lru_cache
    def column(name: str) -> Any:
        one = stored.select_columns([name])
        return sliced_column(
            lambda at, rows: one[rows].column(name).to_pylist(),
            [len(dataset)],
            f"{dataset._fingerprint} {name}",
            n_bytes / max(1, len(dataset)),
        )

    return RawTable(
        names=list(dataset.column_names),
        column=column,
        numbers=range(1, len(dataset) + 1),
        source=source,
        classes=class_names(dataset.features.to_dict()),
    )


class Stream:
    """A split that `datasets` streams, in blocks of `AT_ONCE` rows: one after another, or from the beginning again.
    `known` identifies what it holds."""

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
        return cached_read(self.block, at).column(name).to_pylist()

    def block(self, at: int) -> Any:
        """One block: forwards from where the last ended nothing is streamed twice."""
        if at < self._at or not self._at:
            self._at, self._coming = at, self.blocks(at)
        while self._at < at:
            next(self._coming)
            self._at += 1
        self._at += 1
        return next(self._coming)


def streamed(stream: Stream, data: DataConfig, source: str) -> RawTable:
    """A stream as a table: hashes and labels of all its rows are found in one pass, which the cache remembers, and the
    texts of at most `SAMPLE` rows are kept, those with the smallest hashes. Its texts are streamed again to be
    tokenised.

    Raises:
        UserError: it cannot be read, or lacks a column.
    """
    import numpy as np

    from manyheads.data.column import Column, SampledColumn

    features = stream.dataset.features
    names = [*features] if features else next(stream.blocks(0)).column_names
    columns = find_columns(RawTable(names, lambda name: [], range(0), source), data)
    texts = [one for one in (columns.text, columns.pair) if one]

    def fits(found: dict[str, Any]) -> bool:
        n_rows, held, codes = found["n_rows"], found["held"], found["codes"]
        shapes = found["hashes"].shape == (len(texts), n_rows) and codes.shape == (n_rows,)
        within = ((codes >= 0) & (codes < len(found["values"]))).all() and (held < n_rows).all()
        return bool(shapes and within and all(len(one) == len(held) for one in found["cells"]))

    key = stream.known, source, texts, columns.answer, SAMPLE
    found = cached_on_disk(cache_folder(data), "stream", key, lambda: _passed(stream, texts, columns.answer), fits)
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
        return SampledColumn(whole, found["held"], found["cells"][at], checked)

    table = RawTable(names, column, range(1, n_rows + 1), source, class_names(features.to_dict() if features else {}))
    if len(found["held"]) < n_rows:
        table.notes.append(
            f"{source}: {n_rows:,} rows are streamed; the texts of {len(found['held']):,} are kept, from which the "
            "tokenizer and the linear model learn and on which the model is judged"
        )
    return table


def _passed(stream: Stream, texts: list[str], answer: str) -> dict[str, Any]:
    """What is remembered of a stream."""
    import numpy as np

    from manyheads.data.hashes import pair_hashes, stable_hashes

    known, values, codes, n_rows = dict[Any, int](), list[Any](), list[Any](), 0
    hashes: list[list[Any]] = [[] for _ in texts]
    faults: list[list[tuple[int, str]]] = [[] for _ in texts]
    order, held, kept = np.empty(0, np.uint64), np.empty(0, np.int64), [list[Any]() for _ in texts]
    bound = 2**64
    for block in stream.blocks(0):
        every = [block.column(name).to_pylist() for name in texts]
        for at, cells in enumerate(every):
            hashes[at].append(stable_hashes(cells))
            said = text_faults(cells, ("the text", "the second text")[at])
            faults[at] += [(n_rows + row, why) for row, why in said.items()]
        labels = coded(block.column(answer).to_pylist())
        for value in labels.values:
            if known.setdefault((type(value), repr(value)), len(known)) == len(values):
                values.append(value)
        codes.append(labels.numbers([known[type(one), repr(one)] for one in labels.values]))
        of_rows = hashes[0][-1] if len(texts) == 1 else pair_hashes(hashes[0][-1], hashes[1][-1])
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
