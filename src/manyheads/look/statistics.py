"""Where the heads of a classifier look, over a corpus.

All figures are of the distribution over keys that a query's weights are once divided by their sum (which is 1 but for
the sigmoid); a query that attends to nothing counts nowhere. A figure of a document is the mean over its queries, all
real tokens; a figure of a head is the mean over documents, each of equal weight, however long. Nothing but sums over
documents is kept.

B documents . L query positions . M key positions . P heads of all layers
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from manyheads.data.tokens import Tokens
from manyheads.look.heads import Head, heads, watched
from manyheads.look.passes import answer, batches, find_marks
from manyheads.ship.deliverable import Deliverable

FIGURES = {
    "entropy": "entropy in nats (Clark et al., 2019, section 4.1)",
    "evenness": "entropy as a share of the largest there can be, log n",
    "distance": "mean distance |i - j| in tokens",
    "first": "share on the first token",
    "separators": "share on the separator tokens",
}


@dataclass(slots=True)
class Spread:
    """Mean and standard deviation of a figure over documents."""

    mean: float
    deviation: float


@dataclass(slots=True)
class HeadStatistics:
    """Figures of all heads, `figures[name][p]` of the head `heads[p]`, and what they would be if every token got an
    equal weight. `divergence_PP` is the mean Jensen-Shannon divergence between two heads in nats, at most log 2
    (Clark et al., 2019, "What Does BERT Look At?", section 6).
    """

    heads: list[Head]
    n_documents: int
    n_tokens: int
    figures: dict[str, list[Spread]]
    uniform: dict[str, float]
    divergence_PP: list[list[float]]

    def agreement(self, p: int) -> tuple[float, Head] | None:
        """How much alike head p and the head nearest to it are, 1 where they are equal; None where it is alone."""
        others = [(value, at) for at, value in enumerate(self.divergence_PP[p]) if at != p]
        if not others:
            return None
        least, nearest = min(others)
        return 1 - least / math.log(2), self.heads[nearest]


def head_statistics(deliverable: Deliverable, tokens: Tokens, *, budget: int = 4096) -> HeadStatistics:
    """Read every row once; memory is bounded by `passes.CELLS`, whatever the number of rows."""
    classifier = deliverable.classifier
    separators = torch.tensor(find_marks(deliverable).separators, device=classifier.head.weight.device)
    sums = _Sums()
    maps: list[Tensor] = []
    with torch.inference_mode(), watched(classifier, lambda layer, weights_BHLM: maps.append(weights_BHLM)):
        for batch in batches(deliverable, tokens, budget=budget, maps=True):
            answer(deliverable, batch)
            keep_BL = batch.layout.keep_BL
            separator_BL = batch.layout.grid(torch.isin(batch.ids_N, separators)) & keep_BL
            shares_PBLM = distributions(torch.cat(maps, 1), keep_BL)
            maps.clear()
            sums.add(shares_PBLM, keep_BL, separator_BL)
            del shares_PBLM
    return sums.statistics(heads(classifier), int(tokens.lengths.sum()))


def distributions(weights_BPLM: Tensor, keep_BL: Tensor) -> Tensor:
    """Weights as distributions over keys `(P, B, L, M)`: rows of padding, and of nothing, are zero."""
    weights_PBLM = weights_BPLM.transpose(0, 1) * keep_BL[..., None]
    return weights_PBLM / weights_PBLM.sum(-1, keepdim=True).clamp(min=torch.finfo(weights_PBLM.dtype).tiny)


def document_figures(shares_PBLM: Tensor, keep_BL: Tensor, separator_BM: Tensor) -> dict[str, Tensor]:
    """Each of FIGURES, `(P, B)` in fp64."""
    length_B = keep_BL.sum(1)
    at = torch.arange(keep_BL.size(1), device=keep_BL.device)
    far_LM = (at[:, None] - at).abs().to(shares_PBLM.dtype)
    received_PBM = shares_PBLM.sum(2).double()
    entropy_PB = _per_query(torch.special.entr(shares_PBLM).sum(-1), shares_PBLM)
    return {
        "entropy": entropy_PB,
        "evenness": torch.where(length_B > 1, entropy_PB / length_B.double().log(), 1.0),
        "distance": _per_query((shares_PBLM * far_LM).sum(-1), shares_PBLM),
        "first": received_PBM[..., 0] / _n_queries(shares_PBLM),
        "separators": (received_PBM * separator_BM).sum(-1) / _n_queries(shares_PBLM),
    }


def divergence(shares_PBLM: Tensor) -> Tensor:
    """Jensen-Shannon divergence between heads: `(P, P, B)` in fp64, nats, the mean over queries.

    H((p + q) / 2) - (H(p) + H(q)) / 2, one head against all later ones at a time.
    """
    entropy_PB = torch.special.entr(shares_PBLM).sum((2, 3)).double()
    n_heads, n_queries_PB = len(shares_PBLM), _n_queries(shares_PBLM)
    divergence_PPB = entropy_PB.new_zeros(n_heads, n_heads, shares_PBLM.size(1))
    for p in range(n_heads - 1):
        for q in range(p + 1, n_heads):
            middle_B = torch.special.entr((shares_PBLM[p] + shares_PBLM[q]) / 2).sum((1, 2)).double()
            both_B = (middle_B - (entropy_PB[p] + entropy_PB[q]) / 2) / n_queries_PB[p]
            divergence_PPB[p, q] = divergence_PPB[q, p] = both_B.clamp(min=0)
    return divergence_PPB


class _Sums:
    """Sums over documents of each figure, of its square, and of the divergence."""

    def __init__(self) -> None:
        self.n_documents = 0
        self.first: dict[str, Tensor] = {}
        self.second: dict[str, Tensor] = {}
        self.uniform: dict[str, Tensor] = {}
        self.divergence_PP = torch.zeros(())

    def add(self, shares_PBLM: Tensor, keep_BL: Tensor, separator_BM: Tensor) -> None:
        self.n_documents += len(keep_BL)
        even_1BLM = distributions((keep_BL[:, None, None] & keep_BL[:, None, :, None]).float(), keep_BL)
        for name, figure_1B in document_figures(even_1BLM, keep_BL, separator_BM).items():
            self.uniform[name] = self.uniform.get(name, 0.0) + figure_1B.sum().cpu()
        for name, figure_PB in document_figures(shares_PBLM, keep_BL, separator_BM).items():
            self.first[name] = self.first.get(name, 0.0) + figure_PB.sum(-1).cpu()
            self.second[name] = self.second.get(name, 0.0) + figure_PB.square().sum(-1).cpu()
        self.divergence_PP = self.divergence_PP + divergence(shares_PBLM).sum(-1).cpu()

    def statistics(self, found: list[Head], n_tokens: int) -> HeadStatistics:
        n = self.n_documents
        means = {name: sum_P / n for name, sum_P in self.first.items()}
        spreads = {
            name: (self.second[name] / n - mean_P.square()).clamp(min=0).sqrt() for name, mean_P in means.items()
        }
        return HeadStatistics(
            heads=found,
            n_documents=n,
            n_tokens=n_tokens,
            figures={
                name: [Spread(*both) for both in zip(means[name].tolist(), spreads[name].tolist(), strict=True)]
                for name in FIGURES
            },
            uniform={name: float(self.uniform[name]) / n for name in FIGURES},
            divergence_PP=(self.divergence_PP / n).tolist(),
        )


def _n_queries(shares_PBLM: Tensor) -> Tensor:
    """Queries that attend to anything: `(P, B)`, at least 1."""
    return shares_PBLM.any(-1).sum(-1).clamp(min=1).double()


def _per_query(sum_PBL: Tensor, shares_PBLM: Tensor) -> Tensor:
    return sum_PBL.double().sum(-1) / _n_queries(shares_PBLM)
