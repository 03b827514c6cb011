"""What a program reads: `--json` puts what a verb found on standard output, as one JSON document, and all else on
standard error; a mistake becomes a JSON object there, with `errors=json` alone, too.

Standard library only.
"""

import io
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from pathlib import Path, PurePath
from tempfile import TemporaryFile
from typing import Any

import manyheads.plugin as plugin
from manyheads.config import PredictConfig, RunConfig
from manyheads.config.conversion import leaves, plain_settings
from manyheads.config.facts import require
from manyheads.config.required import RequirementError
from manyheads.errors import UserError
from manyheads.plugin import Verb
from manyheads.runs.folder import refuse_unwritable_output
from manyheads.runs.result_table import is_table_file, write_tables

FLAG = "--json"
NAMED = re.compile(r"(?:^|[ (`])([a-z][\w.]*)=(\[.*?\]|\S*?)(?=[:,;)`]*(?:\s|$))")
"""`setting=value` in a sentence."""
BARE = re.compile(r"^[a-z_]+(?= is empty$)|^require(?= on )|(?<=\()data\.\w+(?=\)$)")
"""The setting of a sentence that has no value, as in "run is empty" and "has no column 'text' (data.text)"."""


def take_readers(words: list[str]) -> tuple[list[str], bool]:
    """The words without `--json` and `errors=`, and whether a document is asked for.

    Raises:
        UserError: `errors` has another value than json or text.
    """
    rest = list[str]()
    for word in words:
        if word.startswith("errors=") and word not in ("errors=json", "errors=text"):
            raise UserError(f"{word} is not a choice: choose json or text")
        if word != FLAG and not word.startswith("errors="):
            rest.append(word)
    return rest, FLAG in words


def wants_json_errors(words: list[str]) -> bool:
    """Whether a mistake in these words is said as a JSON object."""
    typed = [word for word in words if word == FLAG or word.startswith("errors=")]
    return bool(typed) and typed[-1] in (FLAG, "errors=json")


def as_document(value: Any) -> str:
    """A record as JSON text."""
    return json.dumps(plain(value), ensure_ascii=False, indent=1, allow_nan=False)


def train_record(run: RunConfig) -> Any:
    """`manyheads train --json`: the content of summary.json, or metrics.json of all folds, also of a run that was
    finished already, or where a figure is not as `require` asks; None after a dry run."""
    try:
        return plugin.resolve("manyheads.training_run:train")(run) or _written_figures(run)
    except RequirementError as missed:
        missed.summary = missed.summary or _written_figures(run)
        raise


def _written_figures(run: RunConfig) -> Any:
    for file in (Path(run.output, name) for name in ("summary.json", "metrics.json")):
        if run.output and file.is_file():
            return json.loads(file.read_text(encoding="utf-8"))
    return None


def predict_record(config: PredictConfig) -> Any:
    """`manyheads predict --json`: a list of all answers, or what was written to `output`."""
    predict = plugin.resolve("manyheads.inference.predict:predict")
    if config.output != "-":
        return {"output": config.output, "rows": predict(config)}
    with TemporaryFile() as lines:
        with output_to(lines.fileno()):
            predict(config)
        lines.seek(0)
        return [json.loads(line) for line in lines]


def found_by(verb: Verb, config: Any, *, as_record: bool) -> Any:
    """Call a verb; returns what it found. Where its `output` names a file of tables or a figure (see `result_table`),
    it works as without `output`, and the file is written of its document, also where a figure is not as `require` asks.
    """
    code, output = (verb.record or verb.run) if as_record else verb.run, getattr(config, "output", "")
    if verb.name not in plugin.names("record") or not is_table_file(output):
        return plugin.resolve(code)(config)
    for name, value in leaves(plain_settings(config)):
        if name != "output" and isinstance(value, str) and os.path.isfile(value) and os.path.isfile(output):
            is_other = not os.path.samefile(value, output)
            require(is_other, f"output={output} is a file that {name}={value} reads: name another file")
    refuse_unwritable_output(output, Path(output).parent)
    Path(output).parent.mkdir(parents=True, exist_ok=True)
    make_tables = plugin.make("record", verb.name)
    try:
        found = plugin.resolve(verb.record or verb.run)(replace(config, output=""))
    except RequirementError as missed:
        write_tables(output, make_tables(plain(missed.summary)))
        raise
    write_tables(output, make_tables(plain(found)))
    return found


@contextmanager
def output_to(file: int) -> Iterator[None]:
    """What is printed within the block goes to a file descriptor, also by processes that are started there."""
    sys.stdout.flush()
    output = os.dup(1)
    os.dup2(file, 1)
    stream = io.TextIOWrapper(os.fdopen(os.dup(1), "wb"), encoding="utf-8", write_through=True)
    try:
        with stream, redirect_stdout(stream):
            yield
    finally:
        os.dup2(output, 1)
        os.close(output)


def plain(value: Any) -> Any:
    """A record as dicts, lists and scalars: paths become texts, choices their names, and non-finite numbers null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if names := getattr(value, "_fields", None):  # of a NamedTuple
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, PurePath):
        return str(value)
    if to_list := getattr(value, "tolist", None):  # of an array or a tensor
        return plain(to_list())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def mistake(sentence: str, code: int, words: Iterable[str] = ()) -> dict[str, Any]:
    """A sentence, and what can be read from it: it names a setting and its value, then the rule, then the remedy. Where
    a value ends, if it has spaces, the `words` say that were typed.

    `setting`, `value`, `rule`, `remedy` and `suggestion` are null where the sentence has none.
    """
    head = sentence.partition(": ")[0]
    named, bare = NAMED.search(head), BARE.search(head)
    setting, value = (named[1], named[2]) if named else (bare and bare[0], None)
    rule, colon, remedy = sentence.rpartition(": ")
    if named:
        typed = [word.partition("=")[2].strip("'\"") for word in words if word.startswith(f"{setting}=")]
        typed += [os.path.abspath(os.path.expanduser(one)) for one in typed]
        value = max([named[2], *(one for one in typed if sentence.startswith(one, named.start(2)))], key=len)
        rule = rule[named.start(2) + len(value) :]
    meant = re.search(r"did you mean (.+?)\?", sentence)
    return {
        "code": code,
        "message": sentence,
        "setting": setting,
        "value": value,
        "rule": rule.strip(" ,:") or None,
        "remedy": remedy if colon else None,
        "suggestion": meant[1] if meant else None,
    }
