"""The verb `ablate`: every row of a comparison trained at an equal budget, over seeds and data.

The road: config.py names the rows and sets.py reads the data. Then, with torch, budget.py makes the rows equal,
ablation.py trains them, results_file.py keeps what each run gave, and tables.py tests and shows the differences.
"""

import re
from pathlib import Path

from manyheads.config.facts import hooks
from manyheads.config.trainer_flags import check_training
from manyheads.data.checks import check_rows
from manyheads.plugins.sweep.config import AblateConfig
from manyheads.plugins.sweep.results_file import Comparison, check_same_comparison, read_results
from manyheads.plugins.sweep.sets import read_sets
from manyheads.runs.folder import refuse_unwritable_output
from manyheads.terminal import say, typed_path


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
    names = "-".join(name.rpartition(".")[2] for name in config.varied)
    name = re.sub(r"[^\w-]+", "-", f"{names}-equal-{config.equal.name}")
    path = Path(config.output or f"outputs/ablate/{name}").absolute()
    if path.suffix != ".json":
        path = path.with_name(f"{path.name}.json")
    refuse_unwritable_output(str(path), path.parent)
    sets = read_sets(config)
    for variant in config.variants():
        for one in sets:
            check_rows(config.run(variant), one.splits)
    if path.exists():
        check_same_comparison(read_results(path), path, config)

    from manyheads.plugins.sweep.ablation import compare_variants

    results = compare_variants(config, sets, path)
    say(typed_path(path))
    return results
