"""One run of a comparison: trained to the end of its budget, the weights at its end judged on validation.

n validation rows . C classes
"""

import gc
import time
from dataclasses import dataclass, replace
from typing import Any, cast

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.nn import functional as F

from manyheads.ablate.budget import untrained
from manyheads.ablate.sets import Prepared
from manyheads.config import RunConfig
from manyheads.data.batches import Batches, plan_evaluation
from manyheads.data.tokens import Tokens
from manyheads.fit.guard import DivergedError, Guard
from manyheads.fit.head import begin_head
from manyheads.fit.meter import Meter
from manyheads.fit.module import LitModule
from manyheads.fit.optim import rate_factor
from manyheads.fit.session import are_few, run_trainer
from manyheads.nn import Classifier

PACES = 10_000  # parts into which a budget of time is cut for the learning rate
ENDLESS = 10**9  # steps of a run that the clock ends


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run gave; accuracy and loss are of the weights at its end, on the validation split.

    `right` has a 1 for each row that was answered right, in the order of the split. `seconds` are of the training
    steps. `stopped`: the limit on time ended it before its steps were done. `diverged`: its loss was no finite number.
    `machine` is what it was made on, versions included (see record.py).
    """

    accuracy: float
    loss: float
    steps: int
    tokens: int
    seconds: float
    tokens_per_s: float
    stopped: bool
    diverged: bool
    right: str
    machine: str = ""


class Deadline(Callback):
    """Ends training when `seconds` have passed since its first step.

    With `paces` the learning rate follows the share of the time that has passed instead of the share of the steps
    ("budgeted training": Li et al., 2020), so that it has come down when the time is over.
    """

    def __init__(self, seconds: float, *, paces: bool) -> None:
        self.seconds, self.paces = seconds, paces
        self.is_over = False
        self._since = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._since = time.perf_counter()

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, LitModule)
        if not self.paces:
            return
        share = min(1.0, (time.perf_counter() - self._since) / self.seconds)
        factor = rate_factor(int(share * (PACES - 1)), PACES, pl_module.optim)
        for group in trainer.optimizers[0].param_groups:
            group["lr"] = factor * group["initial_lr"]

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if time.perf_counter() - self._since >= self.seconds:
            self.is_over = trainer.should_stop = True


def train_run(run: RunConfig, prepared: Prepared, seconds: float, *, paces: bool = False) -> Figures:
    """Train as `run` says, for `seconds` at the most; with `paces` for exactly so long, whatever its steps.

    Weights, order of rows and dropout are drawn by `run.seed`. No epoch is chosen by its validation figures.
    """
    meter, deadline = Meter(), Deadline(seconds, paces=paces)
    limits = {"max_epochs": -1, "max_steps": ENDLESS} if paces else {}
    module, diverged = _fit(run, prepared, [meter, deadline], limits)
    steps = module.trainer.global_step
    right_n, loss = judge(cast(Classifier, module.network.cpu().eval()), prepared.tokens["validation"])
    figures = Figures(
        accuracy=float(right_n.double().mean()),
        loss=loss,
        steps=steps,
        tokens=meter.tokens,
        seconds=meter.seconds,
        tokens_per_s=meter.tokens_per_s,
        stopped=deadline.is_over and not paces and steps < module.n_steps,
        diverged=diverged,
        right="".join("01"[right] for right in right_n.tolist()),
    )
    del module  # it and its Trainer hold each other: a long series of runs would pile them up
    gc.collect()
    return figures


def warm_up(run: RunConfig, prepared: Prepared) -> None:
    """Two steps for nothing: the first steps of a process are slow, whatever they train."""
    _fit(run, prepared, [], {"max_epochs": -1, "max_steps": 2})


def _fit(
    run: RunConfig, prepared: Prepared, callbacks: list[Callback], limits: dict[str, int]
) -> tuple[LitModule, bool]:
    """The module of a run that never looks at validation rows, after training, and whether that diverged."""
    pl.seed_everything(run.seed, workers=True, verbose=False)
    classifier = untrained(run.model, prepared.sizes)
    run = replace(run, trainer={**run.trainer, "limit_val_batches": 0, **limits})
    if are_few(run, prepared.tokens["train"], prepared.labels):
        begin_head(run, classifier, prepared.tokens["train"])
    try:
        return run_trainer(run, classifier, prepared.tokens, prepared.labels, [Guard(run), *callbacks]), False
    except DivergedError as end:
        return end.module, True


def judge(classifier: Classifier, tokens: Tokens) -> tuple[Tensor, float]:
    """Which rows are answered right, bool `(n,)`, and the mean loss, both of logits in fp32 on the CPU.

    A row whose logits are not finite is wrong.
    """
    logits_nC = torch.empty(len(tokens), classifier.head.out_features)
    with torch.inference_mode():
        for batch in Batches(tokens, plan_evaluation(tokens.lengths, tokens=8192, rows=4096)):
            logits_nC[batch.rows_B] = classifier(batch.ids_N, batch.layout, batch.segments_N)
    right_n = (logits_nC.argmax(-1) == tokens.labels) & logits_nC.isfinite().all(-1)
    return right_n, float(F.cross_entropy(logits_nC, tokens.labels))
