"""The file of answers: csv, tsv, parquet or JSON lines by the end of its name; JSON lines where it has none.

Answers go to a part next to it, `.NAME.part`, a chunk at a time; once that is whole it takes the name. In between
`.NAME.part.json` says how far it is, and of which input, model and settings: after a kill the same command resumes
there. The part of a parquet, which cannot be added to, is an Arrow stream. Nothing heavy is imported.
"""

import csv
import errno
import fcntl
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from manyheads.config.sentences import format_value, list_names
from manyheads.data.class_names import join_names
from manyheads.data.formats.source import OPENERS
from manyheads.distributed.faults import inject_fault
from manyheads.errors import UserError
from manyheads.runs.files import fsync_path, read_json, replace_file
from manyheads.runs.folder import refuse_unwritable_output
from manyheads.terminal import one_line, writes_unicode

Row = dict[str, Any]

# Legal inside a JSON string, yet many readers break a line there, and terminals obey them.
BREAKS = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029)}
SIGNS = {".csv": ",", ".tsv": "\t"}  # that separate cells
LISTS = ("labels", "prediction", "set", "levels")  # columns of several labels, joined in a csv
GROUP, MOST_OF_GROUP = 2**16, 2**27  # rows of a row group, and bytes
PLAIN = {"int64": {int}, "double": {int, float}, "list": {list}, "string": {str}, "mixed": {str}}  # cells of a column
MOST_CELL = 2**31 - 1  # letters: a text of any length was written
WRITTEN = (*SIGNS, ".jsonl", ".ndjson", ".parquet")  # kinds of files; one without an ending holds JSON lines
EVERY = 1.0  # seconds between two records of how far the part is


@dataclass(kw_only=True, slots=True)
class Progress:
    """How far a file of answers is.

    Attributes:
        of: what the answers follow from, by name.
        chunks, rows: of the input, that are answered.
        nulls: rows with a null answer.
        first: names the first of these and why.
        size: bytes of the part that hold the answers.
        columns: of a table; of parquet with their types.
    """

    of: dict[str, str] = field(default_factory=dict)
    chunks: int = 0
    rows: int = 0
    nulls: int = 0
    first: str = ""
    size: int = 0
    columns: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Answers:
    """What writes rows: the columns of the input, then the answer.

    JSON lines hold answers as they are. A table has a column `p_<class>` for each probability or, where these are
    `ranked`, the columns `label_1`, `p_1`, `label_2` and so on; several labels are joined in a csv, and a list in
    parquet; what is neither text nor number is JSON. Its columns are those of the first rows.
    """

    name: str
    ranked: bool
    put: Callable[[bytes], object]
    progress: Progress
    saved: Callable[[], None] = lambda: None

    def write(self, kept: list[Row], answers: list[Row], *, only_names: bool = False) -> None:
        """Add a chunk, or with `only_names` the names of its columns alone; a UserError where a row has a column, or a
        cell a type, that the first rows have not."""
        n_rows = 0 if only_names else len(answers)
        kind, progress, first = Path(self.name).suffix.lower(), self.progress, not self.progress.rows
        if kind == ".parquet":
            rows = self._table(kept, answers, joined=False)[:n_rows]
            data = parquet_bytes(rows, progress.columns, f"output={self.name}", first=first)
        elif kind in SIGNS:
            rows = self._table(kept, answers, joined=True)[:n_rows]
            data = csv_bytes(rows, list(progress.columns), SIGNS[kind], first=first)
        else:
            rows = [add_answer(row, answer) for row, answer in zip(kept, answers, strict=True)][:n_rows]
            data = json_bytes(rows, escaped=self.name == "-" and not writes_unicode())
        self.put(data)
        inject_fault("chunk")
        progress.chunks += 1
        progress.rows += len(rows)
        progress.size += len(data)
        self.saved()

    def _table(self, kept: list[Row], answers: list[Row], *, joined: bool) -> list[Row]:
        """Rows of plain cells, whose columns are those that the first rows have."""
        flat = [as_cells(answer, joined=joined, ranked=self.ranked) for answer in answers]
        rows: list[Row] = []
        for row, answer in zip(kept, flat, strict=True):
            whole = add_answer(row, answer)
            rows.append({name: plain_or_json(cell, joined=joined) for name, cell in whole.items()})
        progress = self.progress
        if not progress.columns:
            names = dict[str, None]()
            for row in rows:
                names |= dict.fromkeys(row)
            later = [name for name in names if name not in rows[0]]
            progress.columns = dict.fromkeys([*later, *rows[0]], "")
            for name in flat[0]:
                if name.startswith("p_"):  # which may be null in all of the first rows
                    progress.columns[name] = "double"
        for at, row in enumerate(rows, progress.rows + 1):
            others = [name for name in row if name not in progress.columns]
            if others:
                raise UserError(
                    f"output={self.name} has the columns of its first rows, but row {at:,} has {list_names(others)}, "
                    "too: name a .jsonl, whose rows may differ"
                )
        return rows


def check_output(name: str, *, overwrite: bool) -> None:
    """Raise UserError if the folder of the file does not exist, the file is not empty (with `overwrite`: holds anything
    but answers), or its name promises a format that is not written."""
    if name == "-":
        return
    file, kind = Path(name), Path(name).suffix.lower()
    parent = file.resolve().parent  # of a link: what it leads to is written
    if kind in OPENERS:
        raise UserError(
            f"output={name} would be compressed, but answers are written plain: name a .csv, .tsv, .jsonl or .parquet"
        )
    if kind and kind not in WRITTEN and (file.is_file() or not file.exists()):
        what = "is of no kind that is written"
        if kind == ".json":
            what = "would hold JSON as a whole, but rows are written"
        raise UserError(f"output={name} {what}: name a .csv, .tsv, .jsonl or .parquet")
    remedy = "name a file in a folder that exists, or - for standard output"
    if file.is_dir():
        raise UserError(f"output={name} is a folder: {remedy}")
    if not parent.is_dir():
        shown = parent if file.is_symlink() else file.parent
        raise UserError(f"output={name} lies in {shown}, which is no folder: {remedy}")
    if file.is_file() or not file.exists():  # no pipe
        refuse_unwritable_output(name, parent)
    if file.exists() and file.stat().st_size:
        ours = _are_answers(file)
        if overwrite and not ours:
            raise UserError(
                f"output={name} holds no answers of predict, and nothing else is replaced: name another file"
            )
        if not overwrite:
            remedy = "replace these answers by overwrite=true" if ours else "remove it first"
            raise UserError(f"output={name} exists and is not empty: name another file, or {remedy}")


def _are_answers(file: Path) -> bool:
    """Whether the columns, or the first line, of a file are those of answers that were written here."""
    kind = file.suffix.lower()
    try:
        if kind == ".parquet":
            from pyarrow.parquet import read_schema

            names = read_schema(file).names
        else:
            with file.open(encoding="utf-8", newline="") as lines:
                first = next(lines)
                if kind not in SIGNS:
                    names = list(json.loads(first))
                elif first[0] == '"':  # around all names, as few other writers do
                    csv.field_size_limit(MOST_CELL)
                    names = next(csv.reader(chain([first], lines), delimiter=SIGNS[kind]))
                else:
                    return False
    except (OSError, ValueError, TypeError, StopIteration, csv.Error, RecursionError):
        return False
    if any(not isinstance(one, str) for one in names):
        return False
    last = names[-1] if names else ""
    if last in ("generated", "hidden", "probabilities") or (last.startswith("p_") and ": " in last):
        return True
    has_probabilities = "probabilities" in names or any(one.startswith("p_") for one in names)
    return has_probabilities and ("label" in names or "labels" in names)


@contextmanager
def opened_answers(
    name: str, *, ranked: bool = False, of: dict[str, str] | None = None, overwrite: bool = False
) -> Iterator[Answers]:
    """What writes the answers; a file appears once it is whole. A UserError, as where another process writes to it,
    leaves nothing of it.

    Args:
        of: what the answers follow from, by name. Where a part of the very same is there, it is resumed, and its
            `progress` says after how many chunks of the input. None: what is interrupted begins anew.
        overwrite: the file may hold answers, which are there until the new ones are whole.
    """
    place = Path(name).resolve()
    if name == "-":
        with _standard_output() as put:
            yield Answers(name, ranked, put, Progress())
    elif place.exists() and not place.is_file():  # a pipe or /dev/null, which must stay
        with place.open("wb") as file:
            yield Answers(name, ranked, file.write, Progress())
    else:
        part = place.with_name(f".{place.name}.part")
        record, passing = place.with_name(f".{place.name}.part.json"), place.with_name(f".{place.name}.part.new")
        opened = os.open(part, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
        with os.fdopen(opened, "a+b") as file:
            lock_part(file, part, name)
            progress = Progress() if of is None else _resumed(name, file, record, of)
            if not progress.rows and record.exists():  # it is of another part, and would be believed after a kill
                record.unlink()
                fsync_path(place.parent)
            file.truncate(progress.size)
            answers = Answers(name, ranked, file.write, progress)
            answers.saved = _saver(file, record, progress) if of is not None else file.flush
            try:
                check_output(name, overwrite=overwrite)  # another process may have written it until now
                yield answers
                file.flush()
                _finish(name, part, passing, place)
            except BaseException as error:
                if of is None or isinstance(error, ValueError) or not record.exists():
                    part.unlink(missing_ok=True)
                    record.unlink(missing_ok=True)
                raise
            finally:
                passing.unlink(missing_ok=True)
            record.unlink(missing_ok=True)


@contextmanager
def replaced_answers(path: Path) -> Iterator[Answers]:
    """What writes a file of answers anew: it takes the place of `path` once it is whole, after an error nothing has
    changed."""
    with replace_file(path) as part:
        with part.open("wb") as file:
            yield Answers(str(path), False, file.write, Progress())
        if path.suffix.lower() == ".parquet":
            with replace_file(part) as whole:
                write_parquet(part, whole)


def lock_part(file: BinaryIO, part: Path, name: str) -> None:
    """The kernel holds the lock, so that a process that is killed leaves none. Disks that know no locks hold none."""
    held = True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        held = error.errno not in (errno.EAGAIN, errno.EACCES)
    opened = os.fstat(file.fileno())
    if (
        not held or not part.exists() or not os.path.samestat(opened, part.stat())
    ):  # the other process has ended in between
        raise UserError(f"output={name} is being written by another process: wait for its end, or name another file")


def _resumed(name: str, file: BinaryIO, record: Path, of: dict[str, str]) -> Progress:
    """How far the part is, as its record says, if that is of the same; else nothing is answered."""
    found: Any = None
    with suppress(OSError, ValueError, TypeError):
        found = Progress(**read_json(record))
    if found is None or not found.rows or os.fstat(file.fileno()).st_size < found.size:
        return Progress(of=of)
    changed = [one for one in of if of[one] != found.of.get(one)]
    if changed:
        print(f"{one_line(name)}: begun anew, as {' and '.join(changed)} changed since it was begun", file=sys.stderr)
        return Progress(of=of)
    print(f"{one_line(name)}: resuming after {found.rows:,} answered rows", file=sys.stderr)
    return found


def _saver(file: BinaryIO, record: Path, progress: Progress) -> Callable[[], None]:
    last = time.monotonic()

    def save() -> None:
        nonlocal last
        if time.monotonic() - last >= EVERY:
            file.flush()
            os.fsync(file.fileno())
            write_record(record, asdict(progress))
            last = time.monotonic()

    return save


def write_record(record: Path, content: dict[str, Any]) -> None:
    """Replace the record of how far a part is, by way of a file of one name: a kill leaves no more than that."""
    new = record.with_suffix(".new")
    new.write_text(json.dumps(content), encoding="utf-8")
    fsync_path(new)
    os.replace(new, record)


def _finish(name: str, part: Path, passing: Path, place: Path) -> None:
    """The part takes the place of the file, which `name` may be a link to."""
    whole = part
    if Path(name).suffix.lower() == ".parquet":
        write_parquet(part, passing)
        whole = passing
    fsync_path(whole)
    inject_fault("rename")
    os.replace(whole, place)
    inject_fault("renamed")
    fsync_path(place.parent)
    part.unlink(missing_ok=True)


def n_written(name: str) -> int:
    """Rows of such a file; none of one that is not there to be read."""
    file, kind = Path(name), Path(name).suffix.lower()
    if name == "-" or not file.is_file():
        return 0
    if kind == ".parquet":
        from pyarrow.parquet import read_metadata

        return read_metadata(file).num_rows
    with file.open(encoding="utf-8", newline="") as lines:
        if kind not in SIGNS:
            return sum(1 for _ in lines)
        csv.field_size_limit(MOST_CELL)
        return max(0, sum(1 for _ in csv.reader(lines, delimiter=SIGNS[kind])) - 1)


@contextmanager
def _standard_output() -> Iterator[Callable[[bytes], object]]:
    def put(data: bytes) -> None:
        if not hasattr(sys.stdout, "buffer"):  # a notebook
            sys.stdout.write(data.decode())
            return
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    try:
        yield put
    except BrokenPipeError:  # the reader, such as `head`, has seen enough: let go of what it will not read
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


# Rows as bytes: JSON lines, csv or tsv, and parquet


def json_bytes(rows: list[Row], *, escaped: bool) -> bytes:
    """An object a line; `escaped`: in ASCII alone."""
    lines = [json.dumps(row, ensure_ascii=escaped, allow_nan=False).translate(BREAKS) for row in rows]
    return "".join(f"{line}\n" for line in lines).encode()


def csv_bytes(rows: list[Row], columns: list[str], sign: str, *, first: bool) -> bytes:
    """Rows of plain cells, a missing one empty, below a header where they are the first."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=sign, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    if first:
        writer.writerow(columns)
    for row in rows:
        cells = (row.get(column) for column in columns)
        writer.writerow(["" if cell is None else cell for cell in cells])
    return text.getvalue().encode()


def parquet_bytes(rows: list[Row], columns: dict[str, str], setting: str, *, first: bool) -> bytes:
    """Some rows, to be added to an Arrow stream, with its head where they are the first. Then `columns` are given the
    types that their cells have: text, whole numbers, numbers, or lists of texts; a cell may be missing. A column
    without a value there, or with values that no one type holds, is text, in which other cells are JSON. A later row
    that has a cell of another type is a UserError, which names the `setting` of the file."""
    import pyarrow

    found = {name: [row.get(name) for row in rows] for name in columns}
    for name, cells in found.items() if first else ():
        if columns[name]:
            continue
        kinds = PLAIN if any(one is not None for one in cells) else ()
        columns[name] = next((one for one in kinds if _array(cells, one) is not None), "mixed")
    arrays = []
    for name, kind in columns.items():
        cells = [json_text(one) for one in found[name]] if kind == "mixed" else found[name]
        array = _array(cells, kind)
        if array is None:
            raise UserError(
                f"{setting} has one type a column, and that of '{format_value(name)}' is {_type(kind)} by its first "
                "rows, but a later cell is of another: name a .jsonl, whose rows may differ"
            )
        arrays.append(array)
    batch = pyarrow.RecordBatch.from_arrays(arrays, names=list(columns))
    head = batch.schema.serialize().to_pybytes() if first else b""
    return head + batch.serialize().to_pybytes()


@cache
def _type(kind: str) -> Any:
    import pyarrow

    types = {"int64": pyarrow.int64(), "double": pyarrow.float64(), "list": pyarrow.list_(pyarrow.string())}
    return types.get(kind, pyarrow.string())


def _array(cells: list[Any], kind: str) -> Any:
    """The cells as they are, or None where one is not of the type: pyarrow itself would cut 2.5 to 2."""
    import pyarrow

    if not {type(one) for one in cells if one is not None} <= PLAIN[kind]:
        return None
    try:
        return pyarrow.array(cells, type=_type(kind))
    except (pyarrow.ArrowException, OverflowError):  # a whole number that is too large
        return None


def json_text(cell: Any) -> str | None:
    if cell is None or isinstance(cell, str):
        return cell
    return json.dumps(cell, ensure_ascii=False)


def write_parquet(part: Path, whole: Path) -> None:
    """The batches of a part as row groups of some more rows."""
    import pyarrow.ipc
    import pyarrow.parquet

    if not part.stat().st_size:
        pyarrow.parquet.write_table(pyarrow.table({}), whole)
        return
    with (
        part.open("rb") as file,
        pyarrow.ipc.open_stream(file) as batches,
        pyarrow.parquet.ParquetWriter(whole, batches.schema) as writer,
    ):
        held: list[Any] = []
        for batch in batches:
            held.append(batch)
            if sum(map(len, held)) >= GROUP or sum(one.nbytes for one in held) >= MOST_OF_GROUP:
                writer.write_table(pyarrow.Table.from_batches(held))
                held = []
        if held:
            writer.write_table(pyarrow.Table.from_batches(held))


def add_answer(kept: Row, answer: Row) -> Row:
    """The columns that are kept, then the answer; one that is called like a part of it becomes `input_label`, and one
    that is called so already `input_input_label`: so a name is the same in all rows, whatever else they hold."""

    def is_like_one(name: str) -> bool:
        while name not in answer and name.startswith("input_"):
            name = name.removeprefix("input_")
        return name in answer

    return {f"input_{name}" if is_like_one(name) else name: cell for name, cell in kept.items()} | answer


def as_cells(answer: Row, *, joined: bool, ranked: bool) -> Row:
    """An answer as cells."""
    flat: Row = {}
    for name, value in answer.items():
        if name == "probabilities" and ranked:
            for at, (label, probability) in enumerate(value.items(), 1):
                flat[f"label_{at}"] = None if probability is None else label
                flat[f"p_{at}"] = probability
        elif name == "probabilities":
            for label, probability in value.items():
                flat[f"p_{label}"] = probability
        elif joined and name in LISTS and isinstance(value, list):
            flat[name] = join_names(value)
        else:
            flat[name] = value
    return flat


def plain_or_json(cell: Any, *, joined: bool) -> Any:
    """A cell that is a text or a number, or unless lists are `joined` a list of texts, as it is; another as JSON."""
    if cell is None or (isinstance(cell, str | int | float) and not isinstance(cell, bool)):
        return cell
    if not joined and isinstance(cell, list) and all(isinstance(one, str) for one in cell):
        return cell
    return json.dumps(cell, ensure_ascii=False)
