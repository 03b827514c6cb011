"""Where the presets are: conf/ of the repository, or its copy inside the installed package."""

import os
from pathlib import Path
from typing import Any

from manyheads.door.verbs import VERBS


def conf_folder() -> Path:
    """The folder of presets: beside the package's modules when installed, else the repository's."""
    inside = Path(__file__).resolve().parents[1] / "conf"
    return inside if inside.is_dir() else Path(__file__).resolve().parents[3] / "conf"


def folder_url(config_dir: str) -> str:
    """The user's own folder of presets as Hydra names it.

    Raises:
        ValueError: it is no folder, or a preset in it chooses others by an interpolation, which Hydra would look up: in
            the environment, for one.
    """
    folder = Path(os.path.expanduser(config_dir)).resolve()
    if not folder.is_dir():
        raise ValueError(
            f"--config-dir {config_dir} is not a folder: name one that holds presets, such as mine/model/wide.yaml"
        )
    for file in sorted(folder.rglob("*.yaml")):
        if "${" in str(_content(file).get("defaults")):
            raise ValueError(
                f"{file}: its defaults hold an interpolation, but a preset names others plainly: write a name"
            )
    return f"file://{folder}"


def own_settings(group: str, name: str, more: str | Path | None = None) -> dict[str, Any]:
    """What the file of a preset itself sets, by dotted name, without what it builds on."""
    folders = [conf_folder(), *([Path(os.path.expanduser(more))] if more else [])]
    file = next((file for folder in folders if (file := folder / group / f"{name}.yaml").is_file()), None)
    found: dict[str, Any] = {}
    for section, value in (_content(file) if file else {}).items():
        found |= (
            {f"{section}.{key}": one for key, one in value.items()} if isinstance(value, dict) else {section: value}
        )
    return found


def _content(file: Path) -> dict[str, Any]:
    """What a preset says; nothing where the file is none, which is said when it is composed."""
    import yaml

    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def choices(verb: str, group: str, more: str | Path | None = None) -> list[str]:
    """Names of the presets of one group that the verb may read, sorted.

    Args:
        more: the user's own folder of presets (`--config-dir`), searched too.
    """
    folders = [conf_folder() / group] + ([Path(os.path.expanduser(more), group)] if more else [])
    names = {file.stem for folder in folders for file in folder.glob("*.yaml")}
    return sorted(name for name in names - set(VERBS[verb].barred) if reads(verb, group, name))


def reads(verb: str, group: str, name: str) -> bool:
    """Whether the preset, by its prefix, is the verb's own, or that of no verb where the verb has no prefix."""
    own = VERBS[verb].prefix.get(group)
    prefixes = tuple(other.prefix[group] for other in VERBS.values() if group in other.prefix)
    return name.startswith(own) if own else not name.startswith(prefixes)
