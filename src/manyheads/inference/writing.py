"""The answers of `predict` as a file: csv, tsv or parquet by the end of its name, else JSON lines.

Standard library only, but for parquet.
"""

import csv
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

from manyheads.config.fields import listed
from manyheads.data.files import OPENERS
from manyheads.runs.atomic import replace_file

Row = dict[str, Any]
Write = Callable[[list[Row], list[Row]], None]

# Legal inside a JSON string, yet many readers break a line there, and terminals obey them.
BREAKS = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029)}
MOST_CELL = 2**31 - 1  # letters: a text of any length was written
SIGNS = {".csv": ",", ".tsv": "\t"}  # that separate cells


def check_output(name: str) -> None:
    """Find what is wrong with the file before anything is answered.

    Raises:
        ValueError: it lies nowhere, holds something, or its name promises what is not written.
    """
    if name == "-":
        return
    file = Path(name)
    if file.suffix.lower() in OPENERS:
        raise ValueError(
            f"output={name} would be compressed, but answers are written plain: name a .csv, .tsv, .jsonl or .parquet"
        )
    if file.is_dir() or not file.parent.is_dir():
        what = "is a folder" if file.is_dir() else f"lies in {file.parent}, which does not exist"
        raise ValueError(f"output={name} {what}: name a file in a folder that exists, or - for standard output")
    if file.exists() and file.stat().st_size:
        raise ValueError(f"output={name} exists and is not empty: name another file, or remove it first")


@contextmanager
def opened_answers(name: str, *, ranked: bool = False) -> Iterator[Write]:
    """What writes rows: the columns of the input, then the answer. A file appears once it is whole.

    JSON lines hold answers as they are. A table has a column `p_<class>` for each probability or, where these are
    `ranked`, the columns `label_1`, `p_1`, `label_2` and so on; several labels are joined by `|` in a csv, and a list
    in parquet; what is neither text nor number is JSON. Its columns are those of the first rows.

    Raises:
        ValueError: a later row has another column.
        BrokenPipeError: the reader of standard output has gone.
    """
    kind = Path(name).suffix.lower()
    if name == "-":
        with _standard_output() as output:
            yield _lines(output)
        return
    replaced = Path(name).is_file() or not Path(name).exists()  # no pipe and no /dev/null, which must stay
    with replace_file(Path(name).resolve()) if replaced else nullcontext(Path(name)) as part:
        if kind == ".parquet":
            from manyheads.data.arrow import written_rows

            with written_rows(part, f"output={name}") as write:
                yield _table(write, f"output={name}", joined=False, ranked=ranked)
            return
        with part.open("w", encoding="utf-8", newline="" if kind in SIGNS else "\n") as output:
            yield _cells(output, name, SIGNS[kind], ranked=ranked) if kind in SIGNS else _lines(output)


def n_written(name: str) -> int:
    """Rows of such a file; none of one that is not there to be read."""
    file, kind = Path(name), Path(name).suffix.lower()
    if name == "-" or not file.is_file():
        return 0
    if kind == ".parquet":
        from manyheads.data.arrow import read_parquet

        return len(read_parquet(file).numbers)
    with file.open(encoding="utf-8", newline="") as lines:
        if kind not in SIGNS:
            return sum(1 for _ in lines)
        csv.field_size_limit(MOST_CELL)
        return max(0, sum(1 for _ in csv.reader(lines, delimiter=SIGNS[kind])) - 1)


def _lines(output: TextIO) -> Write:
    def write(kept: list[Row], answers: list[Row]) -> None:
        for row, answer in zip(kept, answers, strict=True):
            line = json.dumps(_beside(row, answer), ensure_ascii=False, allow_nan=False)
            output.write(f"{line.translate(BREAKS)}\n")
        output.flush()

    return write


def _cells(output: TextIO, name: str, sign: str, *, ranked: bool) -> Write:
    writer = csv.writer(output, delimiter=sign, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    begun = False

    def write(columns: list[str], rows: list[Row]) -> None:
        nonlocal begun
        if not begun:
            writer.writerow(columns)
            begun = True
        writer.writerows([["" if (cell := row.get(column)) is None else cell for column in columns] for row in rows])

    return _table(write, f"output={name}", joined=True, ranked=ranked)


def _table(write: Callable[[list[str], list[Row]], None], setting: str, *, joined: bool, ranked: bool) -> Write:
    """Rows of plain cells, whose columns are those that the first rows have."""
    columns: list[str] = []
    done = 0

    def write_rows(kept: list[Row], answers: list[Row]) -> None:
        nonlocal columns, done
        flat = [_flat(answer, joined=joined, ranked=ranked) for answer in answers]
        rows = [_beside(row, answer) for row, answer in zip(kept, flat, strict=True)]
        rows = [{name: _cell(cell, joined=joined) for name, cell in row.items()} for row in rows]
        names = dict.fromkeys(name for row in rows for name in row)
        columns = columns or [name for name in names if name not in rows[0]] + [*rows[0]]
        if other := [name for name in names if name not in columns]:
            at = next(at for at, row in enumerate(rows, done + 1) if other[0] in row)
            raise ValueError(
                f"{setting} has the columns of its first rows, but row {at:,} has {listed(other)}, too: name a .jsonl, "
                "whose rows may differ"
            )
        write(columns, rows)
        done += len(rows)

    return write_rows


def _beside(kept: Row, answer: Row) -> Row:
    """The columns that are kept, then the answer; one that is called like a part of it becomes `input_label`, and one
    that is called so already `input_input_label`: so a name is the same in all rows, whatever else they hold."""
    row = {f"input_{name}" if _is_like_one_of(answer, name) else name: cell for name, cell in kept.items()}
    return row | answer


def _is_like_one_of(answer: Row, name: str) -> bool:
    while name not in answer and name.startswith("input_"):
        name = name.removeprefix("input_")
    return name in answer


def _flat(answer: Row, *, joined: bool, ranked: bool) -> Row:
    """An answer as cells."""
    flat: Row = {}
    for name, value in answer.items():
        if name == "probabilities" and ranked:
            for at, (label, probability) in enumerate(value.items(), 1):
                flat |= {f"label_{at}": label, f"p_{at}": probability}
        elif name == "probabilities":
            flat |= {f"p_{label}": probability for label, probability in value.items()}
        else:
            flat[name] = "|".join(value) if joined and name == "labels" else value
    return flat


def _cell(cell: Any, *, joined: bool) -> Any:
    texts = not joined and isinstance(cell, list) and all(isinstance(one, str) for one in cell)
    plain = cell is None or texts or (isinstance(cell, str | int | float) and not isinstance(cell, bool))
    return cell if plain else json.dumps(cell, ensure_ascii=False)


@contextmanager
def _standard_output() -> Iterator[TextIO]:
    """In UTF-8 whatever the terminal says."""
    if not hasattr(sys.stdout, "buffer"):  # a notebook
        yield sys.stdout
        return
    output = TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="\n")
    try:
        yield output
        output.flush()
    except BrokenPipeError:  # the reader, such as `head`, has seen enough: let go of what it will not read
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise
    finally:
        output.detach()
