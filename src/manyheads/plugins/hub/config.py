"""Settings of the verbs `export` and `push`, and the files that export writes."""

from enum import Enum

from manyheads.config.data import HUB_MODEL
from manyheads.config.facts import require, section, setting
from manyheads.config.inference import finished_run
from manyheads.config.sentences import format_value
from manyheads.runs.verb_output import VerbOutput

EXPORTED = VerbOutput(
    "export",
    "README.md",
    ("Compared with the run on",),
    (
        *("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", "thresholds.json"),
        *("head.safetensors", "modules.json", "sentence_bert_config.json", "?_*/config.json", "?_*/model.safetensors"),
        *("labels.json", "predict.py", "linear_terms.py", "reading.py", "__pycache__/*.pyc", "model.onnx", "model.pt2"),
        *("index.html", "classifier.js", "linear_terms.js", "browser.json", "package.json"),
    ),
)


class Format(Enum):
    transformers = "transformers"  # a classifier for it, as one of its own families where that has the shape
    sentence_transformers = "sentence_transformers"  # an encoder and its pooling, which give a text a vector
    torch = "torch"  # a program of torch.export, with a script that answers without manyheads
    onnx = "onnx"  # a graph for onnxruntime, with a script that answers without torch
    browser = "browser"  # the same, with a page that answers in a browser


class Members(Enum):
    auto = "auto"  # all that the format carries, and what it leaves out is said first
    network = "network"  # the network alone
    all = "all"  # the network and the linear model, as the run answers


class Rounding(Enum):
    fp32 = "fp32"  # as trained and judged
    int8 = "int8"  # matrices as 8-bit integers: a quarter of the size


@section()
class ExportConfig:
    """All settings of `manyheads export`."""

    run: str = finished_run("to export")
    output: str = setting("", "a new folder; empty: <run>/<format>", path=True)
    overwrite: bool = setting(
        False, "an earlier export in output is replaced once the new one is whole; nothing else is"
    )
    format: Format = setting(
        Format.transformers,
        "a classifier of transformers, an encoder for vectors, a graph, or a graph with a page for browsers",
    )
    members: Members = setting(
        Members.auto, "who of the run is exported; all: refused where the format cannot carry its linear model"
    )
    precision: Rounding = setting(Rounding.fp32, "of the matrices, with format=onnx or browser")
    max_changed: float = setting(
        0.02, "share of validation rows whose answers may change by precision=int8", ge=0.0, le=1.0
    )

    def __post_init__(self) -> None:
        require(
            self.precision is Rounding.fp32 or self.format in (Format.onnx, Format.browser),
            f"precision={self.precision.name} needs format=onnx or browser, but format={self.format.name}: set "
            "both, or neither",
        )


@section()
class PushConfig:
    """All settings of `manyheads push`."""

    run: str = finished_run("to upload")
    repo: str = setting(
        "", "model on the Hugging Face hub, as name/model", required="name it, for example repo=me/reviews"
    )
    private: bool = setting(True, "a new repository is seen by its owner alone")
    revision: str = setting("main", "branch that the commit goes to, made if it is new", may_be_empty=False)
    tag: str = setting("", "tag of the commit, such as v1; empty: none")
    message: str = setting("", "message of the commit; empty: manyheads push", verbatim=True)
    dry: bool = setting(False, "list the files and their sizes, upload nothing")

    def __post_init__(self) -> None:
        found = HUB_MODEL.fullmatch(self.repo)
        require(
            found is not None and "/" in found["id"] and found["revision"] is None,
            f"repo={format_value(self.repo)} is no name of a model on the Hugging Face hub: write repo=name/model",
        )
        for name, value, kind in (("revision", self.revision, "branch"), ("tag", self.tag, "tag")):
            require(
                not value or HUB_MODEL.fullmatch(f"x@{value}") is not None,
                f"{name}={format_value(value)} is no name of a {kind}: use letters, digits, dots and dashes",
            )
