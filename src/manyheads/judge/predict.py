"""The verb `predict`: texts in, JSON lines out, in the same order, a chunk at a time."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

from manyheads.config import PredictConfig
from manyheads.judge.reading import check_texts, opened_texts
from manyheads.whole import replace_file

# Legal inside a JSON string, yet many readers break a line there, and terminals obey them.
BREAKS = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029)}


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
    with opened_texts(config.text, config.input, deliverable) as chunks, _opened_output(config.output) as output:
        for chunk in chunks:
            answers = deliverable.predict(chunk.texts, chunk.pairs, tokens=config.batch.tokens)
            for kept, answer in zip(chunk.kept, answers, strict=True):
                output.write(_line(kept, answer.label, answer.probabilities))
            output.flush()
            n_rows += len(answers)
    return n_rows


def _check(config: PredictConfig) -> None:
    """Find what is wrong before torch is imported."""
    check_texts("predict", config.text, config.input)
    if config.output == "-":
        return
    to_file = Path(config.output)
    if to_file.is_dir() or not to_file.parent.is_dir():
        what = "is a folder" if to_file.is_dir() else f"lies in {to_file.parent}, which does not exist"
        raise ValueError(
            f"output={config.output} {what}: name a file in a folder that exists, or - for standard output"
        )
    if to_file.exists() and to_file.stat().st_size:
        raise ValueError(f"output={config.output} exists and is not empty: name another file, or remove it first")


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
