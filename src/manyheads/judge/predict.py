"""The verb `predict`: texts in, JSON lines out, in the same order, a chunk at a time."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from manyheads.config import PredictConfig
from manyheads.data.files import OPENERS
from manyheads.judge.lines import Chunk, as_chunk, read_lines
from manyheads.judge.records import read_objects, read_table
from manyheads.whole import replace_file

# Legal inside a JSON string, yet many readers break a line there, and terminals obey them.
BREAKS = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029)}
# What predict does not read, as it reads rows as they come.
OTHER_KINDS = {
    ".parquet": "is parquet, of which predict reads no rows: write it as .csv or .jsonl first",
    ".json": "is JSON as a whole, but predict reads rows: write one object a line, as .jsonl",
    **dict.fromkeys(OPENERS, "is compressed, but predict reads rows as they are: decompress it first"),
}
READERS = {".csv": read_table, ".jsonl": read_objects}


def predict(config: PredictConfig) -> int:
    """Label every text and write one JSON object a row; returns the number of rows.

    An object holds the columns of its row (`text`, and `text_pair`, where input is lines), then `label` and
    `probabilities`. A file whose name ends in .csv or .jsonl has columns, any other holds lines. A column that is
    itself called `label` or `probabilities` is kept as `input_label`, `input_probabilities`. Only JSON goes to
    standard output. An output file appears once it is whole.

    Raises:
        ValueError: one sentence; the run, the input, the line in it, or the output.
        BrokenPipeError: the reader of standard output has gone.
    """
    _check(config)
    from manyheads.judge.device import place  # torch, once the settings are known to be good
    from manyheads.ship.deliverable import Deliverable, load

    deliverable: Deliverable = place(load(config.run), config.hardware)
    n_rows = 0
    with _opened_input(config.input) as stream, _opened_output(config.output) as output:
        for chunk in _chunks(config, stream, deliverable):
            answers = deliverable.predict(chunk.texts, chunk.pairs, tokens=config.batch.tokens)
            for kept, answer in zip(chunk.kept, answers, strict=True):
                output.write(_line(kept, answer.label, answer.probabilities))
            output.flush()
            n_rows += len(answers)
    return n_rows


def _check(config: PredictConfig) -> None:
    """Find what is wrong before torch is imported."""
    from_file, to_file = Path(config.input), Path(config.output)
    if config.text and config.input != "-":
        raise ValueError(f"text and input={config.input} are both given: give one text, or a file of texts")
    if config.text and any("\ud800" <= letter <= "\udfff" for letter in config.text):
        raise ValueError("text is not UTF-8: type it in the encoding of the terminal, or give it as a file by input=")
    if config.input != "-" and (from_file.is_dir() or not from_file.exists()):
        what = "is a folder" if from_file.is_dir() else "does not exist"
        raise ValueError(
            f"input={config.input} {what}: name a file of one text a line, a .csv or .jsonl, or - for standard input"
        )
    if config.input != "-" and from_file.suffix.lower() in OTHER_KINDS:
        raise ValueError(f"input={config.input} {OTHER_KINDS[from_file.suffix.lower()]}")
    if config.output == "-":
        return
    if to_file.is_dir() or not to_file.parent.is_dir():
        what = "is a folder" if to_file.is_dir() else f"lies in {to_file.parent}, which does not exist"
        raise ValueError(
            f"output={config.output} {what}: name a file in a folder that exists, or - for standard output"
        )
    if to_file.exists() and to_file.stat().st_size:
        raise ValueError(f"output={config.output} exists and is not empty: name another file, or remove it first")


def _chunks(config: PredictConfig, stream: BinaryIO, deliverable: Any) -> Iterator[Chunk]:
    columns = deliverable.columns
    if config.text:
        return iter([as_chunk([config.text], "text", 1, pairs=deliverable.pairs)])
    read = READERS.get(Path(config.input).suffix.lower())
    if read is not None:
        text = ["text", columns.text] if columns.preset else [columns.text, "text"]
        text_pair = ["text_pair", columns.text_pair] if columns.preset else [columns.text_pair, "text_pair"]
        return read(stream, config.input, text=text, text_pair=text_pair if deliverable.pairs else [])
    name = "standard input" if config.input == "-" else config.input
    return read_lines(stream, name, pairs=deliverable.pairs)


def _line(kept: dict[str, Any], label: str, probabilities: dict[str, float]) -> str:
    row: dict[str, Any] = {}
    for name, cell in kept.items():
        while name in row or name in ("label", "probabilities"):
            name = f"input_{name}"
        row[name] = cell
    row["label"] = label
    row["probabilities"] = {name: round(value, 6) for name, value in probabilities.items()}
    return json.dumps(row, ensure_ascii=False, allow_nan=False).translate(BREAKS) + "\n"


@contextmanager
def _opened_input(name: str) -> Iterator[BinaryIO]:
    if name != "-":
        with open(name, "rb") as file:
            yield file
        return
    if sys.stdin.isatty():
        print("type one text a line; end with Ctrl-D", file=sys.stderr)
    yield sys.stdin.buffer


@contextmanager
def _opened_output(name: str) -> Iterator[TextIO]:
    """Standard output in UTF-8 whatever the terminal says, or a file that takes its name once it is whole."""
    if name == "-":
        with _standard_output() as output:
            yield output
    elif Path(name).exists() and not Path(name).is_file():  # a pipe or /dev/null, which must not be replaced
        with open(name, "w", encoding="utf-8", newline="\n") as output:
            yield output
    else:
        with replace_file(Path(name)) as part, part.open("w", encoding="utf-8", newline="\n") as output:
            yield output


@contextmanager
def _standard_output() -> Iterator[TextIO]:
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
