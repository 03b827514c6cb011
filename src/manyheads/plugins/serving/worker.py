"""A worker: a process that holds the model. It reads requests from standard input, and writes answers to standard
output.

A message is four bytes that say how long it is, then JSON. The first holds the settings, and is answered by what is
known of the model, or by a user's mistake. Each further one is a list of requests, answered one by one, in order: an
HTTP status, then the body. The process exits where its input ends, as it does when the server ends.
"""

import json
import os
import signal
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from safetensors.torch import load_file

import manyheads.plugin as plugin
from manyheads.config import Member, OnBadRow, Precision
from manyheads.config.conversion import from_plain
from manyheads.config.plugins import use_of_parent
from manyheads.data.formats.fields import join_cells
from manyheads.data.texts import text_faults
from manyheads.errors import UserError
from manyheads.inference.classifier import LabelsPrediction, Prediction, TextClassifier, why_not
from manyheads.inference.folder import load, place
from manyheads.inference.format import WEIGHTS, open_folder
from manyheads.inference.graph import GraphNetwork
from manyheads.inference.rules import AnswerRule, fit_rules, mark_texts
from manyheads.nn.cost import count_parameters
from manyheads.plugin import VERSION
from manyheads.plugins.serving.config import ServeConfig
from manyheads.terminal import escape_unwritable

Request = dict[str, Any]
Reply = tuple[int, str]  # an HTTP status, and JSON or, of a page, HTML


@dataclass(frozen=True, slots=True)
class Served:
    """The classifier that is served, the rules that mark or change its answers, and the settings of the server."""

    predictor: TextClassifier
    rules: list[AnswerRule]
    config: ServeConfig

    def answers(self, texts: list[str], pairs: list[str] | None) -> list["ServedText"]:
        """The answer to each of some texts, which are read together."""
        network_nC = None
        marks: list[Any] = []
        tokens = self.config.batch.tokens
        if self.rules:
            self.predictor.check(texts, pairs, filled=True)
            network_nC, marks = mark_texts(self.rules, self.predictor, texts, pairs, tokens=tokens)
        predictions = self.predictor.predict(texts, pairs, tokens=tokens, network_nC=network_nC)
        found = []
        for at, prediction in enumerate(predictions):
            marks_of_text = [None if marks_n is None else marks_n[at : at + 1] for marks_n in marks]
            found.append(ServedText(prediction, marks_of_text))
        return found

    def answers_alone(self, texts: list[str], pairs: list[str] | None) -> list["ServedText"]:
        """The same, but with `exact` each text is read by itself, as predict of one text reads it."""
        if not self.config.exact:
            return self.answers(texts, pairs)
        found: list[ServedText] = []
        for at, text in enumerate(texts):
            found += self.answers([text], None if pairs is None else [pairs[at]])
        return found


class ServedText(NamedTuple):
    """The prediction for one text, and the mark `(1,)` that each rule gives it, or None."""

    prediction: Prediction | LabelsPrediction
    marks: list[Any]


def main() -> None:
    """Reply until the input ends. What libraries print goes to standard error."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    escape_unwritable()
    for number in (signal.SIGINT, signal.SIGTERM):  # the server decides when to stop: requests in progress are finished
        signal.signal(number, signal.SIG_IGN)
    config = from_plain(ServeConfig, read_message(requests))
    try:
        use_of_parent()
        served = open_served(config)
    except UserError as mistake:
        write_message(answers, (422, str(mistake)))
        return
    write_message(answers, (200, json.dumps(about(served))))
    while batch := read_message(requests):
        for reply in replies(served, batch):
            write_message(answers, reply)


def read_message(stream: BinaryIO) -> Any:
    """The next message; None at the end."""
    size = stream.read(4)
    if len(size) < 4:
        return None
    return json.loads(stream.read(int.from_bytes(size, "big")))


def write_message(stream: BinaryIO, reply: Reply) -> None:
    status, body = reply
    message = f"{status}{body}".encode(errors="replace")
    stream.write(len(message).to_bytes(4, "big") + message)
    stream.flush()


def open_served(config: ServeConfig) -> Served:
    """The classifier, ready to answer, and the rules that the settings ask for.

    Its weights are memory-mapped from the file: all workers share them, except matrices that are cast to another dtype.
    """
    folder = open_folder(config.run, TextClassifier.task, graph=True)
    predictor = load(folder)
    assert isinstance(predictor, TextClassifier), "open_folder refuses other tasks"
    if not isinstance(predictor.network, GraphNetwork):
        predictor.network.load_state_dict(load_file(folder.path / WEIGHTS), assign=True)
        predictor.network.requires_grad_(False)
    predictor = place(predictor, config.hardware, fast=True)
    if config.members is not Member.all:
        predictor = predictor.alone(config.members.name)
    served = Served(predictor, fit_rules(config, folder, predictor), config)
    text = join_cells(["a text"] * max(1, len(predictor.settings.fields)))
    served.answers([text], ["its pair"] if predictor.pairs else None)  # a warm-up: the first call is slow
    return served


def about(served: Served) -> dict[str, Any]:
    """What /metadata says, and the server itself needs to know."""
    predictor, config = served.predictor, served.config
    run, settings, network = Path(config.run), predictor.settings, predictor.network
    is_graph = isinstance(network, GraphNetwork)
    has_heads = not is_graph and predictor.model.has_heads
    dtype = str(predictor.autocast or Precision.fp32.name).removeprefix("torch.")
    thresholds = None
    if predictor.thresholds:
        thresholds = dict(zip(predictor.labels, predictor.thresholds, strict=True))
    views = {}
    for name, part in plugin.parts("view").items():
        views[name] = {
            "options": dict(part.options or {}),
            "labels": dict(part.facts.get("labels", {})),
            "why_not": why_not(part, predictor),
        }
    return {
        "name": (run.parent if run.name == "model" else run).name,
        "version": VERSION,
        "labels": predictor.labels,
        "thresholds": thresholds,
        "pairs": predictor.pairs,
        "columns": predictor.settings.fields,
        "max_length": predictor.max_length,
        "long": settings.long.name,
        "members": list(predictor.members),
        "linear_share": predictor.share,
        "rules": [line for rule in served.rules for line in rule.lines],
        "parameters": None if is_graph else count_parameters(network),
        "layers": settings.model.n_layers + settings.model.n_cross_layers if has_heads else 0,
        "heads": settings.model.n_heads if has_heads else 0,
        "views": views,
        "computes": {"type": dtype, "device": str(next(network.parameters()).device), "exact": config.exact},
        "limits": {name: getattr(config, f"max_{name}") for name in ("body", "texts", "characters", "queue")},
    }


def replies(served: Served, batch: list[Request]) -> Iterator[Reply]:
    """An answer for each request. Without `exact` all texts of the batch are read together, if they can be."""
    found: list[ServedText] = []
    if not served.config.exact and all(can_join(served.predictor, request) for request in batch):
        texts: list[str] = []
        pairs: list[str] = []
        for request in batch:
            texts += request["texts"]
            pairs += request["pairs"] or []
        try:
            found = served.answers(texts, pairs if served.predictor.pairs else None)
        except Exception:  # of one text, which must not end the process: below each request is answered by itself
            traceback.print_exc()
    for request in batch:
        n = len(request["texts"])
        yield reply_to(served, request, found[:n])
        found = found[n:]


def can_join(predictor: TextClassifier, request: Request) -> bool:
    """Whether a request may be answered together with others: it has no mistake that must be answered alone."""
    texts, pairs = request["texts"], request["pairs"]
    n_pairs = len(texts) if predictor.pairs else 0
    return request["kind"] == "predict" and len(pairs or ()) == n_pairs and not empty_rows(texts, pairs)


def reply_to(served: Served, request: Request, found: list[ServedText]) -> Reply:
    """The answer to one request; `found` is what is known of its texts already, see `prediction_body`."""
    try:
        if request["kind"] == "look":
            (text,), pairs = request["texts"], request["pairs"]
            how = {"view": request["view"], "source": about(served)["name"], "tokens": served.config.batch.tokens}
            page = served.predictor.explain(text, pairs[0] if pairs else None, **how, **request["options"])
            return 200, page.html
        return 200, json.dumps(prediction_body(served, request, found), ensure_ascii=False)
    except UserError as mistake:
        return 422, str(mistake)
    except Exception:  # of one text, which must not end the process: it is shown where the server's errors are
        traceback.print_exc()
        return 500, "the model failed on this text: the server's log says how"


def prediction_body(served: Served, request: Request, found: list[ServedText]) -> dict[str, Any]:
    """What POST /predict answers; probabilities have all their digits.

    Args:
        found: what is known of the texts already; empty: nothing.
    """
    predictor = served.predictor
    texts, pairs = request["texts"], request["pairs"]
    thresholds = request_thresholds(predictor, request["thresholds"])
    if served.config.data.on_bad_row is OnBadRow.drop and len(pairs or texts) == len(texts):
        empty = empty_rows(texts, pairs)
        if empty:
            return body_with_gaps(served, request, empty)
    predictor.check(texts, pairs, filled=True)
    rows: list[dict[str, Any]] = []
    for at, (prediction, marks) in enumerate(found or served.answers_alone(texts, pairs)):
        ranked = sorted(prediction.probabilities.items(), key=lambda pair: -pair[1])
        row: dict[str, Any]
        if isinstance(prediction, Prediction):
            row = {"label": prediction.label}
        elif thresholds is None:
            row = {"labels": prediction.labels}
        else:
            row = {"labels": [name for name, value in ranked if value >= thresholds[name]]}
        if request["top_k"]:
            row["probabilities"] = dict(ranked[: request["top_k"]])
        else:
            row["probabilities"] = dict(prediction.probabilities)
        for rule, marks_1 in zip(served.rules, marks, strict=True):
            rule.apply([row], [prediction], marks_1)
        if request["members"]:
            row["members"] = of_members(served, texts[at], pairs[at] if pairs else None)
        rows.append(row)
    return {"predictions": rows}


def body_with_gaps(served: Served, request: Request, empty: set[int]) -> dict[str, Any]:
    """`prediction_body` of a request some of whose rows are empty: those get no label."""
    texts, pairs = request["texts"], request["pairs"]
    filled = [at for at in range(len(texts)) if at not in empty]
    request = request | {"texts": [texts[at] for at in filled]}
    if pairs:
        request["pairs"] = [pairs[at] for at in filled]
    answers = prediction_body(served, request, [])["predictions"]
    gap: dict[str, Any] = {"labels" if served.predictor.multi else "label": None, "probabilities": {}}
    for rule in served.rules:
        gap |= dict.fromkeys(rule.columns)
    rows = [gap] * len(texts)
    for at, answer in zip(filled, answers, strict=True):
        rows[at] = answer
    return {"predictions": rows}


def of_members(served: Served, text: str, pair: str | None) -> dict[str, dict[str, float]]:
    """The probabilities of each member asked alone, by its name."""
    predictor, member = served.predictor, served.config.members
    logits = predictor.member_logits([text], None if pair is None else [pair])
    if member is not Member.all:  # that one alone answers
        logits = {member.name: logits.get("both", logits["network"])}
    found = {}
    for name, logits_1C in logits.items():
        found[name] = dict(zip(predictor.labels, predictor.probabilities(logits_1C)[0].tolist(), strict=True))
    return found


def empty_rows(texts: list[str], pairs: list[str] | None) -> set[int]:
    """The numbers of the texts, or pairs, that are empty and so have no answer."""
    return {*text_faults(texts, "the text"), *text_faults(pairs or [], "the second text")}


def request_thresholds(predictor: TextClassifier, asked: float | dict[str, float] | None) -> dict[str, float] | None:
    """The thresholds that a request has, by label; None: it has none, and those of the model hold."""
    if asked is None:
        return None
    if predictor.thresholds is None:
        raise UserError("thresholds are given, but the model gives each text one class: leave them out")
    if not isinstance(asked, dict):
        return dict.fromkeys(predictor.labels, asked)
    if unknown := [name for name in asked if name not in predictor.labels]:
        raise UserError(f"thresholds names {unknown[0]!r}, which is no label of the model: see labels of /metadata")
    return dict(zip(predictor.labels, predictor.thresholds, strict=True)) | asked


if __name__ == "__main__":
    main()
