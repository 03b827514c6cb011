"""Evaluation of a masked language model: how often it predicts a hidden token, and its perplexity.

The tokens are those that training hides for its validation: the figures are those of the best epoch.

P hidden tokens . V vocabulary
"""

import csv
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from manyheads.data.batches import ANSWER_TOKENS, Planned, gather, held_out
from manyheads.data.rows import Rows
from manyheads.evaluation.evaluation import NETWORK, Evaluation, Setup
from manyheads.evaluation.metrics import Interval, ratio_interval
from manyheads.evaluation.report import Figures, Section, Table
from manyheads.inference.masked_lm import Guessed, MaskedLMPredictor
from manyheads.runs.atomic import replace_file

COMMON = "how often tokens occur"
MOST_TRAIN = 20_000  # texts in which tokens are counted


@dataclass(frozen=True, slots=True)
class MaskedScores:
    """Figures of one split. `loss` is the mean cross-entropy of a hidden token in nats, `perplexity` e to its power:
    among how many equally likely ones the model is left to choose."""

    masked_accuracy: Interval
    perplexity: Interval
    loss: Interval
    n_pieces: int
    n_hidden: int

    def by_name(self) -> Figures:
        return {"masked_accuracy": self.masked_accuracy, "perplexity": self.perplexity, "loss": self.loss}


def evaluate_masked(model: MaskedLMPredictor, rows: Rows, setup: Setup) -> Evaluation:
    """The model, and how often tokens occur in the training rows, or in these rows where those are unknown.

    Raises:
        ValueError: no token is hidden.
    """
    found = model.guess(held_out(model.pieces(rows.texts, rows.pairs)), tokens=setup.tokens or ANSWER_TOKENS)
    scores = score_masked(found, **setup.draws)
    common = score_masked(by_frequency(model, setup.train or rows, rows), **setup.draws) if setup.compare else None
    tiles = {"masked accuracy": scores.masked_accuracy, "perplexity": scores.perplexity}
    return Evaluation(
        title="A masked language model and what it is worth",
        size=f"{scores.n_pieces:,} pieces of text, {scores.n_hidden:,} hidden tokens",
        scores=asdict(scores),
        members={NETWORK: scores.by_name()},
        baselines={COMMON: common.by_name()} if common else {},
        verdict=verdict(scores, common),
        tiles=tiles | {"loss of a token": scores.loss},
        comparison=comparison(scores, common) if common else [],
        write_csv=lambda path: write_pieces_csv(path, found),
    )


def score_masked(found: list[Guessed], *, n_resamples: int = 1000, seed: int = 0) -> MaskedScores:
    """Figures with their 95 % intervals, all on the same resamples of whole pieces of text.

    Raises:
        ValueError: no token is hidden.
    """
    draws: dict[str, Any] = {"n_resamples": n_resamples, "seed": seed}
    hidden = [one for one in found if one.n_hidden]
    if not hidden:
        raise ValueError("the texts are too few and short to hide a word in them and judge by it: give more of them")
    n_hidden = [one.n_hidden for one in hidden]
    loss = ratio_interval([one.loss for one in hidden], n_hidden, **draws)
    return MaskedScores(
        masked_accuracy=ratio_interval([one.n_right for one in hidden], n_hidden, share=True, **draws),
        perplexity=Interval(*(math.exp(min(one, 700.0)) for one in (loss.value, loss.low, loss.high))),
        loss=loss,
        n_pieces=len(found),
        n_hidden=sum(n_hidden),
    )


def by_frequency(model: MaskedLMPredictor, train: Rows, rows: Rows) -> list[Guessed]:
    """The same tokens predicted by how often each occurs in train, whatever stands around them."""
    some = train.pick(list(range(min(len(train), MOST_TRAIN))))
    known, asked = model.pieces(some.texts, some.pairs), held_out(model.pieces(rows.texts, rows.pairs))
    special_V = model.vocabulary.special_V
    counts_V = torch.bincount(known.ids_N.long(), minlength=special_V.numel()).double() + 1
    counts_V[special_V] = 0
    losses_V, likeliest, found = -(counts_V / counts_V.sum()).log(), int(counts_V.argmax()), []
    for row in range(len(asked)):
        words_P = model.hidden(gather(asked, Planned(torch.tensor([row]), 1.0))).words_P
        found.append(Guessed(words_P.numel(), int((words_P == likeliest).sum()), float(losses_V[words_P].sum())))
    return found


def verdict(scores: MaskedScores, common: MaskedScores | None) -> str:
    """One sentence a hurried reader can repeat."""
    accuracy = scores.masked_accuracy
    said = (
        f"{accuracy.value:.1%} of {scores.n_hidden:,} hidden tokens are predicted correctly (95 % interval "
        f"{accuracy.low:.1%} to {accuracy.high:.1%}), at a perplexity of {scores.perplexity.value:.1f}"
    )
    if common is None:
        return f"{said}."
    return f"{said}; by {COMMON} alone {common.masked_accuracy.value:.1%}, at {common.perplexity.value:.0f}."


def comparison(scores: MaskedScores, common: MaskedScores) -> list[Section]:
    """The model and the baseline."""
    rows = [
        [name, one.masked_accuracy, one.masked_accuracy, one.perplexity]
        for name, one in (("this model", scores), (COMMON, common))
    ]
    table = Table(["model", "masked accuracy", "from 0 to 1", "perplexity"], rows, "wibi", own=0)
    return [Section("Beside counting, on the same hidden tokens", table)]


def write_pieces_csv(path: Path, found: list[Guessed]) -> None:
    """One line a piece of text: how many tokens were hidden, how many of them predicted, and their mean loss. The file
    appears whole or not at all."""
    with replace_file(path) as part, part.open("w", encoding="utf-8", newline="") as file:
        write = csv.writer(file, lineterminator="\n").writerow
        write(["piece", "hidden", "right", "loss"])
        for number, one in enumerate(found, start=1):
            write([number, one.n_hidden, one.n_right, f"{one.loss / one.n_hidden:.6f}" if one.n_hidden else ""])
