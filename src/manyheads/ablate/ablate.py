"""The verb `ablate`: train every row of a comparison at an equal budget, over seeds and data, and say what differs."""

import logging
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from manyheads.ablate.sets import read_sets
from manyheads.config.ablate import AblateConfig, Equal
from manyheads.fit.checks import check_class_names, check_end
from manyheads.terminal import shown

if TYPE_CHECKING:
    from manyheads.ablate.plan import Row
    from manyheads.ablate.record import Record
    from manyheads.ablate.sets import Prepared

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

    from manyheads.ablate.plan import plan_rows
    from manyheads.ablate.record import check_same_machine, check_same_question, read_record, start_record, take_over
    from manyheads.ablate.sets import prepare
    from manyheads.ablate.tables import show
    from manyheads.fit.trainer import check_trainer

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
    from manyheads.ablate.record import machine_words
    from manyheads.ablate.training import train_run, warm_up

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
