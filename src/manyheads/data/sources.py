"""From `DataConfig` to checked rows: read, map columns, name classes, carve what is missing, audit.

Standard library only: files are read, and their mistakes reported, before torch is imported.
"""

import difflib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from manyheads.config import DataConfig, OnBadRow, Source, Task
from manyheads.config.fields import listed, show
from manyheads.data.arrow import is_saved, open_hub, open_saved, table_of
from manyheads.data.columns import (
    Columns,
    as_found,
    describe,
    find_columns,
    give_sets,
    joined_otherwise,
    label_cells,
    label_sets,
    named_twice,
    natural_order,
    require_columns,
    without_labels,
)
from manyheads.data.demo import dates_splits, demo_splits
from manyheads.data.files import KINDS_IN_WORDS, kind_of, read_file, text_of, why_unread
from manyheads.data.rows import Rows, Splits, Table, Unread, audit, joined, label_names, screen, text_faults
from manyheads.data.splits import (
    ALIASES,
    KNOWN,
    carve,
    files_inside,
    folder_notes,
    is_called_split,
    name_dataset_splits,
    name_files,
    parts_of,
    require_typed_names,
    shorten,
    take_typed_names,
)
from manyheads.terminal import one_line

NO_CLASS = "unsup"


def class_folders(folder: Path, data: DataConfig) -> dict[str, Path]:
    """Role to the folder that holds those of its classes; `all`: there is just one. None where `folder` holds tables,
    or texts of a split, beside them.

    Raises:
        ValueError: a typed name is that of no folder that holds folders of classes.
    """
    beside = files_inside(folder, data)
    if any(stem.lower() in KNOWN or kind_of(files[0]) != ".txt" for stem, files in beside.items()):
        return {}
    inside = [path for path in sorted(folder.iterdir()) if path.is_dir() and path.name[0] != "."]
    splits = {path.name: path for path in inside if is_called_split(path, data) and len(_classes(path)) > 1}
    by_name = {name.lower(): path for name, path in splits.items()}
    found = {role: by_name[name] for role, names in ALIASES.items() for name in names if name in by_name}
    take_typed_names(found, splits, data)
    if "train" in found:
        names = [path.name for path in inside if len(_classes(path)) > 1]
        where = f"data.path={data.path}"
        require_typed_names(names, data, f"the name of no folder of classes in {where}", "its folders are named")
        return found if len(found) > 1 else {"all": found["train"]}
    is_flat = not any(path.name.lower() in KNOWN for path in inside) and len(_classes(folder)) > 1
    return {"all": folder} if is_flat else {}


def read_class_folders(folder: Path) -> Table:
    """The texts of all classes, each called as its folder is.

    Raises:
        ValueError: a file cannot be read; names it.
    """
    files = [path for one in _classes(folder) for path in _texts(one)]
    texts = [text_of(path, is_table=False).strip() for path in files]
    cells = {"text": texts, "label": [path.parent.name for path in files]}
    left_out = len(_texts(folder / NO_CLASS)) if (folder / NO_CLASS).is_dir() else 0
    return Table(
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


Tables = dict[str, Callable[[], Table]]  # by role: train, validation, test; or `all` alone


def open_tables(data: DataConfig) -> Tables:
    """The tables `data` names, by role; a file is read when its table is called for, but one that holds everything at
    once, as it may say of each row which split it is of.

    Raises:
        ValueError: there is no such file, folder, dataset or split.
    """
    tables = _opened(data)
    return parts_of(tables["all"](), data) if "all" in tables else tables


def _opened(data: DataConfig) -> Tables:
    assert data.path or data.source is not Source.run, "the caller reads the run's own settings"
    if data.path:
        return _local(data)
    if data.source is Source.hub:
        splits = open_hub(data)
        roles = name_dataset_splits(splits, data, data.hub)
        return {role: lambda name=name: table_of(splits[name], f"{data.hub}/{name}") for role, name in roles.items()}
    is_demo = data.source is Source.demo
    names, splits = (["text", "label"], demo_splits()) if is_demo else (["source", "target"], dates_splits())
    made = data.source.name
    return {role: lambda role=role, rows=rows: _made(f"{made}/{role}", names, rows) for role, rows in splits.items()}


def _local(data: DataConfig) -> Tables:
    path = Path(data.path).expanduser()
    if path.is_dir():
        return _saved(path, data) if is_saved(path) else _folder(path, data)
    if not path.exists():
        beside = [one.name for one in path.parent.iterdir()] if path.parent.is_dir() else []
        close = difflib.get_close_matches(path.name, beside, n=1)
        hint = f"did you mean {path.parent / close[0]}?" if close else f"give a file of {KINDS_IN_WORDS}, or a folder"
        raise ValueError(f"data.path={data.path} does not exist: {hint}")
    if kind_of(path) is None:
        raise ValueError(f"data.path={data.path} {why_unread(path)}")
    return {"all": lambda: read_file(path)}


def _saved(path: Path, data: DataConfig) -> Tables:
    splits = open_saved(path)
    roles = {"all": "all"} if "all" in splits else name_dataset_splits(splits, data, f"data.path={data.path}")
    return {role: lambda name=name: table_of(splits[name], f"{path.name}/{name}") for role, name in roles.items()}


def _folder(path: Path, data: DataConfig) -> Tables:
    if classes := class_folders(path, data):
        return {role: lambda folder=folder: read_class_folders(folder) for role, folder in classes.items()}
    found = name_files(path, data)
    return {role: lambda files=files: joined([read_file(file) for file in files]) for role, files in found.items()}


def _made(source: str, names: list[str], rows: list[tuple[str, str]]) -> Table:
    """A table of generated rows of two columns."""
    cells = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    return Table(names, cells.__getitem__, range(1, len(rows) + 1), source)


Answer = Any  # the name of a class, a tuple of those of all labels of a row, or a target


def read_splits(
    data: DataConfig, seed: int, *, task: Task = Task.classify, with_test: bool = True, with_unread: bool = False
) -> Splits:
    """The splits of a run, checked; a missing validation split is carved out of train by `data.split_seed`, or `seed`.

    Where one file or split holds everything, test is carved out first. `with_test=False` leaves the test split
    unread; the others are the same as with it. `with_unread`: rows can give the columns that are not read.

    Raises:
        ValueError: one sentence that names the file and the row, or the setting, and the remedy.
    """
    notes = notes_of_folder(data)
    tables = open_tables(data)
    seed = seed if data.split_seed is None else data.split_seed
    table = (tables.get("all") or tables["train"])()
    notes += table.notes
    columns = find_columns(table, data, task)
    if task is Task.classify:
        notes += joined_otherwise(table, columns)
        columns = as_found(table, columns)
    train, answers = _checked(table, columns, data.on_bad_row, notes, with_unread=with_unread)
    declared = table.classes.get(columns.answer)
    labels = _order(_names(answers), declared, table.source, notes) if task is Task.classify else []
    _answer(train, answers, labels)
    notes += [describe(train, labels)] if columns.multi else []
    others: dict[str, Rows] = {}
    for role in ("validation", "test"):
        if role in tables and (with_test or role != "test"):
            other = tables[role]()
            require_columns(other, columns)
            if role == "test" and (why := without_labels(other, columns, labels)):
                raise ValueError(f"{why}; {_without_test('validation' in tables)}")
            others[role], answers = _checked(
                other, columns, data.on_bad_row, notes, known=labels, with_unread=with_unread
            )
            _answer(others[role], answers, labels)
    if len(labels) != 1 or columns.multi:
        train = _carve_missing(train, others, tables, data, seed, notes)
    splits = Splits(train, others.get("validation", train), others.get("test") if with_test else None, labels, notes)
    audit(splits)
    return _shortened(splits, data.rows, seed)


def read_split(data: DataConfig, split: str, labels: list[str], *, multi: bool = False) -> Rows:
    """One split for judging a model whose classes are `labels`, none where it answers by texts; a single file gives
    all its rows. `multi`: rows have any number of them.

    Raises:
        ValueError: there is no such split, or a label is not among `labels`.
    """
    notes_of_folder(data)
    tables = open_tables(data)
    if split not in tables and "all" not in tables:
        raise ValueError(f"split={split} is not in the data, which holds {', '.join(tables)}: choose one of them")
    table = tables["all" if "all" in tables else split]()
    notes = [*table.notes]
    columns = replace(find_columns(table, data, Task.classify if labels else Task.seq2seq), multi=multi)
    if why := without_labels(table, columns, labels):
        raise ValueError(f"{why}; name another split by split=validation, or get the labels of these by predict")
    rows, answers = _checked(table, columns, data.on_bad_row, notes, with_unread=True)
    if labels:
        rows, answers = _known(rows, answers, labels, data.on_bad_row, notes)
    _answer(rows, answers, labels)
    for note in notes:
        logging.getLogger(__name__).warning("%s", one_line(note))
    return shorten(rows, data.rows, seed=0)


def _known(
    rows: Rows, answers: list[Answer], labels: list[str], on_bad_row: OnBadRow, notes: list[str]
) -> tuple[Rows, list[Answer]]:
    """The rows whose labels a model has.

    Raises:
        ValueError: there are others under `raise`, or no row is left.
    """
    found, known = natural_order(set(_names(answers))), {*labels}
    strange = [name for name in found if name not in known]
    good = [at for at, one in enumerate(answers) if known.issuperset(_names([one]))]
    if strange and (not good or on_bad_row is OnBadRow["raise"]):
        drop = ", or leave such rows out by data.on_bad_row=drop" if good else ""
        raise ValueError(
            f"{rows.source} has labels the model does not know: the data's labels are {listed(found)}, the model's are "
            f"{listed(labels)}; rename the data's labels, or choose another column by data.label{drop}"
        )
    if not strange:
        return rows, answers
    notes.append(
        f"{rows.source}: {len(rows) - len(good):,} of {len(rows):,} rows left out, as the model does not know their "
        f"labels: {listed(strange)}"
    )
    rows.labels = [0] * len(rows)
    return rows.pick(good), [answers[at] for at in good]


def notes_of_folder(data: DataConfig) -> list[str]:
    """What to say of the files of a folder that are not read.

    Raises:
        ValueError: as of `folder_notes`.
    """
    folder = Path(data.path).expanduser()
    if not data.path or not folder.is_dir() or is_saved(folder) or class_folders(folder, data):
        return []
    return folder_notes(folder, data)


def _without_test(validation: bool) -> str:
    remedy = "leave the split unread by test=false"
    return f"{remedy}, or be judged on another by data.test_split=validation" if validation else remedy


def _checked(
    table: Table,
    columns: Columns,
    on_bad_row: OnBadRow,
    notes: list[str],
    known: Sequence[str] = (),
    *,
    with_unread: bool = False,
) -> tuple[Rows, list[Answer]]:
    """The good rows of a table, not answered yet, and the class name (of those `known`, if any), the names of all its
    labels or the target of each."""
    texts = table.column(columns.text)
    pairs = None if columns.pair is None else table.column(columns.pair)
    answers, faults = _answers(table, columns, notes)
    if known and (strange := {*_names(answers)} - {*known, ""}):
        outside = [(at, name) for at, one in enumerate(answers) for name in _names([one]) if name in strange]
        faults |= {at: f"the label '{show(name)}' has no row in the training split" for at, name in outside}
    faults |= text_faults(texts, "the text")
    faults |= {} if pairs is None else text_faults(pairs, "the second text")
    faults |= table.broken
    good = screen(table, faults, on_bad_row, notes)
    rows = Rows(texts, pairs, [], table.source, table.numbers)
    if with_unread:
        names = [name for name in table.names if name not in columns.by_key().values()]
        rows.unread = Unread(table, names, range(len(texts)))
    if len(good) == len(texts):
        return rows, answers
    rows.labels = [0] * len(texts)
    return rows.pick(good), [answers[index] for index in good]


def _answers(table: Table, columns: Columns, notes: list[str]) -> tuple[list[Answer], dict[int, str]]:
    """What each row is answered with, and by index why a row is not."""
    if columns.task is not Task.classify:
        targets = table.column(columns.answer)
        return targets, text_faults(targets, "the target")
    cells, classes = label_cells(table, columns.answer), table.classes.get(columns.answer)
    read: Any = label_sets if columns.multi else label_names
    answers, faults = read(cells, classes)
    notes += named_twice(table, cells, answers, faults)
    return answers, faults


def _names(answers: Sequence[Answer]) -> list[str]:
    """The names in answers, of which those of sets are taken apart."""
    return [name for one in answers for name in ([one] if isinstance(one, str) else one)]


def _order(names: list[str], declared: list[str] | None, source: str, notes: list[str]) -> list[str]:
    """Classes of the training split: in the order the dataset declares them, else in natural order."""
    used = set(names)
    if declared is None:
        return natural_order(used)
    unused = [name for name in declared if name not in used]
    if unused:
        notes.append(
            f"{source}: {len(unused)} declared classes have no training row and are left out: {listed(unused)}"
        )
    return [name for name in declared if name in used]


def _answer(rows: Rows, answers: list[Answer], labels: list[str]) -> None:
    """Give each row its class id, those of all its labels or, where there are no `labels`, its target."""
    if answers and isinstance(answers[0], tuple):
        return give_sets(rows, answers, labels)
    of_name = {name: index for index, name in enumerate(labels)}
    rows.labels = [of_name[name] for name in answers] if labels else [0] * len(answers)
    rows.targets = None if labels else answers


def _carve_missing(
    train: Rows, others: dict[str, Rows], tables: Tables, data: DataConfig, seed: int, notes: list[str]
) -> Rows:
    """Add what is missing to `others`, carved out of `train`; returns what is left of it. Both shares are of all rows.

    Raises:
        ValueError: as of `carve`, or the shares leave nothing to learn from.
    """
    n_rows = len(train)

    def carved(role: str, share: float) -> Rows:
        kept, part = carve(train, share * (n_rows / len(train)), seed, role)
        notes.append(
            f"{role}: {len(part):,} of {n_rows:,} rows of {train.source} carved out"
            f"{' by class' if train.targets is None else ''} (data.{role}_share={share}, seed={seed})"
        )
        others[role] = part
        return kept

    if "all" in tables:
        if data.test_share + data.validation_share >= 1:
            raise ValueError(
                f"data.test_share={data.test_share} and data.validation_share={data.validation_share} leave no row of "
                f"{train.source} to learn from: use smaller ones"
            )
        train = carved("test", data.test_share)
    elif "test" not in tables:
        notes.append(f"{train.source} has no test split beside it: the run is judged on its validation split alone")
    return train if "validation" in others else carved("validation", data.validation_share)


def _shortened(splits: Splits, n_rows: int, seed: int) -> Splits:
    test = None if splits.test is None else shorten(splits.test, n_rows, seed)
    train, validation = shorten(splits.train, n_rows, seed), shorten(splits.validation, n_rows, seed)
    if len(train) < len(splits.train):
        splits.notes.append(f"data.rows={n_rows}: {len(train):,} of {len(splits.train):,} training rows are used")
    return Splits(train, validation, test, splits.labels, [one_line(note) for note in splits.notes])
