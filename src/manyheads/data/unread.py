"""Why a file of another kind is not read, and what to do about it. Standard library only."""

from pathlib import Path

from manyheads.data.files import KINDS_IN_WORDS
from manyheads.data.lines import MARK, TREC

ARCHIVES = (".zip", ".7z", ".rar", ".tar", ".tgz", ".tbz2", ".txz", ".tar.gz", ".tar.bz2", ".tar.xz")


def known_kind(path: Path) -> str:
    """What a file is that is not read, and the remedy; empty where it is not known."""
    if path.name.lower().endswith(ARCHIVES):
        return "is an archive: unpack it, and give the file or the folder that was in it"
    if path.suffix.lower() == ".label":
        return TREC
    if path.is_file():
        try:
            with path.open("rb") as file:
                head = file.read(len(MARK))
        except OSError:
            head = b""
        if head == MARK.encode():
            return "is in fastText's format, which is read from a .txt: let its name end with .txt"
    return ""


def why_unread(path: Path) -> str:
    """The same, of any file."""
    return known_kind(path) or f"is not a kind of file that is read: give {KINDS_IN_WORDS}"


def why_empty(folder: Path) -> str:
    """Why a folder holds no data file: by the first one in it whose kind is known."""
    inside = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    known = next(((path.name, why) for path in inside if (why := known_kind(path))), None)
    return f"its {known[0]} {known[1]}" if known else f"put files of {KINDS_IN_WORDS} into it"
