"""`manyheads export format=onnx` and `format=torch`: the network of a classifier as a graph, without a line of ours in
it: onnxruntime runs it without torch, or torch.export loads it.

The folder is compared with the run before it takes its name, by the very script that it ships: where a logit differs by
more than `BOUND`, nothing is written.

B texts of a batch . L tokens . C classes
"""

import io
import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from importlib.util import find_spec
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from manyheads.config import ExportConfig, Format, Long, PairKind, Rounding
from manyheads.config.fields import show
from manyheads.data.rows import Rows
from manyheads.data.texts import read_rows
from manyheads.data.tokens import encode
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.format import GRAPH, run_folder, write_settings
from manyheads.layout import Padded
from manyheads.nn import Classifier
from manyheads.runs.folder import replace_folder

BOUND = 1e-4  # of a logit, in fp32 on both sides: sums are rounded in another order
PACKAGES = {Format.onnx: ("onnx", "onnxscript", "onnxruntime"), Format.torch: ()}
COMPARED, JUDGED = 200, 2000  # rows of the validation split
TOGETHER = 16  # texts of a batch
UNKNOWN = "\u17a3\u2603 \u03a9\u0436 \U0001f600"
FILES = {Format.onnx: GRAPH, Format.torch: "model.pt2"}
READERS = {Format.onnx: "onnxruntime", Format.torch: "torch"}
NEEDED = {Format.onnx: "onnxruntime, tokenizers and numpy", Format.torch: "torch and tokenizers"}
OPENED = {
    Format.onnx: " Where manyheads\nis there, `manyheads predict` and `evaluate` take this folder as `run=`, too.",
    Format.torch: "",
}
README = """# A text classifier for {reader}

`python predict.py "a text"` prints its label; in a program, `Classifier(folder).predict(texts)` and `.logits(texts)`.
It needs {needed}. `{file}` takes `ids` (int64) and `real` (bool: true on tokens, which
come first, false on padding), both of shape (texts, tokens), and gives `logits` (texts, {n_classes}).{opened}

{labelled}
Texts are cut at their end after {max_length} tokens.

Exported by manyheads {version}, and compared with the run on {compared}.
The logits differ by at most {worst:.1e}; more than {bound:.0e} would have been refused.
"""


class Graph(nn.Module):
    """The network on padded texts: ids and mask `(B, L)` to logits `(B, C)`."""

    def __init__(self, network: Classifier) -> None:
        super().__init__()
        self.network = network

    def forward(self, ids: Tensor, real: Tensor) -> Tensor:
        return self.network(ids, Padded(real)).float()


def check_graph(predictor: TextClassifier, kind: Format) -> None:
    """Raise ValueError, the rest of a sentence about the run, where its network cannot be written as a graph."""
    model = predictor.model
    if model.is_recurrent:
        raise ValueError(
            f"has model.encoder={model.encoder.name}, whose steps format={kind.name} cannot carry: train one with "
            "model.encoder=transformer"
        )
    if predictor.pairs or model.pair is PairKind.cross:
        raise ValueError(
            f"reads pairs of texts, but format={kind.name} carries single texts alone: answer them by manyheads"
        )
    missing = [one for one in PACKAGES[kind] if find_spec(one) is None]
    if missing:
        raise ValueError(f"cannot be exported without the package {missing[0]}: pip install 'manyheads[onnx]'")


def export_graph(folder: Path, predictor: TextClassifier, model: Path, config: ExportConfig) -> str:
    """Write the folder, whole or not at all; returns what it was compared on, and by how much it differs.

    Args:
        model: the folder that `predictor` was opened from.

    Raises:
        ValueError: the graph does not answer as the network.
    """
    from manyheads import __version__

    kind, script = config.format, script_of(config.format)
    rows = validation_rows(model)
    texts, compared = texts_to_compare(predictor, rows)
    plain = Tokenizer.from_str(predictor.tokenizer.to_str())
    plain.no_padding()
    plain.no_truncation()
    thresholds = predictor.thresholds and predictor.member_thresholds.get("network", predictor.thresholds)
    with replace_folder(folder) as part:
        write_graph(part / FILES[kind], predictor.network, kind)
        (part / "tokenizer.json").write_text(plain.to_str(pretty=True), encoding="utf-8")
        settings = replace(predictor.settings, linear=0.0, terms=None, temperature=1.0, long=Long.cut)
        (part / "config.json").write_text(write_settings(settings), encoding="utf-8")
        for name, known in {"labels": predictor.labels, "thresholds": thresholds}.items():
            if known is not None:
                text = json.dumps(known, indent=0, ensure_ascii=False)
                (part / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
        (part / "predict.py").write_text(Path(script.__file__).read_text(encoding="utf-8"), encoding="utf-8")
        worst, at = difference(predictor, script.Classifier(part), texts)
        if not worst <= BOUND:
            raise ValueError(
                f"{model} answers otherwise as a graph: the logits of {show(texts[at][:60])} differ by {worst:.1e}, "
                f"more than {BOUND:.0e}: nothing is written; use format=transformers, and report the shape"
            )
        said = f"{compared}: logits differ by at most {worst:.1e}"
        rounded = ""
        if config.precision is Rounding.int8:
            rounded = quantise(part, script.Classifier(part), rows, config.max_changed)
            said = f"{said}; {rounded}"
        labelled = "A text has one label, that of the largest logit."
        if thresholds:
            labelled = "A text has each label whose probability, the sigmoid of its logit, reaches its threshold."
        facts: dict[str, Any] = {"n_classes": len(predictor.labels), "max_length": predictor.max_length}
        facts |= {"file": FILES[kind], "reader": READERS[kind], "needed": NEEDED[kind], "opened": OPENED[kind]}
        facts |= {"version": __version__}
        readme = README.format(**facts, labelled=labelled, compared=compared, worst=worst, bound=BOUND)
        readme += f"Its matrices are 8-bit integers: {rounded}.\n" * bool(rounded)
        (part / "README.md").write_text(readme, encoding="utf-8")
    return said


def script_of(kind: Format) -> Any:
    """The module whose text is the script in the folder."""
    from manyheads.huggingface import torch_predict

    if kind is Format.torch:
        return torch_predict
    from manyheads.huggingface import onnx_predict  # the one that needs onnxruntime

    return onnx_predict


def write_graph(file: Path, network: Classifier, kind: Format) -> None:
    """The network in fp32, its axes of texts and tokens free; where its lines were written is left out."""
    ids = torch.randint(0, network.embeddings.words.num_embeddings, (3, 4), generator=torch.Generator().manual_seed(0))
    real = torch.arange(4) < torch.tensor([4, 2, 3])[:, None]
    free = dict.fromkeys((0, 1), torch.export.Dim.DYNAMIC)
    with torch.no_grad(), quietly():
        program = torch.export.export(
            Graph(network).float().cpu().eval(), (ids, real), dynamic_shapes={"ids": free, "real": free}
        )
        if kind is Format.torch:
            for node in program.graph.nodes:
                node.meta.pop("stack_trace", None)
            torch.export.save(program, file)
            return
        written = torch.onnx.export(
            program, dynamo=True, verbose=False, input_names=["ids", "real"], output_names=["logits"]
        )
        assert written is not None
        for node in written.model.graph.all_nodes():
            node.metadata_props.clear()
        written.save(file)


@contextmanager
def quietly() -> Iterator[None]:
    """The exporter tells of torchvision, versions and passes, which are none of the user's business."""
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


def validation_rows(model: Path) -> Rows | None:
    """Those of the run that a model/ folder lies in; None where there is no run, or its data cannot be read."""
    from manyheads.runs.config_file import read_run  # the one that needs yaml

    home = run_folder(model)
    try:
        return None if home is None else read_rows(read_run(home), with_test=False).validation
    except (ValueError, OSError):
        return None


def texts_to_compare(predictor: TextClassifier, rows: Rows | None) -> tuple[list[str], str]:
    """Texts of the validation rows, or else of the vocabulary, and some odd ones; and what they are."""
    words = [word for word in sorted(predictor.tokenizer.get_vocab()) if word.isalpha()] or ["a"]
    odd = ["", words[0], " ".join(islice(cycle(words), 2 * predictor.max_length)), UNKNOWN]
    if rows is not None:
        found = [str(text) for text in rows.texts[:COMPARED]]
        said = f"{len(found)} texts of its validation split"
    else:
        step = max(1, len(words) // COMPARED)
        found = [" ".join(words[at : at + 12]) for at in range(0, len(words), step)][:COMPARED]
        said = f"{len(found)} texts made of its vocabulary, as its data cannot be read,"
    return [*found, *odd], f"{said} and {len(odd)} odd ones (empty, one word, the longest, unknown letters)"


def difference(predictor: TextClassifier, exported: Any, texts: Sequence[str]) -> tuple[float, int]:
    """The largest difference of a logit, and the text it belongs to; infinite where one is not a number."""
    encoded = encode(predictor.tokenizer, list(texts), None, None, predictor.max_length)  # cut as the script cuts
    apart_n = (predictor.run(encoded).values - logits_of(exported, texts)).abs().amax(1).nan_to_num(nan=torch.inf)
    return float(apart_n.max()), int(apart_n.argmax())


def logits_of(exported: Any, texts: Sequence[str]) -> Tensor:
    """Logits `(n, C)` by the script, some texts at a time."""
    parts = [exported.logits(list(texts[at : at + TOGETHER])) for at in range(0, len(texts), TOGETHER)]
    return torch.cat([torch.as_tensor(one) for one in parts])


def answers_of(exported: Any, texts: Sequence[str]) -> list[Any]:
    """A label, or a list of them, for each text."""
    return [one for at in range(0, len(texts), TOGETHER) for one in exported.predict(texts[at : at + TOGETHER])]


def quantise(part: Path, exported: Any, rows: Rows | None, most: float) -> str:
    """Turn the matrices of model.onnx into 8-bit integers; returns how that changed the answers to the validation rows.

    Raises:
        ValueError: there are no such rows, or more than `most` of them are answered otherwise.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from scipy.stats import binomtest

    if rows is None:
        raise ValueError("precision=int8 is judged on the validation rows of the run, whose data cannot be read: give "
                         "the data back its place, or use precision=fp32")  # fmt: skip
    texts = [str(text) for text in rows.texts[:JUDGED]]
    before = answers_of(exported, texts)
    with quietly():
        quantize_dynamic(part / GRAPH, part / "int8.onnx", weight_type=QuantType.QInt8)
    (part / "int8.onnx").replace(part / GRAPH)
    after = answers_of(type(exported)(part), texts)
    changed = sum(one != other for one, other in zip(before, after, strict=True)) / len(texts)
    if changed > most:
        raise ValueError(f"precision=int8 changes the answers to {changed:.1%} of {len(texts):,} validation rows, more "
                         f"than max_changed={most}: nothing is written; use precision=fp32")  # fmt: skip
    names = exported.labels
    true = [names[label] for label in rows.labels[: len(texts)]]
    if rows.sets is not None:
        true = [[names[label] for label in sorted(one)] for one in rows.sets[: len(texts)]]

    def accuracy(answers: list[Any]) -> str:
        right = sum(one == other for one, other in zip(answers, true, strict=True))
        low, high = binomtest(right, len(true)).proportion_ci(method="wilson")
        return f"{right / len(true):.4f} ({low:.3f}-{high:.3f})"

    return (
        f"int8 changes the answers to {changed:.1%} of {len(texts):,} validation rows, on which accuracy is "
        f"{accuracy(after)} for {accuracy(before)} in fp32"
    )
