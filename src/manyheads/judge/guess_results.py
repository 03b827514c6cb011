"""What an evaluation found of a model that tells hidden words: judged, written to a folder, shown on the screen."""

import csv
from dataclasses import asdict
from pathlib import Path
from typing import Any

from manyheads.config import EvaluateConfig
from manyheads.judge.guesses import COMMON, guess_sections, judge_common, judge_guesses, score_guesses
from manyheads.judge.results import Found, interval_cells, publish
from manyheads.judge.task import Task
from manyheads.ship.guesser import Guessed, Guesser
from manyheads.whole import replace_file


def evaluate_guesses(
    task: Task, guesser: Guesser, config: EvaluateConfig, folder: Path, home: Path | None
) -> dict[str, Any]:
    """Judge the rows of `task`, beside how often tokens occur in train, or in these rows where there is no other; write
    metrics.json, predictions.csv, pictures and report.html into `folder`.

    Returns:
        The content of metrics.json.

    Raises:
        ValueError: the folder cannot be written to.
    """
    draws: dict[str, Any] = {"n_resamples": config.bootstrap, "seed": config.seed}
    found = judge_guesses(guesser, task.rows, tokens=config.batch.tokens)
    train = task.splits.train if task.splits else task.rows
    scores, beside = (score_guesses(one, **draws) for one in (found, judge_common(guesser, train, task.rows)))
    others = beside.by_name()
    judged = Found(
        figures={**asdict(scores), "baselines": {COMMON: {name: asdict(one) for name, one in others.items()}}},
        size=f"{scores.n_pieces:,} pieces of text, {scores.n_hidden:,} hidden tokens",
        sections=guess_sections(scores, beside),
        write_csv=lambda path: write_guesses_csv(path, found),
        columns=["value", "95 % interval", COMMON],
        rows=[
            [name.replace("_", " "), *interval_cells(figure), f"{others[name].value:.4f}"]
            for name, figure in scores.by_name().items()
        ],
    )
    return publish(judged, task, config, guesser.model, folder, home)


def write_guesses_csv(path: Path, guessed: list[Guessed]) -> None:
    """One line a piece of text: how many tokens were hidden, how many of them told, and their mean loss. The file
    appears whole or not at all."""
    with replace_file(path) as part, part.open("w", encoding="utf-8", newline="") as file:
        write = csv.writer(file, lineterminator="\n").writerow
        write(["piece", "hidden", "right", "loss"])
        for number, one in enumerate(guessed, start=1):
            write([number, one.n_hidden, one.n_right, f"{one.loss / one.n_hidden:.6f}" if one.n_hidden else ""])
