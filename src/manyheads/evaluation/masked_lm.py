"""A model that tells hidden words, judged.

What a model that tells hidden words is worth: how often it is right, how surprised it is, and beside what.

Words are hidden where training hid them for its validation: the figures are those of the kept epoch.

P hidden words . V vocabulary

What an evaluation found of a model that tells hidden words: judged, written to a folder, shown on the screen.
"""

import csv
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from manyheads.config import EvaluateConfig
from manyheads.data.batches import Planned, gather, held_out
from manyheads.data.rows import Rows
from manyheads.data.tokens import Tokens
from manyheads.evaluation.evaluate import EvaluationData
from manyheads.evaluation.page import Html, interval_bar, section, shown, table, two_lines
from manyheads.evaluation.report import Sections, tile_row
from manyheads.evaluation.results import Found, interval_cells, publish
from manyheads.evaluation.scores import Interval, ratio_interval
from manyheads.inference.masked_lm import Guessed, MaskedLMPredictor
from manyheads.runs.atomic import replace_file

COMMON = "how often tokens occur"
MOST_TRAIN = 20_000  # texts that tokens are counted in


@dataclass(frozen=True, slots=True)
class GuessScores:
    """Figures of one split. `loss` is the mean cross-entropy of a hidden token in nats, `perplexity` e to its power:
    among how many equally likely ones the model is left to choose."""

    masked_accuracy: Interval
    perplexity: Interval
    loss: Interval
    n_pieces: int
    n_hidden: int

    def by_name(self) -> dict[str, Interval]:
        return {"masked_accuracy": self.masked_accuracy, "perplexity": self.perplexity, "loss": self.loss}


def judge_guesses(guesser: MaskedLMPredictor, rows: Rows, *, tokens: int = 2048) -> list[Guessed]:
    """How the hidden words of the rows are told, a piece each, in as many pieces as judging needs."""
    return guesser.guess(held_out(guesser.pieces(rows.texts, rows.pairs)), tokens=tokens)


def score_guesses(guessed: list[Guessed], *, n_resamples: int = 1000, seed: int = 0) -> GuessScores:
    """Figures with their 95 % intervals, all on the same resamples of whole pieces of text.

    Raises:
        ValueError: no token is hidden.
    """
    draws: dict[str, Any] = {"n_resamples": n_resamples, "seed": seed}
    hidden = [one for one in guessed if one.n_hidden]
    if not hidden:
        raise ValueError("the texts are too few and short to hide a word in them and judge by it: give more of them")
    n_hidden = [one.n_hidden for one in hidden]
    loss = ratio_interval([one.loss for one in hidden], n_hidden, **draws)
    return GuessScores(
        masked_accuracy=ratio_interval([one.n_right for one in hidden], n_hidden, share=True, **draws),
        perplexity=Interval(*(math.exp(min(one, 700.0)) for one in (loss.value, loss.low, loss.high))),
        loss=loss,
        n_pieces=len(guessed),
        n_hidden=sum(n_hidden),
    )


def judge_common(guesser: MaskedLMPredictor, train: Rows, rows: Rows) -> list[Guessed]:
    """The same words told by how often tokens occur in train, which needs no model: nothing beside them is read."""
    some = train.pick(list(range(min(len(train), MOST_TRAIN))))
    learnt, asked = guesser.pieces(some.texts, some.pairs), held_out(guesser.pieces(rows.texts, rows.pairs))
    counts_V = torch.bincount(learnt.ids_N.long(), minlength=guesser.vocabulary.special_V.numel()).double() + 1
    counts_V[guesser.vocabulary.special_V] = 0
    losses_V = -(counts_V / counts_V.sum()).log()
    return [_common(guesser, asked, row, losses_V, int(counts_V.argmax())) for row in range(len(asked))]


def _common(guesser: MaskedLMPredictor, asked: Tokens, row: int, losses_V: torch.Tensor, likeliest: int) -> Guessed:
    words_P = guesser.hidden(gather(asked, Planned(torch.tensor([row]), 1.0))).words_P
    return Guessed(words_P.numel(), int((words_P == likeliest).sum()), float(losses_V[words_P].sum()))


def guess_sections(scores: GuessScores, beside: GuessScores) -> Sections:
    """What report.html says of them; `beside` is what counting alone is worth."""
    accuracy = scores.masked_accuracy
    said = (
        f"{accuracy.value:.1%} of {scores.n_hidden:,} hidden tokens are predicted correctly (95 % interval "
        f"{accuracy.low:.1%} to {accuracy.high:.1%}), at a perplexity of {scores.perplexity.value:.1f}; by "
        f"{COMMON} alone {beside.masked_accuracy.value:.1%}, at {beside.perplexity.value:.0f}."
    )
    tiles = tile_row({"masked accuracy": accuracy, "perplexity": scores.perplexity, "loss of a token": scores.loss})
    return Sections([tiles, Html(f"<p class=verdict>{shown(said)}</p>"), *_comparison(scores, beside)], [])


def _comparison(scores: GuessScores, beside: GuessScores) -> Iterator[Html]:
    rows = [
        [name, two_lines(one.masked_accuracy), interval_bar(one.masked_accuracy), two_lines(one.perplexity)]
        for name, one in (("this model", scores), (COMMON, beside))
    ]
    yield section(
        "Beside counting, on the same hidden tokens",
        table(["model", "masked accuracy", "from 0 to 1", "perplexity"], rows, "wnbn", own=0),
    )


def evaluate_guesses(
    task: EvaluationData, guesser: MaskedLMPredictor, config: EvaluateConfig, folder: Path, home: Path | None
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
