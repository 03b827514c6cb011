"""Texts to learn from without their labels, and more of them.

What the run itself is judged on stays out of them: its validation and test rows, wherever their texts occur once more.
"""

import logging
from dataclasses import replace
from typing import Any

import numpy as np

from manyheads.config import DataConfig
from manyheads.config.sentences import list_names
from manyheads.data.class_names import MULTI_LABEL
from manyheads.data.column import join_rows
from manyheads.data.columns import text_rows
from manyheads.data.hashes import rows_among
from manyheads.data.opening import Tables, further_table, open_split, open_tables
from manyheads.data.rows import Rows, Splits, row_hashes, zero_labels
from manyheads.data.sources import read_splits
from manyheads.data.splits import carve, stratified_sample
from manyheads.data.table import RawTable
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
    rows_of_further = []
    for path in also:
        theirs = replace(further, source="files", path=path)
        table = further_table(path, theirs, "pretrain.also", "[<file>]")
        rows_of_further.append(text_rows(table, theirs, splits.notes))
    return without_judged_texts(splits, rows_of_further, data.rows, seed)


def read_text_split(data: DataConfig, split: str) -> Rows:
    """The texts of one split; a single file gives all its rows.

    Raises:
        UserError: there is no such split, or a row without a text.
    """
    table = open_split(data, split)
    notes = [*table.notes]
    rows = text_rows(table, data, notes)
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
    train, validation, test = text_rows(table, data, notes), None, None
    if "validation" in tables:
        validation = text_rows(tables["validation"](), data, notes)
    if with_test and "test" in tables:
        test = text_rows(tables["test"](), data, notes)
    if validation is None:
        if data.split_seed is not None:
            seed = data.split_seed
        n_rows = len(train)
        train, validation = carve(train, data.validation_share, seed, "validation")
        notes.append(
            f"validation: {len(validation):,} of {n_rows:,} rows held out "
            f"(data.validation_share={data.validation_share}, seed={seed})"
        )
    return Splits(train, validation, test, [], notes)


def can_read_unlabelled(tables: Tables, table: RawTable, data: DataConfig, seed: int, *, with_test: bool) -> bool:
    try:
        read_unlabelled(tables, table, data, seed, [], with_test=with_test)
    except ValueError:
        return False
    return True


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
    train = join_rows([drop_labels(stratified_sample(rows, n_rows, seed)) for rows in (splits.train, *further)])
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
    train = train.pick(good)
    validation = drop_labels(stratified_sample(splits.validation, n_rows, seed))
    return Splits(train, validation, None, [], [one_line(note) for note in splits.notes])


def drop_labels(rows: Rows) -> Rows:
    return replace(rows, labels=zero_labels(rows.texts), targets=None, sets=None)
