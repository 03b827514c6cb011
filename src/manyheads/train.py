"""Train, judge and ship one classifier: the whole story of `manyheads train`."""

import logging
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from manyheads.compose import save_run
from manyheads.config import RunConfig
from manyheads.config.plain import to_plain
from manyheads.data.rows import Splits
from manyheads.data.sources import read_splits
from manyheads.runfolder import is_first_process, refuse_taken, start_folder

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from manyheads.fit.session import Training
    from manyheads.judge.summary import Summary
    from manyheads.nn import Classifier
    from manyheads.ship.deliverable import Deliverable

log = logging.getLogger("manyheads")


def train(run: RunConfig) -> "Summary | None":
    """Fit the model `run` describes, judge it and leave a run folder behind.

    Returns:
        The figures of summary.json; nothing after a dry run, or in a process that is not the first of several.

    Raises:
        ValueError: a mistake in the config, the data or the machine, in one sentence. Mistakes in the data are
            found before torch is imported and before anything is written.
    """
    started = perf_counter()
    refuse_taken(run.output)
    splits = read_splits(run.data, run.seed, with_test=run.test)

    # torch and Lightning take seconds to import: only now are they needed
    from manyheads.data.cache import prepare_tokens
    from manyheads.fit.dry import plan_figures, show_plan
    from manyheads.fit.session import assemble_classifier, fit
    from manyheads.judge.summary import show_summary
    from manyheads.judge.verdict import judge_run

    tokenizer, tokens = prepare_tokens(splits, run)
    classifier = assemble_classifier(run, splits, tokenizer)
    if run.dry:
        return show_plan(plan_figures(run, splits, tokens, classifier))
    folder = start_folder(run.output)
    if is_first_process():
        save_run(run, folder / "config.yaml")
        start_log(folder / "run.log", splits.notes)
    training = fit(run, classifier, tokens, splits.labels, folder)
    if training is None:
        return None
    deliverable = ship(run, splits, tokenizer, classifier, training, folder / "model")
    known = {**asdict(training), "wall_seconds": perf_counter() - started}
    summary = judge_run(splits, deliverable, known, to_plain(run), folder)
    show_summary(summary)
    return summary


def ship(
    run: RunConfig, splits: Splits, tokenizer: "Tokenizer", classifier: "Classifier", training: "Training", folder: Path
) -> "Deliverable":
    """Write the deliverable and open it again: what is judged is what a user will load."""
    from manyheads.ship.card import write_card
    from manyheads.ship.deliverable import load, save_deliverable

    best, pairs = training.best, splits.train.pairs is not None
    card = write_card(
        run.model,
        labels=splits.labels,
        pairs=pairs,
        n_parameters=training.parameters,
        figures={f"validation {best['metric']}": f"{best['value']:.4f}"} if best else None,
    )
    save_deliverable(
        folder,
        classifier,
        model=run.model,
        data=run.data,
        tokenizer=tokenizer,
        labels=splits.labels,
        pairs=pairs,
        card=card,
    )
    return load(folder)


def start_log(file: Path, notes: list[str]) -> None:
    """Lines go to the screen and to `file` from here on; the first are what is to be known about the data."""
    for handler in log.handlers[:]:  # those of an earlier run of this process
        log.removeHandler(handler)
        handler.close()
    for handler in (logging.StreamHandler(), logging.FileHandler(file, encoding="utf-8")):
        log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    for note in notes:
        log.info("%s", note)
