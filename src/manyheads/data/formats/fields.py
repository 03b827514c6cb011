"""The text of several columns, as `data.text=[title,body]`: a column more of the table, whose cells are joined by
`FIELD`. The tokenizer has an entry of its own for that sign, and a text that is too long is cut in all of its fields.

Standard library at first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import manyheads.plugin as plugin
from manyheads.config.sentences import list_names
from manyheads.data.class_names import drop_zero_fraction, normalise_name
from manyheads.data.table import RawTable
from manyheads.data.texts import is_blank
from manyheads.errors import UserError

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

FIELD = "\u241e"  # a sign that can be seen, and that nobody types
ZIPPED = "manyheads.data.column:zipped"


def text_column(names: str | Sequence[str]) -> str:
    """The name of the column of the text: of several that of the one that joins them."""
    return names if isinstance(names, str) else " + ".join(names)


def join_cells(cells: Sequence[Any]) -> Any:
    """The cells of a row as one text: empty ones keep their place, unless all are, and numbers are as in a csv. A list
    or the like is returned as it is, for the sentence that refuses it."""
    parts: list[str] = []
    for cell in cells:
        if cell is None or isinstance(cell, int | float):
            cell = drop_zero_fraction(normalise_name(cell))
        if not isinstance(cell, str):
            return cell
        parts.append(cell.replace(FIELD, " ").strip())
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
    if isinstance(texts, str | Mapping):  # one, which `Predictor.check` refuses
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


def field_parts(encoding: "Encoding", mark: int | None, max_length: int) -> list[int | None]:
    """Of each token which part of the row it is of, a text or a column of it; None for what is always read: the marks
    around a text and, with `mark`, those between columns, unless they leave no room."""
    texts = encoding.sequence_ids
    n_marks = texts.count(None)
    n_fields = 0 if mark is None else encoding.ids.count(mark)
    if not n_fields or max_length - n_marks < 2 * n_fields + 2:
        return texts
    parts: list[int | None] = []
    part, before = 0, 0
    for id, text in zip(encoding.ids, texts, strict=True):
        if text is None or id == mark:
            parts.append(None)
            part += id == mark and text is not None
            continue
        part += text - before
        before = text
        parts.append(part)
    return parts
