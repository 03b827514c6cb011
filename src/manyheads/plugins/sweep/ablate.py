"""The verb `ablate`: every row of a comparison trained at an equal budget, over seeds and data.

The data is found and read before torch is imported.
"""

import logging
import re
from pathlib import Path

from manyheads.config.facts import hooks
from manyheads.config.trainer_flags import check_training
from manyheads.data.checks import check_rows
from manyheads.plugins.sweep.config import AblateConfig
from manyheads.plugins.sweep.record import Record, check_same_question, prepare, read_record, read_sets, start_record
from manyheads.terminal import print_sheet, say, shown

log = logging.getLogger("manyheads.ablate")


def ablate(config: AblateConfig) -> Record:
    """Run what the results file lacks, one run after another in this process; print the tables.

    The file is replaced whole after every run, so a stop at any moment loses the running one alone; the next start
    continues with that one. A run is made again only if one of its own settings, or its data, has changed. Processes
    that do the same at the same time make different runs.

    Raises:
        UserError: one sentence; the settings, the data, a budget that no width meets, or a results file that holds
            another comparison, or is in use. All are found before the first run.
    """
    for refuse in hooks(config, "refuse"):
        refuse(config, "here")
    check_training(config.trainer)
    found, runs = read_sets(config), [config.run(variant) for variant in config.variants()]
    for one in found:
        for run in runs:
            check_rows(run, one.splits)

    from manyheads.plugins.sweep.equal_budget import plan_rows, run_missing, share
    from manyheads.plugins.sweep.tables import sheets
    from manyheads.training.trainer import check_trainer

    check_trainer(runs[0])
    path = Path(config.output or f"outputs/ablate/{_file_name(config)}").absolute()
    path = path if path.suffix == ".json" else path.with_name(f"{path.name}.json")
    if path.exists():
        check_same_question(read_record(path), path, config)
    data = {one.name: prepare(one, runs[0]) for one in found}
    rows = [row for prepared in data.values() for row in plan_rows(config, prepared)]
    record = start_record(config, rows, data)
    path.parent.mkdir(parents=True, exist_ok=True)
    with shown(log):
        if dropped := share(record, path, config):
            log.info("%d finished runs no longer fit the settings and are made again", dropped)
        run_missing(config, rows, data, record, path)
    for sheet in sheets(record):
        print_sheet(sheet)
    say(path)
    return record


def _file_name(config: AblateConfig) -> str:
    names = "-".join(name.rpartition(".")[2] for name in config.varied)
    return re.sub(r"[^\w-]+", "-", f"{names}-equal-{config.equal.name}")
