"""The results file: JSON that is written after every run and continued by the next start.

{"vary": "model.score", "equal": "parameters", ..., "sets": [...], "rows": [...], "seeds": [...], "machine": {...},
 "measured": [{"set": ..., "row": ..., "data": digest, "settings": {...}, "parameters": ..., "runs": {seed: figures}}]}
"""

import json
import os
import platform
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from manyheads.ablate.plan import Row, decisive
from manyheads.ablate.training import Figures
from manyheads.config import Accelerator, HardwareConfig, RunConfig
from manyheads.config.ablate import AblateConfig, Equal
from manyheads.whole import replace_file

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
