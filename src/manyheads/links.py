"""What is written into a folder stays in it, also where the folder came from a stranger, with links in it.

Standard library only.
"""

import os
from pathlib import Path

TRACKERS = "wandb"  # folder of a logger that links its newest run and its own logs, and never writes through links
REMEDY = "lead out of the folder that is written to: put what it leads to in its place, or use another folder"


def within(folder: Path, *names: str) -> Path:
    """`folder` / `names`, none of which is a link.

    Raises:
        ValueError: one is.
    """
    for name in names:
        folder = folder / name
        if folder.is_symlink():
            raise ValueError(f"{folder} is a link, which may {REMEDY}")
    return folder


def refuse_links(folder: Path) -> None:
    """Refuse a folder with a link anywhere in it but within what a logger keeps there for itself.

    Raises:
        ValueError: names the first.
    """
    for place, folders, files in os.walk(folder):
        for name in sorted([*folders, *files]):
            within(Path(place), name)
        if Path(place) == folder and TRACKERS in folders:
            folders.remove(TRACKERS)
