"""The verb `predict`: texts in, JSON lines out, in the same order, a chunk at a time."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from manyheads.config import PredictConfig, Task
from manyheads.judge.lines import Chunk
from manyheads.judge.processes import answer_together
from manyheads.judge.reading import check_texts, opened_texts
from manyheads.launch import n_to_start, on_all
from manyheads.ship.files import find_model
from manyheads.ship.settings import read_settings
from manyheads.whole import replace_file

if TYPE_CHECKING:
    from manyheads.ship.crew import Crew
    from manyheads.ship.load import Shipped

# Legal inside a JSON string, yet many readers break a line there, and terminals obey them.
BREAKS = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029)}


def predict(config: PredictConfig) -> int:
    """Answer every text and write one JSON object a row; returns the number of rows.

    Where there are several processes, the first does so, and 0 is returned in those that help it.

    An object holds the columns of its row (`text`, and `text_pair`, where input is lines), then `label`, or the list
    `labels` where the model gives any number of them, and `probabilities`, or `generated` where it answers by texts.
    A file whose name ends in .csv or .jsonl has columns, any other holds lines. A column that is itself called as what
    is added is kept as `input_label` and so on. Only JSON goes to standard output. An output file appears once it is
    whole.

    Raises:
        ValueError: one sentence; the run, the input, the line in it, or the output.
        BrokenPipeError: the reader of standard output has gone.
    """
    if n_local := n_to_start(config.hardware):
        return _predict_elsewhere(config, n_local)
    return answer_together(partial(_predict, config), partial(_opened, config), config.hardware) or 0


def _predict_elsewhere(config: PredictConfig, n_local: int) -> int:
    """In processes that are started for it; 0 where the rows have passed by."""
    _check(config)
    on_all("predict", config, n_local=n_local, timeout=config.hardware.timeout)
    output = Path(config.output)
    with output.open("rb") if config.output != "-" and output.is_file() else nullcontext() as lines:
        return sum(1 for _ in lines or ())


def _predict(config: PredictConfig, crew: "Crew | None") -> int:
    _check(config)
    deliverable = replace(_opened(config), crew=crew)
    n_rows = 0
    with opened_texts(config.text, config.input, deliverable) as chunks, _opened_output(config.output) as output:
        for chunk in chunks:
            answers = _answers(deliverable, chunk, config)
            for kept, answer in zip(chunk.kept, answers, strict=True):
                output.write(_line(kept, answer))
            output.flush()
            n_rows += len(answers)
    return n_rows


def _opened(config: PredictConfig) -> "Shipped":
    from manyheads.judge.device import place_to_answer  # torch, once the settings are known to be good
    from manyheads.ship.load import load

    return place_to_answer(load(config.run), config.hardware)


def _check(config: PredictConfig) -> None:
    """Find what is wrong before torch is imported."""
    check_texts("predict", config.text, config.input)
    settings = read_settings(find_model(Path(config.run)) / "config.json")
    config.generate.check_read(by_texts=settings.task is Task.seq2seq)
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


def _answers(deliverable: "Shipped", chunk: Chunk, config: PredictConfig) -> list[dict[str, Any]]:
    """What is added to each row of `chunk`."""
    from manyheads.ship.deliverable import Prediction
    from manyheads.ship.guesser import Guesser
    from manyheads.ship.translator import Translator

    tokens = config.batch.tokens
    if isinstance(deliverable, Translator):
        texts = deliverable.generate(chunk.texts, **asdict(config.generate), tokens=tokens)
        return [{"generated": text} for text in texts]
    if isinstance(deliverable, Guesser):
        hidden = deliverable.fill(chunk.texts, chunk.pairs, tokens=tokens)
        return [{"hidden": [one.rounded() for one in of]} for of in hidden]
    predictions = deliverable.predict(chunk.texts, chunk.pairs, tokens=tokens)
    rounded = [{name: round(value, 6) for name, value in one.probabilities.items()} for one in predictions]
    said = [{"label": one.label} if isinstance(one, Prediction) else {"labels": one.labels} for one in predictions]
    return [one | {"probabilities": of} for one, of in zip(said, rounded, strict=True)]


def _line(kept: dict[str, Any], answer: dict[str, Any]) -> str:
    row: dict[str, Any] = {}
    for name, cell in kept.items():
        while name in row or name in answer:
            name = f"input_{name}"
        row[name] = cell
    return json.dumps(row | answer, ensure_ascii=False, allow_nan=False).translate(BREAKS) + "\n"


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
        with replace_file(Path(name).resolve()) as part, part.open("w", encoding="utf-8", newline="\n") as output:
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
