"""`manyheads export format=onnx` and `format=torch`: a classifier as a graph, without a line of ours in it: onnxruntime
runs it without torch, or torch.export loads it. A script in its folder, predict.py, answers texts.

B texts of a batch . L tokens . E terms of all texts of a batch . C classes
"""

import io
import json
import logging
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from manyheads.config import Long, Terms
from manyheads.config.sentences import install_extra
from manyheads.data.tokens import PROBE, copied, names_of_marks
from manyheads.errors import UserError
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.format import GRAPH, PROGRAM, TYPED, write_settings
from manyheads.layout import Padded
from manyheads.linear.blend import blended
from manyheads.linear.model import LinearModel
from manyheads.plugins.hub.config import ExportConfig, Format, Members, Rounding
from manyheads.plugins.hub.parity import Ask, apart, changed_by_rounding, hold_to_run, rows_to_compare
from manyheads.training.own_parts import own_blocks

SCRIPT = Path(__file__).with_name("predict_script.py")
ASK = """import json, sys
from predict import Classifier
made = Classifier(".")
for line in sys.stdin:
    print(json.dumps(made.logits(*json.loads(line)).tolist()), flush=True)
"""
MARKER = re.compile(r" *# (?:if (\w+)|end)")
BETWEEN_IMPORTS = re.compile(r"(?m)(^(?:import|from) .*)\n\n+(?=import |from )")
PACKAGES = {Format.onnx: ("onnx", "onnxscript", "onnxruntime"), Format.torch: ()}
OPSET = 23  # the first with attention as one operation: one text of 50 tokens in less time than by its parts
FILES = {Format.onnx: GRAPH, Format.torch: PROGRAM}
READERS = {Format.onnx: "onnxruntime", Format.torch: "torch"}
OPENED = {
    Format.onnx: " Where manyheads\nis there, `manyheads predict` and `evaluate` take this folder as `run=`, too.",
    Format.torch: "",
}
INPUTS = {
    "ids": "`ids` (int64)",
    "real": "`real` (bool: true on tokens, which come first, false on padding)",
    "segments": "`segments` (int64: 0 on tokens of the first text, 1 on those of the second, 2 more where the type id "
    "of the tokenizer is the other one)",
    "terms": "`terms` (int64, three columns: the number of the text, the number of a term, how often it has it)",
}
TO_SET = "\nThe tokenizer reads it so once its `encode_special_tokens` is set, as predict.py does."
README = """# A text classifier for {reader}

`python predict.py {example}` prints its label, and `python predict.py --file rows.csv labels.csv` adds labels and
probabilities to the rows of a .csv or .tsv, or to the lines of any other file. In a program there are
`Classifier(folder).predict({asked})`, `.top_k`, `.probabilities` and `.logits`, which all answer in batches.
It needs {reader}, tokenizers and numpy.
`{file}` takes {inputs}; those of tokens have the shape (texts, tokens).
It gives `logits` (texts, {n_classes}){outputs}.{opened}

{labelled}
Texts are cut at their end after {max_length} tokens. {typed}

Exported by manyheads {version}.

Compared with the run on {compared}.
"""


class Graph(nn.Module):
    """The network on padded texts, `inputs` to logits `(B, C)`. With a linear member there are three of them: of both
    together, of the network and of the linear model."""

    def __init__(self, predictor: TextClassifier, *, both: bool) -> None:
        super().__init__()
        self.network = predictor.network.float().cpu().eval()
        self.blend, self.multi = predictor.blend if both else None, predictor.multi
        self.linear = self.blend.linear if self.blend else None  # so that its tensors have names

    def forward(
        self, ids: Tensor, real: Tensor, segments: Tensor | None = None, terms: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        network_BC = self.network(ids, Padded(real), segments).float()
        if self.blend is None or terms is None:
            return (network_BC,)
        linear_BC = votes(self.blend.linear, terms, ids.size(0))
        of_both = blended(network_BC, linear_BC, self.blend.share, self.blend.temperature, multi=self.multi)
        return of_both, network_BC, linear_BC


def votes(linear: LinearModel, terms_E3: Tensor, n_texts: int) -> Tensor:
    """`LinearModel.forward` by operations that a graph has: a term is found by halving the list of all."""
    rows_E, terms_E, counts_E = terms_E3.unbind(1)
    n_terms, at_E = len(linear.terms_U), torch.zeros_like(terms_E)
    for power in reversed(range(n_terms.bit_length())):
        probe_E = (at_E + 2**power).clamp(max=n_terms - 1)
        at_E = torch.where(linear.terms_U[probe_E] <= terms_E, probe_E, at_E)
    weight_E = counts_E * linear.rarity_U[at_E] * (linear.terms_U[at_E] == terms_E)
    squares_B = weight_E.new_zeros(n_texts).index_add(0, rows_E, weight_E.square())
    weight_E = weight_E * squares_B.clamp(min=1e-12).rsqrt()[rows_E]
    none_BC = weight_E.new_zeros(n_texts, len(linear.bias_C))
    return none_BC.index_add(0, rows_E, linear.votes_UC[at_E] * weight_E[:, None]) + linear.bias_C


def carries_linear(predictor: TextClassifier, members: Members) -> bool:
    """Whether the graph holds the linear model, too: where it has a share and its terms are of one text.

    Raises:
        UserError: the rest of a sentence about the run: it is asked for, and cannot be carried.
    """
    if members is Members.all and predictor.share and predictor.pairs:
        raise UserError(
            "has a linear model that counts which terms both texts of a pair have, and which one has alone: a graph "
            "counts the terms of single texts; use members=network"
        )
    return members is not Members.network and predictor.share > 0 and not predictor.pairs


def check_packages(kind: Format) -> None:
    """Raise UserError, the rest of a sentence about the run, where what writes and reads the format is missing."""
    missing = [one for one in PACKAGES[kind] if find_spec(one) is None]
    if missing:
        raise UserError(f"cannot be exported without the package {missing[0]}: {install_extra('onnx')}")


def export_graph(part: Path, predictor: TextClassifier, model: Path, config: ExportConfig) -> str:
    """Fill the folder; returns what it was compared on, and by how much it differs.

    Args:
        model: the folder that `predictor` was opened from.

    Raises:
        UserError: the rest of a sentence about the run: the graph does not answer as it does.
    """
    from manyheads.plugin import VERSION

    kind, both = config.format, carries_linear(predictor, config.members)
    compared = rows_to_compare(predictor, model)
    members = predictor.member_thresholds
    thresholds = {"both": members.get("network", predictor.thresholds)}
    if both:
        thresholds = {"both": predictor.thresholds, **members}
    inputs = write_graph(part / FILES[kind], predictor, kind, both=both)
    padding, is_plain = plain_tokenizer(predictor.tokenizer)
    padding.enable_padding()
    padding.enable_truncation(predictor.max_length, strategy="longest_first")
    (part / "tokenizer.json").write_text(padding.to_str(pretty=True), encoding="utf-8")
    settings = replace(predictor.settings, long=Long.cut)
    if not both:
        settings = replace(settings, linear=0.0, terms=None, temperature=1.0)
    (part / "config.json").write_text(write_settings(settings), encoding="utf-8")
    labels = json.dumps(predictor.labels, indent=0, ensure_ascii=False)
    (part / "labels.json").write_text(f"{labels}\n", encoding="utf-8")
    if predictor.multi:
        (part / "thresholds.json").write_text(f"{json.dumps(thresholds, indent=0)}\n", encoding="utf-8")
    script = script_for(predictor, kind, settings.terms, is_plain=is_plain)
    (part / "predict.py").write_text(script, encoding="utf-8")
    with running_script(part) as exact:
        said = f"{compared.said}: {hold_to_run(predictor, exact, compared, kind, both=both)}"
        if config.precision is Rounding.int8:
            quantise(part)  # the texts compared so far have opened the graph before rounding
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
    readme = README.format(
        example='"a text" "its pair"' if predictor.pairs else '"a text"',
        asked="texts, their pairs" if predictor.pairs else "texts",
        inputs=", ".join(INPUTS[one] for one in inputs),
        outputs=", and `network_logits` and `linear_logits`, those of either member alone" * both,
        n_classes=len(predictor.labels), max_length=predictor.max_length, file=FILES[kind], reader=READERS[kind],
        opened=OPENED[kind], version=VERSION, labelled=labelled, compared=said,
        typed=TYPED[predictor.tokenizer.encode_special_tokens] + TO_SET * (not is_plain),
    )  # fmt: skip
    (part / "README.md").write_text(readme, encoding="utf-8")
    return said


def plain_tokenizer(tokenizer: Tokenizer) -> tuple[Tokenizer, bool]:
    """A copy that takes [SEP] and other marks that are typed in a text as `tokenizer` does, and whether it does so
    whoever opens it: where nothing is special in its file but what is put around texts, there is nothing to find in
    them. That cannot be where the ids of other entries would move up."""
    whole = copied(tokenizer)
    if not tokenizer.encode_special_tokens:
        return whole, True
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = [one for one in content["added_tokens"] if not one["special"]]
    plain = Tokenizer.from_str(json.dumps(content))
    same = all(plain.token_to_id(one["content"]) == one["id"] for one in content["added_tokens"])
    typed = [PROBE, *names_of_marks(tokenizer)]
    same = same and [one.ids for one in plain.encode_batch(typed)] == [one.ids for one in whole.encode_batch(typed)]
    return (plain, True) if same else (whole, False)


def script_for(predictor: TextClassifier, kind: Format, terms: Terms | None, *, is_plain: bool = True) -> str:
    """predict.py of a folder: the lines of predict_script.py but for those that it does not need. They are between a
    line `# if WORD`, of a word that is not in `wanted`, and the next line of that kind, or `# end`."""
    wanted = {kind.name, "any" if predictor.multi else "one", "pairs" if predictor.pairs else "single"}
    if not is_plain:
        wanted.add("special")
    if predictor.pairs and type_ids_are_ambiguous(predictor.tokenizer):
        wanted.add("sequences")
    if terms is not None:
        wanted.add("terms")
        if terms is not Terms.characters:
            wanted.add("words")
        if terms is not Terms.words:
            wanted.add("runs")
    lines: list[str] = []
    is_kept = True
    _, *source = SCRIPT.read_text(encoding="utf-8").splitlines()  # the first is for our linter
    for line in source:
        marker = MARKER.fullmatch(line)
        if marker:
            is_kept = marker[1] is None or marker[1] in wanted
        elif is_kept:
            lines.append(line)
    text = "\n".join(lines) + "\n"
    return BETWEEN_IMPORTS.sub(r"\1\n", text)


def type_ids_are_ambiguous(tokenizer: Tokenizer) -> bool:
    """Whether the type ids of a pair do not say which text a token is of, as those of RoBERTa and its kin."""
    probe = tokenizer.encode(PROBE, PROBE)
    return any(text not in (None, type_id) for text, type_id in zip(probe.sequence_ids, probe.type_ids, strict=True))


@contextmanager
def running_script(folder: Path) -> Iterator[Ask]:
    """The logits that predict.py of the folder gives, in a process of its own, as users run it."""
    command = [sys.executable, "-B", "-c", ASK]
    process = subprocess.Popen(command, cwd=folder, stdin=-1, stdout=-1, text=True)  # noqa: S603 - our own words

    def logits(texts: list[str], pairs: list[str] | None) -> Tensor:
        line, ask, said = "", process.stdin, process.stdout
        with suppress(BrokenPipeError):
            print(json.dumps([texts, pairs]), file=ask, flush=True)
            line = said.readline() if said else ""
        assert line, "predict.py has ended: see its messages above"
        return torch.tensor(json.loads(line), dtype=torch.float64)

    try:
        yield logits
    finally:
        process.kill()
        process.communicate()


def write_graph(file: Path, predictor: TextClassifier, kind: Format, *, both: bool) -> list[str]:
    """The classifier in fp32, its axes of texts, tokens and terms free; where its lines were written is left out.
    Returns the names of its inputs."""
    n_ids = predictor.network.embeddings.words.num_embeddings
    inputs = {"ids": torch.randint(0, n_ids, (3, 4), generator=torch.Generator().manual_seed(0))}
    inputs["real"] = torch.arange(4) < torch.tensor([4, 2, 3])[:, None]
    if predictor.pairs:
        inputs["segments"] = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1], [0, 0, 1, 1]])
    if both:
        inputs["terms"] = torch.tensor([[0, 5, 1], [1, 7, 2], [2, 5, 1], [2, 9, 1], [2, 3, 1]])
    free: dict[str, dict[int, Any]] = {}
    for name in inputs:
        free[name] = {0: torch.export.Dim.DYNAMIC}
        if name != "terms":
            free[name][1] = torch.export.Dim.DYNAMIC
    with torch.no_grad(), quietly(), sentence_of_own_blocks(predictor, kind):
        program = torch.export.export(Graph(predictor, both=both), (), inputs, dynamic_shapes=free)
        if kind is Format.torch:
            for module in program.graph_module.modules():
                for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
                    node.meta.pop("stack_trace", None)
            torch.export.save(program, file)
            return [*inputs]
        names = ["logits", "network_logits", "linear_logits"] if both else ["logits"]
        written = torch.onnx.export(
            program, dynamo=True, verbose=False, opset_version=OPSET, input_names=[*inputs], output_names=names
        )
        assert written is not None
        for node in written.model.graph.all_nodes():
            node.metadata_props.clear()
        written.save(file)
    return [*inputs]


@contextmanager
def sentence_of_own_blocks(predictor: TextClassifier, kind: Format) -> Iterator[None]:
    """Exporters raise errors of many classes where a block of a user's cannot be traced."""
    try:
        yield
    except Exception as error:
        own = own_blocks(predictor.model)
        if not own:
            raise
        what = str(error).strip().partition("\n")[0][:120]
        raise UserError(
            f"format={kind.name} cannot trace a model with {own}: export it as format=transformers, or change the "
            f"block, such as x.size(0) in place of len(x) ({type(error).__name__}: {what})"
        ) from error


@contextmanager
def quietly() -> Iterator[None]:
    """Exporters and transformers write bars, and of versions and passes, which are none of the user's business."""
    logger = logging.getLogger("torch.onnx")
    before, logger.disabled = logger.disabled, True
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
        logger.disabled = before


def quantise(part: Path) -> None:
    """Turn the matrices of the network into 8-bit integers; the linear model stays as it is. They are of -64 to 64:
    processors with AVX2 but without VNNI add two products of such a number and one of 0 to 255 in 16 bits, where larger
    ones are cut off, so that answers would be others there than on the machine that exported them."""
    from onnx import load
    from onnxruntime.quantization import QuantType, quantize_dynamic

    nodes = load(part / GRAPH).graph.node
    linear = [node.name for node in nodes if any(name.startswith("linear.") for name in node.input)]
    kinds = ["MatMul", "Gemm", "Gather"]  # else it takes the attention for another operation of that name
    asked: dict[str, Any] = {"weight_type": QuantType.QInt8, "per_channel": True, "reduce_range": True}
    with quietly():
        quantize_dynamic(part / GRAPH, part / "int8.onnx", op_types_to_quantize=kinds, nodes_to_exclude=linear, **asked)
    (part / "int8.onnx").replace(part / GRAPH)
