"""What makes a search the same search: settings, data, files and versions. Only that is continued in its folder."""

import json
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

from manyheads.config.conversion import plain_settings
from manyheads.config.facts import settings
from manyheads.config.sentences import format_value
from manyheads.data.rows import Splits
from manyheads.errors import UserError
from manyheads.inference.origin import file_digests
from manyheads.plugins.sweep.config import CurveConfig, TuneConfig
from manyheads.runs.resume import resume_policy


def search_settings(config: TuneConfig, splits: Splits) -> dict[str, Any]:
    """What a search must have in common with the one in its folder to continue it, versions included."""
    found = {
        "search": config.search,
        "method": config.chosen.name,
        "prune": config.prune.name,
        "minutes": config.minutes,
    }
    for name, paths in plain_settings(config).items():
        if name in named_texts():
            found[name] = _digest_of_files(paths)
    return found | shared_settings(config, splits)


def shared_settings(config: TuneConfig | CurveConfig, splits: Splits) -> dict[str, Any]:
    """The part of it that all runs share."""
    run = config.run({})
    found: dict[str, Any] = {
        "manyheads": version("manyheads"),
        "torch": version("torch"),
        "seed": config.seed,
        "data": splits.digests(),
        "files": file_digests(run),
        "test": run.test,
    }
    for name, value in plain_settings(run).items():
        if name not in ("hardware.threads", "seed") and resume_policy(name) != "free":
            found[name] = value
    return found


def _digest_of_files(paths: list[str]) -> str:
    """That of the contents of files, and of all files in folders; empty where none is named."""
    if not paths:
        return ""
    digest = blake2b(digest_size=16)
    for path in (Path(one).expanduser() for one in paths):
        files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        for file in files:
            digest.update(blake2b(file.read_bytes()).digest())
    return digest.hexdigest()


def named_texts() -> list[str]:
    """The settings of `tune` that name files which all runs read, other than the data."""
    return [name for name, one in settings(TuneConfig).items() if one.facts.path and one.default == []]


def check_same_search(held: dict[str, Any], asked: dict[str, Any], where: str) -> None:
    """Refuse to continue another search than the one that `where` holds.

    Raises:
        UserError: names what differs.
    """
    asked = json.loads(json.dumps(asked))  # as it reads from a file
    for name in dict.fromkeys([*asked, *held]):
        if held.get(name) != asked.get(name):
            was, now = format_value(held.get(name)), format_value(asked.get(name))
            remedy = "name another folder by output=FOLDER"
            if name == "data":
                what = f"other data ({_differing(held, asked, name)})"
            elif name == "files":
                what = f"runs of other content of {_differing(held, asked, name)}"
            elif name in named_texts():
                what = f"other texts of {name}"
            elif name in ("manyheads", "torch"):
                what = f"runs of {name} {was}, not {now}"
            else:
                what = f"a search with {name}={was}, not {name}={now}"
                if name == "method":
                    remedy = f"type method={was} to continue it, or {remedy}"
            raise UserError(f"{where} holds {what}: {remedy}")


def _differing(held: dict[str, Any], asked: dict[str, Any], name: str) -> str:
    """Which of the digests of one name differ."""
    was = held[name] if isinstance(held.get(name), dict) else {}
    now = asked[name] if isinstance(asked.get(name), dict) else {}
    return ", ".join(key for key in dict.fromkeys([*now, *was]) if was.get(key) != now.get(key))
