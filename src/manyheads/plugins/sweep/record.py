"""What `ablate` compares and what it has found: the data, read and tokenized once for all runs, and the results file.

It is JSON that is written after every run and continued by the next start, or at the same time by the same command
elsewhere: who makes a run holds its lock, and who writes the file takes over what others have written.

{"vary": "model.score", "equal": "parameters", ..., "sets": [...], "rows": [...], "seeds": [...], "machine": {...},
 "measured": [{"set": ..., "row": ..., "data": digest, "settings": {...}, "parameters": ..., "runs": {seed: figures}}]}
"""

import hashlib
import json
import logging
import os
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from manyheads.config import Accelerator, DataConfig, HardwareConfig, RunConfig
from manyheads.config.conversion import plain_settings
from manyheads.data.rows import Splits
from manyheads.data.sources import read_splits
from manyheads.distributed.ranks import processor
from manyheads.errors import UserError
from manyheads.plugins.sweep.config import AblateConfig
from manyheads.runs.config_file import REMOVED
from manyheads.runs.files import write_json

if TYPE_CHECKING:
    from manyheads.data.tokens import Tokens

ROOT = "MANYHEADS_DATA"
ELSEWHERE = ("seed", "output", "test", "dry", "logger.", "checkpoint.", "data.path", "data.cache", "hardware.threads")
log = logging.getLogger("manyheads.ablate")


@dataclass(frozen=True, slots=True)
class Found:
    """Data that was read and checked; the test split is not among it."""

    name: str
    data: DataConfig
    splits: Splits


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the data decides about a model's size and costs; `texts` are those of training, see `Tokens.sizes`."""

    vocab_size: int
    n_classes: int
    max_length: int
    n_segments: int
    texts: list[tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class Prepared:
    """What every run on the same data shares. `digest` is of tokens and labels: other data has another."""

    name: str
    data: DataConfig
    labels: list[str]
    tokens: "dict[str, Tokens]"
    sizes: Sizes
    digest: str


def read_sets(config: AblateConfig) -> list[Found]:
    """Train and validation of each of `config.sets`, or of `config.data` where that is empty.

    A missing validation split is carved out of train by the first seed, the same for all runs.

    Raises:
        UserError: data that is not there, the same name twice, or what `read_splits` finds wrong in it.
    """
    data = config.data
    own = _name(data.path) if data.path else data.hub.rsplit("/", 1)[-1] or data.source
    named = [(_name(one), _where(one, data)) for one in config.sets] or [(own, data)]
    names = [name for name, _ in named]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"sets holds {name} twice: name each data once")
    found = [Found(name, data, read_splits(data, config.seed, with_test=False)) for name, data in named]
    for one in found:
        if one.splits.multi:
            raise UserError(
                f"{one.name} has rows with any number of labels, but ablate compares by accuracy, which needs one "
                "class a row: name other data"
            )
    return found


def prepare(found: Found, run: RunConfig) -> Prepared:
    """Tokenize; nothing of `run` counts but its tokenizer and `data`."""
    from manyheads.data.token_cache import prepare_tokens
    from manyheads.data.tokens import reach

    tokenizer, tokens = prepare_tokens(found.splits, replace(run, data=found.data))
    pairs = found.splits.train.pairs is not None
    digest = hashlib.blake2b(digest_size=16)
    for split in tokens.values():
        segments = [] if split.segments_N is None else [split.segments_N]
        for tensor in (split.ids_N, split.offsets, split.labels.long(), *(split.windows or ()), *segments):
            digest.update(tensor.numpy().tobytes())
    sizes = Sizes(
        vocab_size=reach(tokenizer, pairs=pairs).ids,
        n_classes=len(found.splits.labels),
        max_length=found.data.max_length,
        n_segments=2 if pairs else 0,
        texts=tokens["train"].sizes(),
    )
    return Prepared(found.name, found.data, found.splits.labels, tokens, sizes, digest.hexdigest())


def _name(asked: str) -> str:
    """What the table calls a file or folder."""
    path = Path(asked)
    return path.name if path.suffix == "" or path.is_dir() else path.name.partition(".")[0]


def _where(asked: str, data: DataConfig) -> DataConfig:
    if asked == "demo":
        return replace(data, source="demo", path="")
    root = os.environ.get(ROOT)
    places = ([Path(root, asked)] if root else []) + [Path(asked).expanduser()]
    for place in places:
        if place.exists():
            return replace(data, source="files", path=str(place.absolute()))
    looked = f"not in ${ROOT} ({root})" if root else f"${ROOT} is not set"
    raise UserError(
        f"sets holds {asked}, which is neither demo nor a file or folder here, and {looked}: "
        f"set {ROOT} to the folder that holds {asked}, or leave it out of sets"
    )


@dataclass(frozen=True, slots=True)
class Figures:
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


class Row(NamedTuple):
    """One row of the table on one set of data: how it is trained, and what is known of it before that."""

    run: RunConfig
    measured: Measured


@dataclass(slots=True)
class Record:
    """What the results file holds: what was asked last, and all runs that are finished and still fit their settings."""

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
        write_json(path, asdict(self), indent=1)


def start_record(config: AblateConfig, rows: list[Row], data: dict[str, Prepared]) -> Record:
    """A record of what is asked, without runs."""
    return Record(
        vary=config.vary_name,
        equal=config.equal.name,
        tolerance=config.tolerance,
        seconds=config.seconds,
        sets=list(data),
        rows=[variant.name for variant in config.variants()],
        seeds=list(range(config.seed, config.seed + config.seeds)),
        n_rows={name: len(one.tokens["validation"]) for name, one in data.items()},
        machine=machine(config.hardware),
        measured=[row.measured for row in rows],
    )


def read_record(path: Path) -> Record:
    """The record in a results file.

    Raises:
        UserError: it is none.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        measured = [
            Measured(**{**one, "runs": {seed: Figures(**figures) for seed, figures in one["runs"].items()}})
            for one in content.pop("measured")
        ]
        return Record(**content, measured=measured)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"output={path} is not a results file of ablate: name another file, or move this one away"
        ) from error


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
        same_size = old.parameters == new.parameters  # or a tokenizer has more entries than the texts have
        fits = old.data == new.data and same_size and _same(old.settings, new.settings)
        same_limit = record.seconds == before.seconds
        kept = {seed: run for seed, run in old.runs.items() if fits and (same_limit or not run.stopped)}
        dropped += len(old.runs) - len(kept)
        new.runs |= kept
    return dropped


def _same(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Equal settings; one that did not exist when the file was written, or exists no more, counts as its default."""
    usual, names = REMOVED | decisive(RunConfig()), old.keys() | new.keys()
    return all(old.get(name, usual.get(name)) == new.get(name, usual.get(name)) for name in names)


def check_same_question(record: Record, path: Path, config: AblateConfig) -> None:
    """A file is continued only with the comparison it holds.

    Raises:
        UserError: it holds another.
    """
    for name, held, asked in (("vary", record.vary, config.vary_name), ("equal", record.equal, config.equal.name)):
        if held != asked:
            raise UserError(
                f"output={path} holds a comparison with {name}={held}, not {name}={asked}: "
                "name another file by output=FILE"
            )


def decisive(run: RunConfig) -> dict[str, Any]:
    """The settings of a run that decide its figures, by dotted name; the data itself and the seed are named apart."""
    found = plain_settings(run)
    return {name: value for name, value in found.items() if not name.startswith(ELSEWHERE)}


def machine_words(machine: dict[str, Any]) -> str:
    """A machine and its versions on one line, which is the mark of a run."""
    threads = f"{machine['threads']} thread{'' if machine['threads'] == 1 else 's'}"
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
