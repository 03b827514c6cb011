"""Where the heads of a classifier look over a corpus, and what becomes of it without each of them.

A figure of a text is the mean over its queries, all real tokens; one that attends to nothing counts nowhere. A figure
of a head is the mean over texts, each of equal weight, however long: over rows, or over both texts of each pair where a
model reads them apart. Nothing but sums over texts is kept. A head is silenced as by Michel et al. (2019), "Are Sixteen
Heads Really Better than One?", section 3.2.

n rows . T texts . L query positions . M key positions . P heads of all layers . C classes
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from manyheads.data.tokens import Tokens
from manyheads.evaluation.metrics import Interval, change_of_answers, score_answers
from manyheads.inference.classifier import TextClassifier
from manyheads.interpret.maps import (
    Head,
    Maps,
    answer_batch,
    batches,
    distributions,
    find_marks,
    heads,
    look_at_batch,
    without_head,
)
from manyheads.layout import Packed

FIGURES = {
    "entropy": "entropy in nats (Clark et al., 2019, section 4.1)",
    "evenness": "entropy as a share of the largest there can be, log n",
    "distance": "mean distance |i - j| in tokens; NaN where i and j are of different texts",
    "first": "share on the first token",
    "separators": "share on the separator tokens",
}


@dataclass(slots=True)
class Spread:
    """Mean and standard deviation of a figure over texts."""

    mean: float
    deviation: float


@dataclass(slots=True)
class HeadStatistics:
    """Figures of all heads, `figures[name][p]` of the head `heads[p]`, and what they would be if every token of a text
    got an equal weight. `divergence_PP` is the mean Jensen-Shannon divergence between two heads in nats, at most log 2
    (Clark et al., 2019, "What Does BERT Look At?", section 6); NaN between one within a text and one across texts.
    """

    heads: list[Head]
    n_texts: int
    n_tokens: int
    figures: dict[str, list[Spread]]
    uniform: dict[str, float]
    divergence_PP: list[list[float]]

    def agreement(self, p: int) -> tuple[float, Head] | None:
        """How much alike head p and the head nearest to it are, 1 where they are equal; None where it is alone."""
        others = [(value, at) for at, value in enumerate(self.divergence_PP[p]) if at != p and not math.isnan(value)]
        if not others:
            return None
        least, nearest = min(others)
        return 1 - least / math.log(2), self.heads[nearest]


def head_statistics(deliverable: TextClassifier, tokens: Tokens, *, budget: int = 4096) -> HeadStatistics:
    """Read every row once; memory is bounded by `maps.CELLS`, whatever the number of rows."""
    separators = torch.tensor(find_marks(deliverable).separators, device=deliverable.network.head.weight.device)
    sums = _Sums()
    for batch in batches(deliverable, tokens, budget=budget, maps=True):
        maps = look_at_batch(deliverable, batch)
        sums.add(maps, torch.isin(batch.ids_N[maps.place_N], separators))
    return sums.statistics(heads(deliverable.network), int(tokens.lengths.sum()))


def text_figures(maps: Maps, separator_N: Tensor) -> dict[str, Tensor]:
    """Each of FIGURES, `(P, T)` in fp64; `separator_N` marks tokens of `maps.layout`."""
    shares_PTLM, keep_TL = maps.shares_PTLM, maps.layout.keep_BL
    separator_PTM = maps.of_keys(maps.layout.grid(separator_N) & keep_TL)
    n_keys_PT = maps.of_keys(keep_TL).sum(-1).double()
    at = torch.arange(keep_TL.size(1), device=keep_TL.device)
    far_LM = (at[:, None] - at).abs().to(shares_PTLM.dtype)
    across_P1 = torch.tensor(maps.across, device=keep_TL.device)[:, None]
    n_queries_PT = _n_queries(shares_PTLM)
    received_PTM = shares_PTLM.sum(2).double()
    entropy_PT = torch.special.entr(shares_PTLM).sum((2, 3)).double() / n_queries_PT
    distance_PT = (shares_PTLM * far_LM).sum((2, 3)).double() / n_queries_PT
    return {
        "entropy": entropy_PT,
        "evenness": torch.where(n_keys_PT > 1, entropy_PT / n_keys_PT.log(), 1.0),
        "distance": distance_PT.masked_fill(across_P1, torch.nan),
        "first": received_PTM[..., 0] / n_queries_PT,
        "separators": (received_PTM * separator_PTM).sum(-1) / n_queries_PT,
    }


def divergence(shares_PTLM: Tensor) -> Tensor:
    """Jensen-Shannon divergence between heads: `(P, P, T)` in fp64, nats, the mean over queries.

    H((p + q) / 2) - (H(p) + H(q)) / 2, one head against all later ones at a time.
    """
    entropy_PT = torch.special.entr(shares_PTLM).sum((2, 3)).double()
    n_heads, n_queries_PT = len(shares_PTLM), _n_queries(shares_PTLM)
    divergence_PPT = entropy_PT.new_zeros(n_heads, n_heads, shares_PTLM.size(1))
    for p in range(n_heads - 1):
        for q in range(p + 1, n_heads):
            middle_T = torch.special.entr((shares_PTLM[p] + shares_PTLM[q]) / 2).sum((1, 2)).double()
            both_T = (middle_T - (entropy_PT[p] + entropy_PT[q]) / 2) / n_queries_PT[p]
            divergence_PPT[p, q] = divergence_PPT[q, p] = both_T.clamp(min=0)
    return divergence_PPT


def even_shares(layout: Packed) -> Tensor:
    """A head that looks at all tokens of a text alike: `(1, T, L, M)`."""
    keep_TL = layout.keep_BL
    return distributions((keep_TL[:, None, :, None] & keep_TL[:, None, None]).float())


class _Sums:
    """Sums over texts of each figure, of its square, and of the divergence."""

    def __init__(self) -> None:
        self.n_texts = 0
        self.first: dict[str, Tensor] = {}
        self.second: dict[str, Tensor] = {}
        self.uniform: dict[str, Tensor] = {}
        self.divergence_PP = torch.zeros(())

    def add(self, maps: Maps, separator_N: Tensor) -> None:
        self.n_texts += maps.layout.n_documents
        even = replace(maps, shares_PTLM=even_shares(maps.layout), across=[False])
        for name, figure_1T in text_figures(even, separator_N).items():
            self.uniform[name] = self.uniform.get(name, 0.0) + figure_1T.sum().cpu()
        for name, figure_PT in text_figures(maps, separator_N).items():
            self.first[name] = self.first.get(name, 0.0) + figure_PT.sum(-1).cpu()
            self.second[name] = self.second.get(name, 0.0) + figure_PT.square().sum(-1).cpu()
        across_P = torch.tensor(maps.across)
        between_PP = divergence(maps.shares_PTLM).sum(-1).cpu()
        self.divergence_PP = self.divergence_PP + between_PP.masked_fill(across_P[:, None] != across_P, torch.nan)

    def statistics(self, found: list[Head], n_tokens: int) -> HeadStatistics:
        n = self.n_texts
        means = {name: sum_P / n for name, sum_P in self.first.items()}
        spreads = {
            name: (self.second[name] / n - mean_P.square()).clamp(min=0).sqrt() for name, mean_P in means.items()
        }
        return HeadStatistics(
            heads=found,
            n_texts=n,
            n_tokens=n_tokens,
            figures={
                name: [Spread(*both) for both in zip(means[name].tolist(), spreads[name].tolist(), strict=True)]
                for name in FIGURES
            },
            uniform={name: float(self.uniform[name]) / n for name in FIGURES},
            divergence_PP=(self.divergence_PP / n).tolist(),
        )


def _n_queries(shares_PTLM: Tensor) -> Tensor:
    """Queries that attend to anything: `(P, T)`, at least 1."""
    return shares_PTLM.any(-1).sum(-1).clamp(min=1).double()


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

    whole: dict[str, Interval]
    silenced: list[Silenced]


def ablate_heads(
    deliverable: TextClassifier,
    tokens: Tokens,
    *,
    budget: int = 4096,
    n_resamples: int = 1000,
    seed: int = 0,
    progress: Callable[[int], None] = lambda n_rows: None,
) -> Ablation:
    """Answer every row with all heads, then once without each; `progress` is called with how many more are done."""
    classifier, every = deliverable.network, heads(deliverable.network)
    answers_nP = torch.empty(len(tokens), len(every) + 1, dtype=torch.int64)
    with torch.inference_mode():
        for batch in batches(deliverable, tokens, budget=budget):
            answers_nP[batch.rows_B, 0] = answer_batch(deliverable, batch).argmax(-1)
            for at, head in enumerate(every, 1):
                with without_head(classifier, head):
                    answers_nP[batch.rows_B, at] = answer_batch(deliverable, batch).argmax(-1)
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
            Silenced(head, change["macro_f1"], change["accuracy"], float((answers != whole).mean()))
            for head, answers, change in zip(every, without, changes, strict=True)
        ],
    )
