"""Tables of what verbs found, whose cells keep their numbers: for the screen, and for files of tables and figures.

A part of kind `record` makes them of the JSON document of a verb, as it runs or, in `report`, of its file; a part of
kind `writer` writes them, by the end of the file's name. Standard library only.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import manyheads.plugin as plugin
from manyheads.config.facts import require
from manyheads.config.sentences import format_value, list_names, one_of
from manyheads.errors import UserError
from manyheads.runs.files import read_json, write_atomic
from manyheads.runs.summary import Interval, damaged
from manyheads.terminal import Sheet, say, typed_path

OTHER_KINDS = (".doc", ".docx", ".eps", ".jpeg", ".jpg", ".ods", ".odt", ".rtf", ".xls", ".xlsx")
Cell = str | int | float | Interval | None


@dataclass(slots=True)
class ResultTable:
    """A table, and how it is drawn.

    Attributes:
        name: by which `of=` chooses it.
        title: what it shows.
        columns, rows: None is a cell of which nothing is known.
        formats: of the floats of a column, as `format` takes it, or "p"; others have four digits.
        notes: how to read it, in sentences.
        named_by: the column of texts that names a row in a figure; empty: all those before what is drawn.
        bars: what the intervals are.
        over: the column of numbers over which a figure draws all columns with intervals; empty: it draws the first of
            these, row by row.
        figure: what is drawn over it.
        lines: further points (x, y) by name, which are joined; those of a column have its colour.
    """

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    formats: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    named_by: str = ""
    bars: str = "95 % intervals over the rows"
    over: str = ""
    figure: str = ""
    lines: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)

    def in_words(self) -> list[list[str]]:
        """The cells as texts."""
        return [[self.word(name, cell) for name, cell in zip(self.columns, row, strict=True)] for row in self.rows]

    def word(self, column: str, cell: Cell) -> str:
        """A cell as a text."""
        form = self.formats.get(column, "")
        if cell is None:
            return ""
        if isinstance(cell, str | int):
            return cell if isinstance(cell, str) else f"{cell:,}"
        if isinstance(cell, Interval):
            if form and not cell.is_known:
                return f"{cell.value:{form}}"
            return f"{cell.value:{form}} ({cell.low:{form}} to {cell.high:{form}})" if form else cell.words
        if form == "p":
            return f"{cell:.3f}" if cell >= 0.001 else "<0.001"
        return format(cell, form or ".4f")

    def cells(self, column: str) -> list[Any]:
        """Those of a column."""
        at = list(self.columns).index(column)
        return [row[at] for row in self.rows]

    def is_text(self, column: str) -> bool:
        """Whether a column begins with a text."""
        return isinstance(next((one for one in self.cells(column) if one is not None), ""), str)

    def as_sheet(self) -> Sheet:
        """The table for a screen."""
        return Sheet(self.title, list(self.columns), self.in_words(), list(self.notes))


def tables_of(document: Any, path: Path | str = "") -> list[ResultTable]:
    """The tables of a document, by each part of kind `record` whose `keys` it has; `path` is the file that it is of."""
    found = list[ResultTable]()
    for part in plugin.parts("record").values():
        if isinstance(document, dict) and document.keys() >= {*part.facts["keys"]}:
            with damaged(Path(path)):
                found += plugin.resolve(part.make)(document)
    return found


def saved_record(place: Path) -> tuple[Path, Any] | None:
    """The file of a document at `place`, which is that file or the folder of a verb's results, and its content; None
    where there is none.

    Raises:
        UserError: it is another file, or damaged.
    """
    files = [place / part.facts["file"] for part in plugin.parts("record").values() if "file" in part.facts]
    for file in [place] if place.suffix == ".json" else files:
        if file.is_file():
            document = read_json(file)
            require(
                bool(tables_of(document, file)), f"{file} holds no results of a verb: name a file or folder of them"
            )
            return file, document
    return None


def is_table_file(output: str) -> bool:
    """Whether `output` names a file of tables, or a figure, by the end of its name; a folder of that name is none.

    Raises:
        UserError: it is that of a document or picture which no part writes.
    """
    end, known = Path(output).suffix.lower(), plugin.names("writer")
    require(
        end not in OTHER_KINDS or end in known,
        f"output={output} would be a document or picture of a kind that is not written: choose a name that ends in "
        f"{one_of(known)}",
    )
    return end in known and not Path(output).is_dir()


def write_tables(output: str, tables: Sequence[ResultTable], of: str = "") -> None:
    """Write tables, or a figure, as the end of the file's name says; print them as Markdown where that is "-".

    Args:
        of: the name of the only one to write; empty: all, as far as such a file holds several, else the first.

    Raises:
        UserError: there is none of this name, it cannot be drawn, or the file cannot be written.
    """
    require(
        output == "-" or is_table_file(output),
        f"output={output} is no file of tables: choose a name that ends in {one_of(plugin.names('writer'))}",
    )
    found = [one for one in tables if of in ("", one.name)]
    choices = [one.name for one in tables]
    require(bool(found), f"of={format_value(of)} is no table of these results: choose {one_of(choices or ['others'])}")
    part = plugin.find("writer", ".md" if output == "-" else Path(output).suffix.lower())
    if not part.facts.get("several"):
        found = found[:1]
    content = plugin.resolve(part.make)(found)
    if output == "-":
        sys.stdout.write(content)
        return
    if Path(output).is_file():
        say(f"{typed_path(Path(output))}: an earlier file is replaced")
    write_file(output, content)
    others = [name for name in choices if name not in [one.name for one in found]]
    further = f"; report of= writes {list_names(others)}" if others and not of else ""
    say(f"{typed_path(Path(output))}: {list_names([one.name for one in found])}{further}")


def write_file(output: str, content: str | bytes) -> None:
    """Write the file that the setting `output` names."""
    try:
        write_atomic(Path(output), content)
    except OSError as error:
        raise UserError(f"output={output} cannot be written ({error.strerror}): name another file") from error
