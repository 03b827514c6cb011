"""A csv file becomes checked rows: from the settings `data` to the splits that a run learns from and is judged on.

    data.path=reviews.csv
      |
      |  opening.py              what is there: which file is train, which test? One file alone is `all`
      |  formats/kinds.py        the kind of a file, by its name
      v
    {"all": a function that reads it}
      |
      |  formats/source.py       bytes, decompressed
      |  formats/dialect.py      how the file is written: separator, quotes, where its header is
      |  formats/blocks.py       the file is cut into blocks of whole rows, once
      |  formats/delimited.py    a block becomes cells; each row keeps the number that a spreadsheet shows. Next to
      |                          it are the other formats: jsonl, txt, parquet, datasets
      v
    RawTable                     columns by name. A `Column` parses a block again when its cells are needed: column.py.
      |                          Rows that cannot be parsed are in `broken`, each with the reason
      |
      |  columns.py              which column is the text, the second text, the label
      |  class_names.py          what a label cell says: 1.0 is 1
      |  texts.py                an empty text is a fault; hashes tell texts apart
      |  audit.py                bad rows are refused, or left out by data.on_bad_row=drop
      v
    Rows                         texts, class ids, row numbers
      |
      |  splits.py               what has no file of its own is carved out, by class and seed
      |  audit.py                repeated texts, texts in train and in test: notes for the log and the report
      v
    Splits                       train, validation, test; names of the classes; notes

`predict` reads the same formats by the same parsers, but once, from the beginning, and answers while it reads: see
inference/reading.py. Files are read, and their mistakes reported, before torch is imported.
"""

import logging
from dataclasses import replace
from functools import cache
from typing import Any

import manyheads.plugin as plugin
from manyheads.config import DataConfig, MergeLabels, OnBadRow, RunConfig
from manyheads.config.sentences import format_value, list_names
from manyheads.data.audit import audit_splits, good_rows, labels_of_one_row
from manyheads.data.class_names import (
    ClassLookup,
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
    coarse_finders,
    describe_label_sets,
    find_columns,
    give_sets,
    joined_otherwise,
    named_twice,
    names_in,
    parts_of,
    read_groups,
    require_columns,
    rows_of_known_labels,
    set_apart,
    why_unlabelled,
)
from manyheads.data.disk_cache import cache_folder, cached_splits
from manyheads.data.formats.fields import repeats_header
from manyheads.data.opening import Tables, change_tables, follow_split_column, open_split, open_tables
from manyheads.data.rows import Rows, Splits, class_counts, is_stream, zero_labels
from manyheads.data.splits import assign_folds, carve, stratified_sample
from manyheads.data.table import Coded, RawTable, Unread, coded, take
from manyheads.data.texts import hash_cells, hash_texts
from manyheads.errors import UserError
from manyheads.terminal import one_line

VOTES = "manyheads.data.formats.votes:"  # a module that imports NumPy
MOST_OF_SAMPLE = 0.25  # share of the held texts of a stream that is carved out at most


def read_rows(run: RunConfig, *, with_test: bool, with_unread: bool = False) -> Splits:
    """The splits that a run learns from and is judged on, as its task reads them. `with_unread`: their rows can give
    the columns that are not read, which texts to learn from without labels cannot."""
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

    Where one file or split holds everything, test is carved out first.

    With `data.folds` test is one of them, `data.fold`: the rows that would train, but for these, do; where it is null,
    all of them are train, and validation, too, unless it has a split of its own. The test split is left unread.
    `data.train_share` thins what is learnt from alone: not where `data.fold` is null, as every row is then judged.

    Args:
        answer: the setting that names the column of the answers: label, target, or text, which answers for itself.
        with_test: False leaves the test split unread; the others are the same as with it.
        with_unread: rows can give the columns that are not read.
        held: tables in the place of those that `data` names.

    Raises:
        UserError: one sentence that names the file and the row, or the setting, and the remedy.
    """
    if held is None:
        tables, notes = open_tables(data)
    else:
        tables = follow_split_column(held["all"](), data, typed=False) if "all" in held else held
        tables, notes = change_tables(tables, data), []
    tables = {role: cache(read) for role, read in tables.items()}  # each is read once
    split_seed = seed if data.split_seed is None else data.split_seed
    whole = "all" if "all" in tables else "train"
    table = tables[whole]()
    columns = find_columns(table, data, answer)
    judged = []  # roles that are read from a split of their own
    if "validation" in tables and not data.validates_on_train:
        judged.append("validation")
    if "test" in tables and with_test and not data.folds:
        judged.append("test")

    def make() -> Splits:
        splits = _make_splits(tables, judged, columns, data, split_seed, notes, with_unread=with_unread)
        if not with_test:
            splits.test = None
        audit_splits(splits)
        return _sample_splits(splits, data, split_seed, seed)

    # What was found in large tables is remembered on disk: no groups, weights, votes. A stream remembers by itself.
    names = {*columns.names}
    of_stream = is_stream(table.column(columns.text))
    is_not = of_stream or data.group or data.weight or columns.has_votes or coarse_finders(data)
    if is_not or all(table.column(name).is_kept for name in names):
        return make()
    by_role = {whole: table} | {role: tables[role]() for role in judged}
    if not all(names <= {*one.names} for one in by_role.values()):
        return make()  # which refuses the table that lacks a column
    asked = (replace(data, cache=""), split_seed, seed if data.train_share < 1 else 0, answer, with_test, notes)
    return cached_splits(cache_folder(data), asked, by_role, columns, make, with_unread=with_unread)


def read_split(data: DataConfig, split: str, labels: list[str], *, multi: bool = False) -> Rows:
    """One split for judging a model whose classes are `labels`, none where it answers by texts; a single file gives
    all its rows. `multi`: rows have any number of them.

    Raises:
        UserError: there is no such split, or a label is not among `labels`.
    """
    table = open_split(data, split)
    notes = [*table.notes]
    columns = replace(find_columns(table, data, "label" if labels else "target"), multi=multi)
    table = _with_coded_labels(table, columns)
    if why := why_unlabelled(table, columns, labels):
        remedy = "get the labels of these by predict"
        if split != "validation" and "validation" in open_tables(data)[0]:
            remedy = f"name another split by split=validation, or {remedy}"
        raise UserError(f"{why}; {remedy}")
    known = ClassLookup(labels, any_case=data.merge_labels is MergeLabels.case)
    rows, answers = _check_rows(
        table, columns, data.on_bad_row, notes, known=known, may_be_others=True, with_unread=True
    )
    if labels:
        rows, answers = rows_of_known_labels(rows, answers, labels, data.on_bad_row, notes)
    _set_answers(rows, answers, labels)
    rows = _readable(rows, split, notes)
    for note in notes:
        logging.getLogger(__name__).warning("%s", one_line(note))
    return stratified_sample(rows, data.rows, seed=0)


def _make_splits(
    tables: Tables,
    judged: list[str],
    columns: ColumnRoles,
    data: DataConfig,
    seed: int,
    notes: list[str],
    *,
    with_unread: bool,
) -> Splits:
    """The splits of the training table and of those of the roles `judged`, and those that are carved out."""
    table = tables["all" if "all" in tables else "train"]()
    notes = [*notes, *table.notes]
    has_labels = columns.key == "label"
    table = _with_coded_labels(table, columns)
    if has_labels:
        notes += joined_otherwise(table, columns)
        columns = as_found(table, columns)
    with_unread = with_unread or bool(data.group)
    train, answers = _check_rows(table, columns, data.on_bad_row, notes, with_unread=with_unread)
    if data.group:
        train.groups = read_groups(train, data.group, notes)
    labels: list[str] = []
    if columns.has_classes:
        answers, labels = _name_classes(answers, train.probabilities, table, columns, data, notes)
    coarse: dict[str, list[str]] = {}  # the labels that stand for several classes, each with these
    for find in coarse_finders(data):
        coarse |= find(labels, multi=columns.multi)
    labels = [name for name in labels if name not in coarse]
    train, answers, apart = set_apart(train, answers, coarse, labels, notes)
    _set_answers(train, answers, labels)
    if columns.multi and not table.multi:
        notes.append(describe_label_sets(train, labels))
    if columns.has_votes:
        notes.append(plugin.resolve(VOTES).describe_votes(train))
    else:
        notes += labels_of_one_row(train, labels)

    known = ClassLookup([*labels, *coarse], any_case=data.merge_labels is MergeLabels.case)
    others: dict[str, Rows] = {}
    for role in judged:
        other, roles = tables[role](), columns
        if columns.has_votes and not {*columns.names} <= {*other.names} and data.label in other.names:
            roles = replace(columns, answer=data.label, key="label", label_columns=[])  # labels in place of votes
        require_columns(other, roles)
        other = _with_coded_labels(other, roles)
        if why := why_unlabelled(other, roles, labels):
            remedy = "leave the split unread by test=false"
            if role == "validation":
                remedy = "hold rows out of train instead by data.validation_split="
            elif "validation" in tables:
                remedy += ", or be judged on another by data.test_split=validation"
            raise UserError(f"{why}; {remedy}")
        rows, answers = _check_rows(other, roles, data.on_bad_row, notes, known=known, with_unread=with_unread)
        rows, answers, _ = set_apart(rows, answers, coarse, labels, notes)
        _set_answers(rows, answers, labels)
        others[role] = _readable(rows, role, notes)

    if len(labels) != 1 or columns.multi:  # else `audit_splits` refuses the data
        train = _carve_missing(train, others, tables, data, seed, labels, notes)
    if "validation" not in others:  # as data.validates_on_train or data.folds says
        others["validation"] = _readable(train, "validation", notes)
    return Splits(train, others["validation"], others.get("test"), labels, notes, coarse=apart)


def _with_coded_labels(table: RawTable, columns: ColumnRoles) -> RawTable:
    """The table, each different label of which is held once."""
    if columns.key != "label":
        return table
    column, labels = table.column, coded(table.column(columns.answer))

    def column_or_labels(name: str) -> Any:
        return labels if name == columns.answer else column(name)

    return replace(table, column=column_or_labels)


def _check_rows(
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
    each.

    Args:
        known: the classes; None: they are found in this table.
        may_be_others: a label may be none of `known`.
        with_unread: rows can give the columns that are not read.
    """
    texts = table.column(columns.text)
    pairs = table.column(columns.pair) if columns.pair is not None else None
    votes = None
    if columns.has_votes:
        answers, votes, faults = plugin.resolve(VOTES).read_votes(table, columns, known)
    else:
        answers, faults = _read_answers(table, columns, known, notes)
        if columns.key == "label":  # as `cat a.csv b.csv` leaves it in the middle
            named = {code: "repeats the header" for code, name in enumerate(answers.values) if name == columns.answer}
            repeated = answers.by_row(named).items()
            faults |= {at: why for at, why in repeated if repeats_header(texts[at], columns.text)}
    if known is not None and known.names and columns.key == "label" and not may_be_others:
        faults |= _strange_labels(answers, known.names)
    rows = Rows(texts, pairs, [], table.source, table.numbers, probabilities=votes)
    rows.hashes, text_faults = hash_texts(texts, pairs)
    if columns.weight and columns.weight in table.names:  # another split than train may lack it
        rows.weights, weight_faults = plugin.resolve(VOTES).read_row_weights(table.column(columns.weight))
        faults |= weight_faults
    faults |= text_faults | table.broken
    good = good_rows(table, faults, on_bad_row, notes)
    if with_unread and not is_stream(texts):  # a stream cannot be read a second time for its other columns
        names = [name for name in table.names if name not in columns.names]
        rows.unread = Unread(table, names, range(len(texts)))
    if len(good) == len(texts):
        return rows, answers
    return rows.pick(good), take(answers, good)


def _read_answers(
    table: RawTable, columns: ColumnRoles, known: ClassLookup | None, notes: list[str]
) -> tuple[Any, dict[int, str]]:
    """What each row is answered with, and by index why a row is not."""
    cells = table.column(columns.answer)
    if columns.key != "label":
        _, faults = hash_cells(cells, "the target")
        return cells, faults
    cells = cells.with_values(label_cells(cells.values, columns.answer, multi=columns.multi))
    read: Any = label_sets if columns.multi else label_names
    answers, faults = read(cells.values, table.classes.get(columns.answer), known)
    notes += named_twice(table, cells, answers, faults)
    return cells.with_values(answers), cells.by_row(faults)


def _strange_labels(answers: Coded, classes: list[str]) -> dict[int, str]:
    """By row, that it has a label which no training row has."""
    strange = {*names_in(answers)} - {*classes, ""}
    of_any_case = {name.casefold(): name for name in classes}
    faults: dict[int, str] = {}
    for code, answer in enumerate(answers.values):
        for name in parts_of(answer):
            if name in strange:
                faults[code] = f"the label '{format_value(name)}' has no row in the training split"
                if known := of_any_case.get(name.casefold()):
                    faults[code] += f", but '{format_value(known)}' has: merge them by data.merge_labels=case"
    return answers.by_row(faults)


def _name_classes(
    answers: Coded, votes: Any, table: RawTable, columns: ColumnRoles, data: DataConfig, notes: list[str]
) -> tuple[Coded, list[str]]:
    """The answers of the training table, each class spelled in one way; and the classes that have a row, in the order
    the dataset declares them, else in natural order."""
    declared = [*answers.values] if columns.label_columns else table.classes.get(columns.answer)
    known = declared or []
    if votes is not None:  # a name may have the most votes in no row
        known = answers.values
    any_case = data.merge_labels is MergeLabels.case
    new_names, found = merge_spellings(answers, known, table.source, any_case=any_case)
    notes += found
    answers = answers.with_values([rename_answer(answer, new_names) for answer in answers.values])
    used = {*names_in(answers)}
    if votes is not None:
        used = {answers.values[at] for at in votes.any(0).nonzero()[0].tolist()}
    if declared is None:
        return answers, natural_order(used)
    declared = [*dict.fromkeys(rename_answer(normalise_name(name), new_names) for name in declared)]
    unused = [name for name in declared if name not in used]
    if unused:
        notes.append(
            f"{table.source}: {len(unused)} of {len(declared)} declared classes have no training row and are left out: "
            f"{list_names(unused)}"
        )
    return answers, [name for name in declared if name in used]


def _set_answers(rows: Rows, answers: Any, labels: list[str]) -> None:
    """Give each row its class id, those of all its labels or its target text."""
    if not isinstance(answers, Coded):
        rows.labels, rows.targets = zero_labels(answers), answers
    elif isinstance(answers[0], tuple):
        give_sets(rows, answers, labels)
    else:
        id_of = {name: index for index, name in enumerate(labels)}
        ids = [id_of.get(name) for name in answers.values]
        rows.labels = answers.numbers(ids)
        if rows.probabilities is not None:
            plugin.resolve(VOTES).count_votes(rows, ids, len(labels))


def _readable(rows: Rows, role: str, notes: list[str]) -> Rows:
    """The rows that can be judged on, as their texts can be read again."""
    held = rows.readable()
    if len(held) < len(rows):
        notes.append(
            f"{role}: {len(held):,} of {len(rows):,} rows of {rows.source} are judged on, those whose texts are kept "
            "(data.streaming=true)"
        )
    return held


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
    n_rows = len(train)
    if data.folds:
        train = stratified_sample(train, data.rows, seed)
        n_rows = len(train)
        train, others_of_fold = _hold_out_fold(train, data, seed, labels, notes)
        others |= others_of_fold
        if data.fold is None:
            return train
    elif "all" in tables:
        if data.test_share + data.validation_share >= 1:
            raise UserError(
                f"data.test_share={data.test_share} and data.validation_share={data.validation_share} leave no row of "
                f"{train.source} to learn from: use smaller ones"
            )
        train, others["test"] = _carve(train, "test", data.test_share, n_rows, seed, notes)
    elif "test" not in tables:
        notes.append(f"{train.source} has no test split: the run is judged on its validation split alone")
    if "validation" not in others and not data.validates_on_train:
        train, others["validation"] = _carve(train, "validation", data.validation_share, n_rows, seed, notes)
    return train


def _hold_out_fold(
    train: Rows, data: DataConfig, seed: int, labels: list[str], notes: list[str]
) -> tuple[Rows, dict[str, Rows]]:
    """The rows of the other folds, and those of fold `data.fold` as the test split; all rows and none, if there is no
    such fold."""
    import numpy as np

    fold_n = assign_folds(train, data.folds, seed)
    if not data.fold:
        return train, {}
    test = train.pick(np.flatnonzero(fold_n == data.fold))
    train = train.pick(np.flatnonzero(fold_n != data.fold))
    notes.append(
        f"test: {len(test):,} of {len(fold_n):,} rows of {train.source} are fold {data.fold} of {data.folds} "
        f"(seed={seed})"
    )
    unseen = []
    counts = zip(labels, class_counts(train, len(labels)), class_counts(test, len(labels)), strict=True)
    for name, n_learnt, n_judged in counts:
        if n_judged and not n_learnt:
            unseen.append(name)
    if unseen:
        notes.append(f"train: no row of {list_names(unseen)}, which fold {data.fold} holds: it cannot be learnt")
    return train, {"test": test}


def _carve(train: Rows, role: str, share: float, n_rows: int, seed: int, notes: list[str]) -> tuple[Rows, Rows]:
    """What is left of `train`, and a split of `share` of `n_rows` rows for `role`."""
    import numpy as np

    held = train.readable()  # of a stream some rows, which alone can be judged on
    of_held = share * n_rows / len(held)
    if len(held) == len(train):
        kept, part = carve(held, of_held, seed, role)
    else:
        _, part = carve(held, min(of_held, MOST_OF_SAMPLE), seed, role)
        kept = train.pick(np.flatnonzero(~np.isin(train.numbers, part.numbers)))
    by_class = " by class" if train.targets is None else ""
    notes.append(f"{role}: {len(part):,} of {n_rows:,} rows held out{by_class} (data.{role}_share={share})")
    return kept, part


def _sample_splits(splits: Splits, data: DataConfig, split_seed: int, seed: int) -> Splits:
    """At most `data.rows` of each split by `split_seed`, and of those of train `data.train_share` by `seed`, that of
    the run."""
    train = stratified_sample(splits.train, data.rows, split_seed)
    validation = stratified_sample(splits.validation, data.rows, split_seed)
    test = None
    if splits.test is not None:
        test = stratified_sample(splits.test, data.rows, split_seed)
    reasons = []
    if len(train) < len(splits.train):
        reasons.append(f"data.rows={data.rows}")
    if data.train_share < 1 and (not data.folds or data.fold is not None):
        train = stratified_sample(train, max(1, round(data.train_share * len(train))), seed)
        reasons.append(f"data.train_share={data.train_share:g}")
    if train.weights is not None and not train.weights.any():
        raise UserError(
            f"data.weight={data.weight}: all {len(train):,} training rows of {train.source} weigh 0, so that nothing "
            "can be learnt: give some of them a weight above 0, or remove data.weight"
        )
    if reasons:
        splits.notes.append(f"{' and '.join(reasons)}: {len(train):,} of {len(splits.train):,} training rows are used")
    notes = [one_line(note) for note in splits.notes]
    return Splits(train, validation, test, splits.labels, notes, coarse=splits.coarse)
