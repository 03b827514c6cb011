"""The work of `predict`: texts in, answers out, in the same order, a chunk at a time, in one process or several."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from manyheads.config import Member, PredictConfig
from manyheads.config.conversion import to_plain
from manyheads.config.sentences import count_rows
from manyheads.data.disk_cache import fingerprint
from manyheads.distributed.ranks import this_process
from manyheads.inference.answers import Progress, opened_answers
from manyheads.inference.chunks import Chunk
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.folder import AnyPredictor, load, place
from manyheads.inference.format import FILES, GRAPH, MORE, ModelFolder
from manyheads.inference.reading import open_texts
from manyheads.inference.rules import AnswerRule, fit_rules
from manyheads.inference.workers import Workers, work_together
from manyheads.terminal import one_line, row_counter, typed_path


def answer_on_ranks(config: PredictConfig, check: Callable[[PredictConfig], ModelFolder]) -> int:
    """`answer_texts` in one of several processes: the first reads and writes, all compute.

    Args:
        check: finds mistakes, in the first process.
    """
    ranks = this_process()
    with work_together(ranks, config.hardware.timeout) as workers:
        if ranks.is_first:
            return answer_texts(config, check(config), workers)
        workers.serve_requests(partial(open_predictor, config))
    return 0


def answer_texts(config: PredictConfig, folder: ModelFolder, workers: Workers | None = None) -> int:
    """Open the model, the texts and the output, and answer chunk by chunk.

    Args:
        workers: processes that share the work.

    Returns:
        The number of rows.
    """
    predictor = replace(open_predictor(config, folder), workers=workers)
    began = time.monotonic()
    texts = open_texts(config.text, config.input, predictor, config.data)
    rules = fit_rules(config, folder, predictor)
    for rule in rules:
        for line in rule.lines:
            print(one_line(line), file=sys.stderr)
    answers_of = None
    if not config.overwrite and not config.text and Path(config.input).is_file():  # what can be read again can resume
        kinds = {"input": Path(config.input).suffix, "output": Path(config.output).suffix}
        settings = {**to_plain(config), "rules": [rule.digest for rule in rules], "run": "", **kinds}
        answers_of = provenance(fingerprint(Path(config.input)), folder, predictor, settings)
    output = opened_answers(config.output, ranked=bool(config.top_k), of=answers_of, overwrite=config.overwrite)
    shows_count = config.output != "-" or not sys.stdout.isatty()  # a terminal shows the answers themselves
    with texts as chunks, output as file, row_counter(shows_count) as count:
        progress = file.progress
        n_resumed = progress.rows
        for chunk in islice(chunks, progress.chunks, None):
            if not chunk.texts:
                file.write(chunk.kept, [predictor.null_answer(config, rules)], only_names=True)
                continue
            progress.nulls += len(chunk.faults)
            if chunk.faults and not progress.first:
                progress.first = next(iter(chunk.faults.values()))
            file.write(chunk.kept, answer_chunk(predictor, chunk, config, rules))
            count(progress.rows)
    _print_end(config, progress, n_resumed, time.monotonic() - began, getattr(predictor, "members", ()))
    return progress.rows


def answer_chunk(
    predictor: AnyPredictor, chunk: Chunk, config: PredictConfig, rules: Sequence[AnswerRule]
) -> list[dict[str, Any]]:
    """What is added to each row of `chunk`, by name; null for each name if the row has a fault."""
    if not chunk.faults:
        return predictor.answered(chunk.texts, chunk.pairs, config, rules)
    answers = [predictor.null_answer(config, rules)] * len(chunk.texts)
    good = [at for at in range(len(chunk.texts)) if at not in chunk.faults]
    if good:
        texts, pairs = [chunk.texts[at] for at in good], None
        if chunk.pairs is not None:
            pairs = [chunk.pairs[at] for at in good]
        for at, answer in zip(good, predictor.answered(texts, pairs, config, rules), strict=True):
            answers[at] = answer
    return answers


def _print_end(
    config: PredictConfig, progress: Progress, n_resumed: int, seconds: float, members: Sequence[str]
) -> None:
    """Say on standard error how many answers are null, and where the file is."""
    if progress.nulls:
        are_null = "1 answer is" if progress.nulls == 1 else f"{progress.nulls:,} of {progress.rows:,} answers are"
        print(f"{are_null} null (first: {one_line(progress.first)})", file=sys.stderr)
    if not progress.rows:
        print(f"{one_line('standard input' if config.input == '-' else config.input)} has no rows", file=sys.stderr)
    if config.output == "-":
        return
    seconds = max(seconds, 0.001)
    speed = (progress.rows - n_resumed) / seconds
    by = ""
    if members:
        names = ["linear model" if member == "linear" else member for member in members]
        by = f", answered by the {' and the '.join(names)}"
    rows = f"{count_rows(progress.rows)} in {seconds:.1f} s ({speed:,.0f} a second)"
    print(f"{one_line(typed_path(Path(config.output)))}: {rows}{by}", file=sys.stderr)


def provenance(digest: str, folder: ModelFolder, predictor: AnyPredictor, settings: dict[str, Any]) -> dict[str, str]:
    """All that answers depend on, by name: an interrupted file of answers is resumed only if it is the same.

    Args:
        digest: of the input.
        settings: plain ones.
    """
    device = next(predictor.network.parameters()).device.type
    computing = [torch.__version__, torch.get_num_threads(), device, str(predictor.autocast)]
    if (folder.path / GRAPH).is_file():
        computing.append(version("onnxruntime"))
    files = [folder.path / name for name in (*FILES, *MORE) if (folder.path / name).is_file()]
    return {
        "the input": digest,
        "the model": sha256("".join(map(fingerprint, files)).encode()).hexdigest(),
        "the settings": sha256(json.dumps([settings, *computing], sort_keys=True).encode()).hexdigest(),
    }


def open_predictor(config: PredictConfig, folder: ModelFolder | None = None) -> AnyPredictor:
    """The model, ready to answer: on its device, in its precision, with the members that the settings name."""
    predictor = place(load(folder or config.run), config.hardware, fast=True)
    if config.members is not Member.all and isinstance(predictor, TextClassifier):
        return predictor.alone(config.members.name)
    return predictor
