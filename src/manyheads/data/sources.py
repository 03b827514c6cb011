"""From `DataConfig` to checked rows: read, map columns, name classes, carve what is missing, audit.

Files are read, and their mistakes reported, before torch is imported.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import manyheads.plugin as plugin
from manyheads.config import DataConfig, MergeLabels, OnBadRow, RunConfig
from manyheads.config.sentences import format_value, list_names
from manyheads.data.audit import audit_splits, good_rows
from manyheads.data.class_names import (
    ClassLookup,
    drop_zero_fraction,
    label_cells,
    label_names,
    label_sets,
    merge_spellings,
    natural_order,
    normalise_name,
    rename_answer,
)
from manyheads.data.columns import (
    ColumnRoles,
    as_found,
    describe_label_sets,
    find_columns,
    give_sets,
    joined_otherwise,
    named_twice,
    note_of_twice,
    require_columns,
    without_labels,
)
from manyheads.data.disk_cache import cache_folder, cached_splits
from manyheads.data.opening import Tables, open_split, open_tables
from manyheads.data.rows import Rows, Splits, class_counts, row_hashes, zero_labels
from manyheads.data.splits import assign_folds, carve, stratified_sample
from manyheads.data.table import Coded, RawTable, Unread, coded, take
from manyheads.data.texts import hash_cells, hash_texts
from manyheads.errors import UserError
from manyheads.terminal import one_line

LARGEST_GROUP = 0.2  # of the rows, from which on splits or folds cannot be as large as they are to be
MOST_OF_SAMPLE = 0.25  # of the rows of a stream whose texts are kept, that are carved out
Answer = Any  # the name of a class, a tuple of those of all labels of a row, or a target


def read_rows(run: RunConfig, *, with_test: bool, with_unread: bool = False) -> Splits:
    """The splits that a run learns from and is judged on, as its task reads them. `with_unread`: their rows can give
    the columns that are not read, which texts to learn from without labels cannot.

    Raises:
        UserError: see `read_splits`.
    """
    task = plugin.task(run.task)
    if task.read is not None:
        return plugin.resolve(task.read)(run, with_test=with_test)
    return read_splits(run.data, run.seed, answer=task.column, with_test=with_test, with_unread=with_unread)


def read_splits(
    data: DataConfig,
    seed: int,
    *,
    answer: str = "label",
    with_test: bool = True,
    with_unread: bool = False,
    held: Tables | None = None,
) -> Splits:
    """The splits of a run, checked; a missing validation split is carved out of train by `data.split_seed`, or `seed`.

    `answer` is the setting that names the column of the answers: label, target, or text, which answers for itself.
    Where one file or split holds everything, test is carved out first. `with_test=False` leaves the test split
    unread; the others are the same as with it. `with_unread`: rows can give the columns that are not read.

    With `data.folds` test is one of them, `data.fold`: the rows that would train, but for these, do; where it is null,
    all of them are train, and validation, too, unless it has a split of its own. The test split is left unread.
    `data.train_share` thins what is learnt from alone: not where `data.fold` is null, as every row is then judged.

    Args:
        held: tables in the place of those that `data` names.

    Raises:
        UserError: one sentence that names the file and the row, or the setting, and the remedy.
    """
    tables, notes = open_tables(data) if held is None else (held, list[str]())
    tables = {role: cache(read) for role, read in tables.items()}
    of_run, seed = seed, seed if data.split_seed is None else data.split_seed
    whole = "all" if "all" in tables else "train"
    table = tables[whole]()
    columns = find_columns(table, data, answer)
    unread = {"test"} if data.folds or not with_test else set()
    unread |= {"validation"} if data.validates_on_train else set()
    roles = [role for role in ("validation", "test") if role in tables and role not in unread]

    def make() -> Splits:
        read = {role: tables[role] for role in roles}
        splits = _drawn(table, columns, read, tables, data, seed, notes, with_test=with_test, with_unread=with_unread)
        audit_splits(splits)
        return _shortened(splits, data, seed, of_run)

    names = {*columns.by_key().values()}
    is_stream = hasattr(table.column(columns.text), "readable")  # which remembers by itself
    is_kept = is_stream or bool(data.group) or all(table.column(name).is_kept for name in names)
    every = [table, *(tables[role]() for role in roles if not is_kept)]
    if is_kept or not all(names <= {*one.names} for one in every):
        return make()
    by_role = dict(zip([whole, *roles], every, strict=True))
    asked = (replace(data, cache=""), seed, of_run if data.train_share < 1 else 0, answer, with_test, notes)
    return cached_splits(cache_folder(data), asked, by_role, columns, make, with_unread=with_unread)


def _drawn(
    table: RawTable,
    columns: ColumnRoles,
    roles: dict[str, Callable[[], RawTable]],
    tables: Tables,
    data: DataConfig,
    seed: int,
    notes: list[str],
    *,
    with_test: bool,
    with_unread: bool,
) -> Splits:
    """The splits of `table` and of those of other `roles`, and those that are carved out."""
    notes = [*notes, *table.notes]
    table = _coded(table, columns)
    if columns.key == "label":
        notes += joined_otherwise(table, columns)
        columns = as_found(table, columns)
    with_unread = with_unread or bool(data.group)
    train, answers = _checked(table, columns, data.on_bad_row, notes, with_unread=with_unread)
    train.groups = _groups(train, data.group, notes) if data.group else None
    labels: list[str] = []
    if columns.key == "label":
        declared, any_case = table.classes.get(columns.answer), data.merge_labels is MergeLabels.case
        instead, said = merge_spellings(answers, declared or [], table.source, any_case=any_case)
        notes += said
        answers = answers.with_values([rename_answer(one, instead) for one in answers.values])
        declared = declared and [*dict.fromkeys(rename_answer(normalise_name(name), instead) for name in declared)]
        labels = _order(_names(answers), declared, table.source, notes)
    known = ClassLookup(labels, any_case=data.merge_labels is MergeLabels.case)
    _answer(train, answers, labels)
    notes += [describe_label_sets(train, labels)] if columns.multi else []
    others: dict[str, Rows] = {}
    for role, read in roles.items():
        other = read()
        require_columns(other, columns)
        other = _coded(other, columns)
        if role == "test" and (why := without_labels(other, columns, labels)):
            raise UserError(f"{why}; {_without_test('validation' in tables)}")
        others[role], answers = _checked(other, columns, data.on_bad_row, notes, known=known, with_unread=with_unread)
        _answer(others[role], answers, labels)
        others[role] = _readable(others[role], role, notes)
    if len(labels) != 1 or columns.multi:
        train = _carve_missing(train, others, tables, data, seed, labels, notes)
    validation = others["validation"] if "validation" in others else _readable(train, "validation", notes)
    return Splits(train, validation, others.get("test") if with_test else None, labels, notes)


def _groups(rows: Rows, column: str, notes: list[str]) -> Any:
    """A number a row, by what it has in a further column of its file. Rows that have nothing there are groups of their
    own, of which those of one text stay together."""
    import numpy as np

    names = rows.unread.names if rows.unread else []
    if rows.unread is None or column not in names:
        raise UserError(
            f"data.group={format_value(column)} is no further column of {rows.source}: it has "
            f"{list_names(names) or 'none'}"
        )
    held = coded(list(rows.unread.columns()[column]))
    names = [drop_zero_fraction(normalise_name(one)) for one in held.values]
    groups = coded(names).codes[held.codes].astype(np.int64)
    alone = np.array([not name for name in names])[held.codes]
    if alone.any():
        groups[alone] = len(names) + np.unique(row_hashes(rows)[alone], return_inverse=True)[1]
        said = f"{int(alone.sum()):,} of {len(rows):,} rows have nothing in {format_value(column)} (data.group)"
        notes.append(f"{rows.source}: {said}: each is a group of its own")
    counts = np.bincount(groups[~alone], minlength=1)
    if counts.max() > LARGEST_GROUP * len(rows):
        said = (
            f"{counts.max():,} of {len(rows):,} rows have '{format_value(list(dict.fromkeys(names))[counts.argmax()])}'"
        )
        notes.append(f"{rows.source}: {said} in {format_value(column)} (data.group), and stay together in one split")
    return groups


def _readable(rows: Rows, role: str, notes: list[str]) -> Rows:
    """The rows that can be judged on, as their texts can be read again."""
    some = rows.readable()
    if len(some) < len(rows):
        notes.append(
            f"{role}: {len(some):,} of {len(rows):,} rows of {rows.source} are judged on, those whose texts are kept "
            "(data.streaming=true)"
        )
    return some


def read_split(data: DataConfig, split: str, labels: list[str], *, multi: bool = False) -> Rows:
    """One split for judging a model whose classes are `labels`, none where it answers by texts; a single file gives
    all its rows. `multi`: rows have any number of them.

    Raises:
        UserError: there is no such split, or a label is not among `labels`.
    """
    table = open_split(data, split)
    notes = [*table.notes]
    columns = replace(find_columns(table, data, "label" if labels else "target"), multi=multi)
    table = _coded(table, columns)
    if why := without_labels(table, columns, labels):
        raise UserError(f"{why}; name another split by split=validation, or get the labels of these by predict")
    known = ClassLookup(labels, any_case=data.merge_labels is MergeLabels.case)
    rows, answers = _checked(table, columns, data.on_bad_row, notes, known=known, may_be_others=True, with_unread=True)
    if labels:
        rows, answers = _known(rows, answers, labels, data.on_bad_row, notes)
    _answer(rows, answers, labels)
    rows = _readable(rows, split, notes)
    for note in notes:
        logging.getLogger(__name__).warning("%s", one_line(note))
    return stratified_sample(rows, data.rows, seed=0)


def _known(rows: Rows, answers: Any, labels: list[str], on_bad_row: OnBadRow, notes: list[str]) -> tuple[Rows, Any]:
    """The rows whose labels a model has.

    Raises:
        UserError: there are others under `raise`, or no row is left.
    """
    import numpy as np

    found, known = natural_order(set(_names(answers))), {*labels}
    strange = [name for name in found if name not in known]
    good = np.flatnonzero(
        np.array([known.issuperset(_parts(one)) for one in answers.values], dtype=bool)[answers.codes]
    )
    if strange and (not len(good) or on_bad_row is OnBadRow["raise"]):
        first = int(np.setdiff1d(np.arange(len(rows)), good)[0])
        drop = ", or leave such rows out by data.on_bad_row=drop" if len(good) else ""
        raise UserError(
            f"{rows.source} has labels the model does not know: the data's labels are {list_names(found)}, the "
            "model's are "
            f"{list_names(labels)}; the first is in row {rows.numbers[first]:,}; rename the data's labels, or choose "
            f"another column by data.label{drop}"
        )
    if not strange:
        return rows, answers
    notes.append(
        f"{rows.source}: {len(rows) - len(good):,} of {len(rows):,} rows left out, as the model does not know their "
        f"labels: {list_names(strange)}"
    )
    return rows.pick(good), answers.take(good)


def _without_test(validation: bool) -> str:
    remedy = "leave the split unread by test=false"
    return f"{remedy}, or be judged on another by data.test_split=validation" if validation else remedy


def _checked(
    table: RawTable,
    columns: ColumnRoles,
    on_bad_row: OnBadRow,
    notes: list[str],
    known: ClassLookup | None = None,
    *,
    may_be_others: bool = False,
    with_unread: bool = False,
) -> tuple[Rows, Any]:
    """The good rows of a table, not answered yet, and the class name, the names of all its labels or the target of
    each. Names are those of the `known` classes, if any, and no others unless there `may_be_others`."""
    texts = table.column(columns.text)
    pairs = None if columns.pair is None else table.column(columns.pair)
    answers, faults = _answers(table, columns, known, notes)
    classes = known.names if known and columns.key == "label" and not may_be_others else []
    if classes and (strange := {*_names(answers)} - {*classes, ""}):
        outside = {at: name for at, one in enumerate(answers.values) for name in _parts(one) if name in strange}
        whys = {
            at: f"the label '{format_value(name)}' has no row in the training split" for at, name in outside.items()
        }
        faults |= answers.by_row(whys)
    rows = Rows(texts, pairs, [], table.source, table.numbers)
    rows.hashes, found = hash_texts(texts, pairs)
    faults |= found | table.broken
    good = good_rows(table, faults, on_bad_row, notes)
    if with_unread and not hasattr(texts, "readable"):
        names = [name for name in table.names if name not in columns.by_key().values()]
        rows.unread = Unread(table, names, range(len(texts)))
    if len(good) == len(texts):
        return rows, answers
    return rows.pick(good), take(answers, good)


def _coded(table: RawTable, columns: ColumnRoles) -> RawTable:
    """The table, each different label of which is held once."""
    if columns.key != "label":
        return table
    held, column = coded(table.column(columns.answer)), table.column
    return replace(table, column=lambda name: held if name == columns.answer else column(name))


def _answers(
    table: RawTable, columns: ColumnRoles, known: ClassLookup | None, notes: list[str]
) -> tuple[Any, dict[int, str]]:
    """What each row is answered with, and by index why a row is not."""
    cells, classes = table.column(columns.answer), table.classes.get(columns.answer)
    if columns.key != "label":
        return cells, hash_cells(cells, "the target")[1]
    values = label_cells(cells.values, columns.answer, multi=columns.multi)
    read: Any = label_sets if columns.multi else label_names
    answers, faults = read(values, classes, known)
    notes += note_of_twice(table, cells.by_row(dict.fromkeys(named_twice(values, answers, faults))))
    return cells.with_values(answers), cells.by_row(faults)


def _names(answers: Coded) -> list[str]:
    """The names in answers, of which those of sets are taken apart."""
    return [name for one in answers.used() for name in _parts(one)]


def _parts(answer: Answer) -> Sequence[str]:
    return (answer,) if isinstance(answer, str) else answer


def _order(names: list[str], declared: list[str] | None, source: str, notes: list[str]) -> list[str]:
    """Classes of the training split: in the order the dataset declares them, else in natural order."""
    used = set(names)
    if declared is None:
        return natural_order(used)
    unused = [name for name in declared if name not in used]
    if unused:
        notes.append(
            f"{source}: {len(unused)} declared classes have no training row and are left out: {list_names(unused)}"
        )
    return [name for name in declared if name in used]


def _answer(rows: Rows, answers: Any, labels: list[str]) -> None:
    """Give each row its class id, those of all its labels or its target, if it is no `Coded`."""
    if not isinstance(answers, Coded):
        rows.labels, rows.targets = zero_labels(answers), answers
    elif isinstance(answers[0], tuple):
        give_sets(rows, answers, labels)
    else:
        of_name = {name: index for index, name in enumerate(labels)}
        rows.labels = answers.numbers([of_name.get(name, -1) for name in answers.values])


def _carve_missing(
    train: Rows,
    others: dict[str, Rows],
    tables: Tables,
    data: DataConfig,
    seed: int,
    labels: list[str],
    notes: list[str],
) -> Rows:
    """Add what is missing to `others`, carved out of `train`; returns what is left of it. Both shares are of all rows.

    Raises:
        UserError: see `carve`, or the shares leave nothing to learn from.
    """
    import numpy as np

    n_rows = len(train)

    def carved(role: str, share: float) -> Rows:
        some = train.readable()
        of_some = share * n_rows / len(some)
        kept, part = carve(some, min(of_some, MOST_OF_SAMPLE) if len(some) < len(train) else of_some, seed, role)
        if len(some) < len(train):
            kept = train.pick(np.flatnonzero(~np.isin(train.numbers, part.numbers)))
        notes.append(
            f"{role}: {len(part):,} of {n_rows:,} rows of {train.source} carved out"
            f"{' by class' if train.targets is None else ''} (data.{role}_share={share}, seed={seed})"
        )
        others[role] = part
        return kept

    if data.folds:
        train = stratified_sample(train, data.rows, seed)
        n_rows = len(train)
        fold_n = assign_folds(train, data.folds, seed)
        if data.fold is None:
            return train
        if data.fold:
            others["test"] = train.pick(np.flatnonzero(fold_n == data.fold))
            train = train.pick(np.flatnonzero(fold_n != data.fold))
            of_all = f"{len(others['test']):,} of {len(fold_n):,} rows of {train.source}"
            notes.append(f"test: {of_all} are fold {data.fold} of {data.folds} (seed={seed})")
            counts = zip(
                labels, class_counts(train, len(labels)), class_counts(others["test"], len(labels)), strict=True
            )
            if unseen := [name for name, n_learnt, n_judged in counts if n_judged and not n_learnt]:
                notes.append(
                    f"train: no row of {list_names(unseen)}, which fold {data.fold} holds: it cannot be learnt"
                )
    elif "all" in tables:
        if data.test_share + data.validation_share >= 1:
            raise UserError(
                f"data.test_share={data.test_share} and data.validation_share={data.validation_share} leave no row of "
                f"{train.source} to learn from: use smaller ones"
            )
        train = carved("test", data.test_share)
    elif "test" not in tables:
        notes.append(f"{train.source} has no test split: the run is judged on its validation split alone")
    return train if "validation" in others or data.validates_on_train else carved("validation", data.validation_share)


def _shortened(splits: Splits, data: DataConfig, seed: int, of_run: int) -> Splits:
    """At most `data.rows` of each split by `seed`, and of those of train `data.train_share` by that of the run."""
    test = None if splits.test is None else stratified_sample(splits.test, data.rows, seed)
    train, validation = (
        stratified_sample(splits.train, data.rows, seed),
        stratified_sample(splits.validation, data.rows, seed),
    )
    named = [f"data.rows={data.rows}"] if len(train) < len(splits.train) else []
    if data.train_share < 1 and (not data.folds or data.fold is not None):
        train = stratified_sample(train, max(1, round(data.train_share * len(train))), of_run)
        named.append(f"data.train_share={data.train_share:g}")
    if named:
        said = f"{len(train):,} of {len(splits.train):,} training rows are used"
        splits.notes.append(f"{' and '.join(named)}: {said}")
    return Splits(train, validation, test, splits.labels, [one_line(note) for note in splits.notes])
