"""The labels a model gives to every row of a split, of which each may have any number.

n rows . C labels
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from manyheads.data.rows import Rows
from manyheads.data.tokens import marks_of
from manyheads.judge.baselines import LINEAR, NETWORK
from manyheads.judge.label_scores import Bools, LabelScores, score_labels
from manyheads.judge.predictions import Mistake, logits_by_model, write_answers_csv
from manyheads.judge.scores import Floats
from manyheads.ship.deliverable import Deliverable
from manyheads.ship.linear import LinearBaseline

NONE = "no label"


@dataclass(slots=True)
class LabelAnswered:
    """Rows in their own order; `marks_nC` are the labels they have, `given_nC` those from their `thresholds` on."""

    rows: Rows
    names: list[str]
    thresholds: list[float]
    probabilities_nC: Floats
    marks_nC: Bools
    given_nC: Bools

    def words(self, of_row: Bools, joint: str = ", ") -> str:
        """The names of a row's labels."""
        return joint.join(self.names[label] for label in np.flatnonzero(of_row).tolist())


def judge_labels(
    deliverable: Deliverable,
    rows: Rows,
    baseline: LinearBaseline | None = None,
    *,
    tokens: int = 8192,
    progress: Callable[[int], None] = lambda n_rows: None,
) -> dict[str, LabelAnswered]:
    """Answer every row by each model, as `logits_by_model` orders and names them; each gives labels from thresholds of
    its own on. `progress` hears how many more rows are done.

    Raises:
        ValueError: `rows` are pairs and the model takes single texts, or the other way round.
    """
    assert deliverable.thresholds is not None
    own = (
        {NETWORK: deliverable.alone.get("network"), LINEAR: deliverable.alone.get("linear")}
        if deliverable.share
        else {}
    )
    own |= {} if deliverable.share or baseline is None else {LINEAR: baseline.thresholds}
    marks_nC, found = marks_in(rows, len(deliverable.labels)), {}
    for name, logits_nC in logits_by_model(deliverable, rows, baseline, tokens=tokens, progress=progress).items():
        probabilities_nC = logits_nC.double().sigmoid().numpy()
        thresholds = own.get(name) or deliverable.thresholds
        given_nC = probabilities_nC >= np.array(thresholds)
        found[name] = LabelAnswered(rows, deliverable.labels, thresholds, probabilities_nC, marks_nC, given_nC)
    return found


def marks_in(rows: Rows, n_labels: int) -> Bools:
    """Which labels each row has: `(n, C)`."""
    assert rows.sets is not None, "read_splits and read_split give them where rows have any number of labels"
    return marks_of(rows.sets, n_labels).bool().numpy()


def scores_of(found: LabelAnswered, *, n_resamples: int = 1000, seed: int = 0) -> LabelScores:
    """The figures of the answers, with their intervals."""
    draws = {"n_resamples": n_resamples, "seed": seed}
    return score_labels(found.marks_nC, found.probabilities_nC, found.given_nC, found.names, found.thresholds, **draws)


def worst_labels(found: LabelAnswered, n: int = 20) -> list[Mistake]:
    """The `n` rows with the likeliest label that they are given and have not, likeliest first; it is the answer."""
    sure_nC = np.where(found.given_nC & ~found.marks_nC, found.probabilities_nC, -1.0)
    sure_n = sure_nC.max(1)
    rows = found.rows
    return [
        Mistake(
            number=rows.numbers[row],
            text=rows.texts[row],
            pair=None if rows.pairs is None else rows.pairs[row],
            label=found.words(found.marks_nC[row]) or NONE,
            answer=found.names[int(sure_nC[row].argmax())],
            confidence=float(sure_n[row]),
        )
        for row in np.argsort(-sure_n, kind="stable")[: min(n, int((sure_n >= 0).sum()))].tolist()
    ]


def write_labels_csv(path: Path, found: LabelAnswered) -> None:
    """One line a row, as of `write_answers_csv`: labels and prediction, joined by |, and `p_<label>` for every label. A
    probability has six decimals."""
    columns = ["labels", "prediction", *(f"p_{name}" for name in found.names)]
    said: list[list[Any]] = [
        [*(found.words(of[at], "|") for of in (found.marks_nC, found.given_nC)), *(round(one, 6) for one in of_row)]
        for at, of_row in enumerate(found.probabilities_nC.tolist())
    ]
    write_answers_csv(path, found.rows, columns, said)
