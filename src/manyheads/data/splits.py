"""Which rows are train, validation and test: by the names of files or splits, by a column `split`, or carved out,
by class and seed; rows of a group, or of equal texts, stay together."""

import os
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

from manyheads.config.data import DataConfig, stem_of
from manyheads.config.sentences import format_value, list_names
from manyheads.data.formats.kinds import kind_of, why_empty
from manyheads.data.rows import Rows, group_ids
from manyheads.errors import UserError

T = TypeVar("T")
ALIASES = {"train": ("train", "training"), "validation": ("validation", "valid", "val", "dev"), "test": ("test",)}
KNOWN = {name for names in ALIASES.values() for name in names}
ABOUT = ("dataset_infos.json", "dataset_dict.json", "readme.txt", "license.txt", "licence.txt")  # no data
SHARD = re.compile(r"^(.+)-\d{5}-of-\d{5}(-[0-9a-f]+)?$")


def typed_split(data: DataConfig, role: str) -> str:
    """The name the settings give a role: `data.train_split`, `data.validation_split` or `data.test_split`."""
    return {"train": data.train_split, "validation": data.validation_split, "test": data.test_split}[role]


def name_dataset_splits(available: Iterable[str], data: DataConfig, source: str) -> tuple[dict[str, str], list[str]]:
    """Role to name for a hub dataset: the settings' names; a default name that is missing may have another. And notes
    on those that are not read.

    A split that is named for one role is no other's. A dataset without a second split takes the role `all`.

    Raises:
        UserError: a split typed by name is missing, or there is no training split.
    """
    names = list(available)
    found: dict[str, str] = {}
    for role in ALIASES:
        typed = typed_split(data, role)
        if typed in names:
            found[role] = typed
        elif typed == role:
            other = next((name for name in names if name.lower() in ALIASES[role]), None)
            found |= {} if other is None else {role: other}
        elif typed:
            raise UserError(f"data.{role}_split={typed} is not a split of {source}: its splits are {list_names(names)}")
    take_typed_names(found, {name: name for name in names}, data)
    if "train" not in found and len(names) == 1:
        return {"all": names[0]}, []
    found = _all_in_one(found, source, {name: name for name in names})
    return found, unread_notes({name: name for name in names}, found, data)


def name_files(folder: Path, data: DataConfig, *, typed: bool = True) -> tuple[dict[str, list[Path]], list[str]]:
    """Role to files for a folder: train, validation (valid, val, dev) and test by name, then the settings' names, which
    must be `typed` right. And notes on those that are not read.

    Numbered shards such as `train-00000-of-00002.parquet` belong together; they may lie in `data/` or in a folder
    named like `data.hub_config`. A folder of one file, or of a training file alone, takes the role `all`.

    Raises:
        UserError: no data file, two files for one role, no training file, or a typed name is that of no file.
    """
    by_stem = files_by_stem(folder, data)
    if not by_stem:
        raise UserError(f"data.path={data.path} holds no data file: {_deeper(folder, data) or why_empty(folder)}")
    where = f"data.path={data.path}"
    if typed:
        require_typed_names(by_stem, data, f"the name of no file in {where}", "its files are named")
    if len(by_stem) == 1:
        return {"all": next(iter(by_stem.values()))}, []
    found: dict[str, list[Path]] = {}
    taken: set[str] = set()
    for role, aliases in ALIASES.items():
        stems = [stem for stem in by_stem if stem.lower() in aliases]
        if len(stems) > 1:
            names = " and ".join(by_stem[stem][0].name for stem in stems)
            raise UserError(f"data.path={data.path} holds {names}: both would be the {role} split; keep one")
        if stems:
            found[role] = by_stem[stems[0]]
            taken.add(stems[0])
    take_typed_names(found, by_stem, data)
    names = {stem: files[0].name for stem, files in by_stem.items()}
    found = _all_in_one(found, where, names)
    of_stem = {role: next(stem for stem, own in by_stem.items() if own is files) for role, files in found.items()}
    return found, unread_notes(names, of_stem, data)


def unread_notes(names: Mapping[str, str], found: Mapping[str, str], data: DataConfig) -> list[str]:
    """On what is no split of a run, though it lies where its splits do, if there is anything: `names` say how each is
    called, `found` which are read."""
    unread = [name for name in names if name not in found.values()]
    strange = [name for name in unread if name.lower() not in KNOWN]
    notes: list[str] = []
    for role, aliases in ALIASES.items():
        passed = [names[name] for name in unread if name.lower() in aliases]
        if passed and role in found and found[role].lower() in aliases:
            notes.append(f"not read, as {names[found[role]]} is the {role} split: {list_names(passed)}")
        elif passed and role == "test" and data.hub and data.test_split != "test":  # else it was typed
            notes.append(f"not read, as the preset has data.test_split={data.test_split}: {list_names(passed)}")
    if strange:
        its = "its name is that" if len(strange) == 1 else "their names are those"
        note = f"not read, as {its} of no split: {list_names([names[name] for name in strange])}"
        remedy = _by_settings(strange, [role for role in ("validation", "test") if role not in found])
        notes.append(f"{note}; name {'it' if len(strange) == 1 else 'them'} by {remedy}" if remedy else note)
    return notes


def _by_settings(stems: list[str], roles: Iterable[str]) -> str:
    """What to type for those that look like splits by their names."""
    likely = {role: next((stem for stem in stems if _is_like(stem, role)), "") for role in roles}
    return " ".join(quote(f"data.{role}_split={stem}") for role, stem in likely.items() if stem)


def _is_like(stem: str, role: str) -> bool:
    return any(word.startswith(ALIASES[role]) for word in re.findall("[a-z]+", stem.lower()))


def typed_names(data: DataConfig) -> dict[str, str]:
    """Role to the name of another split that is typed for it; none of a preset's, which are of the hub."""
    named = {role: typed_split(data, role) for role in ALIASES if not data.hub}
    shared = {role for role, name in named.items() if role != "train" and name == data.train_split}
    return {role: name for role, name in named.items() if name not in ("", role) and role not in shared}


def require_typed_names(names: Iterable[str], data: DataConfig, none: str, those: str) -> None:
    """Raise UserError if a typed name is not among `names`: it is `none` of `those`. Nothing is asked of a preset,
    which names the splits of the hub, not those of a local copy."""
    names = list(names)
    for role, typed in typed_names(data).items():
        if _named(typed, names) is None:
            raise UserError(
                f"data.{role}_split={format_value(typed)} is {none}: {those} {list_names(names)}; choose one of them"
            )


def take_typed_names(found: dict[str, T], by_name: Mapping[str, T], data: DataConfig) -> None:
    """Give each role of `found` the split that the settings name for it, and take that split's own role from it: the
    rows that a run is judged on are not those it is validated on. So does a preset, which may judge on the split that
    another dataset would validate on. An empty name takes the role away, but where a preset leaves it to a test split
    that the local copy does not have."""
    for role in ("test", "validation", "train"):
        typed = typed_split(data, role)
        name = None if typed == role else _named(typed, by_name)
        if not typed and role != "train" and not (data.hub and _named(data.test_split or "test", by_name) is None):
            found.pop(role, None)
        if name is None:
            continue
        split = by_name[name]
        shared = role != "train" and typed == data.train_split  # validated on the training rows
        for other in [key for key, value in found.items() if value == split and not shared]:
            del found[other]
        found[role] = split


def _named(typed: str, by_name: Iterable[str]) -> str | None:
    """The name that is `typed` or, where there is none, another name of the same split."""
    if typed in by_name:
        return typed
    names = next((names for names in ALIASES.values() if typed in names), ())
    return next((name for name in by_name if name.lower() in names), None)


def files_by_stem(folder: Path, data: DataConfig) -> dict[str, list[Path]]:
    """The data files of a folder by what they are called, or those of its folders that are called like a split."""
    return files_inside(folder, data) or _split_folders(folder, data)


def files_inside(folder: Path, data: DataConfig) -> dict[str, list[Path]]:
    """Of the places where they may lie those of the first that holds any."""
    inside = [folder / data.hub_config, folder / data.hub_config / "data", folder, folder / "data"]
    return next((found for found in map(_stems, inside) if found), {})


def _split_folders(folder: Path, data: DataConfig) -> dict[str, list[Path]]:
    """Of `train/0000.parquet` and the like; lists of texts there are those of class folders."""
    inside = {path.name: data_files(path) for path in sorted(folder.iterdir()) if is_called_split(path, data)}
    tables = {name: [file for file in files if kind_of(file) != ".txt"] for name, files in inside.items()}
    return {name: files for name, files in tables.items() if files}


def is_called_split(path: Path, data: DataConfig) -> bool:
    """Whether it has the name of a split: a usual one, or a typed one."""
    return path.name.lower() in KNOWN or path.name in [typed_split(data, role) for role in ALIASES]


def _deeper(folder: Path, data: DataConfig) -> str:
    """Where the files are that the folder does not hold itself; empty: nowhere, or in several places."""
    inside = sorted(path for path in folder.iterdir() if path.is_dir() and os.access(path, os.R_OK | os.X_OK))
    found = [path for path in inside if path.name[0] != "." and not is_called_split(path, data) and _holds(path, data)]
    if len(found) != 1:
        return ""
    return (
        f"they lie in its folder {format_value(found[0].name)}: give "
        f"{quote(f'data.path={Path(data.path) / found[0].name}')}"
    )


def _holds(folder: Path, data: DataConfig) -> bool:
    try:
        return bool(files_by_stem(folder, data))
    except ValueError:  # two files of one name: there are some
        return True


def data_files(folder: Path) -> list[Path]:
    """The files in it that can be read, but what is written about them."""
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    return [
        path
        for path in inside
        if not path.name.startswith(".")
        and path.name.lower() not in ABOUT
        and path.is_file()
        and kind_of(path) is not None
    ]


def _stems(folder: Path) -> dict[str, list[Path]]:
    files: dict[str, list[Path]] = {}
    for path in data_files(folder):
        shard = SHARD.match(stem_of(path))
        stem = shard[1] if shard else stem_of(path)
        if stem in files and not shard:
            raise UserError(f"{folder} holds {files[stem][0].name} and {path.name}: two files of one name; keep one")
        files.setdefault(stem, []).append(path)
    return files


def _all_in_one(found: dict[str, T], source: str, names: dict[str, str]) -> dict[str, T]:
    """`found`, or that what is there is everything. `names`: what is shown of each stem."""
    if "train" not in found:
        remedy = _by_settings([*names], ALIASES) if any(_is_like(stem, "train") for stem in names) else ""
        raise UserError(
            f"{source} has no training split: it holds {list_names([*names.values()])}; name one of them train"
            f"{f', or type {remedy}' if remedy else ''}, or give one file by data.path=<file>"
        )
    return {"all": found["train"]} if len(found) == 1 else found


def carve(rows: Rows, share: float, seed: int, purpose: str) -> tuple[Rows, Rows]:
    """Split `rows` into the rows kept and a stratified `share` of them; both keep the order of `rows`.

    Rows of a group stay on one side, or where there are none those of one text, so that no text is in both. A class
    keeps at least one text. The same rows, share, seed and purpose give the same result on every machine.

    Raises:
        UserError: there are too few rows to carve one out, or no two of a class.
    """
    import numpy as np

    from manyheads.data.hashes import firsts_by_class, repeats

    later, firsts = repeats(group_ids(rows))
    others: dict[int, list[int]] = defaultdict(list)
    for row, first in zip(later.tolist(), firsts.tolist(), strict=True):
        others[first].append(row)
    by_class = firsts_by_class(rows.labels, later)
    sizes = {label: len(of_class) for label, of_class in by_class.items()}
    for first, more in others.items():
        sizes[int(rows.labels[first])] += len(more)
    wanted, carved = _wanted(sizes, share), bytearray(len(rows))
    largest, first = max(by_class, key=lambda label: len(by_class[label])), []
    for label, of_class in sorted(by_class.items()):
        drawn = shuffled(of_class, f"{seed} {purpose} {label}")
        for row in _first_groups(drawn, others, wanted[label]):
            carved[row] = 1
        first = drawn[:1] if label == largest else first
    if not any(carved):
        if len(by_class[largest]) < 2:
            raise UserError(_too_few(rows, len(by_class), purpose))
        for row in (*first, *others.get(first[0], [])):
            carved[row] = 1
    is_carved = np.frombuffer(carved, dtype=bool)
    return rows.pick(np.flatnonzero(~is_carved)), rows.pick(np.flatnonzero(is_carved))


def shuffled(rows: Any, key: str) -> list[int]:
    """The rows in an order that depends on their number and `key` alone, on every machine."""
    order = [int(row) for row in rows]
    random.Random(key).shuffle(order)  # noqa: S311 - a draw, not a secret
    return order


def _too_few(rows: Rows, n_classes: int, purpose: str) -> str:
    if n_classes > 2:
        return (
            f"{rows.source} has {n_classes:,} labels, each of one text alone, so that nothing can be learnt from them: "
            "check data.label, the column of the label"
        )
    return (
        f"{rows.source} has {len(rows)} rows, too few to carve a {purpose} split out: "
        "give a file for each split, or more rows"
    )


def _wanted(sizes: dict[int, int], share: float) -> dict[int, int]:
    """Rows to carve out of each class: its share, rounded. Where classes are so small that this is less than half of
    what is wanted in all, those that would give none give a row each, as many as are wanted, the largest first."""
    wanted = {label: round(share * size) for label, size in sizes.items()}
    n_lacking = round(share * sum(sizes.values())) - sum(wanted.values())
    if n_lacking > sum(wanted.values()):
        without = [label for label in sorted(sizes, key=lambda label: (-sizes[label], label)) if not wanted[label]]
        wanted |= dict.fromkeys(without[:n_lacking], 1)
    return wanted


def deal_folds(rows: Rows, n_folds: int, seed: int) -> Any:
    """The fold `(n,)` of each row, from 1. Rows of a group, or of one text, are in one fold: the largest come first,
    each to the fold that has the least of their classes. Where there are none, two folds differ by one row at most, of
    each class and of all."""
    import numpy as np

    from manyheads.data.hashes import repeats

    labels, (later, firsts) = np.asarray(rows.labels).tolist(), repeats(group_ids(rows))
    groups = {one: [one] for one in shuffled(np.delete(np.arange(len(rows)), later), f"{seed} folds")}
    for row, first in zip(later.tolist(), firsts.tolist(), strict=True):
        groups[first].append(row)
    if len(groups) < n_folds:
        what = "texts" if rows.groups is None else "groups"
        raise UserError(f"data.folds={n_folds}, but {rows.source} has {len(groups)} different {what}: use fewer folds")
    sizes, folds = Counter(labels), range(n_folds)
    held, n_held, fold_n = [Counter[int]() for _ in folds], [0] * n_folds, np.zeros(len(rows), dtype=np.int64)
    for of_group in sorted(groups.values(), key=lambda one: (-len(one), labels[one[0]])):
        brought = Counter(labels[row] for row in of_group)
        costs = [sum(n * held[fold][one] / sizes[one] for one, n in brought.items()) for fold in folds]
        least = min(folds, key=lambda fold: (costs[fold], n_held[fold]))
        fold_n[of_group] = least + 1
        held[least].update(brought)
        n_held[least] += len(of_group)
    return fold_n


def shorten(rows: Rows, n_rows: int, seed: int) -> Rows:
    """At most `n_rows` rows drawn by `seed`, as large a share of each class, one of every class first where they fit.
    Fewer rows by the same seed are among these."""
    import numpy as np

    from manyheads.data.hashes import firsts_by_class

    if n_rows == 0 or len(rows) <= n_rows:
        return rows
    place_n, size_n = np.empty((2, len(rows)))
    for label, of_class in firsts_by_class(rows.labels, np.empty(0, dtype=np.int64)).items():
        place_n[shuffled(of_class, f"{seed} rows {label}")] = np.arange(len(of_class)) / len(of_class)
        size_n[of_class] = len(of_class)
    return rows.pick(np.sort(np.lexsort((-size_n, place_n))[:n_rows]))


def _first_groups(firsts: list[int], others: dict[int, list[int]], wanted: int) -> list[int]:
    """As many rows as fit into `wanted`, each with all that hold its text; the last is never among them."""
    found: list[int] = []
    for first in islice(firsts, len(firsts) - 1):
        group = [first, *others.get(first, [])]
        if len(found) + len(group) <= wanted:
            found += group
        if len(found) == wanted:
            break
    return found
