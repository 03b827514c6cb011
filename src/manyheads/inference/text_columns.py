"""Which columns of an input hold the texts that a model answers."""

from collections import Counter
from typing import NamedTuple

from manyheads.config.sentences import format_value, list_names
from manyheads.data.formats.dialect import NAME
from manyheads.errors import UserError

RENAME = "rename one of them"


class WantedColumns(NamedTuple):
    """The columns that are read.

    Attributes:
        text: names that the column of the text may have, of which the first that is there counts.
        text_pair: those of the second text; empty for a model of single texts.
        remedy: how to say which column it is.
    """

    text: list[str]
    text_pair: list[str]
    remedy: str = RENAME


def find_text_columns(header: list[str], name: str, wanted: WantedColumns, hint: str = "") -> tuple[str, str | None]:
    """The columns of the text and of the second text; None: the model takes single texts.

    Args:
        name: of the file, for sentences.
        hint: what to do where there is no such column, if something better than the usual is known.
    """
    for column, times in Counter(header).most_common(1):
        if times > 1:
            raise UserError(f"{name} has the column '{format_value(column)}' twice: name every column once")
    text = wanted.text
    if len(header) == 1 < len(text) and not wanted.text_pair:  # a single column is the text
        text = header
    found: list[str | None] = []
    for names in (text, wanted.text_pair):
        present = [one for one in names if one in header]
        if names and not present:
            raise UserError(
                f"{name} has no column {names[0]!r}, which the model reads: its columns are {list_names(header)}; "
                f"{hint or wanted.remedy}"
            )
        found.append(present[0] if present else None)
    first, second = found
    assert first is not None, "there is always a name for the text"
    if first == second:
        raise UserError(
            f"data.text={first} and data.text_pair={first} name one column of {name} twice: each needs its own"
        )
    return first, second


def require_texts(cells: list[str], name: str, remedy: str) -> None:
    """Raise UserError unless the first line is a row: one of its cells at least is clearly no name of a column."""
    if not all(NAME.fullmatch(cell.strip()) for cell in cells):
        return
    line = " and ".join(f"'{format_value(cell)}'" for cell in cells)
    if len(cells) == 1:
        either, usual, them = "the name of its column or a text", "text", "it"
    else:
        either, usual, them = "the names of its columns or two texts", "text and text_pair", "them"
    otherwise = f"call {them} {usual}" if remedy == RENAME else remedy
    raise UserError(
        f"{name} begins with {line}, which may be {either}: if texts begin there, put a line that says {usual} on top, "
        f"else {otherwise}"
    )
