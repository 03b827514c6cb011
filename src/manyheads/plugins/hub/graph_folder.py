"""`manyheads export format=onnx`, `browser` and `torch`: a graph (graph.py) in a folder with predict.py, which answers
texts by it without manyheads: onnxruntime runs it without torch, or torch.export loads it.
"""

import inspect
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import torch
from jinja2 import StrictUndefined, Template
from tokenizers import Tokenizer
from torch import Tensor

import manyheads.plugin as plugin
from manyheads.config import Long, ModelConfig, Terms
from manyheads.data.formats.fields import SPELLINGS, reader_of
from manyheads.data.ids.terms import list_terms
from manyheads.data.tokenizer import PROBE, copy_tokenizer, names_of_marks
from manyheads.data.tokens import segments_of, texts_of_marks
from manyheads.errors import UserError
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.format import GRAPH, PROGRAM, write_settings
from manyheads.plugin import VERSION
from manyheads.plugins.hub.browser import ABOUT_PAGE, write_browser_files
from manyheads.plugins.hub.config import ExportConfig, Format, Members, Rounding
from manyheads.plugins.hub.graph import quantise, write_graph
from manyheads.plugins.hub.parity import Ask, apart, changed_by_rounding, hold_to_run, rows_to_compare
from manyheads.runs.files import write_json

HERE = Path(__file__).parent
SCRIPT = HERE / "templates" / "predict.py.j2"
ASK = """import json, sys
from predict import Classifier
made = Classifier(".")
for line in sys.stdin:
    print(json.dumps(made.logits(*json.loads(line)).tolist()), flush=True)
"""
FILES = {Format.onnx: GRAPH, Format.browser: GRAPH, Format.torch: PROGRAM}
READERS = {Format.onnx: "onnxruntime", Format.browser: "onnxruntime", Format.torch: "torch"}
OPENED = " Where manyheads\nis there, `manyheads predict` and `evaluate` take this folder as `run=`, too."
INPUTS = {
    "ids": "`ids` (int64)",
    "real": "`real` (bool: true on tokens, which come first, false on padding)",
    "segments": "`segments` (int64: 0 on tokens of the first text, 1 on those of the second, 2 more where the type id "
    "of the tokenizer is the other one, 4 more on a second mark between the texts)",
    "terms": "`terms` (int64, three columns: the number of the text, the number of a term, how often it has it)",
}
TYPED = {  # by whether the tokenizer takes marks in texts as text
    True: "A mark such as [SEP] or </s> that is typed in a text is text.",
    False: "A mark such as [SEP] or </s> that is typed in a text is that mark, as it was in training.",
}
OUTPUTS_OF_BOTH = ", and `network_logits` and `linear_logits`, those of either member alone"
TO_SET = "\nThe tokenizer reads it so once its `encode_special_tokens` is set, as predict.py does."
README = """# A text classifier for {reader}

    python predict.py {example}
    python predict.py <texts.txt >labels.jsonl
    python predict.py --file rows.csv labels.csv

The first prints labels, the second answers each line of a file, and the third the rows of a .csv or .tsv; both write
labels and probabilities. In a program: `Classifier(folder).predict({asked})`, `.top_k`, `.probabilities`, `.logits`.
It needs {reader}, tokenizers and numpy.
`{file}` takes {inputs}; those of tokens have the shape (texts, tokens).
It gives `logits` (texts, {n_classes}){outputs}.{opened}

{labelled}
Texts are cut at their end after {max_length} tokens. {typed}
{page}
Exported by manyheads {version}.

Compared with the run on {compared}.
"""


def carries_linear(predictor: TextClassifier, members: Members) -> bool:
    """Whether the graph holds the linear model, too: where that has a share in the answers, and counts terms of single
    texts.

    Raises:
        UserError: `members=all`, but it cannot be carried; the rest of a sentence about the run.
    """
    if members is Members.all and predictor.share and predictor.pairs:
        raise UserError(
            "has a linear model that counts which terms both texts of a pair have, and which one has alone: a graph "
            "counts the terms of single texts; use members=network"
        )
    return members is not Members.network and predictor.share > 0 and not predictor.pairs


def write_graph_folder(part: Path, predictor: TextClassifier, model: Path, config: ExportConfig) -> str:
    """Fill the folder; returns what it was compared on, and by how much it differs.

    Args:
        model: the folder that `predictor` was opened from.

    Raises:
        UserError: the graph does not answer as the run does; the rest of a sentence about the run.
    """
    kind, both = config.format, carries_linear(predictor, config.members)
    compared = rows_to_compare(predictor, model)
    tokenizer, is_plain = plain_tokenizer(predictor.tokenizer)
    tokenizer.enable_padding()
    tokenizer.enable_truncation(predictor.max_length, strategy="longest_first")
    (part / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    if kind is Format.browser:  # which may refuse, before the graph takes its time
        write_browser_files(part, predictor, both=both, is_plain=is_plain)
    inputs = write_graph(part / FILES[kind], predictor, kind, both=both)
    settings = replace(predictor.settings, long=Long.cut)
    if not both:
        settings = replace(settings, linear=0.0, terms=None, temperature=1.0)
    if settings.plugins and not settings.kept:  # users' blocks are in the graph, which opens without their plugin
        blocks = {"network": ", ".join(settings.plugins), "model": ModelConfig(pair=settings.model.pair)}
        settings = replace(settings, plugins=[], **blocks)
    (part / "config.json").write_text(write_settings(settings), encoding="utf-8")
    write_json(part / "labels.json", predictor.labels, indent=0)
    thresholds = {"both": predictor.thresholds, **predictor.member_thresholds}
    if not both:  # the network answers alone, by its own thresholds if it has any
        thresholds = {"both": predictor.member_thresholds.get("network", predictor.thresholds)}
    if predictor.multi:
        write_json(part / "thresholds.json", thresholds, indent=0)
    example, asked = '"a text" "another text"', "texts"
    if predictor.pairs:
        example, asked = '"a text" "its pair"', "texts, pairs"
    read = ""
    if reader_of(settings.kept) is not None:
        (code,) = [plugin.resolve(section.script) for section in plugin.sections("data") if section.script]
        shutil.copyfile(inspect.getfile(code), part / "reading.py")
        read = code.__name__
    script = script_for(predictor, kind, settings.terms, example=example, is_plain=is_plain, read=read)
    (part / "predict.py").write_text(script, encoding="utf-8")
    if settings.terms is not None:
        shutil.copyfile(inspect.getfile(list_terms), part / "linear_terms.py")
    with running_script(part) as exact:
        said = f"{compared.said}: {hold_to_run(predictor, exact, compared, kind, both=both)}"
        if config.precision is Rounding.int8:
            quantise(part / GRAPH)  # the script that runs has opened the graph before: it still answers in fp32
            with running_script(part) as rounded:
                what, worst, _ = apart(predictor, rounded, compared, both=both)
                least, most = thresholds["both"] or [], config.max_changed
                changed = changed_by_rounding(predictor, exact, rounded, compared.rows, most, least)
            said = (
                f"{compared.said}: {what} in 8 bits differ by up to {worst:.1e}, which has no bound; {changed}; "
                f"more than max_changed={most} of them would have been refused"
            )
    labelled = "A text has one label, that of the largest logit."
    if predictor.multi:
        labelled = "A text has each label whose probability, the sigmoid of its logit, reaches its threshold."
    typed = TYPED[predictor.tokenizer.encode_special_tokens]
    if not is_plain:
        typed += TO_SET
    readme = README.format(
        reader=READERS[kind],
        file=FILES[kind],
        example=example,
        asked=asked,
        inputs=", ".join(INPUTS[name] for name in inputs),
        n_classes=len(predictor.labels),
        outputs=OUTPUTS_OF_BOTH if both else "",
        opened=OPENED if FILES[kind] == GRAPH else "",
        labelled=labelled,
        max_length=predictor.max_length,
        typed=typed,
        page=ABOUT_PAGE if kind is Format.browser else "",
        version=VERSION,
        compared=said,
    )
    (part / "README.md").write_text(readme, encoding="utf-8")
    return said


def plain_tokenizer(tokenizer: Tokenizer) -> tuple[Tokenizer, bool]:
    """A copy that takes [SEP] and other marks that are typed in a text as `tokenizer` does, and whether it does so
    without a setting of the program that opens it, which no file can hold.

    Where marks are text, that is a file in which no token is special: then there is nothing to find in texts. The
    template still puts the marks around them. It is impossible where the ids of other entries would move up.
    """
    whole = copy_tokenizer(tokenizer)
    if not tokenizer.encode_special_tokens:
        return whole, True
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = [token for token in content["added_tokens"] if not token["special"]]
    plain = Tokenizer.from_str(json.dumps(content))
    for token in content["added_tokens"]:
        if plain.token_to_id(token["content"]) != token["id"]:
            return whole, False
    typed = [PROBE, *names_of_marks(tokenizer)]
    for ours, theirs in zip(plain.encode_batch(typed), whole.encode_batch(typed), strict=True):
        if ours.ids != theirs.ids:
            return whole, False
    return plain, True


def script_for(
    predictor: TextClassifier,
    kind: Format,
    terms: Terms | None,
    *,
    example: str,
    is_plain: bool = True,
    read: str = "",
) -> str:
    """predict.py of a folder: the lines of its template that it needs. No text that comes from data is put into it.

    Args:
        read: the function of `Section.script`, in reading.py, that reads texts; empty: they are read as they are.
    """
    template = Template(
        SCRIPT.read_text(encoding="utf-8"), trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )
    fields = predictor.settings.fields
    return template.render(
        file=FILES[kind],
        reader=READERS[kind],
        example=example,
        pairs=predictor.pairs,
        marks=marks_of_segments(predictor.tokenizer) if predictor.pairs else [],
        fields=bool(fields),
        spellings=SPELLINGS.pattern,
        n_columns=max(1, len(fields)) + predictor.pairs,
        multi=predictor.multi,
        terms=terms and terms.name,
        special=not is_plain,
        read=read,
    )


def marks_of_segments(tokenizer: Tokenizer) -> list[int]:
    """`texts_of_marks`; none if the type ids of a pair are the segments, as they are not with RoBERTa's tokenizers."""
    probe, marks = tokenizer.encode(PROBE, PROBE), texts_of_marks(tokenizer)
    return [] if segments_of(probe, marks) == probe.type_ids else marks


@contextmanager
def running_script(folder: Path) -> Iterator[Ask]:
    """The logits that predict.py of the folder gives, in a process of its own, as users run it."""
    command = [sys.executable, "-B", "-c", ASK]
    process = subprocess.Popen(  # noqa: S603 - our own words
        command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    requests, answers = process.stdin, process.stdout
    assert requests is not None
    assert answers is not None

    def logits(texts: list[str], pairs: list[str] | None) -> Tensor:
        line = ""
        with suppress(BrokenPipeError):
            print(json.dumps([texts] if pairs is None else [texts, pairs]), file=requests, flush=True)
            line = answers.readline()
        assert line, "predict.py has ended: see its messages above"
        return torch.tensor(json.loads(line), dtype=torch.float64)

    try:
        yield logits
    finally:
        process.kill()
        process.communicate()
