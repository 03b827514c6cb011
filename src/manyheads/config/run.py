"""One dataclass a verb: all that `train`, `evaluate`, `predict`, `look`, `explain` and `export` can be told.

One dataclass a verb: everything `train`, `evaluate`, `predict` and `look` can be told.

What `manyheads explain` can be told.

What `manyheads export` can be told.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from manyheads.config.data import BatchConfig, DataConfig, Long, Source, TokenizerConfig
from manyheads.config.fields import check_ranges, knob, one_of, require
from manyheads.config.model import MOST_TABLE, GenerateConfig, ModelConfig, PairKind, Task
from manyheads.config.training import (
    FIGURES,
    Accelerator,
    CheckpointConfig,
    GuardConfig,
    HardwareConfig,
    LoggerConfig,
    Metric,
    OptimConfig,
    Precision,
    PretrainConfig,
    SlurmConfig,
    Strategy,
    check_budget,
    read_budget,
)


class Resume(Enum):
    never = "never"
    auto = "auto"
    must = "must"


def default_trainer() -> dict[str, Any]:
    """Lightning Trainer flags that differ from Lightning's own defaults."""
    return {"max_epochs": 30, "max_steps": 2500, "gradient_clip_val": 1.0}


@dataclass(kw_only=True, slots=True)
class RunConfig:
    """Everything `manyheads train` can be told."""

    task: Task = knob(Task.classify, "what a text is answered with: a class, another text, or words of it hidden")
    seed: int = knob(0, "seed of the weights, the row order, dropout and carved-out splits", at_least=0, below=2**32)
    output: str = knob("", "run folder; empty: a new one under outputs/")
    init_from: str = knob(
        "", "trained weights to begin with: a run, a folder of BERT's family, or its id on the Hugging Face hub"
    )
    teacher: str = knob("", "run folder, or its model/, whose answers to the training rows are learned, too")
    linear: bool = knob(
        True,
        "a linear model answers with the network, by the share best on validation; false: it is a baseline",
    )
    resume: Resume = knob(
        Resume.never, "never; auto: go on in output where it stopped, or start; must; or the folder of a run, alone"
    )
    test: bool = knob(True, "judge the test split at the end; false leaves it unread")
    dry: bool = knob(False, "print sizes, steps and figures of the data, train nothing")
    budget: str = knob(
        "", "length of training, such as 10min or 20Mtok of tokens; empty: trainer.max_epochs, max_steps"
    )
    data: DataConfig = knob(DataConfig, "texts and labels")
    tokenizer: TokenizerConfig = knob(TokenizerConfig, "text to tokens")
    batch: BatchConfig = knob(BatchConfig, "tokens to batches")
    model: ModelConfig = knob(ModelConfig, "the encoder classifier")
    optim: OptimConfig = knob(OptimConfig, "the optimiser")
    pretrain: PretrainConfig = knob(PretrainConfig, "learning from texts alone")
    checkpoint: CheckpointConfig = knob(CheckpointConfig, "the weights kept")
    guard: GuardConfig = knob(GuardConfig, "steps that go wrong")
    hardware: HardwareConfig = knob(HardwareConfig, "processors")
    slurm: SlurmConfig = knob(SlurmConfig, "the job that hardware=slurm writes")
    logger: LoggerConfig = knob(LoggerConfig, "logged figures")
    trainer: dict[str, Any] = knob(default_trainer, "any other flag of Lightning's Trainer")

    def __post_init__(self) -> None:
        check_ranges(self, "")
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
        check_budget("budget", self.budget)
        self._check_task()

    def _check_task(self) -> None:
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
        require(
            self.task is Task.classify or self.optim.class_weights == "none",
            f"optim.class_weights={self.optim.class_weights} weighs classes, but task={self.task.name} has none: "
            "remove it",
        )
        require(
            self.task is Task.classify or not self.teacher,
            f"teacher={self.teacher} teaches classes, but task={self.task.name} has none: remove it",
        )
        self._check_pretraining()
        self.model.check_use(self.task)
        self.optim.check_spread(in_parts=self.hardware.strategy is Strategy.fsdp)
        self._check_finetuning()
        require(
            self.task is not Task.seq2seq or self.data.long is Long.cut,
            f"data.long={self.data.long.name} is a way to sort long texts into classes, but task=seq2seq has none: "
            "remove it",
        )
        require(
            not (self.hardware.recompute and self.model.is_recurrent),
            f"hardware.recompute=true computes layers of self-attention again, which "
            f"model.encoder={self.model.encoder.name} does not have: remove it",
        )

    def _check_pretraining(self) -> None:
        if self.task is not Task.pretrain:
            return self._check_before(self.pretrain.before)
        require(
            not self.pretrain.before,
            f"pretrain.before={self.pretrain.before} is of a training that follows, which task=pretrain is not: "
            "remove it, and say by budget how long to pretrain",
        )
        require(
            self.model.pair is PairKind.joint,
            f"model.pair={self.model.pair.name} is of a classifier of pairs, which task=pretrain is not: remove it",
        )

    def _check_before(self, before: str) -> None:
        require(
            self.task is not Task.seq2seq or not before,
            f"pretrain.before={before} trains an encoder on texts, but task={self.task.name} has a decoder, too: "
            "remove it",
        )
        budget = read_budget(before)
        require(
            budget is None or not budget.seconds or self.hardware.devices * self.hardware.nodes in (0, 1),
            f"pretrain.before={before} is a time, which is measured on one device, but "
            f"hardware.devices={self.hardware.devices} with hardware.nodes={self.hardware.nodes} are several: give a "
            "number of tokens, such as pretrain.before=20Mtok",
        )

    def _check_finetuning(self) -> None:
        require(
            not self.init_from or self.task is not Task.seq2seq,
            f"init_from={self.init_from} begins with the weights of an encoder, but task={self.task.name} has a "
            "decoder, too: remove it",
        )
        require(
            self.optim.freeze <= self.model.n_layers,
            f"optim.freeze={self.optim.freeze} is more than the model.n_layers={self.model.n_layers} there are: use "
            f"{self.model.n_layers} at the most, with which the pooling and the head learn alone",
        )
        require(
            not self.optim.few or self.task is not Task.seq2seq,
            f"optim.few={self.optim.few} fits the head of a classifier, which task=seq2seq does not have: remove it",
        )
        has_layers = self.task is not Task.seq2seq and not self.model.is_recurrent
        paces = [] if has_layers else [("layer_decay", self.optim.layer_decay == 1), ("freeze", not self.optim.freeze)]
        paces += [("head_lr", self.optim.head_lr is None)] if self.task is Task.seq2seq else []
        for name, is_default in paces:
            require(
                is_default,
                f"optim.{name}={getattr(self.optim, name)} sets the layers of self-attention and the head apart, "
                "which this model does not have: remove it",
            )


@dataclass(kw_only=True, slots=True)
class InferenceHardware:
    """Processors of `evaluate` and `predict`, and the one of `look`."""

    accelerator: Accelerator = knob(Accelerator.auto, "auto takes a GPU, else the CPU")
    devices: int = knob(1, "GPUs, or CPU processes, that share the rows; 0: all GPUs", at_least=0, at_most=1024)
    precision: Precision = knob(Precision.auto, "auto: fp32; of predict bf16 where the processor computes in it")
    threads: int = knob(0, "CPU threads of a process; 0: torch decides", at_least=0, at_most=1024)
    timeout: int = knob(600, "seconds without an answer after which a process is given up", at_least=1)

    def __post_init__(self) -> None:
        check_ranges(self, "hardware.")


@dataclass(kw_only=True, slots=True)
class InferenceBatch:
    """Texts that `evaluate` and `predict` answer together. Answers do not depend on it, memory and speed do."""

    tokens: int = knob(2048, "most tokens of a batch", at_least=1)

    def __post_init__(self) -> None:
        check_ranges(self, "batch.")


def run_data(**named: Any) -> DataConfig:
    """The data a run was trained on, or what is `named`; columns that are not are those of the run."""
    of_run = {"source": Source.run, "text": "", "text_pair": "", "label": "", "target": ""}
    return DataConfig(**(of_run | named))


@dataclass(kw_only=True, slots=True)
class EvaluateConfig:
    """Everything `manyheads evaluate` can be told."""

    run: str = knob("", "run folder, or its model/ folder moved anywhere")
    output: str = knob("", "folder of the results; empty: <run>/evaluate/<data>-<split>")
    split: str = knob("test", "train, validation or test; a single file is judged whole")
    bootstrap: int = knob(1000, "resamples of each interval", at_least=100, at_most=100_000)
    seed: int = knob(0, "seed of the resamples", at_least=0, below=2**32)
    data: DataConfig = knob(run_data, "texts and labels; default: those of the run")
    generate: GenerateConfig = knob(GenerateConfig, "answers that are texts")
    batch: InferenceBatch = knob(InferenceBatch, "tokens to batches")
    hardware: InferenceHardware = knob(InferenceHardware, "processor")

    def __post_init__(self) -> None:
        check_ranges(self, "")
        require(bool(self.run), "run is empty: name the run to judge, for example run=outputs/my-run")
        require(
            self.split in ("train", "validation", "test"),
            f"split={self.split} is not a split: choose train, validation or test",
        )


@dataclass(kw_only=True, slots=True)
class TextColumns:
    """Which columns of a file hold the texts."""

    text: str = knob("", "column of the text; empty: that of training, or text")
    text_pair: str = knob("", "column of the second text; empty: that of training, or text_pair")


@dataclass(kw_only=True, slots=True)
class PredictConfig:
    """Everything `manyheads predict` can be told."""

    run: str = knob("", "run folder, or its model/ folder moved anywhere")
    input: str = knob("-", "file of one text a line (tab between a pair), csv, tsv or jsonl; -: standard input")
    text: str = knob("", "one text, instead of input")
    output: str = knob("-", "file: .csv, .tsv, .parquet, or JSON lines by any other name; -: standard output")
    top_k: int = knob(0, "most probable classes whose probabilities are written; 0: those of all", at_least=0)
    data: TextColumns = knob(TextColumns, "columns of input")
    generate: GenerateConfig = knob(GenerateConfig, "answers that are texts")
    batch: InferenceBatch = knob(InferenceBatch, "tokens to batches")
    hardware: InferenceHardware = knob(InferenceHardware, "processor")

    def __post_init__(self) -> None:
        check_ranges(self, "")
        require(bool(self.run), "run is empty: name the run that predicts, for example run=outputs/my-run")


@dataclass(kw_only=True, slots=True)
class LookConfig:
    """Everything `manyheads look` can be told: one text, a file of texts, or a split of the run's data."""

    run: str = knob("", "run folder, or its model/ folder moved anywhere")
    text: str = knob("", "one text to look at (a tab between a pair)")
    input: str = knob("", "file of one text a line (tab between a pair), csv or jsonl; -: standard input")
    split: str = knob("", "validation or test: figures of the heads over the run's data, instead of pages of texts")
    rows: int = knob(0, "most rows of the split, or most texts of input; 0: all", at_least=0)
    output: str = knob("", "folder of the pages and figures; empty: <run>/look")
    layers: str = knob("", "layers to show, counted from 1, such as 2 or 1,3-4; empty: all")
    heads: str = knob("", "heads to show, counted from 1, such as 2 or 1,3-4; empty: all")
    png: bool = knob(False, "also draw each map that is shown as a PNG")
    attribution: bool = knob(False, "also say what each token of a text adds to the answer (integrated gradients)")
    bootstrap: int = knob(1000, "resamples of each interval, over a split", at_least=100, at_most=100_000)
    seed: int = knob(0, "seed of rows and tokens drawn at random and of the resamples", at_least=0, below=2**32)
    batch: InferenceBatch = knob(InferenceBatch, "tokens to batches")
    hardware: InferenceHardware = knob(InferenceHardware, "processor")

    def __post_init__(self) -> None:
        check_ranges(self, "")
        require(bool(self.run), "run is empty: name the run to look into, for example run=outputs/my-run")


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


@dataclass(kw_only=True, slots=True)
class ExplainConfig:
    """Everything `manyheads explain` can be told. The defaults take less than five minutes on two cores."""

    output: str = knob("", "folder of attention.json and the pictures; empty: outputs/explain-<seed>")
    page: str = knob("", "Markdown page whose figures marked by their place in the JSON are updated; empty: none")
    only: Claim = knob(Claim.all, "one experiment; other figures stay")
    seed: int = knob(0, "seed of samples, sentences and weights", at_least=0, below=2**32)
    samples: int = knob(20_000, "random pairs of q and k for each moment", at_least=500, at_most=10_000_000)
    repeats: int = knob(9, "timings for each median, taken in turn", at_least=1, at_most=1000)
    longest: int = knob(4096, "longest text that is timed, in tokens", at_least=128, at_most=65_536)
    steps: int = knob(800, "training steps of each of the two small models", at_least=1, at_most=100_000)

    def __post_init__(self) -> None:
        check_ranges(self, "")


class Format(Enum):
    huggingface = "huggingface"  # a classifier of transformers
    sentence_transformers = "sentence_transformers"  # an encoder and its pooling, which give a text a vector


class Members(Enum):
    auto = "auto"  # the network, and what is left out is said first
    network = "network"  # the network alone is asked for


@dataclass(kw_only=True, slots=True)
class ExportConfig:
    """Everything `manyheads export` can be told."""

    run: str = knob("", "run folder, or its model/ folder moved anywhere")
    output: str = knob("", "a new folder; empty: <run>/<format>")
    format: Format = knob(
        Format.huggingface, "a classifier of its family, or its encoder with any pooling, for vectors"
    )
    members: Members = knob(Members.auto, "what of the run is exported; network: its linear model is not asked after")

    def __post_init__(self) -> None:
        check_ranges(self, "")
        require(bool(self.run), "run is empty: name the run to export, for example run=outputs/my-run")
