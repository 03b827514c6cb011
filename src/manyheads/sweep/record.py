"""One run of a comparison, and the results file that holds all of them.

One run of a comparison: trained to the end of its budget, the weights at its end judged on validation.

n validation rows . C classes

The results file: JSON that is written after every run and continued by the next start.

{"vary": "model.score", "equal": "parameters", ..., "sets": [...], "rows": [...], "seeds": [...], "machine": {...},
 "measured": [{"set": ..., "row": ..., "data": digest, "settings": {...}, "parameters": ..., "runs": {seed: figures}}]}
"""

import gc
import json
import os
import platform
import time
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.nn import functional as F

from manyheads.config import AblateConfig, Accelerator, Equal, HardwareConfig, RunConfig
from manyheads.data.batches import Batches, plan_evaluation
from manyheads.data.tokens import Tokens
from manyheads.nn import Classifier
from manyheads.runs.atomic import replace_file
from manyheads.sweep.ablate import Prepared
from manyheads.sweep.equal_budget import Row, decisive, untrained
from manyheads.training.guard import DivergedError, Guard
from manyheads.training.logs import Meter
from manyheads.training.module import LitModule, are_few, begin_head
from manyheads.training.optim import rate_factor
from manyheads.training.session import run_trainer

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


DEFAULTS = decisive(RunConfig())


@dataclass(slots=True)
class Measured:
    """One row of the table on one set of data, and its finished runs by seed."""

    set: str
    row: str
    data: str
    settings: dict[str, Any]
    width: dict[str, int]
    difference: float
    parameters: int
    flops_per_token: float
    runs: dict[str, Figures] = field(default_factory=dict)


@dataclass(slots=True)
class Record:
    """What the file holds: what was asked last, and all runs that are finished and still fit their settings."""

    vary: str
    equal: str
    tolerance: float
    seconds: float
    sets: list[str]
    rows: list[str]
    seeds: list[int]
    n_rows: dict[str, int]
    machine: dict[str, Any]
    measured: list[Measured] = field(default_factory=list)

    def has(self, set_name: str, row: str) -> bool:
        return any((one.set, one.row) == (set_name, row) for one in self.measured)

    def at(self, set_name: str, row: str) -> Measured:
        return next(one for one in self.measured if (one.set, one.row) == (set_name, row))

    def write(self, path: Path) -> None:
        """The file appears whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as part:
            part.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def start_record(config: AblateConfig, rows: list[Row], digests: dict[str, str], n_rows: dict[str, int]) -> Record:
    """An empty record of what is asked."""
    record = Record(
        vary=config.vary_name,
        equal=config.equal.name,
        tolerance=config.tolerance,
        seconds=config.seconds,
        sets=list(digests),
        rows=[variant.name for variant in config.variants()],
        seeds=list(range(config.seed, config.seed + config.seeds)),
        n_rows=n_rows,
        machine=machine(config.hardware),
    )
    for row in rows:
        settings = decisive(row.run) | ({"seconds": config.seconds} if config.equal is Equal.seconds else {})
        width = {"d_model": row.run.model.d_model, "d_ff": row.run.model.d_ff}
        record.measured.append(
            Measured(
                row.set,
                row.name,
                digests[row.set],
                settings,
                width,
                row.difference,
                row.parameters,
                row.flops_per_token,
            )
        )
    return record


def take_over(record: Record, before: Record) -> int:
    """Copy the runs of an earlier record that the new one asks for, and keep rows that it does not ask for. Runs of
    a file that did not yet note the machine of each are of the one it names.

    Returns:
        How many earlier runs are dropped, since a setting or the data has changed, or their time was cut shorter.
    """
    dropped, its_machine = 0, machine_words(before.machine)
    for old in before.measured:
        old.runs = {seed: replace(run, machine=run.machine or its_machine) for seed, run in old.runs.items()}
        if not record.has(old.set, old.row):
            record.measured.append(old)
            continue
        new = record.at(old.set, old.row)
        fits = old.data == new.data and _same(old.settings, new.settings)
        kept = {
            seed: run
            for seed, run in old.runs.items()
            if fits and not (run.stopped and record.seconds != before.seconds)
        }
        dropped += len(old.runs) - len(kept)
        new.runs |= kept
    return dropped


def read_record(path: Path) -> Record:
    """The record in a results file.

    Raises:
        ValueError: it is none.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        measured = [
            Measured(**{**one, "runs": {seed: Figures(**figures) for seed, figures in one["runs"].items()}})
            for one in content.pop("measured")
        ]
        return Record(**content, measured=measured)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"output={path} is not a results file of ablate: name another file, or move this one away"
        ) from error


def check_same_question(record: Record, path: Path, config: AblateConfig) -> None:
    """A file goes on only with the comparison it holds.

    Raises:
        ValueError: it holds another.
    """
    for name, held, asked in (("vary", record.vary, config.vary_name), ("equal", record.equal, config.equal.name)):
        if held != asked:
            raise ValueError(
                f"output={path} holds a comparison with {name}={held}, not {name}={asked}: "
                "name another file by output=FILE"
            )


def check_same_machine(record: Record, path: Path) -> None:
    """Times of one machine and version are no budget on another: there a comparison at equal seconds does not go on.

    Raises:
        ValueError: runs are missing, and some of those there were made elsewhere.
    """
    asked = [record.at(name, row).runs for name in record.sets for row in record.rows]
    is_whole = all(str(seed) in runs for runs in asked for seed in record.seeds)
    here = machine_words(record.machine)
    others = [run.machine for runs in asked for run in runs.values() if run.machine != here]
    if record.equal == Equal.seconds.name and others and not is_whole:
        raise ValueError(
            f"output={path} holds runs made on {others[0]}, but this is {here}, where equal=seconds pays for other "
            "work: go on there, or name another file by output=FILE"
        )


def machine_words(machine: dict[str, Any]) -> str:
    """A machine and its versions on one line, which is the mark of a run."""
    threads = f"{machine['threads']} thread{'' if machine['threads'] == 1 else 's'}"
    ours = f", manyheads {machine['manyheads']}" if "manyheads" in machine else ""
    return f"{machine['processor']}, {threads}, {machine['device']}, torch {machine['torch']}{ours}"


def machine(hardware: HardwareConfig) -> dict[str, Any]:
    """What the seconds and the last digits of the figures depend on."""
    import torch

    listing = Path("/proc/cpuinfo")
    on_gpu = hardware.accelerator is not Accelerator.cpu and torch.cuda.is_available()
    names = [line for line in listing.read_text().splitlines() if "model name" in line] if listing.exists() else []
    return {
        "processor": names[0].partition(":")[2].strip() if names else platform.processor(),
        "cores": os.cpu_count(),
        "threads": hardware.threads or torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "torch": version("torch"),
        "manyheads": version("manyheads"),
    }


def _same(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Equal settings; one that did not exist when the file was written counts as its default."""
    names = old.keys() | new.keys()
    return all(old.get(name, DEFAULTS.get(name)) == new.get(name, DEFAULTS.get(name)) for name in names)
