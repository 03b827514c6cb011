"""All settings of train; config/inference.py has those of other verbs."""

from enum import StrEnum
from operator import attrgetter
from typing import Any

import manyheads.plugin as plugin
from manyheads.config.data import BatchConfig, DataConfig, Predictions, TokenizerConfig
from manyheads.config.facts import require, section, setting, settings
from manyheads.config.figures import checkpoint_figures, measured_by
from manyheads.config.model import MOST_TABLE, ModelConfig
from manyheads.config.required import HELP, bounds_of
from manyheads.config.sentences import format_list, format_value, one_of
from manyheads.config.trainer_flags import checked_flag, default_trainer
from manyheads.config.training import (
    CheckpointConfig,
    Compile,
    GuardConfig,
    HardwareConfig,
    LoggerConfig,
    OptimConfig,
    read_budget,
)
from manyheads.errors import UserError

Resume = StrEnum("Resume", "never auto must")
LACKS_RECURRENT = ("optim.layer_decay", "optim.freeze", "hardware.recompute")  # settings without a recurrent encoder


@section(opening="run")
class RunConfig:
    """All settings of `manyheads train`."""

    task: str = setting("classify", "what a text is answered with", resume="refuse", part="task")
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
    )
    predictions: Predictions = setting(
        Predictions.csv,
        "with data.folds: kind of the file of all rows, each answered by the model that did not learn from it",
        resume="free",
        needs="folds",
    )
    data: DataConfig = setting(DataConfig, "texts and labels", resume="refuse")
    tokenizer: TokenizerConfig = setting(TokenizerConfig, "text to tokens", resume="refuse")
    batch: BatchConfig = setting(BatchConfig, "tokens to batches", resume="refuse")
    model: ModelConfig = setting(ModelConfig, "the encoder classifier", resume="refuse", weights="fixed")
    optim: OptimConfig = setting(OptimConfig, "the optimiser", resume="refuse")
    checkpoint: CheckpointConfig = setting(CheckpointConfig, "the weights kept")
    guard: GuardConfig = setting(GuardConfig, "steps that go wrong")
    hardware: HardwareConfig = setting(HardwareConfig, "processors", resume="warn")
    logger: LoggerConfig = setting(LoggerConfig, "logged figures", resume="free")
    trainer: dict[str, Any] = setting(default_trainer, "any other flag of Lightning's Trainer", item=checked_flag)

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
            f"{n_table:,} numbers, more than {MOST_TABLE:,}: use a smaller data.max_length",
        )
        read_budget(self.budget)
        bounds_of(self.require, measured_by(self.task))
        self._check_kind()
        require(
            isinstance(self.data.text, str) or plugin.task(self.task).has_classes,
            f"data.text={format_list(self.data.text)} joins columns for a classifier, but task={self.task} is another: "
            "name one column",
        )
        task = plugin.task(self.task)
        if task.check is not None:
            plugin.resolve(task.check)(self)
        require(
            self.checkpoint.metric in ("auto", *checkpoint_figures(self.task)),
            f"checkpoint.metric={self.checkpoint.metric} is no figure of task={self.task}: "
            f"choose {one_of(checkpoint_figures(self.task))}",
        )
        limit = self.trainer.get("limit_val_batches")
        require(
            not self.checkpoint.patience or limit is None or limit != 0,
            f"checkpoint.patience={self.checkpoint.patience} waits for a better validation figure, which "
            f"trainer.limit_val_batches={format_value(limit)} leaves out: remove one of them",
        )
        self.model.check_use(attends=task.attends)
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
        self.model.check_precision(self.hardware.precision.name)
        lacks = dict.fromkeys(plugin.task(self.task).lacks, f"task={self.task}")
        if not self.model.has_heads:
            lacks = lacks | dict.fromkeys(LACKS_RECURRENT, f"model.encoder={self.model.encoder}")
        for name, chosen in lacks.items():
            value = attrgetter(name)(self)
            if value != settings(RunConfig)[name].default:
                raise UserError(f"{name}={format_value(value)} does nothing with {chosen}: remove it")


def check_classes(run: RunConfig) -> None:
    """Refuse a source whose rows are of another task."""
    source = run.data.source
    name = plugin.find("source", source).facts.get("task", "classify")
    task = plugin.task(name)
    require(
        bool(run.data.path) or name == "classify",
        f"data={source} has {task.column} {task.answers} and no classes: add task={name}, or choose other data",
    )
    for name, default in (("objective", "cross_entropy"), ("focal_gamma", 0.0)):
        value = getattr(run.optim, name)
        require(
            value == default or not (run.data.votes or run.data.label_columns),
            f"optim.{name}={format_value(value)} knows labels alone, but data.votes and data.label_columns give "
            "probabilities: remove one of them",
        )
