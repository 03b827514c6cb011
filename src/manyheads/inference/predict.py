"""The verb `predict`: texts in, answers out, in the same order, a chunk at a time, in one process or several.

Nothing heavy is imported before the settings are checked.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import manyheads.plugin as plugin
from manyheads.config import InferenceHardware, Member, PredictConfig
from manyheads.config.facts import having
from manyheads.config.fields import to_plain
from manyheads.data.seen import fingerprint
from manyheads.distributed.launch import n_to_start, on_all, settled_hardware
from manyheads.distributed.ranks import this_process
from manyheads.inference.answers import check_output, n_written, opened_answers
from manyheads.inference.format import FILES, GRAPH, MORE, ModelFolder, open_folder, refuse_other_task
from manyheads.inference.reading import Chunk, check_texts, opened_texts
from manyheads.inference.rules import AnswerRule, fit_rules, mark_texts
from manyheads.terminal import one_line, row_counter

if TYPE_CHECKING:
    from manyheads.inference.folder import AnyPredictor
    from manyheads.inference.predictor import Predictor, Workers

Result = TypeVar("Result")


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
    that help the first, by the model `opened`. Errors as of `work_together` and `settled_hardware`."""
    ranks = this_process()
    if ranks.n_ranks == 1:
        settled_hardware(hardware)
        return verb(None)
    from manyheads.inference.predictor import work_together

    with work_together(ranks, hardware.timeout) as workers:
        if ranks.is_first:
            settled_hardware(hardware)
            return verb(workers)
        workers.help(opened)
    return None


def _predict(config: PredictConfig, workers: "Workers | None") -> int:
    folder = _check(config)
    predictor = replace(_opened(config, folder), workers=workers)
    texts, begun = opened_texts(config.text, config.input, predictor, config.data), time.monotonic()
    rules = fit_rules(config, folder, predictor)
    for line in (line for rule in rules for line in rule.lines):
        print(one_line(line), file=sys.stderr)
    of = _origin(config, folder, predictor, [rule.digest for rule in rules])
    of = None if config.overwrite else of
    answers = opened_answers(config.output, ranked=bool(config.top_k), of=of, overwrite=config.overwrite)
    apart = config.output != "-" or not sys.stdout.isatty()  # from a terminal's own answers
    with texts as chunks, answers as file, row_counter(apart) as count:
        before = file.progress.rows
        for chunk in islice(chunks, file.progress.chunks, None):
            file.progress.nulls += len(chunk.faults)
            file.progress.first = file.progress.first or next(iter(chunk.faults.values()), "")
            file.write(chunk.kept, _answers(predictor, chunk, config, rules))
            count(file.progress.rows)
    n_rows, nulls = file.progress.rows, file.progress.nulls
    if nulls:
        many = "1 answer is" if nulls == 1 else f"{nulls:,} of {n_rows:,} answers are"
        print(f"{many} null (first: {one_line(file.progress.first)})", file=sys.stderr)
    if config.output != "-":
        seconds = max(time.monotonic() - begun, 0.001)
        members: tuple[str, ...] = getattr(predictor, "members", ())
        who = " and the ".join("linear model" if one == "linear" else one for one in members)
        print(
            f"{one_line(config.output)}: {n_rows:,} {'row' if n_rows == 1 else 'rows'} in {seconds:.1f} s "
            f"({(n_rows - before) / seconds:,.0f} a second){f', answered by the {who}' if who else ''}",
            file=sys.stderr,
        )
    return n_rows


def _origin(
    config: PredictConfig, folder: ModelFolder, predictor: "AnyPredictor", rules: list[str]
) -> dict[str, str] | None:
    """All on which the bytes of the output depend; None where the input cannot be read again."""
    source = Path(config.input)
    if config.text or not source.is_file():
        return None
    plain = {
        **to_plain(config),
        "rules": rules,
        "run": "",
        "input": source.suffix,
        "output": Path(config.output).suffix,
    }
    return origin(fingerprint(source), folder, predictor, plain)


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


def _check(config: PredictConfig) -> ModelFolder:
    """Find what is wrong before torch is imported."""
    check_texts("predict", config.text, config.input)
    folder = open_folder(config.run, graph=True)
    task = folder.settings.task
    refuse_other_task(config, folder.settings)
    plugin.asked("answer_rule", config, folder)
    if config.top_k and task != "classify":
        raise ValueError(f"top_k={config.top_k} does nothing, as the model of run has no classes: remove it")
    check_members(config.members, folder)
    check_output(config.output, overwrite=config.overwrite)
    read_too = [name for name in having(type(config), path=True) if name != "output"]
    for name in read_too if config.overwrite else ():
        read = Path(attrgetter(name)(config))
        if read.is_file() and Path(config.output).resolve() == read.resolve():
            raise ValueError(f"output={config.output} is what {name} names, which is read: name another file")
    return folder


def check_members(members: Member, folder: ModelFolder) -> None:
    """Raise ValueError where the model has no such member."""
    if members is not Member.all and folder.settings.task != "classify":
        raise ValueError(f"members={members.name} does nothing, as the model of run has no classes: remove it")
    if members is Member.linear and folder.settings.terms is None:
        raise ValueError(
            "members=linear asks the linear model, but the model of run has none: name a run trained with linear=true, "
            "or remove it"
        )


def _opened(config: PredictConfig, folder: ModelFolder | None = None) -> "AnyPredictor":
    from manyheads.inference.classifier import TextClassifier
    from manyheads.inference.folder import load, place

    predictor = place(load(folder or config.run), config.hardware, fast=True)
    if isinstance(predictor, TextClassifier) and config.members is not Member.all:
        return predictor.alone(config.members.name)
    return predictor


def _answers(
    predictor: "AnyPredictor", chunk: Chunk, config: PredictConfig, rules: Sequence[AnswerRule]
) -> list[dict[str, Any]]:
    """What is added to each row of `chunk`; null for those that cannot be answered."""
    good = [at for at in range(len(chunk.texts)) if at not in chunk.faults]
    texts, pairs = [chunk.texts[at] for at in good], chunk.pairs and [chunk.pairs[at] for at in good]
    answers = dict(zip(good, _answered(predictor, texts, pairs, config, rules), strict=True))
    if len(good) == len(chunk.texts):
        return [*answers.values()]
    none = _null(predictor, config, rules)
    return [answers.get(at, none) for at in range(len(chunk.texts))]


def _null(predictor: "AnyPredictor", config: PredictConfig, rules: Sequence[AnswerRule]) -> dict[str, Any]:
    """An answer of which all is null, with all the names that others have."""
    from manyheads.inference.classifier import TextClassifier

    if not isinstance(predictor, TextClassifier):
        return {predictor.added: None}
    added = [name for rule in rules for name in rule.columns]
    names = ["labels" if predictor.multi else "label", "probabilities", *added]
    return dict.fromkeys(names) | {"probabilities": dict.fromkeys(predictor.labels[: config.top_k or None])}


def _answered(
    predictor: "AnyPredictor",
    texts: list[str],
    pairs: list[str] | None,
    config: PredictConfig,
    rules: Sequence[AnswerRule],
) -> list[dict[str, Any]]:
    """What is added to each row of some texts."""
    from manyheads.inference.classifier import Prediction, TextClassifier

    tokens = config.batch.tokens
    if not texts:
        return []
    if not isinstance(predictor, TextClassifier):
        return predictor.answered(texts, pairs, config)
    network_nC, marks = mark_texts(rules, predictor, texts, pairs, tokens=tokens)
    predictions = predictor.predict(texts, pairs, tokens=tokens, network_nC=network_nC)
    answers: list[dict[str, Any]] = []
    for one in predictions:
        classes = one.probabilities.items()  # in their order, or the likeliest, likeliest first
        shown = sorted(classes, key=lambda pair: -pair[1])[: config.top_k] if config.top_k else classes
        said: dict[str, Any] = {"label": one.label} if isinstance(one, Prediction) else {"labels": one.labels}
        answers.append({**said, "probabilities": _rounded(shown)})
    for rule, marks_n in zip(rules, marks, strict=True):
        rule.apply(answers, predictions, marks_n)
    return answers


def _rounded(probabilities: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Six decimals, by name."""
    return {name: round(value, 6) for name, value in probabilities}
