"""Which file, folder or split of a dataset is train, validation and test: by its usual name, or as settings name it.

What has no other split next to it has the role `all`. Standard library only.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from shlex import quote
from typing import TypeVar

from manyheads.config.data import DataConfig, stem_of
from manyheads.config.sentences import format_value, list_names
from manyheads.data.formats.kinds import kind_of, why_empty
from manyheads.errors import UserError

T = TypeVar("T")
ALIASES = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing"),
}
KNOWN = {name for names in ALIASES.values() for name in names}
ABOUT = ("dataset_infos.json", "dataset_dict.json", "readme.txt", "license.txt", "licence.txt")  # no data
SHARD = re.compile(r"^(.+)-\d{5}-of-\d{5}(-[0-9a-f]+)?$")


def typed_split(data: DataConfig, role: str) -> str:
    """The name the settings give a role: `data.train_split`, `data.validation_split` or `data.test_split`."""
    return {"train": data.train_split, "validation": data.validation_split, "test": data.test_split}[role]


def name_dataset_splits(available: Iterable[str], data: DataConfig, source: str) -> tuple[dict[str, str], list[str]]:
    """Role to name for the splits of a dataset, and notes on those that are not read.

    A split has the role for which the settings name it; where they name a default that is missing, another usual name
    counts. A split that is named for one role has no other. A dataset without a second split has the role `all`.

    Raises:
        UserError: a split typed by name is missing, or there is no training split.
    """
    names = list(available)
    found: dict[str, str] = {}
    for role, aliases in ALIASES.items():
        typed = typed_split(data, role)
        usual = [name for name in names if name.lower() in aliases]
        if typed in names:
            found[role] = typed
        elif typed == role and usual:
            found[role] = usual[0]
        elif typed not in ("", role):
            raise UserError(f"data.{role}_split={typed} is not a split of {source}: its splits are {list_names(names)}")
    itself = {name: name for name in names}
    take_typed_names(found, itself, data)
    if "train" not in found and len(names) == 1:
        return {"all": names[0]}, []
    _require_train(found, source, itself)
    found = _all_if_alone(found)
    return found, unread_notes(itself, found, data)


def name_files(folder: Path, data: DataConfig, *, typed: bool) -> tuple[dict[str, list[Path]], list[str]]:
    """Role to files for a folder: train, validation (valid, val, dev) and test by name, then the settings' names, which
    must be `typed` right. And notes on those that are not read.

    Numbered shards such as `train-00000-of-00002.parquet` belong together; they may lie in `data/` or in a folder
    named like `data.hub_config`. A folder of one file, or of a training file alone, has the role `all`.

    Raises:
        UserError: no data file, two files for one role, no training file, or a typed name is that of no file.
    """
    where = f"data.path={data.path}"
    by_stem = files_inside(folder, data) or _files_of_split_folders(folder, data)
    if not by_stem:
        raise UserError(f"{where} holds no data file: {_deeper(folder, data) or why_empty(folder)}")
    if typed:
        require_typed_names(by_stem, data, f"the name of no file in {where}", "its files are named")
    if len(by_stem) == 1:
        return {"all": next(iter(by_stem.values()))}, []
    shown = {stem: files[0].name for stem, files in by_stem.items()}
    found: dict[str, str] = {}
    for role, aliases in ALIASES.items():
        stems = [stem for stem in by_stem if stem.lower() in aliases]
        if len(stems) > 1:
            both = " and ".join(shown[stem] for stem in stems)
            raise UserError(f"{where} holds {both}: both would be the {role} split; keep one")
        if stems:
            found[role] = stems[0]
    take_typed_names(found, {stem: stem for stem in by_stem}, data)
    _require_train(found, where, shown)
    found = _all_if_alone(found)
    return {role: by_stem[stem] for role, stem in found.items()}, unread_notes(shown, found, data)


def _require_train(found: Mapping[str, str], where: str, shown: Mapping[str, str]) -> None:
    """Raise UserError if there is no training split. `shown`: what is shown of each name."""
    if "train" in found:
        return
    remedy = ""
    if any(_is_like(name, "train") for name in shown):
        remedy = f", or type {_by_settings(shown, ALIASES)}"
    raise UserError(
        f"{where} has no training split: it holds {list_names([*shown.values()])}; name one of them train{remedy}, or "
        "give one file by data.path=<file>"
    )


def _all_if_alone(found: dict[str, str]) -> dict[str, str]:
    return {"all": found["train"]} if len(found) == 1 else found


def unread_notes(shown: Mapping[str, str], found: Mapping[str, str], data: DataConfig) -> list[str]:
    """Notes on what lies next to the splits of a run and is none.

    Args:
        shown: by name, what is shown of it.
        found: role to name of what is read.
    """
    unread = [name for name in shown if name not in found.values()]
    notes: list[str] = []
    for role, aliases in ALIASES.items():
        others = [shown[name] for name in unread if name.lower() in aliases]
        if not others:
            continue
        if role in found and found[role].lower() in aliases:
            notes.append(f"not read, as {shown[found[role]]} is the {role} split: {list_names(others)}")
        elif role == "test" and data.hub and data.test_split != "test":  # else it was typed
            notes.append(f"not read, as the preset has data.test_split={data.test_split}: {list_names(others)}")
    strange = [name for name in unread if name.lower() not in KNOWN]
    if strange:
        listed = list_names([shown[name] for name in strange])
        if len(strange) == 1:
            note, them = f"not read, as its name is that of no split: {listed}", "it"
        else:
            note, them = f"not read, as their names are those of no split: {listed}", "them"
        remedy = _by_settings(strange, [role for role in ("validation", "test") if role not in found])
        notes.append(f"{note}; name {them} by {remedy}" if remedy else note)
    return notes


def _by_settings(names: Iterable[str], roles: Iterable[str]) -> str:
    """What to type for names that look like splits; empty: none does."""
    settings: list[str] = []
    for role in roles:
        likely = [name for name in names if _is_like(name, role)]
        if likely:
            settings.append(quote(f"data.{role}_split={likely[0]}"))
    return " ".join(settings)


def _is_like(name: str, role: str) -> bool:
    return any(word.startswith(ALIASES[role]) for word in re.findall("[a-z]+", name.lower()))


def typed_names(data: DataConfig) -> dict[str, str]:
    """Role to the name of another split that is typed for it; a preset's names are those of the Hub, and not typed."""
    names: dict[str, str] = {}
    for role in ALIASES:
        name = typed_split(data, role)
        validates_on_train = role != "train" and name == data.train_split
        if not data.hub and name not in ("", role) and not validates_on_train:
            names[role] = name
    return names


def require_typed_names(names: Iterable[str], data: DataConfig, none: str, those: str) -> None:
    """Raise UserError if a typed name is not among `names`: it is `none` of `those`. Nothing is asked of a preset,
    which names the splits of the hub, not those of a local copy."""
    names = list(names)
    for role, typed in typed_names(data).items():
        if _find_name(typed, names) is None:
            raise UserError(
                f"data.{role}_split={format_value(typed)} is {none}: {those} {list_names(names)}; choose one of them"
            )


def take_typed_names(found: dict[str, T], by_name: Mapping[str, T], data: DataConfig) -> None:
    """Give each role of `found` the split that the settings name for it.

    That split has no other role then: the rows that a run is judged on are not those it is validated on. A preset may
    so judge on the split that another dataset would validate on.
    """
    for role in ("test", "validation", "train"):
        typed = typed_split(data, role)
        if typed == role:
            continue
        if not typed and role != "train":
            # an empty name takes the role away; but a preset means the test split, which a local copy may lack
            is_lacking = data.hub and _find_name(data.test_split or "test", by_name) is None
            if not is_lacking:
                found.pop(role, None)
        name = _find_name(typed, by_name)
        if name is None:
            continue
        split = by_name[name]
        validates_on_train = role != "train" and typed == data.train_split
        if not validates_on_train:
            for other in [other for other, its_split in found.items() if its_split == split]:
                del found[other]
        found[role] = split


def _find_name(typed: str, by_name: Iterable[str]) -> str | None:
    """The name that is `typed` or, where there is none, another usual name of the same split."""
    if typed in by_name:
        return typed
    for aliases in ALIASES.values():
        if typed in aliases:
            for name in by_name:
                if name.lower() in aliases:
                    return name
    return None


def files_inside(folder: Path, data: DataConfig) -> dict[str, list[Path]]:
    """The data files by their names without endings: those of the first place that holds any."""
    for place in (folder / data.hub_config, folder / data.hub_config / "data", folder, folder / "data"):
        files = _files_by_stem(place)
        if files:
            return files
    return {}


def _files_by_stem(folder: Path) -> dict[str, list[Path]]:
    files: dict[str, list[Path]] = {}
    for path in data_files(folder):
        shard = SHARD.match(stem_of(path))
        stem = shard[1] if shard else stem_of(path)
        if stem in files and not shard:
            raise UserError(f"{folder} holds {files[stem][0].name} and {path.name}: two files of one name; keep one")
        files.setdefault(stem, []).append(path)
    return files


def data_files(folder: Path) -> list[Path]:
    """The files of a folder that can be read, but for those that only describe it."""
    if not folder.is_dir():
        return []
    files: list[Path] = []
    for path in sorted(folder.iterdir()):
        is_about = path.name.startswith(".") or path.name.lower() in ABOUT
        if not is_about and path.is_file() and kind_of(path) is not None:
            files.append(path)
    return files


def _files_of_split_folders(folder: Path, data: DataConfig) -> dict[str, list[Path]]:
    """The files of `train/0000.parquet` and the like, by folder. Texts (.txt) there are those of class folders."""
    by_folder: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        if is_called_split(path, data):
            files = [file for file in data_files(path) if kind_of(file) != ".txt"]
            if files:
                by_folder[path.name] = files
    return by_folder


def is_called_split(path: Path, data: DataConfig) -> bool:
    """Whether it has the name of a split: a usual one, or a typed one."""
    return path.name.lower() in KNOWN or path.name in [typed_split(data, role) for role in ALIASES]


def _deeper(folder: Path, data: DataConfig) -> str:
    """Where the files are that the folder does not hold itself; empty: nowhere, or in several places."""
    found: list[Path] = []
    splits: list[Path] = []  # which hold nothing but texts, or their files had been found
    for path in sorted(folder.iterdir()):
        may_hold = path.is_dir() and os.access(path, os.R_OK | os.X_OK) and not path.name.startswith(".")
        if may_hold and _holds_files(path, data):
            (splits if is_called_split(path, data) else found).append(path)
    if splits and all(kind_of(file) == ".txt" for path in found for file in data_files(path)):
        return (
            f"its folder {splits[0].name} has the name of a split, in which each class has a folder: move the "
            f"folders of all classes into {Path(data.path) / 'train'}"
        )
    if len(found) != 1:
        return ""
    deeper = quote(f"data.path={Path(data.path) / found[0].name}")
    return f"they lie in its folder {format_value(found[0].name)}: give {deeper}"


def _holds_files(folder: Path, data: DataConfig) -> bool:
    try:
        return bool(files_inside(folder, data) or _files_of_split_folders(folder, data))
    except ValueError:  # two files of one name: there are some
        return True
