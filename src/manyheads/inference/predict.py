"""The verb `predict`, in one process or several.

A verb in one process, or in the first of several with the help of the others. Nothing heavy is imported for one.

The verb `predict`: texts in, JSON lines out, in the same order, a chunk at a time.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from manyheads.config import InferenceHardware, PredictConfig, Task
from manyheads.distributed.launch import n_to_start, on_all, started
from manyheads.distributed.ranks import this_process
from manyheads.inference.format import find_model, read_settings
from manyheads.inference.reading import Chunk, check_texts, opened_texts
from manyheads.inference.writing import check_output, n_written, opened_answers
from manyheads.terminal import one_line, row_counter

if TYPE_CHECKING:
    from manyheads.inference.load import Shipped
    from manyheads.inference.sharing import Answers, Crew


Result = TypeVar("Result")


def answer_together(
    verb: "Callable[[Crew | None], Result]", opened: "Callable[[], Answers]", hardware: InferenceHardware
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
    from manyheads.inference.sharing import joined

    with joined(ranks, hardware.timeout) as shares:
        if ranks.is_first:
            started(hardware)
            return verb(shares)
        shares.help(opened)
    return None


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
        return _predict_elsewhere(config, n_local)
    return answer_together(partial(_predict, config), partial(_opened, config), config.hardware) or 0


def _predict_elsewhere(config: PredictConfig, n_local: int) -> int:
    """In processes that are started for it; 0 where the rows have passed by."""
    _check(config)
    on_all("predict", config, n_local=n_local, timeout=config.hardware.timeout)
    return n_written(config.output)


def _predict(config: PredictConfig, crew: "Crew | None") -> int:
    _check(config)
    deliverable = replace(_opened(config), crew=crew)
    begun, n_rows = time.monotonic(), 0
    texts = opened_texts(config.text, config.input, deliverable, config.data)
    apart = config.output != "-" or not sys.stdout.isatty()  # from a terminal's own answers
    with (
        texts as chunks,
        opened_answers(config.output, ranked=bool(config.top_k)) as write,
        row_counter(apart) as count,
    ):
        for chunk in chunks:
            answers = _answers(deliverable, chunk, config)
            write(chunk.kept, answers)
            n_rows += len(answers)
            count(n_rows)
    if config.output != "-":
        seconds = max(time.monotonic() - begun, 0.001)
        members: tuple[str, ...] = getattr(deliverable, "members", ())
        who = " and the ".join("linear model" if one == "linear" else one for one in members)
        print(
            f"{one_line(config.output)}: {n_rows:,} {'row' if n_rows == 1 else 'rows'} in {seconds:.1f} s "
            f"({n_rows / seconds:,.0f} a second){f', answered by the {who}' if who else ''}",
            file=sys.stderr,
        )
    return n_rows


def _opened(config: PredictConfig) -> "Shipped":
    from manyheads.inference.load import load, place_to_answer

    return place_to_answer(load(config.run), config.hardware)


def _check(config: PredictConfig) -> None:
    """Find what is wrong before torch is imported."""
    check_texts("predict", config.text, config.input)
    settings = read_settings(find_model(Path(config.run)) / "config.json")
    config.generate.check_read(by_texts=settings.task is Task.seq2seq)
    if config.top_k and settings.task is not Task.classify:
        raise ValueError(f"top_k={config.top_k} does nothing, as the model of run has no classes: remove it")
    check_output(config.output)


def _answers(deliverable: "Shipped", chunk: Chunk, config: PredictConfig) -> list[dict[str, Any]]:
    """What is added to each row of `chunk`."""
    from manyheads.inference.classifier import Prediction
    from manyheads.inference.masked_lm import Guesser
    from manyheads.inference.seq2seq import Translator

    tokens = config.batch.tokens
    if isinstance(deliverable, Translator):
        texts = deliverable.generate(chunk.texts, **asdict(config.generate), tokens=tokens)
        return [{"generated": text} for text in texts]
    if isinstance(deliverable, Guesser):
        hidden = deliverable.fill(chunk.texts, chunk.pairs, tokens=tokens)
        return [{"hidden": [one.rounded() for one in of]} for of in hidden]
    predictions = deliverable.predict(chunk.texts, chunk.pairs, tokens=tokens)
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
