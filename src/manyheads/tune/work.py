"""The work of a search: runs are started, looked at and taken in until none is left."""

import logging
import shutil
import time

from manyheads.config import RunConfig, TuneConfig
from manyheads.fit.stop import Stop, ending
from manyheads.tune.journal import Journal
from manyheads.tune.outcome import Outcome, State, read_outcome, validations
from manyheads.tune.queue import Asked, Listed
from manyheads.tune.runs import Running, Shares, end_all, folder_of, start_run, sweep

log = logging.getLogger("manyheads.tune")
PAUSE = 0.2  # seconds between two looks at the runs
SAME = 3  # first runs that end alike: so would all others


def run_missing(config: TuneConfig, queue: Listed | Asked, journal: Journal) -> None:
    """Keep `jobs` runs going until none is left; whatever ends this ends them too, and each may save.

    Raises:
        Stopped: a signal came.
        ValueError: the first runs all ended with the same mistake.
    """
    if journal.outcomes:
        log.info("%d runs are in the journal already", len(journal.outcomes))
    shares, stop, running = Shares(config.jobs, config.run({})), Stop(), list[Running]()
    with stop.listening():
        try:
            while True:
                if (stopped := ending(stop.votes())) is not None:
                    log.info("%s: the runs under way save; the same words go on with them", stopped.why)
                    raise stopped
                fill(config, queue, journal, shares, running)
                if not running:
                    return
                time.sleep(PAUSE)
                for one in list(running):
                    look_at(config, queue, journal, one, running)
        finally:
            end_all(running)


def fill(config: TuneConfig, queue: Listed | Asked, journal: Journal, shares: Shares, running: list[Running]) -> None:
    """Start runs until there are `jobs`, or none is ready."""
    while len(running) < config.jobs and (task := queue.take()) is not None:
        try:
            run = config.run(task.setting, task.seed, str(folder_of(journal.folder, task.trial, task.seed)))
        except ValueError as refusal:
            close(config, queue, journal, Outcome(*task, State.failed, why=str(refusal)))
            continue
        slot = min(set(range(config.jobs)) - {one.slot for one in running})
        run = shares.settle(limit_time(run, config.minutes))
        running.append(start_run(run, task.trial, task.setting, slot, shares.environment(slot)))


def limit_time(run: RunConfig, minutes: float) -> RunConfig:
    """The run with its time limit: a process that goes on gets as much again."""
    if minutes:
        run.trainer["max_time"] = f"00:00:00:{60 * minutes:g}"
    return run


def look_at(config: TuneConfig, queue: Listed | Asked, journal: Journal, one: Running, running: list[Running]) -> None:
    """Take in what a run has come to, and give it up where its figures so far say so. Later runs are measured by those
    of a run that has ended, too, also where it did between two looks."""
    metric, code = config.checkpoint.metric, one.process.poll()
    if not one.pruned and one.seed == config.seed:
        for figure in validations(one.folder, metric)[one.n_reported :]:
            one.n_reported += 1
            if queue.gives_up(one.trial, one.n_reported, figure) and code is None:
                one.pruned = True
                one.end()
                return
    if code is not None:
        running.remove(one)
        sweep(one)
        close(config, queue, journal, read_outcome(one.so_far(), code, one.folder, one.log, metric))


def close(config: TuneConfig, queue: Listed | Asked, journal: Journal, outcome: Outcome) -> None:
    """Write a run that has ended into the journal; what it would go on from is no longer needed.

    Raises:
        ValueError: the first runs all ended with the same mistake.
    """
    journal.add(outcome)
    queue.ended(outcome)
    if outcome.is_final:
        shutil.rmtree(folder_of(journal.folder, outcome.trial, outcome.seed) / "checkpoints", ignore_errors=True)
    value = "" if outcome.value is None else f" {config.checkpoint.metric.name} {outcome.value:.4f}"
    state = "" if outcome.state is State.done else f" {outcome.state.name}"
    log.info(
        "trial %d of %d, seed %d:%s%s after %d steps, %.0f s%s",
        *(outcome.trial, config.n_trials, outcome.seed, state, value, outcome.steps, outcome.seconds),
        f": {outcome.why}" if outcome.why else "",
    )
    ended = journal.outcomes
    if len(ended) == SAME and not any(one.counts for one in ended) and len({one.why for one in ended}) == 1:
        raise ValueError(f"the first {SAME} runs all ended alike: {outcome.why}")
