"""The heads of a classifier over the rows of a split: where they look, what each is good for, and whether attention
points at what an answer hangs on.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from manyheads.data.rows import Rows
from manyheads.evaluation.scores import Interval
from manyheads.inference.classifier import TextClassifier
from manyheads.interpret.faithfulness import Faithfulness, faithfulness
from manyheads.interpret.look import choose
from manyheads.interpret.maps import tokens_of
from manyheads.interpret.statistics import HeadStatistics, Silenced, ablate_heads, head_statistics


@dataclass(slots=True)
class Study:
    """Everything found about the heads on some rows. `silenced[p]` is what happens without `statistics.heads[p]`. The
    figures are of the network alone; `share` is that of a linear model beside it in what is answered."""

    n_rows: int
    statistics: HeadStatistics
    accuracy: Interval
    macro_f1: Interval
    silenced: list[Silenced]
    faithfulness: list[Faithfulness]
    share: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Plain dicts, lists, numbers and strings; a head is named by layer and place, both from 1."""
        return {
            "n_rows": self.n_rows,
            "n_texts": self.statistics.n_texts,
            "n_tokens": self.statistics.n_tokens,
            "accuracy": asdict(self.accuracy),
            "macro_f1": asdict(self.macro_f1),
            "linear": self.share,
            "heads": [self._head_as_json(p) for p in range(len(self.silenced))],
            "uniform": self.statistics.uniform,
            "divergence": [[_known(value) for value in row] for row in self.statistics.divergence_PP],
            "faithfulness": [asdict(one) for one in self.faithfulness],
        }

    def _head_as_json(self, p: int) -> dict[str, Any]:
        found, silenced, alike = self.statistics, self.silenced[p], self.statistics.agreement(p)
        return {
            **found.heads[p]._asdict(),
            **{
                name: {part: _known(value) for part, value in asdict(spreads[p]).items()}
                for name, spreads in found.figures.items()
            },
            "nearest": None if alike is None else {"agreement": alike[0], **alike[1]._asdict()},
            "macro_f1_change": asdict(silenced.macro_f1_change),
            "accuracy_change": asdict(silenced.accuracy_change),
            "answers_changed": silenced.answers_changed,
        }


def _known(value: float) -> float | None:
    """JSON has no NaN."""
    return None if math.isnan(value) else value


def study_rows(
    deliverable: TextClassifier,
    rows: Rows,
    *,
    budget: int = 4096,
    n_resamples: int = 1000,
    seed: int = 0,
    progress: Callable[[int], None] = lambda n_rows: None,
) -> Study:
    """Read the rows once for the statistics, once more for each head, and some 25 times for faithfulness.

    Args:
        budget: most tokens of a batch.
        progress: hears of rows as they are through one of the two long parts: each row twice in all.

    Raises:
        ValueError: there are no rows, the model has no heads, or it does not take such texts.
    """
    choose(deliverable.model, "", "")
    if not len(rows):
        raise ValueError("there are no rows to look at: give a split that holds at least one")
    tokens = tokens_of(deliverable, rows)
    statistics = head_statistics(deliverable, tokens, budget=budget)
    ablation = ablate_heads(deliverable, tokens, budget=budget, n_resamples=n_resamples, seed=seed, progress=progress)
    return Study(
        n_rows=len(rows),
        statistics=statistics,
        accuracy=ablation.whole.accuracy,
        macro_f1=ablation.whole.macro_f1,
        silenced=ablation.silenced,
        faithfulness=faithfulness(
            deliverable, tokens, budget=budget, n_resamples=n_resamples, seed=seed, progress=progress
        ),
        share=deliverable.share,
    )


def some(rows: Rows, n: int, seed: int) -> Rows:
    """`n` of the rows, drawn by `seed` and in their own order; all of them where n is 0 or no smaller."""
    if not 0 < n < len(rows):
        return rows
    return rows.pick(sorted(np.random.default_rng(seed).choice(len(rows), n, replace=False).tolist()))
