"""Texts to learn from without their labels, and more of them.

What the run itself is judged on stays out of them: its validation and test rows, wherever their texts occur once more.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from manyheads.config import DataConfig
from manyheads.config.sentences import list_names
from manyheads.data.audit import good_rows
from manyheads.data.class_names import MULTI_LABEL
from manyheads.data.columns import find_columns
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
    """The texts of train, `also` among them, and of validation; where there are labels, the very rows that training on
    them would learn from and validate on. `data.label` empty: there are none.

    Test rows are read, unless `with_test` is false, to leave their texts out.

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

    def without() -> Splits:
        return _unlabelled(tables, table, data, seed, [*notes, *table.notes], with_test=with_test)

    if data.label and not {data.label, MULTI_LABEL}.isdisjoint(table.names):
        splits = _labelled(data, seed, without, with_test=with_test)
    else:
        splits = without()
    further = data if splits.train.pairs is not None else replace(data, text_pair="")
    return _alone(splits, _more(also, further, splits.notes), data.rows, seed)


def read_text_split(data: DataConfig, split: str) -> Rows:
    """The texts of one split; a single file gives all its rows.

    Raises:
        UserError: there is no such split, or a row without a text.
    """
    table = open_split(data, split)
    notes = [*table.notes]
    rows = _rows(table, data, notes)
    for note in notes:
        logging.getLogger(__name__).warning("%s", one_line(note))
    return stratified_sample(rows, data.rows, seed=0)


def _labelled(data: DataConfig, seed: int, without: Callable[[], Splits], *, with_test: bool) -> Splits:
    """The splits of a training on the labels; `without` reads the texts alone, which is what to do if only that works.

    Raises:
        UserError: see `read_splits`.
    """
    try:
        return read_splits(data, seed, with_test=with_test)
    except ValueError as error:
        problem = error
    try:
        without()
    except ValueError:
        raise problem from None
    raise UserError(f"{problem}; or read the texts without their labels by data.label=") from problem


def _unlabelled(
    tables: Tables, table: RawTable, data: DataConfig, seed: int, notes: list[str], *, with_test: bool
) -> Splits:
    """Splits of texts without labels; a validation part is carved out where there is none."""
    train = _rows(table, data, notes)
    others = {}
    for role in ("validation", "test") if with_test else ("validation",):
        if role in tables:
            others[role] = _rows(tables[role](), data, notes)
    if "validation" not in others:
        seed = seed if data.split_seed is None else data.split_seed
        kept, others["validation"] = carve(train, data.validation_share, seed, "validation")
        notes.append(
            f"validation: {len(others['validation']):,} of {len(train):,} rows of {train.source} carved out "
            f"(data.validation_share={data.validation_share}, seed={seed})"
        )
        train = kept
    return Splits(train, others["validation"], others.get("test"), [], notes)


def _more(also: list[str], data: DataConfig, notes: list[str]) -> list[Rows]:
    """The texts of further files or folders, all of them but those of splits for judging."""
    found = []
    for path in also:
        theirs = replace(data, source="files", path=str(Path(path).expanduser()))
        try:
            tables, _ = open_tables(theirs, typed=False)
        except ValueError as error:
            named = str(error).replace(f"data.path={theirs.path}", f"pretrain.also={path}")
            raise UserError(named.replace("data.path=<file>", "pretrain.also=[<file>]")) from error
        found += [_rows(tables[role](), theirs, notes) for role in ("all", "train") if role in tables]
    return found


def _rows(table: RawTable, data: DataConfig, notes: list[str]) -> Rows:
    """The good rows of a table, of whatever class."""
    columns = find_columns(table, data, "text")
    texts = table.column(columns.text)
    pairs = None if columns.pair is None else table.column(columns.pair)
    hashes, faults = hash_texts(texts, pairs)
    good = good_rows(table, faults | table.broken, data.on_bad_row, notes)
    rows = Rows(texts, pairs, zero_labels(texts), table.source, table.numbers, hashes=hashes)
    return rows if len(good) == len(rows) else rows.pick(good)


def _alone(splits: Splits, more: list[Rows], n_rows: int, seed: int) -> Splits:
    """The splits without labels, `more` joined to train, and no text of the others in train.

    Raises:
        UserError: train holds pairs, which some further texts are not.
    """
    train, validation = splits.train, splits.validation
    single = [one.source for one in more if one.pairs is None]
    if single and train.pairs is not None:
        raise UserError(
            f"pretrain.also={list_names(single)} adds single texts, but {train.source} holds pairs: remove it, or read "
            "single texts by data.text_pair="
        )
    train = _joined([stratified_sample(rows, n_rows, seed) for rows in (train, *more)])
    good = _not_in(train, [rows for rows in (validation, splits.test) if rows is not None])
    if left_out := len(train) - len(good):
        splits.notes.append(
            f"train: {left_out:,} of {len(train):,} texts are left out, as they are also in validation or test"
        )
    kept, judged_on = _bare(train.pick(good)), _bare(stratified_sample(validation, n_rows, seed))
    return Splits(kept, judged_on, None, [], [one_line(note) for note in splits.notes])


def _bare(rows: Rows) -> Rows:
    return replace(rows, labels=zero_labels(rows.texts), targets=None, sets=None)


def _joined(parts: list[Rows]) -> Rows:
    """Rows of several files as those of one: all single texts, or all pairs."""
    import numpy as np

    from manyheads.data.column import chained

    first = parts[0]
    if len(parts) == 1:
        return first
    texts = chained([rows.texts for rows in parts])
    return Rows(
        texts=texts,
        pairs=None if first.pairs is None else chained([rows.pairs or [] for rows in parts]),
        labels=zero_labels(texts),
        source=f"{first.source} and {len(parts) - 1} more",
        numbers=np.concatenate([np.asarray(rows.numbers) for rows in parts]),  # pyright: ignore[reportArgumentType]
    )


def _not_in(rows: Rows, others: list[Rows]) -> Any:
    """The rows whose texts, or pairs, are none of `others`."""
    import numpy as np

    from manyheads.data.hashes import rows_among

    return np.delete(
        np.arange(len(rows)), rows_among(row_hashes(rows), np.concatenate([row_hashes(one) for one in others]))
    )
