"""A process that holds the model: questions come in by its standard input, answers leave by its standard output.

A message is four bytes that say how long it is, then JSON. The first is the settings, answered by what is known of the
model or by a user's mistake; each further one is a list of questions, answered one by one, in order: a status of HTTP,
then the body. Where the input ends, as with the server itself, the process leaves.
"""

import json
import os
import signal
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from safetensors.torch import load_file

import manyheads.plugin as plugin
from manyheads.config import Member, OnBadRow, Precision
from manyheads.config.fields import from_plain
from manyheads.config.plugins import use_of_parent
from manyheads.data.rows import text_faults
from manyheads.inference.classifier import GraphNetwork, Prediction, TextClassifier
from manyheads.inference.folder import load, place
from manyheads.inference.format import WEIGHTS, open_folder
from manyheads.nn.assemble import count_parameters
from manyheads.plugin import VERSION, Part
from manyheads.plugins.serving.config import ServeConfig
from manyheads.terminal import escape_unwritable

Question = dict[str, Any]
Answer = tuple[int, str]  # a status, and JSON or, of a page, HTML


def main() -> None:
    """Answer until the input ends. What libraries print goes to standard error."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    escape_unwritable()
    for one in (signal.SIGINT, signal.SIGTERM):  # the server says when it is over: what is under way is finished
        signal.signal(one, signal.SIG_IGN)
    config = from_plain(ServeConfig, read(questions))
    try:
        use_of_parent()
        predictor = opened(config)
    except ValueError as mistake:
        write(answers, (422, str(mistake)))
        return
    write(answers, (200, json.dumps(about(predictor, config))))
    while batch := read(questions):
        for answer in answered(predictor, batch, config):
            write(answers, answer)


def read(stream: BinaryIO) -> Any:
    """The next message; None at the end."""
    size = stream.read(4)
    return json.loads(stream.read(int.from_bytes(size, "big"))) if len(size) == 4 else None


def write(stream: BinaryIO, answer: Answer) -> None:
    message = f"{answer[0]}{answer[1]}".encode(errors="replace")
    stream.write(len(message).to_bytes(4, "big") + message)
    stream.flush()


def opened(config: ServeConfig) -> TextClassifier:
    """The classifier, ready to answer. Its weights are those of the file, mapped: all workers share them in memory, but
    for matrices that are cast to another type."""
    folder = open_folder(config.run, TextClassifier.task, graph=True)
    predictor = load(folder)
    assert isinstance(predictor, TextClassifier), "it is of the task that was asked for"
    if not isinstance(predictor.network, GraphNetwork):
        predictor.network.load_state_dict(load_file(folder.path / WEIGHTS), assign=True)
        predictor.network.requires_grad_(False)
    predictor = place(predictor, config.hardware, fast=True)
    predictor = predictor if config.members is Member.all else predictor.alone(config.members.name)
    predictor.predict(["a text"], ["its pair"] if predictor.pairs else None)  # the first call is slow
    return predictor


def about(predictor: TextClassifier, config: ServeConfig) -> dict[str, Any]:
    """What /metadata says, and the server itself needs to know."""
    run, settings, network = Path(config.run), predictor.settings, predictor.network
    has_heads = not isinstance(network, GraphNetwork) and predictor.model.has_heads
    kind = str(predictor.autocast or Precision.fp32.name).removeprefix("torch.")
    return {
        "name": (run.parent if run.name == "model" else run).name,
        "version": VERSION,
        "labels": predictor.labels,
        "thresholds": dict(zip(predictor.labels, predictor.thresholds, strict=True)) if predictor.thresholds else None,
        "pairs": predictor.pairs,
        "max_length": predictor.max_length,
        "long": settings.long.name,
        "members": list(predictor.members),
        "linear_share": predictor.share,
        "parameters": None if isinstance(network, GraphNetwork) else count_parameters(network),
        "layers": settings.model.n_layers + settings.model.n_cross_layers if has_heads else 0,
        "heads": settings.model.n_heads if has_heads else 0,
        "views": {
            name: {
                "options": dict(part.options or {}),
                "labels": dict(part.facts.get("labels", {})),
                "why_not": why_not(part, predictor),
            }
            for name, part in plugin.parts("view").items()
        },
        "computes": {"type": kind, "device": str(next(network.parameters()).device), "exact": config.exact},
        "limits": {name: getattr(config, f"max_{name}") for name in ("body", "texts", "characters", "queue")},
    }


def answered(predictor: TextClassifier, batch: list[Question], config: ServeConfig) -> Iterator[Answer]:
    """An answer for each question. With `exact` each text is read by itself, as `predict` of one text reads it;
    otherwise all texts of the batch are read together, if they can be."""
    found: list[Any] = []
    fits = all(
        one["kind"] == "predict"
        and len(one["pairs"] or ()) == len(one["texts"]) * predictor.pairs
        and not _empty(one["texts"], one["pairs"])
        for one in batch
    )
    if fits and not config.exact:
        texts = [text for one in batch for text in one["texts"]]
        pairs = [pair for one in batch for pair in one["pairs"] or ()] if predictor.pairs else None
        try:
            found = list(predictor.predict(texts, pairs, tokens=config.batch.tokens))
        except Exception:  # of one text, which must not end the process: below each question is asked alone
            traceback.print_exc()
    for question in batch:
        n = len(question["texts"])
        yield _one(predictor, question, config, found[:n])
        found = found[n:]


def _one(predictor: TextClassifier, question: Question, config: ServeConfig, found: list[Any]) -> Answer:
    try:
        if question["kind"] == "look":
            return 200, look(predictor, question, config)
        return 200, json.dumps(predicted(predictor, question, config, found), ensure_ascii=False)
    except ValueError as mistake:
        return 422, f"{mistake}"
    except Exception:  # of one text, which must not end the process: it is shown where the server's errors are
        traceback.print_exc()
        return 500, "the model failed on this text: the server's log says how"


def predicted(predictor: TextClassifier, question: Question, config: ServeConfig, found: list[Any]) -> dict[str, Any]:
    """What POST /predict answers; probabilities have all their digits. `found`: what is known of the texts already."""
    texts, pairs, thresholds = question["texts"], question["pairs"], question["thresholds"]
    chosen = _thresholds(predictor, thresholds)
    is_dropped = config.data.on_bad_row is OnBadRow.drop and len(pairs or texts) == len(texts)
    if is_dropped and (empty := _empty(texts, pairs)):
        good = [at for at in range(len(texts)) if at not in empty]
        of_good = {"texts": [texts[at] for at in good], "pairs": pairs and [pairs[at] for at in good]}
        told = iter(predicted(predictor, question | of_good, config, [])["predictions"])
        none = {"labels" if predictor.multi or chosen else "label": None, "probabilities": {}}
        return {"predictions": [none if at in empty else next(told) for at in range(len(texts))]}
    predictor.check(texts, pairs, filled=True)
    rows: list[dict[str, Any]] = []
    for at, one in enumerate(found or _predictions(predictor, texts, pairs, config)):
        ranked = sorted(one.probabilities.items(), key=lambda pair: -pair[1])
        said: dict[str, Any] = {"label": one.label} if isinstance(one, Prediction) else {"labels": one.labels}
        if chosen is not None:
            said = {"labels": [name for name, value in ranked if value >= chosen[name]]}
        shown = ranked[: question["top_k"]] if question["top_k"] else one.probabilities.items()
        rows.append({**said, "probabilities": dict(shown)})
        if question["members"]:
            of = predictor.member_logits([texts[at]], None if pairs is None else [pairs[at]])
            if config.members is not Member.all:  # that one alone answers
                of = {config.members.name: of.get("both", of["network"])}
            rows[-1]["members"] = {
                name: dict(zip(predictor.labels, predictor.probabilities(logits_1C)[0].tolist(), strict=True))
                for name, logits_1C in of.items()
            }
    return {"predictions": rows}


def _empty(texts: list[str], pairs: list[str] | None) -> set[int]:
    """The numbers of the texts, or pairs, that have no answer."""
    faults = [text_faults(texts, "the text"), text_faults(pairs or [], "the second text")]
    return {at for of in faults for at in of}


def _predictions(
    predictor: TextClassifier, texts: list[str], pairs: list[str] | None, config: ServeConfig
) -> list[Any]:
    if not config.exact:
        return list(predictor.predict(texts, pairs, tokens=config.batch.tokens))
    seconds = [None] * len(texts) if pairs is None else [[one] for one in pairs]
    return [predictor.predict([text], pair)[0] for text, pair in zip(texts, seconds, strict=True)]


def _thresholds(predictor: TextClassifier, asked: float | dict[str, float] | None) -> dict[str, float] | None:
    if asked is None:
        return None
    if predictor.thresholds is None:
        raise ValueError("thresholds are given, but the model gives each text one class: leave them out")
    if not isinstance(asked, dict):
        return dict.fromkeys(predictor.labels, asked)
    if unknown := [name for name in asked if name not in predictor.labels]:
        raise ValueError(f"thresholds names {unknown[0]!r}, which is no label of the model: see labels of /metadata")
    return dict(zip(predictor.labels, predictor.thresholds, strict=True)) | asked


def why_not(view: Part, predictor: TextClassifier) -> str:
    """Why a view cannot be had of this model; empty where it can."""
    refuses = plugin.resolve(view.facts.get("why_not"))
    return refuses(predictor) if refuses else ""


def look(predictor: TextClassifier, question: Question, config: ServeConfig) -> str:
    """The page of one text that a view makes."""
    view = plugin.find("view", question["view"])
    if reason := why_not(view, predictor):
        raise ValueError(reason)
    text, seconds = question["texts"][0], question["pairs"]
    predictor.check([text], seconds, filled=True)
    (answer,) = _predictions(predictor, [text], seconds, config)
    exactly = predictor.on(next(predictor.network.parameters()).device)  # in fp32, as `manyheads look`
    pair = seconds[0] if seconds else None
    name = about(predictor, config)["name"]
    return plugin.resolve(view.make)(exactly, text, pair, answer=answer, source=name, **question["options"])


if __name__ == "__main__":
    main()
