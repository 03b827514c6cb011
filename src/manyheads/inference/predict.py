"""The verb `predict`: texts in, answers out, in the same order, a chunk at a time, in one process or several.

Nothing heavy is imported before the settings are checked.
"""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import manyheads.plugin as plugin
from manyheads.config import Member, PredictConfig
from manyheads.config.conversion import to_plain
from manyheads.config.facts import settings_where
from manyheads.data.disk_cache import fingerprint
from manyheads.distributed.launch import n_to_start, run_on_all_ranks
from manyheads.distributed.ranks import this_process
from manyheads.errors import UserError
from manyheads.inference.answers import check_output, n_written, opened_answers
from manyheads.inference.chunks import Chunk
from manyheads.inference.format import FILES, GRAPH, MORE, ModelFolder, open_folder, refuse_other_task
from manyheads.inference.reading import check_input, open_texts
from manyheads.inference.rules import AnswerRule, fit_rules
from manyheads.terminal import one_line, row_counter

if TYPE_CHECKING:
    from manyheads.inference.folder import AnyPredictor
    from manyheads.inference.workers import Workers


def predict(config: PredictConfig) -> int:
    """Answer every text and write a row for each, JSON lines unless `output` is a .csv, .tsv or .parquet; returns the
    number of rows, 0 in processes that help the first. Rows without a text have a null answer, of which a line on
    standard error says how many there are: see `data.on_bad_row`.

    A row holds the columns of its input (`text`, and `text_pair`, where input is lines), among them any that tells rows
    apart, then `label`, or the list `labels` where the model gives any number of them, and `probabilities`, or
    `generated` where it answers by texts. A file whose name ends in .csv, .tsv or .jsonl has columns, any other holds
    lines. A column that is itself called as what is added is kept as `input_label` and so on. Only answers go to
    standard output. An output file appears once it is whole, and a line on standard error then says where. The same
    command, repeated after a kill, resumes if it reads a file: see `opened_answers`.

    Raises:
        UserError: one sentence; the run, the input, the line in it, or the output.
        BrokenPipeError: the reader of standard output has gone.
    """
    if n_local := n_to_start(config.hardware):
        check_predict(config)
        run_on_all_ranks("predict", config, n_local=n_local, timeout=config.hardware.timeout)
        return n_written(config.output)  # 0 where the rows went to standard output
    ranks = this_process()
    if ranks.n_ranks == 1:
        return answer_texts(config)
    from manyheads.inference.workers import work_together

    with work_together(ranks, config.hardware.timeout) as workers:
        if ranks.is_first:
            return answer_texts(config, workers)
        workers.serve_requests(partial(open_predictor, config))
    return 0


def answer_texts(config: PredictConfig, workers: "Workers | None" = None) -> int:
    """Open the model, the texts and the output, and answer chunk by chunk; returns the number of rows. `workers` share
    the work."""
    folder = check_predict(config)
    predictor = replace(open_predictor(config, folder), workers=workers)
    began = time.monotonic()
    texts = open_texts(config.text, config.input, predictor, config.data)
    rules = fit_rules(config, folder, predictor)
    for rule in rules:
        for line in rule.lines:
            print(one_line(line), file=sys.stderr)
    of = None
    if not config.overwrite and not config.text and Path(config.input).is_file():  # else it cannot be read again
        kinds = {"input": Path(config.input).suffix, "output": Path(config.output).suffix}
        plain = {**to_plain(config), "rules": [rule.digest for rule in rules], "run": "", **kinds}
        of = origin(fingerprint(Path(config.input)), folder, predictor, plain)
    output = opened_answers(config.output, ranked=bool(config.top_k), of=of, overwrite=config.overwrite)
    shows_count = config.output != "-" or not sys.stdout.isatty()  # a terminal shows the answers themselves
    with texts as chunks, output as file, row_counter(shows_count) as count:
        progress = file.progress
        n_resumed = progress.rows
        for chunk in islice(chunks, progress.chunks, None):
            progress.nulls += len(chunk.faults)
            if chunk.faults and not progress.first:
                progress.first = next(iter(chunk.faults.values()))
            file.write(chunk.kept, answer_chunk(predictor, chunk, config, rules))
            count(progress.rows)
    if progress.nulls:
        are_null = "1 answer is" if progress.nulls == 1 else f"{progress.nulls:,} of {progress.rows:,} answers are"
        print(f"{are_null} null (first: {one_line(progress.first)})", file=sys.stderr)
    if config.output != "-":
        seconds = max(time.monotonic() - began, 0.001)
        rows = "1 row" if progress.rows == 1 else f"{progress.rows:,} rows"
        members: tuple[str, ...] = getattr(predictor, "members", ())
        who = " and the ".join("linear model" if one == "linear" else one for one in members)
        by = f", answered by the {who}" if who else ""
        speed = (progress.rows - n_resumed) / seconds
        print(
            f"{one_line(config.output)}: {rows} in {seconds:.1f} s ({speed:,.0f} a second){by}",
            file=sys.stderr,
        )
    return progress.rows


def answer_chunk(
    predictor: "AnyPredictor", chunk: Chunk, config: PredictConfig, rules: Sequence[AnswerRule]
) -> list[dict[str, Any]]:
    """What is added to each row of `chunk`, by name; null for each name where the row has a fault."""
    if not chunk.faults:
        return predictor.answered(chunk.texts, chunk.pairs, config, rules)
    good = [at for at in range(len(chunk.texts)) if at not in chunk.faults]
    answers: Iterator[dict[str, Any]] = iter(())
    if good:
        texts = [chunk.texts[at] for at in good]
        pairs = None if chunk.pairs is None else [chunk.pairs[at] for at in good]
        answers = iter(predictor.answered(texts, pairs, config, rules))
    null = predictor.null_answer(config, rules)
    return [null if at in chunk.faults else next(answers) for at in range(len(chunk.texts))]


def origin(of_input: str, folder: ModelFolder, predictor: "AnyPredictor", plain: dict[str, Any]) -> dict[str, str]:
    """All on which answers depend, by name: their input, the files of the model, plain settings, what computes."""
    import torch

    device = next(predictor.network.parameters()).device.type
    computing = [torch.__version__, torch.get_num_threads(), device, str(predictor.autocast)]
    computing += [version("onnxruntime")] if (folder.path / GRAPH).is_file() else []
    files = [folder.path / name for name in (*FILES, *MORE) if (folder.path / name).is_file()]
    return {
        "the input": of_input,
        "the model": sha256("".join(map(fingerprint, files)).encode()).hexdigest(),
        "the settings": sha256(json.dumps([plain, *computing], sort_keys=True).encode()).hexdigest(),
    }


def check_predict(config: PredictConfig) -> ModelFolder:
    """Find what is wrong before torch is imported."""
    check_input(config.text, config.input)
    folder = open_folder(config.run, graph=True)
    refuse_other_task(config, folder.settings)
    plugin.asked("answer_rule", config, folder)
    if config.top_k and folder.settings.task != "classify":
        raise UserError(f"top_k={config.top_k} does nothing, as the model of run has no classes: remove it")
    check_members(config.members, folder)
    check_output(config.output, overwrite=config.overwrite)
    if config.overwrite:
        for name in settings_where(type(config), path=True):
            read = Path(attrgetter(name)(config))
            if name != "output" and read.is_file() and Path(config.output).resolve() == read.resolve():
                raise UserError(f"output={config.output} is what {name} names, which is read: name another file")
    return folder


def check_members(members: Member, folder: ModelFolder) -> None:
    """Raise UserError where the model has no such member."""
    if members is not Member.all and folder.settings.task != "classify":
        raise UserError(f"members={members.name} does nothing, as the model of run has no classes: remove it")
    if members is Member.linear and folder.settings.terms is None:
        raise UserError(
            "members=linear asks the linear model, but the model of run has none: name a run trained with linear=true, "
            "or remove it"
        )


def open_predictor(config: PredictConfig, folder: ModelFolder | None = None) -> "AnyPredictor":
    """The model, ready to answer: on its device, in its precision, with the members that are asked for."""
    from manyheads.inference.classifier import TextClassifier
    from manyheads.inference.folder import load, place

    predictor = place(load(folder or config.run), config.hardware, fast=True)
    if config.members is not Member.all and isinstance(predictor, TextClassifier):
        return predictor.alone(config.members.name)
    return predictor
