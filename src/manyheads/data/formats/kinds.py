"""Which kind a file is by its name, and what can be done about one that is not read."""

import codecs
import json
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import manyheads.plugin as plugin
from manyheads.config.data import KINDS, TEXT_KINDS
from manyheads.data.formats.source import OPENERS, reading
from manyheads.data.formats.text_lines import TREC, is_marked
from manyheads.errors import UserError

KINDS_IN_WORDS = "csv, tsv, jsonl, json, txt or parquet (the text kinds also as .gz, .bz2, .xz)"
ARCHIVES = (".zip", ".7z", ".rar", ".tar", ".tgz", ".tbz2", ".txz", ".tar.gz", ".tar.bz2", ".tar.xz")
REMEDIES: dict[str, str] = {
    **dict.fromkeys((".xls", ".ods", ".numbers"), "is a spreadsheet: save it as .csv, or as .xlsx"),
    **dict.fromkeys((".xlsx", ".xlsm"), "is a spreadsheet: save it as .csv"),
    **dict.fromkeys((".ndjson", ".jsonlines"), "holds JSON lines: let its name end with .jsonl"),
    ".label": TREC,
}
LONGEST_HEAD = 2**20  # bytes of a first line by which a file without a known name is recognised
LONGEST_BEGINNING = 2**16  # bytes by which a file of another kind is recognised
LARGE = 2**26  # bytes of files from which on they are not held in memory, but read again
COMPRESSION = 4  # bytes of text for one of a compressed file, as an estimate


def kind_of(path: Path) -> str | None:
    """`.csv`, `.tsv`, `.jsonl`, `.json`, `.txt`, `.parquet` or one that a plugin reads; None for a file of another."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    kinds = (*KINDS, *plugin.names("file"))
    if suffixes and suffixes[-1] in OPENERS:  # compressed
        suffixes.pop()
        kinds = TEXT_KINDS
    if suffixes and suffixes[-1] in kinds:
        return suffixes[-1]
    return None


def remedy_for(path: Path) -> str:
    """What a file is that is not read, and what to do about it; empty where that is not known."""
    if path.name.lower().endswith(ARCHIVES):
        return "is an archive: unpack it, and give the file or the folder that was in it"
    if path.suffix.lower() in REMEDIES:
        return REMEDIES[path.suffix.lower()]
    if path.is_file():
        try:
            with path.open("rb") as file:
                head = file.readline(LONGEST_HEAD)
        except OSError:
            head = b""
        if is_marked(head.decode("utf-8", "replace")):
            return "is in fastText's format, which is read from a .txt: let its name end with .txt"
    return ""


def why_not_read(path: Path) -> str:
    """Why a file whose `kind_of` is None is not read."""
    return remedy_for(path) or f"is not a kind of file that is read: give {KINDS_IN_WORDS}"


def refuse_other_kind(path: Path) -> None:
    """Raise UserError if a file is clearly not what its name says, but what came in its place from a download, or
    JSON in a .csv."""
    if not path.is_file():  # what is read from a pipe is gone
        return
    with reading(path), path.open("rb") as file:
        head = file.read(LONGEST_BEGINNING).removeprefix(codecs.BOM_UTF8).lstrip()
    kind = kind_of(path)
    what = ""
    if head.startswith(b"version https://git-lfs.github.com/"):
        what = "is a pointer of Git LFS, without the data: get the file itself by git lfs pull"
    elif kind != ".txt" and head[:20].lower().startswith((b"<!doctype html", b"<html")):
        what = "is a web page, not a file of data: open it in a browser to see why, and download the file itself"
    elif kind in (".csv", ".tsv") and re.match(rb'\[\s*\{\s*"', head):
        what = "holds JSON: let its name end with .json"
    elif kind in (".csv", ".tsv") and head.startswith(b"{"):
        with suppress(ValueError, RecursionError):
            if isinstance(json.loads(head.split(b"\n")[0]), dict):
                what = "holds JSON lines: let its name end with .jsonl"
    if what:
        raise UserError(f"{path} {what}")


def why_empty(folder: Path) -> str:
    """Why a folder holds no data file: by the first file in it for which there is a remedy."""
    for path in sorted(folder.iterdir()):
        if not path.name.startswith(".") and (why := remedy_for(path)):
            return f"its {path.name} {why}"
    return f"put files of {KINDS_IN_WORDS} into it, or texts of classes, such as train/pos/1.txt"


def is_large(paths: Iterable[Path]) -> bool:
    """Whether these files together are too large to be held in memory."""
    n_bytes = 0
    for path in paths:
        with reading(path):
            size = path.stat().st_size
        if path.suffix not in TEXT_KINDS:
            size *= COMPRESSION
        n_bytes += size
    return n_bytes > LARGE
