"""Lines of text: one text a line, or the format of fastText, whose lines begin or end with labels."""

import re
from pathlib import Path
from typing import Any

from manyheads.data.formats.source import RowBlock
from manyheads.errors import UserError

MARK = "__label__"
MARKED = re.compile(rf"(?:{MARK}\S*\s*)*")
TREC_LINE = re.compile(r"[A-Z]+:[A-Za-z]+ +\S")
TREC = (
    "is in TREC's format, CLASS:kind text: write it as .tsv, as by "
    r"(printf 'label\ttext\n'; iconv -f latin1 -t utf-8 FILE | sed 's/:[^ ]* /\t/') > NEW.tsv"
)


def parse_lines(path: Path, marked: bool, raw: bytes, number: int, last: bool, by_arrow: bool) -> RowBlock | None:
    """Whole lines, the first of which is row `number`, in the column `text`; blank ones are no rows. Of lines that are
    `marked` by labels these are the column `labels`.

    Raises:
        UserError: the lines are TREC's.
    """
    n_bytes = len(raw) if last else raw.rfind(b"\n") + 1
    if not n_bytes and not last:
        return None
    numbers: list[int] = []
    lines: list[str] = []
    for at, line in enumerate(raw[:n_bytes].decode().split("\n"), start=number):
        if line.strip():
            numbers.append(at)
            lines.append(line.strip("\r"))
    cells: dict[str, list[Any]] = {"text": lines}
    broken: dict[int, str] = {}
    if marked:
        cells = {"text": [], "labels": []}
        for at, line in enumerate(lines):
            text, labels = take_labels(line)
            cells["text"].append(text)
            cells["labels"].append(labels or [""])
            if not labels and not line.startswith(MARK):
                broken[at] = f"has no {MARK} at its beginning or end"
    elif number == 1 and lines and all(map(TREC_LINE.match, lines)):
        raise UserError(f"{path} {TREC}")
    return RowBlock(
        names=[*cells],
        column=cells.__getitem__,
        records=lambda: zip(*cells.values(), strict=True),
        numbers=numbers,
        n_bytes=n_bytes,
        n_numbers=raw.count(b"\n", 0, n_bytes),
        broken=broken,
        by_arrow=True,  # never otherwise
    )


def refuse_carriage_returns(path: Path, head: bytes) -> None:
    """Raise UserError if the lines of a file that begins so end as on old Macs: all of it would be one text."""
    if b"\n" not in head and b"\r" in head.strip(b"\r"):
        raise UserError(rf"{path} ends its lines with carriage returns: convert it by tr '\r' '\n' < FILE > NEW")


def is_marked(line: str) -> bool:
    """Whether a file that begins with this line is fastText's: a label is at the beginning of it, or at its end."""
    words = line.removeprefix("\ufeff").split()
    return bool(words) and (words[0].startswith(MARK) or words[-1].startswith(MARK))


def take_labels(line: str) -> tuple[str, list[str]]:
    """A line of fastText as its text and its labels, which are at its beginning and at its end."""
    first = MARKED.match(line)
    assert first is not None, "it matches nothing, too"
    text, last = line[first.end() :], list[str]()
    words = text.rsplit(None, 1)  # what is before the last word, and that
    while words and words[-1].startswith(MARK) and words[-1] != MARK:
        last.insert(0, words[-1].removeprefix(MARK))
        text = ""
        if len(words) > 1:
            text = words[0]
        words = text.rsplit(None, 1)
    return text, [*first[0].replace(MARK, " ").split(), *last]
