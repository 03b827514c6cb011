"""The tables on the screen, and as Markdown between the markers of a document."""

import re
from pathlib import Path

from manyheads.ablate.record import Record, read_record
from manyheads.ablate.sheets import sheets
from manyheads.sheet import markdown, print_sheet
from manyheads.terminal import as_text, console
from manyheads.whole import replace_file

MARKER = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def show(record: Record, path: Path) -> None:
    """Print every table and where the figures lie."""
    for sheet in sheets(record):
        print_sheet(sheet)
    console().print(as_text(path), soft_wrap=True)


def fill_document(document: Path, results: Path) -> list[str]:
    """Put the tables of `results`/NAME.json between `<!-- table: NAME -->` and `<!-- end -->` of a Markdown document.

    Returns:
        The names that were filled.

    Raises:
        ValueError: a marker names a file that is not there or holds no results.
    """
    filled: list[str] = []

    def tables(match: re.Match[str]) -> str:
        name = match[2]
        path = results / f"{name}.json"
        if not path.is_file():
            raise ValueError(f"{document} asks for the table {name}, but {path} does not exist: run it first")
        filled.append(name)
        made = sheets(read_record(path))
        return f"{match[1]}{chr(10).join(markdown(sheet) + chr(10) for sheet in made)}{match[3]}"

    text = MARKER.sub(tables, document.read_text(encoding="utf-8"))
    with replace_file(document) as part:
        part.write_text(text, encoding="utf-8")
    return filled
