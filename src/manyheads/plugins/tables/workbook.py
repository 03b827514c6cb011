"""A workbook of Excel: its first sheet, read as the csv would be that is saved of it."""

import warnings
import zipfile
from datetime import datetime, time
from pathlib import Path
from typing import Any

from manyheads.config.facts import require
from manyheads.config.sentences import first_line, format_value, install_extra, list_names
from manyheads.data.column import in_memory
from manyheads.data.formats.delimited import header_of
from manyheads.data.formats.dialect import MOST_ABOVE, are_names, title_rule
from manyheads.data.formats.source import most_unpacked, reading
from manyheads.data.table import RawTable
from manyheads.errors import UserError


def read_workbook(path: Path) -> RawTable:
    """The table of an .xlsx or .xlsm; its rows have the numbers that Excel shows.

    Raises:
        UserError: the package that reads it is missing; it is damaged, protected, too large, empty, or has no header.
    """
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise UserError(
            f"{path} is read by the package openpyxl, which is not installed: {install_extra('excel')}, or save it as "
            ".csv"
        ) from None
    rows: list[tuple[int, list[str]]] = []
    try:
        with reading(path), zipfile.ZipFile(path) as packed:
            n_bytes, most = sum(part.file_size for part in packed.infolist()), most_unpacked(path)
        require(n_bytes <= most, f"{path} holds more than {most:,} bytes once decompressed: save it as .csv")
        with warnings.catch_warnings(action="ignore"):  # of styles and the like, which are not read
            book = load_workbook(path, read_only=True, data_only=True)
            names, sheet = book.sheetnames, book.worksheets[0]
            sheet.reset_dimensions()  # which the file may have wrong, or much larger than it is
            for number, row in enumerate(sheet.iter_rows(values_only=True), 1):
                cells = [cell_text(cell) for cell in row]
                if any(cells):
                    rows.append((number, cells))
        book.close()
    except UserError:
        raise
    except Exception as problem:  # of whatever is in the archive, or is missing
        said = f"{path} cannot be read as a workbook of Excel ({first_line(problem)})"
        raise UserError(f"{said}: save it again, or as .csv") from None
    require(bool(rows), f"{path}: its first sheet, {format_value(names[0])}, is empty: put the rows there")
    (first, record), *others = rows
    header = header_of(path, record, first, "")

    def column(name: str) -> Any:
        at = header.where[name]
        return in_memory([row[at] if at < len(row) else "" for _, row in others])

    table = RawTable(header.names, column, [number for number, _ in others], path.name)
    for number, row in others[:MOST_ABOVE]:
        names_below = [cell for cell in row if cell]
        if len(names_below) > len(header.names) and are_names(names_below):  # the first row is a title
            table.hint = title_rule(number, names_below)
            break
    if names[1:]:
        table.notes.append(f"{path.name}: of its sheets {list_names(names)} the first is read")
        table.hint = table.hint or (
            f"of its sheets {list_names(names)} the first is read: move that of the rows there, or save it as .csv"
        )
    return table


def cell_text(cell: Any) -> str:
    """A cell as text: a whole number without a fraction, a date as in ISO 8601."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if isinstance(cell, datetime):
        return cell.date().isoformat() if cell.time() == time() else cell.isoformat(" ")
    return str(cell)
