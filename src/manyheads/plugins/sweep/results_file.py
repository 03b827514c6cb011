"""The results file of `ablate`.

It is JSON that is written after every run and continued by the next start, or at the same time by the same command
elsewhere: the process that makes a run holds its lock, and one that writes the file merges what others have written.

{"vary": "model.score", "equal": "parameters", ..., "sets": [...], "rows": [...], "seeds": [...], "machine": {...},
 "measured": [{"set": ..., "row": ..., "data": digest, "settings": {...}, "parameters": ..., "runs": {seed: figures}}]}
"""

import json
import os
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from manyheads.config import Accelerator, HardwareConfig, RunConfig
from manyheads.config.conversion import plain_settings
from manyheads.distributed.machine import processor
from manyheads.errors import UserError
from manyheads.plugins.sweep.config import AblateConfig
from manyheads.runs.files import write_json
from manyheads.runs.finished import default_settings

NOT_DECISIVE = (  # settings that decide no figure, or that are recorded by another key
    *("seed", "output", "test", "dry", "logger.", "checkpoint.", "data.path", "data.cache", "hardware.threads"),
)


@dataclass(frozen=True, slots=True)
class RunFigures:
    """What one run gave; accuracy and loss are of the weights at its end, on the validation split.

    `right` has a 1 for each row that was answered right, in the order of the split. `seconds` are of the training
    steps. `stopped`: the limit on time ended it before its steps were done. `diverged`: its loss was not finite.
    `machine` is what it was made on, versions included.
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


@dataclass(slots=True)
class RowResults:
    """One row of the table on one set of data, and its finished runs by seed."""

    set: str
    row: str
    data: str
    settings: dict[str, Any]
    width: dict[str, int]
    difference: float
    parameters: int
    flops_per_token: float
    runs: dict[str, RunFigures] = field(default_factory=dict)


@dataclass(slots=True)
class Comparison:
    """What the results file holds: the settings of the last start, and all finished runs that still fit them.

    Attributes:
        sets, rows, seeds: names of the data, names of the rows and the seeds that the last start compares.
        n_rows: validation rows of each data.
        machine: that of the last start.
        measured: results of each row on each data, also those that the last start does not compare.
    """

    vary: str
    equal: str
    tolerance: float
    seconds: float
    sets: list[str]
    rows: list[str]
    seeds: list[int]
    n_rows: dict[str, int]
    machine: dict[str, Any]
    measured: list[RowResults] = field(default_factory=list)

    def has(self, set_name: str, row: str) -> bool:
        return any((one.set, one.row) == (set_name, row) for one in self.measured)

    def at(self, set_name: str, row: str) -> RowResults:
        for one in self.measured:
            if (one.set, one.row) == (set_name, row):
                return one
        raise KeyError(f"{set_name}, {row}")

    def write(self, path: Path) -> None:
        """The file appears whole or not at all."""
        write_json(path, asdict(self), indent=1)


def read_results(path: Path) -> Comparison:
    """The content of a results file.

    Raises:
        UserError: it is none.
    """
    try:
        return comparison_of(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"output={path} is not a results file of ablate: name another file, or move this one away"
        ) from error


def comparison_of(document: dict[str, Any]) -> Comparison:
    """What a results file, or `ablate --json`, has as JSON."""
    measured = []
    for one in document["measured"]:
        runs = {seed: RunFigures(**figures) for seed, figures in one["runs"].items()}
        measured.append(RowResults(**{**one, "runs": runs}))
    return Comparison(**{**document, "measured": measured})


def merge_earlier(results: Comparison, before: Comparison) -> int:
    """Copy the runs of earlier results that the new ones ask for, and keep rows that these do not compare. Runs of a
    file that did not yet note the machine of each are of the one it names.

    Returns:
        How many earlier runs are dropped, since a setting or the data has changed, or the limit of time would end them
        elsewhere.
    """
    n_dropped, its_machine, same_limit = 0, machine_words(before.machine), results.seconds == before.seconds
    for old in before.measured:
        old.runs = {seed: replace(run, machine=run.machine or its_machine) for seed, run in old.runs.items()}
        kept = dict[str, RunFigures]()
        for seed, run in old.runs.items():
            if same_limit or (not run.stopped and run.seconds <= results.seconds):
                kept[seed] = run
        if results.has(old.set, old.row):
            new = results.at(old.set, old.row)
            same_size = old.parameters == new.parameters  # a tokenizer may have gained entries that no text has
            if old.data != new.data or not same_size or not _same(old.settings, new.settings):
                kept = {}
            new.runs |= kept
        else:
            results.measured.append(replace(old, runs=kept))
        n_dropped += len(old.runs) - len(kept)
    return n_dropped


def _same(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Equal settings; one that did not exist when the file was written counts as its default."""
    usual, names = default_settings(), old.keys() | new.keys()
    return all(old.get(name, usual.get(name)) == new.get(name, usual.get(name)) for name in names)


def check_same_comparison(results: Comparison, path: Path, config: AblateConfig) -> None:
    """A file is continued only with the comparison it holds.

    Raises:
        UserError: it holds another.
    """
    for name, held, asked in (("vary", results.vary, config.vary_name), ("equal", results.equal, config.equal.name)):
        if held != asked:
            raise UserError(
                f"output={path} holds a comparison with {name}={held}, not {name}={asked}: "
                "name another file by output=FILE"
            )


def decisive(run: RunConfig) -> dict[str, Any]:
    """The settings of a run that decide its figures, by dotted name; its data and its seed have keys of their own."""
    return {name: value for name, value in plain_settings(run).items() if not name.startswith(NOT_DECISIVE)}


def machine_words(machine: dict[str, Any]) -> str:
    """A machine and its versions on one line, which is the mark of a run."""
    threads = "1 thread" if machine["threads"] == 1 else f"{machine['threads']} threads"
    ours = f", manyheads {machine['manyheads']}" if "manyheads" in machine else ""
    return f"{machine['processor']}, {threads}, {machine['device']}, torch {machine['torch']}{ours}"


def machine(hardware: HardwareConfig) -> dict[str, Any]:
    """What the seconds and the last digits of the figures depend on."""
    import torch

    on_gpu = hardware.accelerator is not Accelerator.cpu and torch.cuda.is_available()
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": hardware.threads or torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "torch": version("torch"),
        "manyheads": version("manyheads"),
    }
