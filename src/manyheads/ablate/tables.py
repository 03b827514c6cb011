"""The tables on the screen, and as Markdown between the markers of a document."""

import re
from pathlib import Path

from manyheads.ablate.record import Record, read_record
from manyheads.ablate.sheets import Sheet, sheets
from manyheads.terminal import as_text, console
from manyheads.whole import replace_file

MARKER = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def show(record: Record, path: Path) -> None:
    """Print every table and where the figures lie."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    screen = console()
    for sheet in sheets(record):
        table = Table(title=as_text(sheet.title), title_justify="left", box=SIMPLE_HEAD, padding=(0, 0), pad_edge=False)
        for at, column in enumerate(sheet.columns):
            widest = max(len(line[at]) for line in sheet.lines)  # a narrow screen wraps the names of columns, no figure
            table.add_column(as_text(column), justify="right" if at else "left", min_width=widest)
        for line in sheet.lines:
            table.add_row(*(as_text(cell) for cell in line))
        screen.print(table)
        for note in sheet.notes:
            screen.print(as_text(note))
    screen.print(as_text(path), soft_wrap=True)


def markdown(sheet: Sheet) -> str:
    """The table with its title before it and its notes behind it; what a cell holds is text, never markup."""

    def line(cells: list[str]) -> str:
        return f"| {' | '.join(_plain(cell) for cell in cells)} |"

    ruler = "|" + "|".join(["---"] + ["---:"] * (len(sheet.columns) - 1)) + "|"
    table = [line(sheet.columns), ruler, *(line(cells) for cells in sheet.lines)]
    return "\n".join([f"**{_plain(sheet.title)}**", "", *table, "", *(_plain(note) for note in sheet.notes)])


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


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;")
