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
from manyheads.plugins.sweep.results_file import Comparison, check_same_comparison, machine, read_results
from manyheads.plugins.sweep.sets import read_sets, tokenize
from manyheads.terminal import print_sheet, say, shown

log = logging.getLogger("manyheads.ablate")


def ablate(config: AblateConfig) -> Comparison:
    """Make the runs that the results file lacks, one after another in this process; print the tables.

    The file is replaced whole after every run, so a stop at any moment loses the current run alone; the next start
    continues with it. A run is made again only if one of its own settings, or its data, has changed. Processes that do
    the same at the same time make different runs.

    Raises:
        UserError: one sentence; the settings, the data, a budget that no width meets, or a results file that holds
            another comparison, or is in use. All are found before the first run.
    """
    for refuse in hooks(config, "refuse"):
        refuse(config, "here")
    check_training(config.trainer)
    sets, runs = read_sets(config), [config.run(variant) for variant in config.variants()]
    for one in sets:
        for run in runs:
            check_rows(run, one.splits)

    from manyheads.plugins.sweep.budget import plan_rows, run_missing, share
    from manyheads.plugins.sweep.tables import sheets
    from manyheads.training.trainer import check_trainer

    check_trainer(runs[0])
    path = Path(config.output or f"outputs/ablate/{_file_name(config)}").absolute()
    if path.suffix != ".json":
        path = path.with_name(f"{path.name}.json")
    if path.exists():
        check_same_comparison(read_results(path), path, config)
    data = {one.name: tokenize(one, runs[0]) for one in sets}
    rows = [row for tokenized in data.values() for row in plan_rows(config, tokenized)]
    results = Comparison(
        vary=config.vary_name,
        equal=config.equal.name,
        tolerance=config.tolerance,
        seconds=config.seconds,
        sets=list(data),
        rows=[variant.name for variant in config.variants()],
        seeds=list(range(config.seed, config.seed + config.seeds)),
        n_rows={name: len(one.tokens["validation"]) for name, one in data.items()},
        machine=machine(config.hardware),
        measured=[row.results for row in rows],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with shown(log):
        if n_dropped := share(results, path, config):
            log.info("%d finished runs no longer fit the settings and are made again", n_dropped)
        run_missing(config, rows, data, results, path)
    for sheet in sheets(results):
        print_sheet(sheet)
    say(path)
    return results


def _file_name(config: AblateConfig) -> str:
    names = "-".join(name.rpartition(".")[2] for name in config.varied)
    return re.sub(r"[^\w-]+", "-", f"{names}-equal-{config.equal.name}")
