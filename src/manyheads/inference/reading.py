"""The texts that a verb answers: one that was typed, lines of a file or of standard input, or rows of a table.

Training and prediction share the formats of data/formats, which read a file in two ways:

                         train, evaluate, audit                  predict, look
    rows are needed      many times, in any order                once, from the first to the last, also from a pipe
    csv, tsv, jsonl      blocks.read_text_file: an index of      blocks.stream_file: one block after another, each
                         blocks, parsed again when needed        parsed once and forgotten (chunks_of_table, ...objects)
    parquet              parquet.read_parquet: row groups        parquet.stream_parquet: some rows after others
    txt                  blank lines are no rows                 chunks_of_lines: each line has an answer, in its place

In both, `blocks.open_file` finds out how a file is written, and the same parser cuts rows, numbers them and says what
is wrong with one. So predict finds the rows that training found, and the same mistakes, which tests compare.

    open_texts (here)  ->  records.py, or chunks.chunks_of_lines: input to rows  ->  chunks.into_chunks: rows to chunks

Chunks come one at a time, in bounded memory. Nothing heavy is imported until a table is read.
"""

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import manyheads.plugin as plugin
from manyheads.config import OnBadText, TextColumns
from manyheads.config.sentences import format_list
from manyheads.data.formats.dialect import MOST_ABOVE, SEP
from manyheads.data.formats.kinds import LONGEST_HEAD, kind_of, refuse_other_kind, remedy_for, why_not_read
from manyheads.data.formats.source import OPENERS, reading
from manyheads.data.formats.text_lines import is_marked, refuse_carriage_returns
from manyheads.errors import UserError
from manyheads.inference.chunks import (
    RENAME,
    Chunk,
    WantedColumns,
    chunks_of_lines,
    into_chunks,
    require_texts,
    row_of_line,
)
from manyheads.inference.format import check_text_columns

if TYPE_CHECKING:
    from manyheads.inference.predictor import Predictor

BY_TEXT = "name one by data.text=<column>"
BY_PAIR = "name both by data.text=<column> data.text_pair=<column>"
READERS = {  # of what has columns, by its kind: imported on first use, as NumPy and pyarrow come with them
    ".csv": "manyheads.inference.records:chunks_of_table",
    ".tsv": "manyheads.inference.records:chunks_of_table",
    ".jsonl": "manyheads.inference.records:chunks_of_objects",
    ".json": "manyheads.inference.records:chunks_of_objects",
    ".parquet": "manyheads.inference.records:chunks_of_parquet",
}
TABLE = "manyheads.inference.records:chunks_of_rows"  # of a kind that a plugin reads


def check_input(text: str, name: str) -> None:
    """Raise UserError if both the typed `text` and the file `name` ("-": standard input) are given, the text is not
    UTF-8, or there is no such file or one of another kind; before torch is imported."""
    file = Path(name)
    if text and name != "-":
        raise UserError(f"text and input={name} are both given: give one text, or a file of texts")
    if text and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise UserError("text is not UTF-8: type it in the encoding of the terminal, or give it as a file by input=")
    if name == "-":
        return
    if file.is_dir() or not file.exists():
        what = "is a folder" if file.is_dir() else "does not exist"
        raise UserError(
            f"input={name} {what}: name a file of one text a line, a .csv, .tsv, .jsonl or .parquet, or - for standard "
            "input"
        )
    if kind_of(file) is None and (file.suffix.lower() in OPENERS or remedy_for(file)):
        raise UserError(f"input={name} {why_not_read(file)}")
    refuse_other_kind(file)
    if kind_of(file) == ".tsv" and not file.is_file():
        raise UserError(
            f"input={name} is a pipe, but a .tsv is read twice, first to see what its quotes are: give a file"
        )


@contextmanager
def open_texts(
    text: str, name: str, predictor: "Predictor[Any]", named: TextColumns | None = None
) -> Iterator[Iterator[Chunk]]:
    """The texts, a chunk at a time, in pairs or single, as the predictor takes them.

    Args:
        text: the text that was typed; empty: none.
        name: the file, or "-" for standard input.
        named: names of columns in place of those of the predictor; None: the verb has no setting that names one.

    Raises:
        UserError: a mistake in the settings, or in a row, which it names.
    """
    kind = kind_of(Path(name)) or ""
    reader = TABLE if kind in plugin.names("file") else READERS.get(kind)
    has_columns = not text and reader is not None
    _check_named(text, name, predictor, named, has_columns=has_columns)
    on_bad_row = OnBadText.empty if named is None else named.on_bad_row
    fields, wanted = predictor.settings.fields, _wanted(predictor, named)
    how = {"pairs": predictor.pairs, "fields": fields, "on_bad_row": on_bad_row, "columns": wanted.text}  # of lines
    if text:
        row = row_of_line(text, "", "text", pairs=predictor.pairs, fields=fields)
        second = "text_pair" if predictor.pairs else None
        yield into_chunks([row], "text", tuple(fields) or "text", second, OnBadText["raise"])
    elif name == "-":
        by_hand = sys.stdin.isatty()
        if by_hand:
            print("type one text a line; end with Ctrl-D", file=sys.stderr)
        yield chunks_of_lines(sys.stdin.buffer, "standard input", at_once=by_hand, **how)
    elif reader is None or _is_tsv_of_pairs(name, predictor, named):
        with open_lines(Path(name)) as stream:
            marked = kind_of(Path(name)) == ".txt" and is_marked(first_lines(stream)[0])
            refuse_carriage_returns(Path(name), stream.peek(LONGEST_HEAD))
            yield chunks_of_lines(stream, name, marked=marked, **how)
    else:
        read: Callable[..., Iterator[Chunk]] = plugin.resolve(reader)
        yield read(Path(name), wanted, on_bad_row)


def _check_named(
    text: str, name: str, predictor: "Predictor[Any]", named: TextColumns | None, *, has_columns: bool
) -> None:
    """Raise UserError if a column is named where there is none, or a second one that the model does not read."""
    if named is None:
        return
    check_text_columns(named.text, predictor.settings)
    if named.text_pair and not predictor.pairs:
        raise UserError(
            f"data.text_pair={named.text_pair} does nothing, as the model of run takes single texts: remove it"
        )
    if (named.text or named.text_pair) and not has_columns:
        setting = f"data.text={format_list(named.text)}" if named.text else f"data.text_pair={named.text_pair}"
        what = "text" if text else f"input={name}"
        raise UserError(
            f"{setting} names a column, but {what} has none: remove it, or give a .csv, .tsv, .jsonl or .parquet"
        )


def _is_tsv_of_pairs(name: str, predictor: "Predictor[Any]", named: TextColumns | None) -> bool:
    """Whether a file is a .tsv of two texts a line, without a header.

    Raises:
        UserError: its first line may be a header or a row.
    """
    is_typed = bool(predictor.settings.fields) or (named is not None and bool(named.text or named.text_pair))
    if not predictor.pairs or is_typed or kind_of(Path(name)) != ".tsv":
        return False
    with open_lines(Path(name)) as stream:
        lines = first_lines(stream)
    if SEP.fullmatch(lines[0]):
        return False
    rows = [[cell.strip().strip('"') for cell in line.split("\t")] for line in lines]
    text_names = {*_wanted(predictor, named).text}
    if len(rows[0]) > 2 or any(not text_names.isdisjoint(row) for row in rows):
        return False
    if len(rows[0]) == 2:
        require_texts(rows[0], name, RENAME if named is None else BY_TEXT)
    return True


def _wanted(predictor: "Predictor[Any]", named: TextColumns | None) -> WantedColumns:
    """The columns that a predictor reads, unless others are `named`: those of its training, or ours, of which those of
    a preset come second."""
    columns = predictor.settings.columns
    names: list[list[str]] = []
    joins = False
    trained: Any
    for key, trained in (("text", columns.text), ("text_pair", columns.text_pair)):
        typed: Any = getattr(named, key, "")
        if isinstance(several := typed or trained, list):
            names.append(several)
            joins = True
        elif typed:
            names.append([typed])
        elif columns.preset:
            names.append([key, trained])
        else:
            names.append([trained, key])
    text, text_pair = names
    if not predictor.pairs:
        return WantedColumns(text, [], RENAME if named is None else BY_TEXT, joins)
    return WantedColumns(text, text_pair, RENAME if named is None else BY_PAIR, joins)


@contextmanager
def open_lines(file: Path) -> Iterator[Any]:
    """A file of lines, decompressed, whose beginning can be seen before it is read."""
    with reading(file):
        if file.suffix.lower() in OPENERS:
            packed: Any = OPENERS[file.suffix.lower()](file)  # which shows 8 KB alone
            stream: Any = io.BufferedReader(packed, LONGEST_HEAD)
        else:
            stream = file.open("rb", buffering=LONGEST_HEAD)
    with stream:
        with reading(file):
            stream.peek(LONGEST_HEAD)
        yield stream


def first_lines(stream: Any) -> list[str]:
    """The first lines of a file, one at least, as far as they can be seen before they are read."""
    return stream.peek(LONGEST_HEAD).decode("utf-8-sig", "replace").split("\n")[:MOST_ABOVE]
