"""The LightningModule: what a step and an epoch are, whatever texts are answered with; and what a run puts into it, the
network with its first weights and the objective.

B documents . n rows . D width of what the head sees . C classes
"""

import copy
import logging
import math
from typing import Any, Self

import lightning.pytorch as pl
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection

import manyheads.plugin as plugin
from manyheads.config import OptimConfig, Resume, RunConfig
from manyheads.data.batches import Batch
from manyheads.data.checks import check_rows
from manyheads.data.datamodule import TextData
from manyheads.data.rows import Splits
from manyheads.data.tokens import Tokens, reach
from manyheads.distributed.faults import inject_fault
from manyheads.errors import UserError
from manyheads.inference.batching import run_batches
from manyheads.inference.origin import find_origin, n_words
from manyheads.inference.precision import DTYPES, choose_device, choose_precision
from manyheads.linear.fit import logistic
from manyheads.nn import Classifier
from manyheads.nn.classifier import OwnNetwork
from manyheads.training.objectives import Mean
from manyheads.training.optim import clip_gradients, freeze, make_optimizer, make_schedule
from manyheads.training.weights import begin_with

MOST_ROWS = 4096  # that a head is fitted to before training
STRENGTH = 0.1  # of the rows against the pull to zero: a head that knows few rows by heart leaves nothing to learn

log = logging.getLogger("manyheads")

Network = Any  # what `Task.assemble` makes: a module


class LitModule(pl.LightningModule):
    """Trains `network` by what `task` makes of a batch: the losses of its rows, each as much as the others or, where
    words are hidden in them, of these; and the figures of its split.

    The loss of a step is the mean over the rows of the global batch. A batch without rows, which a rank gets where
    there are too few, adds zeros to the gradient and nothing to the figures.

    A loss that is no finite number makes a gradient that is none, and such a gradient changes nothing: the optimiser is
    told so on the device, so no step waits for it (guard.py). Nor do the steps `left_out`, from 1. Rows without a
    finite loss are left out of the mean of the epoch. Where no guard answers such steps (`is_guarded`), a warning says
    at the end of the epoch how many there were. `norm` is that of the last gradient, before it was clipped, and
    `n_rows` the size of the batch under way.

    Args:
        n_steps: optimiser steps of the whole run, where the schedule ends; default: those of the Trainer.
    """

    def __init__(self, network: Network, task: Any, *, optim: OptimConfig, n_steps: int | None = None) -> None:
        super().__init__()
        freeze(network, optim)
        self.network = network
        self.task = task  # the objective of the network: see `plugin.Task`
        self.optim = optim
        self._asked_steps, self.n_steps = n_steps, n_steps or 0
        self.left_out: frozenset[int] = frozenset()
        self.is_guarded = False
        self.n_unchanged = torch.zeros((), dtype=torch.int64)
        self.norm = torch.zeros(())
        self.n_rows = 0
        self.train_loss = Mean()
        self.validation_loss = Mean()

    @classmethod
    def from_run(cls, run: RunConfig, data: TextData) -> Self:
        """The module of a run, for a Trainer of your own: the network that `run.model` describes, with the weights of
        `run.init_from` if any, its objective, optimiser and schedule.

        What the sections trainer, hardware, checkpoint, guard and logger say is the Trainer's to decide here; the mean
        of the weights (`optim.average`), a run folder and a saved model are of `manyheads.train`. A UserError says
        that the settings do not fit the data, or hold what only `manyheads.train` can do.

        Args:
            data: `TextData.from_run(run)`.
        """
        if data.splits is None or data.tokenizer is None:
            raise UserError("this TextData holds no rows to build a network for: make it by TextData.from_run(run)")
        tokens, labels = data.tokens["train"], data.splits.labels
        asked = {"budget": run.budget, "resume": "" if run.resume is Resume.never else run.resume.name}
        for name, value in asked.items():
            if value:
                raise UserError(
                    f"{name}={value} is carried out by manyheads.train alone, not by a Trainer of your own: remove it"
                )
        check_rows(run, data.splits)
        network = assemble_network(run, data.splits, data.tokenizer)
        if run.task == "classify" and are_few(run, tokens, labels):
            begin_head(run, network, tokens)
        return cls(network, make_objective(run, tokens, labels), optim=run.optim)

    def training_step(self, batch: Batch, index: int) -> Tensor:
        self.n_rows = len(batch.rows_B)
        inject_fault("memory", batch.layout.n_tokens)
        losses = self.task.learn(self.network, batch)
        if inject_fault("loss", self.global_step + 1):
            losses = losses * math.nan
        if len(losses):
            self.train_loss.update(losses.detach().nan_to_num(0.0, 0.0, 0.0), losses.isfinite())
            self.log("loss", losses.detach().mean(), batch_size=len(losses), prog_bar=True)
        total = losses.sum() * (self.n_rows / max(1, len(losses)))
        return total * (batch.scale + 0 * total.detach())

    def on_train_epoch_end(self) -> None:
        self._log_epoch("train_", self.task.train_metrics, self.train_loss)
        n_unchanged, self.n_unchanged = int(self.n_unchanged), torch.zeros_like(self.n_unchanged)
        if n_unchanged and not self.is_guarded:
            log.warning(
                "epoch %d: %d steps changed nothing, as a loss or gradient in them was not finite",
                *(self.current_epoch + 1, n_unchanged),
            )

    def validation_step(self, batch: Batch, index: int) -> None:
        if len(batch.rows_B):
            self.validation_loss.update(self.task.check(self.network, batch))

    def on_validation_epoch_end(self) -> None:
        self._log_epoch("validation_", self.task.validation_metrics, self.validation_loss)

    def configure_optimizers(self) -> Any:
        trainer: Any = self.trainer
        self.n_steps = steps_of(trainer) if self._asked_steps is None else self._asked_steps
        fused = trainer.scaler is None  # with fp16 a fused step would clip scaled gradients
        optimizer = make_optimizer(self.network, self.optim, fused=fused)
        schedule = make_schedule(optimizer, self.optim, self.n_steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def configure_gradient_clipping(
        self,
        optimizer: Any,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        self.norm = clip_gradients(self.network, gradient_clip_val, gradient_clip_algorithm)
        if optimizer.defaults["fused"]:  # with fp16 it is not: there the scaler of the losses does it
            is_out = self.global_step + 1 in self.left_out
            unchanged = torch.ones_like(self.norm) if is_out else ~self.norm.isfinite()
            self.n_unchanged = self.n_unchanged.to(self.norm.device) + unchanged.long()
            optimizer.found_inf = unchanged.float()

    def _log_epoch(self, prefix: str, metrics: Metric | MetricCollection, loss: Metric) -> None:
        """Log the figures and start afresh. They are of all ranks, torchmetrics adds them up."""
        figures = {"loss": loss.compute(), **metrics.compute()}
        self.log_dict({f"{prefix}{name}": figure for name, figure in figures.items()})
        metrics.reset()
        loss.reset()


def steps_of(trainer: pl.Trainer) -> int:
    """Optimiser steps from the first to the last, as far as they can be known; there must be a last one."""
    if trainer.max_steps == -1 and trainer.max_epochs == -1:
        raise UserError(
            "max_epochs=-1 leaves training without an end, but the learning rate falls towards it: give the Trainer "
            "max_epochs or max_steps"
        )
    data, limit = getattr(trainer, "datamodule", None), trainer.limit_train_batches
    if isinstance(data, TextData) and isinstance(limit, float) and limit == 1.0:  # 1 is one batch
        return data.n_steps(trainer.max_epochs, trainer.max_steps)
    return int(trainer.estimated_stepping_batches)


def assemble_network(run: RunConfig, splits: Splits, tokenizer: Tokenizer, own: nn.Module | None = None) -> Network:
    """The model of the task before training: what `run.model` describes, in the sizes that the data asks for, with the
    weights of `run.init_from`, which must fit.

    Its embedding has a row for every id, also where a tokenizer that was not trained here leaves ids out. A user's
    `own` module is a copy of itself.
    """
    origin, pairs = find_origin(run.init_from) if run.init_from else None, splits.train.pairs is not None
    pl.seed_everything(run.seed, workers=True, verbose=False)
    n_ids = reach(tokenizer, pairs=pairs).ids
    sizes = {"vocab_size": n_words(origin, n_ids, run), "max_length": run.data.max_length}
    if own is not None:
        return OwnNetwork(copy.deepcopy(own), n_ids)
    sizes |= {"n_classes": len(splits.labels), "n_segments": 2 if pairs else 0}
    network = plugin.resolve(plugin.task(run.task).assemble)(run.model, **sizes)
    begin_with(network, origin)
    return network


def make_objective(run: RunConfig, tokens: Tokens, labels: list[str]) -> Any:
    """What a batch is trained on; `tokens` are the training rows."""
    return plugin.resolve(plugin.task(run.task).objective)(run, tokens, labels)


def are_few(run: RunConfig, tokens: Tokens, labels: list[str]) -> bool:
    """Whether `tokens`, the training rows, are at most `optim.few` a class, on average."""
    return run.optim.are_few(len(tokens), len(labels))


@torch.no_grad()
def begin_head(run: RunConfig, classifier: Classifier, tokens: Tokens) -> None:
    """Fit the head to at most `MOST_ROWS` training rows, drawn at even distances; no random number is drawn.

    A head that begins at random sends noise down into trained weights until it has learnt: Kumar et al. (2022),
    "Fine-Tuning can Distort Pretrained Features and Underperform Out-of-Distribution", section 4 (LP-FT).
    """
    rows = torch.arange(min(MOST_ROWS, len(tokens))) * len(tokens) // min(MOST_ROWS, len(tokens))
    labels = tokens.labels[rows].long()
    x_nD = seen(run, classifier, tokens, rows)
    weight_CD, bias_C = logistic(x_nD, labels, classifier.head.out_features, strength=STRENGTH)
    classifier.head.weight.copy_(weight_CD)
    classifier.head.bias.copy_(bias_C)


def seen(run: RunConfig, classifier: Classifier, tokens: Tokens, rows: Tensor) -> Tensor:
    """What the head sees in `rows`, as without dropout: `(n, D)` on the CPU, of a text in several parts their mean."""
    device = choose_device(run.hardware)
    dtype = DTYPES[choose_precision(run.hardware.precision, device)]

    def read(batch: Batch) -> Tensor:
        return batch.layout.pooled(classifier.read(batch.ids_N, batch.layout, batch.segments_N)).float()

    classifier.to(device).eval()
    most = {"tokens": run.batch.tokens, "rows": run.batch.rows}
    found = run_batches(read, tokens, device=device, autocast=dtype, **most, among=rows)
    classifier.cpu().train()
    return found.values
