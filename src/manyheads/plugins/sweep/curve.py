"""The verb `curve`: figures by the number of training rows, a process for each share of them and seed, and what more
rows would bring. This process imports no torch."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from manyheads.config.facts import hooks
from manyheads.config.trainer_flags import check_training
from manyheads.data.checks import check_rows
from manyheads.data.sources import read_splits
from manyheads.errors import UserError
from manyheads.plugins.sweep.config import CurveConfig
from manyheads.plugins.sweep.journal import open_journal
from manyheads.plugins.sweep.outcomes import Trial, trial_folder
from manyheads.plugins.sweep.same_search import shared_settings
from manyheads.plugins.sweep.scheduler import Search
from manyheads.plugins.sweep.tune import refuse_many_processes
from manyheads.runs.folder import refuse_unwritable_output
from manyheads.runs.summary import Summary, read_summary
from manyheads.terminal import log_to_screen

log = logging.getLogger("manyheads.tune")


def curve(config: CurveConfig) -> dict[str, Any]:
    """Make the runs that the journal lacks, then print the figures by size and write the report.

    Returns:
        The content of curve.json.

    Raises:
        Stopped: a signal ended it; its runs have saved, and the same command resumes it.
        UserError: a mistake in the settings or the data, found before anything is written; a folder that holds
            another curve; a run that came to no figure.
    """
    refuse_many_processes(config, "curve")
    check_training(config.trainer)
    for refuse in hooks(config, "refuse"):
        refuse(config, "here")
    folder = Path(config.output or "outputs/curve").absolute()
    refuse_unwritable_output(str(folder))
    splits = read_splits(config.data, config.seed, with_test=config.test)
    checkpoint = config.checkpoint.settled(config.run({}).task, multi=splits.multi)
    typed, config = config, replace(config, checkpoint=checkpoint)
    check_rows(config.run({}), splits)
    trials = []
    for seed in range(config.seed, config.seed + config.seeds):
        for at, share in enumerate(config.shares, start=1):
            trials.append(Trial(at, seed, {"data.train_share": share}))
    settings = {"shares": config.shares} | shared_settings(config, splits)
    with open_journal(folder, settings) as journal, log_to_screen(log):
        journal.trials = iter(trials)
        Search(config, journal, splits).run()
        outcomes = [journal.find(one.number, one.seed) for one in trials]

    from manyheads.plugins.sweep.curve_report import write_curve

    by_size: dict[int, list[Summary]] = {}
    for trial, outcome in zip(trials, outcomes, strict=True):
        place = trial_folder(folder, trial.number, trial.seed)
        summary = read_summary(place / "summary.json")
        if outcome is None or not outcome.counts or summary is None:
            why = outcome.why if outcome and outcome.why else "was ended"
            remedy = "repeat the command to try again"
            if outcome is not None:  # the journal finds those alone that are not made again
                remedy = "use other settings, and another folder by output=FOLDER"
            raise UserError(f"the run in {place} {why}: {remedy}")
        by_size.setdefault(trial.number, []).append(summary)
    return write_curve(typed, checkpoint.metric, list(by_size.values()), folder)
