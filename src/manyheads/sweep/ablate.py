"""The verb `ablate`: every row of a comparison trained at an equal budget, over seeds and data.

The data of a comparison: found and read before torch is imported, then tokenized once for all its runs.

The verb `ablate`: train every row of a comparison at an equal budget, over seeds and data, and say what differs.
"""

import logging
import os
import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from manyheads.config import AblateConfig, DataConfig, Equal, RunConfig, Source
from manyheads.data.rows import Splits
from manyheads.data.sources import read_splits
from manyheads.terminal import shown
from manyheads.training.checks import check_class_names, check_end, check_long

if TYPE_CHECKING:
    from manyheads.data.tokens import Tokens
    from manyheads.sweep.equal_budget import Row, Sizes
    from manyheads.sweep.record import Record


ROOT = "MANYHEADS_DATA"


@dataclass(frozen=True, slots=True)
class Found:
    """Data that was read and checked; the test split is not among it."""

    name: str
    data: DataConfig
    splits: Splits


@dataclass(frozen=True, slots=True)
class Prepared:
    """What every run on the same data shares. `digest` is of tokens and labels: other data has another."""

    name: str
    data: DataConfig
    labels: list[str]
    tokens: "dict[str, Tokens]"
    sizes: "Sizes"
    digest: str


def read_sets(config: AblateConfig) -> list[Found]:
    """Train and validation of each of `config.sets`, or of `config.data` where that is empty.

    A missing validation split is carved out of train by the first seed, the same for all runs.

    Raises:
        ValueError: data that is not there, the same name twice, or what `read_splits` finds wrong in it.
    """
    named = [(_name(one), _where(one, config.data)) for one in config.sets] or [(own_name(config.data), config.data)]
    names = [name for name, _ in named]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"sets holds {name} twice: name each data once")
    found = [Found(name, data, read_splits(data, config.seed, with_test=False)) for name, data in named]
    for one in found:
        check_long(one.data, pairs=one.splits.train.pairs is not None)
        if one.splits.multi:
            raise ValueError(
                f"{one.name} has rows with any number of labels, but ablate compares by accuracy, which needs one "
                "class a row: name other data"
            )
    return found


def prepare(found: Found, run: RunConfig) -> Prepared:
    """Tokenize; nothing of `run` counts but its tokenizer and `data`."""
    import hashlib

    from manyheads.data.cache import prepare_tokens
    from manyheads.data.tokens import reach
    from manyheads.sweep.equal_budget import Sizes

    tokenizer, tokens = prepare_tokens(found.splits, replace(run, data=found.data))
    pairs = found.splits.train.pairs is not None
    digest = hashlib.blake2b(digest_size=16)
    for split in tokens.values():
        for tensor in (split.ids_N, split.offsets, split.labels, *(split.windows or ())):
            digest.update(tensor.numpy().tobytes())
    sizes = Sizes(
        vocab_size=reach(tokenizer, pairs=pairs).ids,
        n_classes=len(found.splits.labels),
        max_length=found.data.max_length,
        n_segments=2 if pairs else 0,
        lengths=tuple(sorted(Counter(tokens["train"].documents.tolist()).items())),
    )
    return Prepared(found.name, found.data, found.splits.labels, tokens, sizes, digest.hexdigest())


def own_name(data: DataConfig) -> str:
    """What the table calls the data of the section `data`."""
    return _name(data.path) if data.path else data.hub.rsplit("/", 1)[-1] or data.source.name


def _name(asked: str) -> str:
    path = Path(asked)
    return path.name if path.suffix == "" or path.is_dir() else path.name.partition(".")[0]


def _where(asked: str, data: DataConfig) -> DataConfig:
    if asked == "demo":
        return replace(data, source=Source.demo, path="")
    root = os.environ.get(ROOT)
    places = ([Path(root, asked)] if root else []) + [Path(asked).expanduser()]
    for place in places:
        if place.exists():
            return replace(data, source=Source.files, path=str(place.absolute()))
    looked = f"not in ${ROOT} ({root})" if root else f"${ROOT} is not set"
    raise ValueError(
        f"sets holds {asked}, which is neither demo nor a file or folder here, and {looked}: "
        f"set {ROOT} to the folder that holds {asked}, or leave it out of sets"
    )


log = logging.getLogger("manyheads.ablate")


def ablate(config: AblateConfig) -> "Record":
    """Run what the results file lacks, one run after another in this process; print the tables.

    The file is replaced whole after every run, so a stop at any moment loses the running one alone; the next start
    goes on behind it. A run is made again only if one of its own settings, or its data, has changed.

    Raises:
        ValueError: one sentence; the settings, the data, a budget that no width meets, or a results file that holds
            another comparison. All are found before the first run.
    """
    check_end(config.trainer)
    found = read_sets(config)
    for one in found:
        check_class_names(config.optim.class_weights, one.splits.labels)

    from manyheads.sweep.comparison import show
    from manyheads.sweep.equal_budget import plan_rows
    from manyheads.sweep.record import check_same_machine, check_same_question, read_record, start_record, take_over
    from manyheads.training.trainer import check_trainer

    check_trainer(config.run(config.variants()[0]))
    path = Path(config.output or f"outputs/ablate/{_file_name(config)}").absolute()
    path = path if path.suffix == ".json" else path.with_name(f"{path.name}.json")
    before = read_record(path) if path.exists() else None
    if before is not None:
        check_same_question(before, path, config)
    data = {one.name: prepare(one, config.run(config.variants()[0])) for one in found}
    rows = [row for prepared in data.values() for row in plan_rows(config, prepared)]
    n_rows = {name: len(one.tokens["validation"]) for name, one in data.items()}
    record = start_record(config, rows, {name: one.digest for name, one in data.items()}, n_rows)
    with shown(log):
        if before is not None and (dropped := take_over(record, before)):
            log.info("%d finished runs no longer fit the settings and are made again", dropped)
        check_same_machine(record, path)
        run_missing(config, rows, data, record, path)
    show(record, path)
    return record


def run_missing(
    config: AblateConfig, rows: "list[Row]", data: "dict[str, Prepared]", record: "Record", path: Path
) -> None:
    """All rows of one seed before the next, so that a stop leaves whole comparisons behind."""
    from manyheads.sweep.record import machine_words, train_run, warm_up

    asked = [(seed, row, record.at(row.set, row.name)) for seed in record.seeds for row in rows]
    missing = [(seed, row, measured) for seed, row, measured in asked if str(seed) not in measured.runs]
    record.write(path)
    if missing:
        warm_up(missing[0][1].run, data[missing[0][1].set])
    for at, (seed, row, measured) in enumerate(missing, start=1):
        run = replace(row.run, seed=seed)
        figures = train_run(run, data[row.set], config.seconds, paces=config.equal is Equal.seconds)
        measured.runs[str(seed)] = replace(figures, machine=machine_words(record.machine))
        record.write(path)
        log.info(
            "run %d of %d: %s, %s, seed %d: accuracy %.4f after %d steps in %.1f s",
            *(at, len(missing), row.set, row.name, seed, figures.accuracy, figures.steps, figures.seconds),
        )


def _file_name(config: AblateConfig) -> str:
    names = "-".join(name.rpartition(".")[2] for name in config.varied)
    return re.sub(r"[^\w-]+", "-", f"{names}-equal-{config.equal.name}")
