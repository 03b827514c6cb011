"""All settings of train, explain, export and push, a dataclass each; config/inference.py has other verbs."""

from enum import Enum, StrEnum
from operator import attrgetter
from typing import Any

from manyheads.config.data import HUB_MODEL, BatchConfig, DataConfig, TokenizerConfig
from manyheads.config.facts import require, section, setting, settings
from manyheads.config.fields import default_trainer, one_of, show
from manyheads.config.inference import Predictions, finished_run
from manyheads.config.model import MOST_TABLE, ModelConfig, Task
from manyheads.config.required import HELP, OF_TASK, bounds_of
from manyheads.config.training import (
    FIGURES,
    CheckpointConfig,
    Compile,
    GuardConfig,
    HardwareConfig,
    LoggerConfig,
    Metric,
    OptimConfig,
    PretrainConfig,
    read_budget,
)

Resume = StrEnum("Resume", "never auto must")
MISSING = {  # settings that a run of a task, or of a recurrent model, does not have
    "seq2seq": (
        *("optim.class_weights", "optim.focal_gamma", "batch.balance", "init_from", "data.long"),
        *("optim.few", "optim.layer_decay", "optim.freeze", "data.folds"),
    ),
    "pretrain": (
        "data.folds",
        "data.group",
        "data.train_share",
        "optim.class_weights",
        "optim.focal_gamma",
        "batch.balance",
        "model.pair",
    ),
    "recurrent": ("optim.layer_decay", "optim.freeze", "hardware.recompute"),
}


@section(opening="run")
class RunConfig:
    """All settings of `manyheads train`."""

    task: Task = setting(
        Task.classify, "what a text is answered with: a class, another text, or words of it hidden", resume="refuse"
    )
    seed: int = setting(
        0, "seed of the weights, the row order, dropout and carved-out splits", ge=0, lt=2**32, resume="refuse"
    )
    output: str = setting("", "run folder; empty: a new one under outputs/", path=True, resume="free")
    init_from: str = setting(
        "",
        "trained weights to begin with: a run, a folder of BERT's family, or its id on the Hugging Face hub",
        verbatim=True,
        may_be_empty=False,
        resume="refuse",
    )
    plugins: list[str] = setting(list, "your own parts: typed as modules, kept as name, version, digest", resume="warn")
    linear: bool = setting(
        True,
        "average with a linear model, by a weight tuned on validation; false: that is a baseline alone",
        resume="warn",
        tasks=("classify",),
    )
    resume: Resume = setting(
        Resume.never,
        "auto: continue from the last checkpoint, or start; must: continue, or fail; or the folder of a run",
        resume="free",
    )
    again: str = setting(
        "",
        "folder of a run, to be trained once more: by its settings, and what else is typed",
        path=True,
        resume="free",
    )
    test: bool = setting(True, "evaluate the test split at the end; false leaves it unread", resume="free")
    require: str = setting("", HELP, verbatim=True, resume="free")
    dry: bool = setting(False, "print sizes, steps and figures of the data, train nothing", resume="free")
    budget: str = setting(
        "", "length of training, such as 10min or 20Mtok of tokens; empty: trainer.max_epochs, max_steps", resume="warn"
    )
    refit: bool = setting(
        False,
        "with data.folds: train one more model, on all rows, and keep that alone",
        resume="free",
        needs="folds",
        tasks=("classify",),
    )
    predictions: Predictions = setting(
        Predictions.csv,
        "with data.folds: kind of the file of all rows, each answered by the model that did not learn from it",
        resume="free",
        needs="folds",
        tasks=("classify",),
    )
    data: DataConfig = setting(DataConfig, "texts and labels", resume="refuse")
    tokenizer: TokenizerConfig = setting(TokenizerConfig, "text to tokens", resume="refuse")
    batch: BatchConfig = setting(BatchConfig, "tokens to batches", resume="refuse")
    model: ModelConfig = setting(ModelConfig, "the encoder classifier", resume="refuse", weights="fixed")
    optim: OptimConfig = setting(OptimConfig, "the optimiser", resume="refuse")
    pretrain: PretrainConfig = setting(
        PretrainConfig, "learning from texts alone", resume="refuse", needs="pretraining"
    )
    checkpoint: CheckpointConfig = setting(CheckpointConfig, "the weights kept")
    guard: GuardConfig = setting(GuardConfig, "steps that go wrong")
    hardware: HardwareConfig = setting(HardwareConfig, "processors", resume="warn")
    logger: LoggerConfig = setting(LoggerConfig, "logged figures", resume="free")
    trainer: dict[str, Any] = setting(default_trainer, "any other flag of Lightning's Trainer")

    def __post_init__(self) -> None:
        require(
            self.data.source != "run",
            "data.source=run is the data of a finished run, which only evaluate reads: choose demo, files or hub",
        )
        n_table = self.model.table_numbers(self.data.max_length)
        require(
            n_table <= MOST_TABLE,
            f"data.max_length={self.data.max_length} with model.d_model={self.model.d_model}, "
            f"model.d_k={self.model.d_k} and model.n_layers={self.model.n_layers} asks for tables of positions with "
            f"{n_table:,} numbers, but a model has at most {MOST_TABLE:,}: use a smaller data.max_length",
        )
        read_budget(self.budget)
        bounds_of(self.require, OF_TASK[self.task])
        self._check_kind()
        made = self.data.source if not self.data.path else None
        require(
            self.task is not Task.seq2seq or made != "demo",
            "task=seq2seq needs target texts, which data=demo lacks: name a file by data.path=<file or folder>, "
            "or use data=dates",
        )
        require(
            self.task is not Task.classify or made != "dates",
            "data=dates has target texts and no classes: add task=seq2seq, or choose other data",
        )
        figures = FIGURES[self.task]
        require(
            self.checkpoint.metric in (Metric.auto, *figures),
            f"checkpoint.metric={self.checkpoint.metric.name} is no figure of task={self.task.name}: "
            f"choose {one_of([one.name for one in figures])}",
        )
        limit = self.trainer.get("limit_val_batches")
        require(
            not self.checkpoint.patience or limit is None or limit != 0,
            f"checkpoint.patience={self.checkpoint.patience} waits for a better validation figure, which "
            f"trainer.limit_val_batches={show(limit)} leaves out: remove one of them",
        )
        self.model.check_use(self.task)
        require(
            self.optim.freeze <= self.model.n_layers,
            f"optim.freeze={self.optim.freeze} is more than the model.n_layers={self.model.n_layers} there are: use "
            f"{self.model.n_layers} at the most, with which the pooling and the head learn alone",
        )

    def _check_kind(self) -> None:
        """Refuse what a run of this task, or a recurrent model, does not have."""
        require(
            self.model.has_heads or self.hardware.compile is not Compile.always,
            f"hardware.compile=always does nothing with model.encoder={self.model.encoder}: remove it",
        )
        kinds = {self.task.name: f"task={self.task.name}"}
        if not self.model.has_heads:
            kinds["recurrent"] = f"model.encoder={self.model.encoder}"
        for kind, chosen in kinds.items():
            for name in MISSING.get(kind, ()):
                value = attrgetter(name)(self)
                if value != settings(RunConfig)[name].default:
                    raise ValueError(f"{name}={show(value)} does nothing with {chosen}: remove it")


class Claim(Enum):
    all = "all"
    formula = "formula"  # the steps from X to the output, with their shapes
    scale = "scale"  # q · k has variance d_k, and the softmax's gradients with and without 1 / √d_k
    order = "order"  # without positions the encoder is blind to order
    heads = "heads"  # h heads of d / h cost what one head of d costs
    length = "length"  # time and memory grow with T², with a window they do not
    retrieval = "retrieval"  # a low temperature turns attention into a look-up
    senses = "senses"  # the vector of "check" and "station" takes up its context
    relations = "relations"  # the weights of a sentence from a trained model


@section()
class ExplainConfig:
    """All settings of `manyheads explain`. The defaults take less than five minutes on two cores."""

    output: str = setting("", "folder of attention.json and the pictures; empty: outputs/explain-<seed>", path=True)
    only: Claim = setting(Claim.all, "one experiment; other figures stay")
    seed: int = setting(0, "seed of samples, sentences and weights", ge=0, lt=2**32)
    samples: int = setting(20_000, "random pairs of q and k for each moment", ge=500, le=10_000_000)
    repeats: int = setting(9, "timings for each median, taken in turn", ge=1, le=1000)
    longest: int = setting(4096, "longest text that is timed, in tokens", ge=128, le=65_536)
    steps: int = setting(800, "training steps of each of the two small models", ge=1, le=100_000)


class Format(Enum):
    transformers = "transformers"  # a classifier for it, as one of its own families where that has the shape
    sentence_transformers = "sentence_transformers"  # an encoder and its pooling, which give a text a vector
    torch = "torch"  # a program of torch.export, with a script that answers without manyheads
    onnx = "onnx"  # a graph for onnxruntime, with a script that answers without torch


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
        "a classifier of transformers, an encoder for vectors, or a graph",
    )
    members: Members = setting(
        Members.auto, "who of the run is exported; all: refused where the format cannot carry its linear model"
    )
    precision: Rounding = setting(Rounding.fp32, "of the matrices, with format=onnx")
    max_changed: float = setting(
        0.02, "share of validation rows whose answers may change by precision=int8", ge=0.0, le=1.0
    )

    def __post_init__(self) -> None:
        require(
            self.precision is Rounding.fp32 or self.format is Format.onnx,
            f"precision={self.precision.name} needs format=onnx, but format={self.format.name}: set both, or neither",
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
            f"repo={show(self.repo)} is no name of a model on the Hugging Face hub: write repo=name/model",
        )
        for name in ("revision", "tag"):
            value = getattr(self, name)
            require(
                not value or HUB_MODEL.fullmatch(f"x@{value}") is not None,
                f"{name}={show(value)} is no name of a {'branch' if name == 'revision' else 'tag'}: use letters, "
                "digits, dots and dashes",
            )
