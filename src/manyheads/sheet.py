"""Tables of texts, with what to know to read them: on the screen, and as Markdown."""

from dataclasses import dataclass

from manyheads.terminal import as_text, console


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table as texts, and what to know to read it."""

    title: str
    columns: list[str]
    lines: list[list[str]]
    notes: list[str]


def print_sheet(sheet: Sheet) -> None:
    """Print the table and its notes; a narrow screen wraps the names of columns, and cuts no figure off."""
    from rich.box import SIMPLE_HEAD
    from rich.measure import Measurement
    from rich.table import Table

    screen = console()
    table = Table(title=as_text(sheet.title), title_justify="left", box=SIMPLE_HEAD, padding=(0, 0), pad_edge=False)
    for at, column in enumerate(sheet.columns):
        widest = max((len(line[at]) for line in sheet.lines), default=0)
        table.add_column(as_text(column), justify="right" if at else "left", min_width=widest)
    for line in sheet.lines:
        table.add_row(*(as_text(cell) for cell in line))
    least = Measurement.get(screen, screen.options.update(max_width=10_000), table).minimum
    screen.print(table, width=max(screen.width, least), crop=False)
    for note in sheet.notes:
        screen.print(as_text(note))


def markdown(sheet: Sheet) -> str:
    """The table with its title before it and its notes behind it; what a cell holds is text, never markup."""

    def line(cells: list[str]) -> str:
        return f"| {' | '.join(plain_cell(cell) for cell in cells)} |"

    ruler = "|" + "|".join(["---"] + ["---:"] * (len(sheet.columns) - 1)) + "|"
    table = [line(sheet.columns), ruler, *(line(cells) for cells in sheet.lines)]
    return "\n".join([f"**{plain_cell(sheet.title)}**", "", *table, "", *(plain_cell(note) for note in sheet.notes)])


def plain_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;")
