"""A split of `datasets` as a table: stored, or streamed in bounded memory."""

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pyarrow

from manyheads.config import DataConfig
from manyheads.config.data import AT_ONCE
from manyheads.config.sentences import first_line
from manyheads.data.class_names import declared_classes
from manyheads.data.column import Column, SampledColumn, sliced_column
from manyheads.data.columns import find_columns
from manyheads.data.disk_cache import cache_folder, cached_on_disk
from manyheads.data.formats.hub import StreamedSplit
from manyheads.data.hashes import pair_hashes, stable_hashes
from manyheads.data.table import Coded, RawTable, cached_read, cells_in, coded
from manyheads.data.texts import text_faults
from manyheads.errors import UserError

SAMPLE = 200_000  # rows of a stream whose texts are kept


def table_of(dataset: Any, source: str) -> RawTable:
    """A `datasets.Dataset` as a table; class names come from its features.

    Cells are what is stored: to decode a picture or a sound would open the file or the address that a cell names.
    """
    stored, bytes_per_row = dataset.with_format("arrow"), dataset.data.nbytes / max(1, len(dataset))

    @lru_cache
    def column(name: str) -> Column:
        of_name = stored.select_columns([name])

        def read(_: int, rows: slice) -> list[Any]:
            return cells_in(of_name[rows].column(name))

        return sliced_column(read, [len(dataset)], f"{dataset._fingerprint} {name}", bytes_per_row)

    return RawTable(
        names=list(dataset.column_names),
        column=column,
        numbers=range(1, len(dataset) + 1),
        source=source,
        classes=declared_classes(dataset.features.to_dict()),
    )


class Stream:
    """A split that `datasets` streams, in blocks of `AT_ONCE` rows: one after another, or from the beginning again."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self._next, self._coming = 0, iter(())  # the block that comes next, and where from

    def blocks(self, first: int) -> Iterator[Any]:
        """Arrow tables, from block `first` on.

        Raises:
            UserError: the library fails, as where the network does.
        """
        rest: list[Any] = []  # rows of the next block
        coming = self.dataset.skip(first * AT_ONCE).with_format("arrow").iter(batch_size=AT_ONCE)
        while True:
            try:
                table = next(coming, None)
            except Exception as problem:  # of any network, file system or format
                said = f"the stream of the dataset ends too early ({first_line(problem)})"
                raise UserError(f"{said}: start again; tokens that are made are kept") from problem
            if table is not None:
                rest.append(table)
            while (n_rows := sum(map(len, rest))) >= AT_ONCE or (n_rows and table is None):
                whole = pyarrow.concat_tables(rest, promote_options="default")
                yield whole[:AT_ONCE]
                rest = [whole[AT_ONCE:]]
            if table is None:
                return

    def cells(self, at: int, name: str) -> list[Any]:
        """Those of a column in block `at`."""
        return cells_in(cached_read(self.block, at).column(name))

    def block(self, at: int) -> Any:
        """One block: forwards from where the last ended nothing is streamed twice."""
        if at < self._next or not self._next:
            self._next, self._coming = at, self.blocks(at)
        while self._next < at:
            next(self._coming)
            self._next += 1
        self._next += 1
        return next(self._coming)


def streamed(split: StreamedSplit, data: DataConfig, source: str) -> RawTable:
    """A stream as a table: hashes and labels of all its rows are found in one pass, which the cache remembers, and the
    texts of at most `SAMPLE` rows are kept, those with the smallest hashes. Its texts are streamed again to be
    tokenised.

    Raises:
        UserError: it cannot be read, or lacks a column.
    """
    stream, features = Stream(split.dataset), split.dataset.features
    names = [*features] if features else next(stream.blocks(0)).column_names
    columns = find_columns(RawTable(names, lambda name: [], range(0), source), data)
    texts = [columns.text]
    if columns.pair:
        texts.append(columns.pair)

    def fits(found: dict[str, Any]) -> bool:
        n_rows, held, codes = found["n_rows"], found["held"], found["codes"]
        shapes = found["hashes"].shape == (len(texts), n_rows) and codes.shape == (n_rows,)
        within = ((codes >= 0) & (codes < len(found["values"]))).all() and (held < n_rows).all()
        return bool(shapes and within and all(len(cells) == len(held) for cells in found["cells"]))

    key = split.identity, source, texts, columns.answer, SAMPLE
    found = cached_on_disk(cache_folder(data), "stream", key, lambda: _read_once(stream, texts, columns.answer), fits)
    n_rows, n_held = found["n_rows"], len(found["held"])
    starts = np.append(np.arange(0, n_rows, AT_ONCE), n_rows)
    n_letters = sum(len(cell) for cell in found["cells"][0] if isinstance(cell, str))

    @lru_cache
    def column(name: str) -> Any:
        if name == columns.answer:
            return Coded(found["codes"], found["values"])
        reads = [partial(stream.cells, at, name) for at in range(len(starts) - 1)]
        whole = Column(reads, starts, f"{split.identity} {name}", n_letters / max(1, n_held))
        if name not in texts:
            return whole
        at = texts.index(name)
        checked = found["hashes"][at], {int(row): why for row, why in found["faults"][at]}
        return SampledColumn(whole, found["held"], found["cells"][at], checked)

    classes = declared_classes(features.to_dict()) if features else {}
    table = RawTable(names, column, range(1, n_rows + 1), source, classes)
    if n_held < n_rows:
        table.notes.append(
            f"{source}: {n_rows:,} rows are streamed; the texts of {n_held:,} are kept, from which the tokenizer and "
            "the linear model learn and on which the model is judged"
        )
    return table


def _read_once(stream: Stream, texts: list[str], answer: str) -> dict[str, Any]:
    """What is remembered of a stream: the number of rows; hashes and faults of the columns `texts`; the column
    `answer` as codes and values; rows and cells of the sample."""
    hashes: list[list[np.ndarray]] = [[] for _ in texts]
    faults: list[list[tuple[int, str]]] = [[] for _ in texts]
    code_of: dict[Any, int] = {}  # 1, 1.0 and true are different
    values: list[Any] = []
    codes: list[np.ndarray] = []
    sample, n_rows = _Sample(len(texts)), 0
    for block in stream.blocks(0):
        cells = [cells_in(block.column(name)) for name in texts]
        for at, what in enumerate(("the text", "the second text")[: len(texts)]):
            hashes[at].append(stable_hashes(cells[at]))
            for row, why in text_faults(cells[at], what).items():
                faults[at].append((n_rows + row, why))
        answers = coded(cells_in(block.column(answer)))
        keys = [(type(value), repr(value)) for value in answers.values]
        for key, value in zip(keys, answers.values, strict=True):
            if key not in code_of:
                code_of[key] = len(values)
                values.append(value)
        codes.append(answers.numbers([code_of[key] for key in keys]))
        of_rows = hashes[0][-1]
        if len(texts) > 1:
            of_rows = pair_hashes(hashes[0][-1], hashes[1][-1])
        sample.add(of_rows, np.arange(n_rows, n_rows + len(block)), cells)
        n_rows += len(block)
    if not n_rows:
        hashes, codes = [[np.empty(0, np.int64)] for _ in texts], [np.empty(0, np.int32)]
    return {
        "n_rows": n_rows,
        "hashes": np.stack([np.concatenate(blocks) for blocks in hashes]),
        "faults": faults,
        "codes": np.concatenate(codes),
        "values": values,
        "held": sample.rows,
        "cells": sample.cells,
    }


class _Sample:
    """The rows with the smallest hashes, at most `SAMPLE`. So equal texts are kept, or not, together, and the rows that
    are kept are drawn, whatever their order in the stream."""

    def __init__(self, n_columns: int) -> None:
        self.hashes, self.rows = np.empty(0, np.uint64), np.empty(0, np.int64)
        self.cells: list[list[Any]] = [[] for _ in range(n_columns)]
        self.bound = 2**64  # above all hashes that are kept; it only falls

    def add(self, hashes: np.ndarray, rows: np.ndarray, cells: list[list[Any]]) -> None:
        """Rows of the next block, by hashes int64 `(rows,)`, and their cells of each column."""
        self.hashes = np.concatenate([self.hashes, hashes.view(np.uint64)])
        self.rows = np.concatenate([self.rows, rows])
        for kept, new in zip(self.cells, cells, strict=True):
            kept += new
        if len(self.rows) > SAMPLE:
            self.bound = min(self.bound, int(np.partition(self.hashes, SAMPLE)[SAMPLE]))
        if self.bound < 2**64:
            some = np.flatnonzero(self.hashes < np.uint64(self.bound))
            self.hashes, self.rows = self.hashes[some], self.rows[some]
            self.cells = [[kept[at] for at in some.tolist()] for kept in self.cells]
