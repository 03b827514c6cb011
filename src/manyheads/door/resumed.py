"""`resume=FOLDER`: a run goes on by the settings in its own config.yaml, and need not be typed again."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from manyheads.config import Resume
from manyheads.config.plain import one_of
from manyheads.door.ends import reopen_end
from manyheads.door.overrides import Typed

WRITTEN_TO = ("data.cache",)
"""Settings of a run, but for its own folder, that name places to write to."""


def resumed_folder(verb: str, words: Sequence[str]) -> tuple[list[str], str]:
    """The words without `resume=FOLDER`, and the folder: empty where there is no such word.

    Raises:
        ValueError: it is no run.
    """
    named = [word for word in words if word.startswith("resume=") and word[7:] not in Resume.__members__]
    if verb not in ("train", "pretrain") or not named:
        return list(words), ""
    folder = os.path.abspath(os.path.expanduser(named[-1][7:]))
    if named[-1] == "resume=" or not os.path.isfile(os.path.join(folder, "config.yaml")):
        raise ValueError(
            f"{named[-1]} is neither {one_of(list(Resume.__members__))} nor the folder of a run with its config.yaml"
        )
    return [word for word in words if word not in named], folder


def resumed_values(values: dict[str, Any], folder: str, typed: Typed, usual: Mapping[str, Any]) -> dict[str, Any]:
    """The settings `values` of the run in `folder`, as those of going on with it.

    Args:
        usual: the flags of the Trainer by the presets of such a run.

    Raises:
        ValueError: a preset or another folder was typed; or the settings, which may be anybody's, name a place outside
            of the folder to write to, and nobody has typed it.
    """
    idle = [f"{group}={name}" for group, name in typed.groups.items()]
    idle += [f"{name}={typed.values[name]}" for name in ("output", "resume") if name in typed.values]
    if idle:
        raise ValueError(
            f"{idle[0]} does nothing with resume={folder}, which goes on there by the settings in its config.yaml: "
            "leave it away"
        )
    for name in WRITTEN_TO:
        section, _, key = name.rpartition(".")
        place = values[section][key]
        if place and name not in typed.values and not _is_within(place, folder):
            raise ValueError(
                f"{name}={place} in {os.path.join(folder, 'config.yaml')} is a place outside of that folder to write "
                f"to: type {name}={place} if it is meant, or {name}= for the usual one"
            )
    reopen_end(values, typed.values, usual)
    return values | {"output": folder, "resume": "must"}


def _is_within(place: str, folder: str) -> bool:
    path, home = (os.path.realpath(os.path.expanduser(one)) for one in (place, folder))
    return os.path.commonpath([path, home]) == home
