"""A .txt file to one `Table`: one text a line, or lines as fastText writes them. Standard library only."""

import re
from pathlib import Path

from manyheads.data.rows import Table

MARK = "__label__"
OF_TREC = re.compile(r"[A-Z]+:[A-Za-z]+ +\S")
TREC = (
    "is in TREC's format, CLASS:kind text: write it as .tsv, as by "
    r"(printf 'label\ttext\n'; iconv -f latin1 -t utf-8 FILE | sed 's/:[^ ]* /\t/') > NEW.tsv"
)


def read_lines(path: Path, text: str) -> Table:
    """One text a line, in the column `text`; lines of white space alone are none. Where the first line starts with
    `__label__`, as of fastText, the names behind such marks are the column `labels`.

    Raises:
        ValueError: the lines are TREC's.
    """
    lines = {number: line.strip("\r") for number, line in enumerate(text.split("\n"), start=1) if line.strip()}
    texts = [*lines.values()]
    if texts and texts[0].startswith(MARK):
        return _marked(texts, [*lines], path.name)
    if texts and all(map(OF_TREC.match, texts)):
        raise ValueError(f"{path} {TREC}")
    return Table(names=["text"], column=lambda name: texts, numbers=[*lines], source=path.name)


def _marked(lines: list[str], numbers: list[int], source: str) -> Table:
    words = [re.match(rf"((?:{MARK}\S*\s*)*)(.*)", line, re.DOTALL) for line in lines]
    cells = {
        "text": [found[2] if found else "" for found in words],
        "labels": [found[1].replace(MARK, " ").split() or [""] if found else [""] for found in words],
    }
    broken = {at: f"does not start with {MARK}" for at, line in enumerate(lines) if not line.startswith(MARK)}
    return Table(names=["text", "labels"], column=cells.__getitem__, numbers=numbers, source=source, broken=broken)
