"""The text of several columns, as `data.text=[title,body]`: a column more of the table, whose cells are joined by
`FIELD`. The tokenizer has an entry of its own for that sign, and a text that is too long is cut in all of its fields.

A plugin may join further columns, and turn the text of a row into what a classifier reads (`Section.fields`, `read`):
units, each between two `UNIT` and with an entry of its own in the tokenizer, before what is left of the text.

Standard library at first.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import manyheads.plugin as plugin
from manyheads.config import DataConfig, Long
from manyheads.config.facts import hooks
from manyheads.config.sentences import list_names
from manyheads.data.class_names import normalise_name
from manyheads.data.ids.terms import UNIT
from manyheads.data.table import RawTable
from manyheads.data.texts import is_blank
from manyheads.errors import UserError

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

FIELD = "\u241e"  # a sign that can be seen, and that nobody types
# A number, a time or null, as each format may hold it: 3.0 becomes 3, \N nothing, and a midnight its day. pandas
# writes 00:00:00 to a csv where another row of the column has a time, but who reads one row cannot know the others.
SPELLINGS = re.compile(
    r"^([+-]?[0-9]+)\.0*$|^([0-9-]{10})[T ](?:00:00:00|([0-9:]{8}(\.[0-9]*[1-9])?))\.?0*(Z|\+00:00)?$|^\\N$"
)
AND = " + "  # between the names of columns that are joined
ZIPPED = "manyheads.data.column:zipped"


def joined_columns(data: DataConfig) -> list[str]:
    """The columns that the text of a row is joined from; empty: it is of one."""
    further = [name for more in hooks(data, "fields") for name in more(data)]
    texts = data.text if isinstance(data.text, list) else [data.text]
    return [*texts, *further] if len(texts) + len(further) > 1 else []


def reader_of(kept: Mapping[str, Any]) -> Callable[[Sequence[str]], list[str]] | None:
    """By what plugins `kept` with a classifier, how texts become what it reads; None: it reads them as they are."""
    for section in plugin.sections("data"):
        if section.read is not None and (read := plugin.resolve(section.read)(kept)) is not None:
            return read
    return None


def text_column(names: str | Sequence[str]) -> str:
    """The name of the column of the text: of several that of the one that joins them."""
    return names if isinstance(names, str) else AND.join(names)


def name_columns(wanted: list[str], known: Sequence[str], otherwise: str = "") -> str:
    """What to do where some of several columns of the text are not there; `otherwise`: if no setting names them."""
    folded = {name.casefold(): name for name in known}
    typed = ",".join(folded.get(name.casefold(), "<column>") for name in wanted)
    named = otherwise or f"name its columns by data.text=[{typed}]"
    return f"{named}, or add what it does not have as an empty column"


def repeats_header(text: str, column: str) -> bool:
    """Whether a text is the name of its column or, where that joins several, their names."""
    return text in (column, column.replace(AND, f" {FIELD} "))


def join_cells(cells: Sequence[Any]) -> Any:
    """The cells of a row as one text, which every format gives alike: empty ones keep their place, unless all are. A
    list or the like is returned as it is, for the sentence that refuses it."""
    parts: list[str] = []
    for cell in cells:
        if getattr(cell, "shape", None) == ():  # a number of NumPy, of which 0.1 in single precision is 0.1
            cell = float(str(cell)) if getattr(cell.dtype, "kind", "") == "f" else cell.item()
        if cell is None or isinstance(cell, int | float | Decimal | date):
            cell = normalise_name(cell)
        if not isinstance(cell, str):
            return cell
        parts.append(SPELLINGS.sub(r"\1\2 \3", cell.replace(FIELD, " ").strip()).strip())
    if all(map(is_blank, parts)):
        return ""
    return f" {FIELD} ".join(parts).strip()


def with_joined_text(table: RawTable, names: str | list[str]) -> RawTable:
    """The table with the column that joins `names`; as it is for one name, or where it lacks one of them."""
    if isinstance(names, str) or not {*names} <= {*table.names}:
        return table
    joined, column = text_column(names), table.column

    @lru_cache
    def column_or_joined(name: str) -> Any:
        if name != joined:
            return column(name)
        return plugin.resolve(ZIPPED)([column(one) for one in names], join_cells)

    return replace(table, names=[*table.names, joined], column=column_or_joined)


def join_given(texts: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """Texts that are given in Python or by a request: mappings from the columns `names` to their cells are joined.

    Raises:
        UserError: a mapping has other names, or the model reads one column.
    """
    if (
        isinstance(texts, str | Mapping) or not isinstance(texts, Iterable) or hasattr(texts, "columns")
    ):  # which `Predictor.check` refuses
        return texts  # pyright: ignore[reportReturnType]
    found: list[Any] = []
    for at, text in enumerate(texts):
        if isinstance(text, Mapping):
            if {*text} != {*names}:
                takes = f"the columns {list_names([*names])}" if names else "one text"
                raise UserError(
                    f"texts[{at}] has {list_names([*map(str, text)]) or 'no column'}, but the model takes {takes}"
                )
            text = join_cells([text[name] for name in names])
        found.append(text)
    return found


def field_mark(tokenizer: "Tokenizer") -> int | None:
    """The id of the entry that parts the columns of a text; None: it reads texts of one column."""
    added = tokenizer.get_added_tokens_decoder()
    return next((id for id, token in added.items() if token.content == FIELD), None)


def unit_ids(tokenizer: "Tokenizer") -> set[int]:
    """The ids of the entries for units."""
    added = tokenizer.get_added_tokens_decoder()
    return {id for id, token in added.items() if token.content.startswith(UNIT)}


def field_parts(
    encoding: "Encoding", mark: int | None, units: set[int], max_length: int, long: Long
) -> list[int | None]:
    """Of each token which part of the row it is of, a text or a column of it; None for what is always read: the marks
    around a text, `units` and, with `mark`, those between columns, unless they leave no room. Units come first: where a
    text is but cut at its end, they are read as they are."""
    texts = encoding.sequence_ids
    n_always = texts.count(None) + sum(id in units for id in encoding.ids)
    n_fields = 0 if mark is None else encoding.ids.count(mark)
    is_cut_at_end = not n_fields and (not units or long is Long.cut)
    if is_cut_at_end or max_length - n_always < 2 * n_fields + 2:
        return texts
    parts: list[int | None] = []
    part, before = 0, 0
    for id, text in zip(encoding.ids, texts, strict=True):
        if text is None or id == mark or id in units:
            parts.append(None)
            part += id == mark and text is not None
            continue
        part += text - before
        before = text
        parts.append(part)
    return parts
