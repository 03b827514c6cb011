"""Figures of a run under way: throughput, metrics.csv, lines or a progress bar on the screen.

Throughput is counted on the host, so that no step waits for a GPU.
"""

import csv
import logging
import re
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from manyheads.config.data import data_name
from manyheads.data.batches import Batch
from manyheads.distributed.ranks import this_process
from manyheads.inference.card import describe_shape
from manyheads.inference.precision import choose_device, choose_precision
from manyheads.nn.cost import count_parameters
from manyheads.runs.files import replace_file
from manyheads.runs.resolve import explain_choices
from manyheads.runs.summary import words_of
from manyheads.terminal import FOR_FILE
from manyheads.training.context import RunContext
from manyheads.training.module import LitModule

log = logging.getLogger("manyheads")
SECONDS_BETWEEN = 30.0  # two lines of epochs on a screen without a bar
BAR_EVERY = 20  # steps between two updates of the bar, which reads the loss and so waits for a GPU


class Meter(Callback):
    """Counts tokens, rows and seconds of training: of this process, and at the end of all of them.

    `seconds` includes the loader, loss, clipping, optimiser and logging, and excludes validation and checkpoints. At
    the end tokens, cells and rows are summed over the processes, and `seconds` is that of the slowest.
    """

    def __init__(self) -> None:
        self.tokens = self.cells = self.rows = self.steps = 0
        self.seconds = 0.0
        self._since: float | None = None

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._since = time.perf_counter()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        for part in batch.parts:
            self.tokens += part.layout.n_tokens
            self.cells += part.layout.n_documents * part.layout.longest
        self.rows += len(batch.rows_B)
        self.steps += 1
        self._stop()
        self._since = time.perf_counter()

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._stop()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._since = time.perf_counter()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._stop()

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:  # the last checkpoint has its own
        if trainer.world_size == 1:
            return
        device = trainer.strategy.root_device  # that of the module is the CPU by now
        counts = torch.tensor([self.tokens, self.cells, self.rows], device=device)
        seconds = torch.tensor(self.seconds, dtype=torch.float64, device=device)
        summed: Any = trainer.strategy.reduce(counts, reduce_op="sum")
        self.tokens, self.cells, self.rows = summed.tolist()
        self.seconds = float(trainer.strategy.reduce(seconds, reduce_op="max"))

    def leave_out(self, seconds: float) -> None:
        """Exclude these seconds."""
        if self._since is not None:
            self._since += seconds

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("tokens", "cells", "rows", "steps", "seconds")}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name, value in state_dict.items():
            setattr(self, name, value)

    @staticmethod
    def summed(states: list[dict[str, Any]]) -> dict[str, Any]:
        """The sum of the states of several processes; its steps and seconds are those of the slowest."""
        summed: dict[str, Any] = {}
        for name in states[0]:
            values = [state[name] for state in states]
            summed[name] = max(values) if name in ("steps", "seconds") else sum(values)
        return summed

    def _stop(self) -> None:
        if self._since is not None:
            self.seconds += time.perf_counter() - self._since
            self._since = None

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def padding_share(self) -> float:
        """The share of cells in a padded grid `(B, L)` that hold no token."""
        return 1 - self.tokens / self.cells if self.cells else 0.0


class MetricsFile(Logger):
    """metrics.csv: a row for each logged step, a column for each figure; replaced atomically.

    Lightning calls `save` after every logged step. The file is only written with the figures of an epoch and at the
    end: so a long run does not rewrite it at every step.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.rows: dict[int, dict[str, float]] = {}
        self._epoch_came = False

    name, version = "metrics", ""  # type: ignore[assignment]

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.rows.setdefault(step or 0, {"step": step or 0}).update(metrics)
        self._epoch_came |= any(name.startswith(("train_", "validation_")) for name in metrics)

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: config.yaml has them."""

    def of_training(self, epoch: int) -> dict[str, float]:
        """The training figures of an epoch, counted from 1; empty if it was not completed."""
        rows = [row for row in self.rows.values() if row.get("epoch") == epoch - 1 and "train_loss" in row]
        if not rows:
            return {}
        return {name.removeprefix("train_"): figure for name, figure in rows[-1].items() if name.startswith("train_")}

    @rank_zero_only
    def save(self) -> None:
        if self._epoch_came:
            self._write()

    @rank_zero_only
    def finalize(self, status: str) -> None:
        if self.rows:
            self._write()

    def _write(self) -> None:
        self._epoch_came = False
        rows = [self.rows[step] for step in sorted(self.rows)]
        columns = dict.fromkeys(["step", "epoch"])  # in the order in which the figures first appear
        for row in rows:
            columns |= dict.fromkeys(row)
        with replace_file(self.path) as part, part.open("w", newline="") as file:
            table = csv.DictWriter(file, list(columns))
            table.writeheader()
            table.writerows(rows)


def shows_bar() -> bool:
    """A bar on a terminal, plain lines elsewhere."""
    return sys.stderr.isatty() and sys.stdout.isatty()


class Bar(Callback):
    """A progress bar on a terminal: steps, the time left, the loss and the validation figure. The lines of the log
    appear above it."""

    def __init__(self, metric: str) -> None:
        self.metric = metric

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.began, self.first = time.monotonic(), trainer.global_step
        done = TextColumn("{task.completed:,.0f} of {task.total:,.0f} steps", markup=False)
        figures = TextColumn("{task.fields[figures]}", markup=False)
        bar, screen = BarColumn(bar_width=None), Console(stderr=True)
        self.progress = Progress(done, bar, figures, console=screen, transient=True, expand=True)
        self.n_steps = cast(LitModule, pl_module).n_steps
        self.task = self.progress.add_task("", total=self.n_steps, completed=self.first, figures="")
        self.screens = [(one, one.stream) for one in log.handlers if type(one) is logging.StreamHandler]
        self.progress.start()
        for screen, _ in self.screens:
            screen.setStream(sys.stderr)  # what rich has put in its place

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        if batch_idx % BAR_EVERY == 0:
            self._show(trainer)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._show(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.progress.stop()
        for screen, stream in self.screens:
            screen.setStream(stream)

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        if hasattr(self, "progress"):
            self.on_train_end(trainer, pl_module)

    def _show(self, trainer: pl.Trainer) -> None:
        step = trainer.global_step
        rate = max(step - self.first, 1) / (time.monotonic() - self.began)
        left = timedelta(seconds=round((self.n_steps - step) / rate))
        shown = [f"{left} left"]
        for name in ("loss", f"validation_{self.metric}"):
            if name in trainer.callback_metrics:
                shown.append(f"{words_of(name)} {float(trainer.callback_metrics[name]):.4f}")
        self.progress.update(self.task, completed=step, figures=", ".join(shown))


class EpochLines(Callback):
    """A line for each epoch in run.log, from the first process. A screen without a bar shows that of the first epoch,
    of the last, and one in `SECONDS_BETWEEN`."""

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self.shown = -SECONDS_BETWEEN  # when the last line was

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.started = time.perf_counter()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        module, now = cast(LitModule, pl_module), time.perf_counter()
        figures = {"loss": module.train_loss.compute()}  # over all ranks; the module logs it after the callbacks
        if not trainer.is_global_zero:
            return
        for name in ("validation_loss", f"validation_{self.metric}"):
            if name in trainer.callback_metrics:
                figures[words_of(name if name == "validation_loss" else self.metric)] = trainer.callback_metrics[name]
        shown = ", ".join(f"{name} {float(figure):.3f}" for name, figure in figures.items())
        is_last = trainer.should_stop or trainer.global_step >= module.n_steps
        on_screen = not shows_bar() and (is_last or now - self.shown >= SECONDS_BETWEEN)
        if on_screen:
            self.shown = now
        log.info(
            "epoch %d, step %d: %s (%.1f s)",
            *(trainer.current_epoch + 1, trainer.global_step, shown, now - self.started),
            extra={} if on_screen else FOR_FILE,
        )


def explained_choices(context: RunContext) -> list[tuple[str, str]]:
    """What was chosen by a rule, see `explain_choices`."""
    precision = choose_precision(context.run.hardware.precision, choose_device(context.run.hardware))
    return [*explain_choices(context.typed, context.run, precision.name)]


def introduce(context: RunContext) -> None:
    """Log what learns from what, and what was chosen by a rule; the reasons are in run.log alone."""
    run, splits = context.run, context.splits
    rows = ", ".join(f"{name} {len(one):,}" for name, one in splits.by_name().items())
    classes = f", {len(splits.labels):,} {'labels' if splits.multi else 'classes'}" if splits.labels else ""
    log.info("data: %s%s; rows: %s", data_name(run.data), classes, rows)
    for note in splits.notes:
        log.info("%s", note)
    kind, shape = describe_shape(run.model)
    if context.user_network is not None:
        kind, shape = type(context.user_network).__name__, "a module of your own"
    weights = f", begun from {Path(run.init_from).name}" if run.init_from else ""
    shape = re.sub(r" \(.*?\)|, d_ff=\d+", "", shape)  # config.yaml has the rest
    log.info("model: %s, %s; %s parameters%s", kind, shape, f"{count_parameters(context.network):,}", weights)
    for note in context.notes:
        log.info("%s", note)
    device, n_devices = choose_device(run.hardware), this_process().n_ranks
    if n_devices > 1:
        log.info("devices: %d %s", n_devices, "CPU processes" if device.type == "cpu" else "GPUs")
    elif device.type == "cpu" and run.hardware.devices == 0:
        log.info("devices: one CPU process, as there is no GPU")
    if choices := explained_choices(context):
        log.info("chosen automatically: %s", ", ".join(choice for choice, _ in choices))
    for _, why in choices:
        log.info("%s", why, extra=FOR_FILE)
