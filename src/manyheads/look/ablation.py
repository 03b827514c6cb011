"""What becomes of a classifier when one of its heads is silent: Michel et al. (2019), "Are Sixteen Heads Really Better
than One?", section 3.2.

n rows . P heads of all layers . C classes
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from manyheads.data.tokens import Tokens
from manyheads.judge.scores import Answers, Interval, change_of_answers, score_answers
from manyheads.look.heads import Head, heads, without_head
from manyheads.look.passes import answer, batches
from manyheads.ship.deliverable import Deliverable


@dataclass(slots=True)
class Silenced:
    """One head without which the rows were answered again.

    Changes are figures without the head less figures with it, paired row by row: below 0 the head was of use.
    `answers_changed` is the share of rows that got another answer.
    """

    head: Head
    macro_f1_change: Interval
    accuracy_change: Interval
    answers_changed: float


@dataclass(slots=True)
class Ablation:
    """The figures of the whole model, and what each head is to them."""

    whole: Answers
    silenced: list[Silenced]


def ablate_heads(
    deliverable: Deliverable,
    tokens: Tokens,
    *,
    budget: int = 4096,
    n_resamples: int = 1000,
    seed: int = 0,
    progress: Callable[[int], None] = lambda n_rows: None,
) -> Ablation:
    """Answer every row with all heads, then once without each; `progress` hears of rows that are through with it."""
    classifier, every = deliverable.classifier, heads(deliverable.classifier)
    answers_nP = torch.empty(len(tokens), len(every) + 1, dtype=torch.int64)
    with torch.inference_mode():
        for batch in batches(deliverable, tokens, budget=budget):
            answers_nP[batch.rows_B, 0] = answer(deliverable, batch).argmax(-1)
            for at, head in enumerate(every, 1):
                with without_head(classifier, head):
                    answers_nP[batch.rows_B, at] = answer(deliverable, batch).argmax(-1)
            progress(len(batch.rows_B))
    return _judge(tokens.labels, answers_nP, every, len(deliverable.labels), n_resamples, seed)


def _judge(
    labels_n: Tensor, answers_nP: Tensor, every: list[Head], n_classes: int, n_resamples: int, seed: int
) -> Ablation:
    labels = labels_n.numpy()
    whole, *without = answers_nP.T.contiguous().numpy()
    changes = change_of_answers(labels, whole, without, n_classes, n_resamples=n_resamples, seed=seed)
    return Ablation(
        whole=score_answers(labels, whole, n_classes, n_resamples=n_resamples, seed=seed),
        silenced=[
            Silenced(head, change.macro_f1, change.accuracy, float((answers != whole).mean()))
            for head, answers, change in zip(every, without, changes, strict=True)
        ],
    )
