"""All settings of `train`, `explain` and `export`, a dataclass each; config/inference.py has those of other verbs."""

from enum import Enum, StrEnum
from operator import attrgetter
from typing import Any

from manyheads.config.data import BatchConfig, DataConfig, Source, TokenizerConfig
from manyheads.config.facts import require, section, setting, settings
from manyheads.config.fields import default_trainer, one_of, show
from manyheads.config.inference import finished_run
from manyheads.config.model import MOST_TABLE, ModelConfig, Task
from manyheads.config.training import (
    FIGURES,
    CheckpointConfig,
    GuardConfig,
    HardwareConfig,
    LoggerConfig,
    Metric,
    OptimConfig,
    PretrainConfig,
    SlurmConfig,
    read_budget,
)

Resume = StrEnum("Resume", "never auto must")
NO_CLASSES = "classes, but task={task} has none: remove it"
NO_LAYERS = "sets the layers of self-attention and the head apart, which this model does not have: remove it"
MISSING = (  # a task, or a kind of model; a setting of what it does not have; why it is refused
    ("seq2seq", "optim.class_weights", f"weighs {NO_CLASSES}"),
    ("pretrain", "optim.class_weights", f"weighs {NO_CLASSES}"),
    ("seq2seq", "optim.focal_gamma", f"weighs rows by {NO_CLASSES}"),
    ("pretrain", "optim.focal_gamma", f"weighs rows by {NO_CLASSES}"),
    ("seq2seq", "batch.balance", f"balances {NO_CLASSES}"),
    ("pretrain", "batch.balance", f"balances {NO_CLASSES}"),
    ("seq2seq", "init_from", "begins with the weights of an encoder, but task=seq2seq has a decoder, too: remove it"),
    ("seq2seq", "data.long", f"is a way to sort long texts into {NO_CLASSES}"),
    ("seq2seq", "optim.few", "fits the head of a classifier, which task=seq2seq does not have: remove it"),
    ("seq2seq", "optim.layer_decay", NO_LAYERS),
    ("seq2seq", "optim.freeze", NO_LAYERS),
    ("recurrent", "optim.layer_decay", NO_LAYERS),
    ("recurrent", "optim.freeze", NO_LAYERS),
    (
        "recurrent",
        "hardware.recompute",
        "computes layers of self-attention again, which model.encoder={encoder} does not have: remove it",
    ),
    ("pretrain", "model.pair", "is of a classifier of pairs, which task=pretrain is not: remove it"),
)


@section()
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
    test: bool = setting(True, "evaluate the test split at the end; false leaves it unread", resume="free")
    dry: bool = setting(False, "print sizes, steps and figures of the data, train nothing", resume="free")
    budget: str = setting(
        "", "length of training, such as 10min or 20Mtok of tokens; empty: trainer.max_epochs, max_steps", resume="warn"
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
    slurm: SlurmConfig = setting(SlurmConfig, "the job that hardware=slurm writes", resume="free", needs="slurm")
    logger: LoggerConfig = setting(LoggerConfig, "logged figures", resume="free")
    trainer: dict[str, Any] = setting(default_trainer, "any other flag of Lightning's Trainer")

    def __post_init__(self) -> None:
        require(
            self.data.source is not Source.run,
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
        self._check_kind()
        made = self.data.source if not self.data.path else None
        require(
            self.task is not Task.seq2seq or made is not Source.demo,
            "task=seq2seq needs target texts, which data=demo lacks: name a file by data.path=<file or folder>, "
            "or use data=dates",
        )
        require(
            self.task is not Task.classify or made is not Source.dates,
            "data=dates has target texts and no classes: add task=seq2seq, or choose other data",
        )
        figures = FIGURES[self.task]
        require(
            self.checkpoint.metric in (Metric.auto, *figures),
            f"checkpoint.metric={self.checkpoint.metric.name} is no figure of task={self.task.name}: "
            f"choose {one_of([one.name for one in figures])}",
        )
        self.model.check_use(self.task)
        require(
            self.optim.freeze <= self.model.n_layers,
            f"optim.freeze={self.optim.freeze} is more than the model.n_layers={self.model.n_layers} there are: use "
            f"{self.model.n_layers} at the most, with which the pooling and the head learn alone",
        )

    def _check_kind(self) -> None:
        """Refuse what a run of this task, or a recurrent model, does not have."""
        kinds = (self.task.name, "recurrent" if self.model.is_recurrent else "")
        for kind, name, why in MISSING:
            value = attrgetter(name)(self)
            if kind in kinds and value != settings(RunConfig)[name].default:
                why = why.format(task=self.task.name, encoder=self.model.encoder.name)
                raise ValueError(f"{name}={show(value)} {why}")


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
    huggingface = "huggingface"  # a classifier of transformers
    sentence_transformers = "sentence_transformers"  # an encoder and its pooling, which give a text a vector
    torch = "torch"  # a program of torch.export, with a script that answers without manyheads
    onnx = "onnx"  # a graph for onnxruntime, with a script that answers without torch


class Members(Enum):
    auto = "auto"  # the network, and what is left out is said first
    network = "network"  # the network alone is asked for


class Rounding(Enum):
    fp32 = "fp32"  # as trained and judged
    int8 = "int8"  # matrices as 8-bit integers: a quarter of the size


@section()
class ExportConfig:
    """All settings of `manyheads export`."""

    run: str = finished_run("to export")
    output: str = setting("", "a new folder; empty: <run>/<format>", path=True)
    format: Format = setting(
        Format.huggingface,
        "a classifier of its family, an encoder for vectors, or a graph",
    )
    members: Members = setting(
        Members.auto, "what of the run is exported; network: its linear model is not asked after"
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
