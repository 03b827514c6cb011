"""Texts to learn from without their labels, and more of them.

What the run itself is judged on stays out of them: its validation and test rows, wherever their texts occur once more.
"""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from manyheads.config import DataConfig
from manyheads.config.sentences import list_names
from manyheads.data.audit import good_rows
from manyheads.data.class_names import MULTI_LABEL
from manyheads.data.column import chained
from manyheads.data.columns import find_columns
from manyheads.data.hashes import rows_among
from manyheads.data.opening import Tables, open_split, open_tables
from manyheads.data.rows import Rows, Splits, row_hashes, zero_labels
from manyheads.data.sources import read_splits
from manyheads.data.splits import carve, stratified_sample
from manyheads.data.table import RawTable
from manyheads.data.texts import hash_texts
from manyheads.errors import UserError
from manyheads.terminal import one_line


def read_splits_of_run(run: Any, *, with_test: bool) -> Splits:
    """The splits of a run, as `read_texts` reads them."""
    return read_texts(run.data, run.seed, run.pretrain.also, with_test=with_test)


def read_texts(data: DataConfig, seed: int, also: list[str], *, with_test: bool = True) -> Splits:
    """The texts of train and of validation. Where there are labels, these are the rows that training on them would
    learn from and validate on.

    Args:
        data: with `label` empty, labels are not read.
        also: further files or folders, whose texts are added to train.
        with_test: whether test rows are read, so that their texts can be left out of train.

    Raises:
        UserError: see `read_splits`.
    """
    if data.validates_on_train:
        raise UserError(
            f"data.validation_split={data.validation_split} leaves no text to learn from, as pretraining leaves the "
            "texts of validation out of train: remove it"
        )
    tables, notes = open_tables(data)
    table = (tables.get("all") or tables["train"])()
    if data.label and not {data.label, MULTI_LABEL}.isdisjoint(table.names):
        try:
            splits = read_splits(data, seed, with_test=with_test)
        except ValueError as error:
            if not can_read_unlabelled(tables, table, data, seed, with_test=with_test):
                raise
            raise UserError(f"{error}; or read the texts without their labels by data.label=") from error
    else:
        splits = read_unlabelled(tables, table, data, seed, [*notes, *table.notes], with_test=with_test)
    further = data if splits.train.pairs is not None else replace(data, text_pair="")
    return without_judged_texts(splits, read_further(also, further, splits.notes), data.rows, seed)


def read_text_split(data: DataConfig, split: str) -> Rows:
    """The texts of one split; a single file gives all its rows.

    Raises:
        UserError: there is no such split, or a row without a text.
    """
    table = open_split(data, split)
    notes = [*table.notes]
    rows = rows_of(table, data, notes)
    for note in notes:
        logging.getLogger(__name__).warning("%s", one_line(note))
    return stratified_sample(rows, data.rows, seed=0)


def read_unlabelled(
    tables: Tables, table: RawTable, data: DataConfig, seed: int, notes: list[str], *, with_test: bool
) -> Splits:
    """Splits of texts without labels; a validation part is carved out where there is none.

    Args:
        table: the one of train.
    """
    train, validation, test = rows_of(table, data, notes), None, None
    if "validation" in tables:
        validation = rows_of(tables["validation"](), data, notes)
    if with_test and "test" in tables:
        test = rows_of(tables["test"](), data, notes)
    if validation is None:
        if data.split_seed is not None:
            seed = data.split_seed
        n_rows = len(train)
        train, validation = carve(train, data.validation_share, seed, "validation")
        notes.append(
            f"validation: {len(validation):,} of {n_rows:,} rows of {train.source} carved out "
            f"(data.validation_share={data.validation_share}, seed={seed})"
        )
    return Splits(train, validation, test, [], notes)


def can_read_unlabelled(tables: Tables, table: RawTable, data: DataConfig, seed: int, *, with_test: bool) -> bool:
    try:
        read_unlabelled(tables, table, data, seed, [], with_test=with_test)
    except ValueError:
        return False
    return True


def read_further(also: list[str], data: DataConfig, notes: list[str]) -> list[Rows]:
    """The texts of further files or folders, except those of splits for judging."""
    found = []
    for path in also:
        theirs = replace(data, source="files", path=str(Path(path).expanduser()))
        try:
            tables, _ = open_tables(theirs, typed=False)
        except ValueError as error:  # which names the settings of the run's own data
            sentence = str(error).replace(f"data.path={theirs.path}", f"pretrain.also={path}")
            raise UserError(sentence.replace("data.path=<file>", "pretrain.also=[<file>]")) from error
        for role in ("all", "train"):
            if role in tables:
                found.append(rows_of(tables[role](), theirs, notes))
    return found


def rows_of(table: RawTable, data: DataConfig, notes: list[str]) -> Rows:
    """The good rows of a table, of whatever class."""
    columns = find_columns(table, data, "text")
    texts = table.column(columns.text)
    pairs = None if columns.pair is None else table.column(columns.pair)
    hashes, faults = hash_texts(texts, pairs)
    good = good_rows(table, faults | table.broken, data.on_bad_row, notes)
    rows = Rows(texts, pairs, zero_labels(texts), table.source, table.numbers, hashes=hashes)
    return rows if len(good) == len(rows) else rows.pick(good)


def without_judged_texts(splits: Splits, further: list[Rows], n_rows: int, seed: int) -> Splits:
    """The splits without labels and test: `further` rows are added to train, and no text of validation or test is left
    in train.

    Args:
        n_rows: most rows of each file and of validation; 0: all.

    Raises:
        UserError: train holds pairs, but some further rows are single texts.
    """
    single = [rows.source for rows in further if rows.pairs is None]
    if single and splits.train.pairs is not None:
        raise UserError(
            f"pretrain.also={list_names(single)} adds single texts, but {splits.train.source} holds pairs: remove it, "
            "or read single texts by data.text_pair="
        )
    train = concatenate_rows([stratified_sample(rows, n_rows, seed) for rows in (splits.train, *further)])
    judged = [row_hashes(splits.validation)]
    if splits.test is not None:
        judged.append(row_hashes(splits.test))
    is_judged = rows_among(row_hashes(train), np.concatenate(judged))
    good = np.delete(np.arange(len(train)), is_judged)
    n_left_out = len(train) - len(good)
    if n_left_out:
        splits.notes.append(
            f"train: {n_left_out:,} of {len(train):,} texts are left out, as they are also in validation or test"
        )
    train = drop_labels(train.pick(good))
    validation = drop_labels(stratified_sample(splits.validation, n_rows, seed))
    return Splits(train, validation, None, [], [one_line(note) for note in splits.notes])


def drop_labels(rows: Rows) -> Rows:
    return replace(rows, labels=zero_labels(rows.texts), targets=None, sets=None)


def concatenate_rows(parts: list[Rows]) -> Rows:
    """Rows of several files as those of one: all single texts, or all pairs."""
    first = parts[0]
    if len(parts) == 1:
        return first
    texts, pairs = chained([rows.texts for rows in parts]), None
    if first.pairs is not None:
        pairs = chained([rows.pairs or [] for rows in parts])
    return Rows(
        texts=texts,
        pairs=pairs,
        labels=zero_labels(texts),
        source=f"{first.source} and {len(parts) - 1} more",
        numbers=np.concatenate([np.asarray(rows.numbers) for rows in parts]),  # pyright: ignore[reportArgumentType]
    )
