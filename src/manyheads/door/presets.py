"""Where the presets are: conf/ of the repository, or its copy inside the installed package."""

from pathlib import Path

from manyheads.door.verbs import VERBS


def conf_folder() -> Path:
    """The folder of presets: beside the package's modules when installed, else the repository's."""
    inside = Path(__file__).resolve().parents[1] / "conf"
    return inside if inside.is_dir() else Path(__file__).resolve().parents[3] / "conf"


def choices(verb: str, group: str, more: str | Path | None = None) -> list[str]:
    """Names of the presets of one group that the verb may read, sorted.

    Args:
        more: the user's own folder of presets (`--config-dir`), searched too.
    """
    folders = [conf_folder() / group] + ([Path(more) / group] if more else [])
    names = {file.stem for folder in folders for file in folder.glob("*.yaml")}
    return sorted(names - set(VERBS[verb].barred))
