"""The verb `predict`: texts in, answers out, in the same order, a chunk at a time, in one process or several.

Answers are written as csv, tsv or parquet by the end of the file's name, else as JSON lines. Nothing heavy is imported
before the settings are checked.
"""

import csv
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from manyheads.config import InferenceHardware, PredictConfig, Task
from manyheads.config.fields import listed
from manyheads.data.files import OPENERS
from manyheads.distributed.launch import n_to_start, on_all, started
from manyheads.distributed.ranks import this_process
from manyheads.inference.format import ModelFolder, open_folder
from manyheads.inference.reading import Chunk, check_texts, opened_texts
from manyheads.runs.atomic import replace_file
from manyheads.terminal import one_line, row_counter

if TYPE_CHECKING:
    from manyheads.inference.folder import AnyPredictor
    from manyheads.inference.predictor import Predictor, Workers

Result = TypeVar("Result")
Row = dict[str, Any]
Write = Callable[[list[Row], list[Row]], None]

# Legal inside a JSON string, yet many readers break a line there, and terminals obey them.
BREAKS = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029)}
MOST_CELL = 2**31 - 1  # letters: a text of any length was written
SIGNS = {".csv": ",", ".tsv": "\t"}  # that separate cells


def predict(config: PredictConfig) -> int:
    """Answer every text and write a row for each, JSON lines unless `output` is a .csv, .tsv or .parquet; returns the
    number of rows.

    Where there are several processes, the first does so, and 0 is returned in those that help it.

    A row holds the columns of its input (`text`, and `text_pair`, where input is lines), among them any that tells rows
    apart, then `label`, or the list `labels` where the model gives any number of them, and `probabilities`, or
    `generated` where it answers by texts. A file whose name ends in .csv, .tsv or .jsonl has columns, any other holds
    lines. A column that is itself called as what is added is kept as `input_label` and so on. Only answers go to
    standard output. An output file appears once it is whole, and a line on standard error then says where.

    Raises:
        ValueError: one sentence; the run, the input, the line in it, or the output.
        BrokenPipeError: the reader of standard output has gone.
    """
    if n_local := n_to_start(config.hardware):
        _check(config)
        on_all("predict", config, n_local=n_local, timeout=config.hardware.timeout)
        return n_written(config.output)  # 0 where the rows have passed by
    return answer_together(partial(_predict, config), partial(_opened, config), config.hardware) or 0


def answer_together(
    verb: "Callable[[Workers | None], Result]", opened: "Callable[[], Predictor[Any]]", hardware: InferenceHardware
) -> Result | None:
    """What `verb` returns, which is given the processes to share the work with, if there are several; None in those
    that help the first, by the model `opened`.

    Raises:
        Lost: another process ended, or gave no answer for `hardware.timeout` seconds.
        ValueError: not as many devices are asked for as there are processes.
    """
    ranks = this_process()
    if ranks.n_ranks == 1:
        started(hardware)
        return verb(None)
    from manyheads.inference.predictor import work_together

    with work_together(ranks, hardware.timeout) as workers:
        if ranks.is_first:
            started(hardware)
            return verb(workers)
        workers.help(opened)
    return None


def _predict(config: PredictConfig, workers: "Workers | None") -> int:
    predictor = replace(_opened(config, _check(config)), workers=workers)
    begun, n_rows = time.monotonic(), 0
    texts = opened_texts(config.text, config.input, predictor, config.data)
    apart = config.output != "-" or not sys.stdout.isatty()  # from a terminal's own answers
    with (
        texts as chunks,
        opened_answers(config.output, ranked=bool(config.top_k)) as write,
        row_counter(apart) as count,
    ):
        for chunk in chunks:
            answers = _answers(predictor, chunk, config)
            write(chunk.kept, answers)
            n_rows += len(answers)
            count(n_rows)
    if config.output != "-":
        seconds = max(time.monotonic() - begun, 0.001)
        members: tuple[str, ...] = getattr(predictor, "members", ())
        who = " and the ".join("linear model" if one == "linear" else one for one in members)
        print(
            f"{one_line(config.output)}: {n_rows:,} {'row' if n_rows == 1 else 'rows'} in {seconds:.1f} s "
            f"({n_rows / seconds:,.0f} a second){f', answered by the {who}' if who else ''}",
            file=sys.stderr,
        )
    return n_rows


def _check(config: PredictConfig) -> ModelFolder:
    """Find what is wrong before torch is imported."""
    check_texts("predict", config.text, config.input)
    folder = open_folder(config.run)
    task = folder.settings.task
    config.generate.check_read(by_texts=task is Task.seq2seq)
    if config.top_k and task is not Task.classify:
        raise ValueError(f"top_k={config.top_k} does nothing, as the model of run has no classes: remove it")
    check_output(config.output)
    return folder


def _opened(config: PredictConfig, folder: ModelFolder | None = None) -> "AnyPredictor":
    from manyheads.inference.folder import load, place

    return place(load(folder or config.run), config.hardware, fast=True)


def _answers(predictor: "AnyPredictor", chunk: Chunk, config: PredictConfig) -> list[dict[str, Any]]:
    """What is added to each row of `chunk`."""
    from manyheads.inference.classifier import Prediction
    from manyheads.inference.language_models import MaskedLMPredictor, Seq2SeqPredictor

    tokens = config.batch.tokens
    if isinstance(predictor, Seq2SeqPredictor):
        texts = predictor.generate(chunk.texts, **asdict(config.generate), tokens=tokens)
        return [{"generated": text} for text in texts]
    if isinstance(predictor, MaskedLMPredictor):
        hidden = predictor.fill(chunk.texts, chunk.pairs, tokens=tokens)
        return [{"hidden": [one.rounded() for one in of]} for of in hidden]
    predictions = predictor.predict(chunk.texts, chunk.pairs, tokens=tokens)
    said = [{"label": one.label} if isinstance(one, Prediction) else {"labels": one.labels} for one in predictions]
    return [
        one | {"probabilities": _shown(of.probabilities, config.top_k)}
        for one, of in zip(said, predictions, strict=True)
    ]


def _shown(probabilities: dict[str, float], top_k: int) -> dict[str, float]:
    """Six decimals, of all classes in their order, or of the `top_k` likeliest, likeliest first."""
    if top_k:
        probabilities = dict(sorted(probabilities.items(), key=lambda one: -one[1])[:top_k])
    return {name: round(value, 6) for name, value in probabilities.items()}


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
