"""A linear classifier of the terms of a text, the rare ones weighed more, and how likely its answers are.

Salton and Buckley (1988), "Term-weighting approaches in automatic text retrieval": the weight of a term is how often
the text has it, times its inverse document frequency, over the length of the text's vector.

U known terms . E terms of all texts . B, n texts . C classes
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyheads.config import Terms

TEMPERATURES = [2 ** (at / 4) for at in range(-8, 9)]
LEAST = 1e-30  # of a probability


class LinearModel(nn.Module):
    """Terms are known by their numbers, `terms_U`, which ascend; a term that is not among them counts for nothing.
    `rarity_U` are the inverse document frequencies. `terms` says what is counted in a text: see data/terms.py."""

    terms_U: Tensor
    rarity_U: Tensor
    votes_UC: Tensor
    bias_C: Tensor

    def __init__(self, terms_U: Tensor, rarity_U: Tensor, votes_UC: Tensor, bias_C: Tensor, terms: Terms) -> None:
        super().__init__()
        self.terms = terms
        self.register_buffer("terms_U", terms_U)
        self.register_buffer("rarity_U", rarity_U)
        self.register_buffer("votes_UC", votes_UC)
        self.register_buffer("bias_C", bias_C)

    def forward(self, terms_E: Tensor, counts_E: Tensor, bounds: Tensor) -> Tensor:
        """Logits `(B, C)` of texts that have the terms between `bounds`, int64 of B + 1."""
        at_E = torch.searchsorted(self.terms_U, terms_E).clamp(max=len(self.terms_U) - 1)
        weight_E = counts_E * self.rarity_U[at_E] * (self.terms_U[at_E] == terms_E)
        text_E = torch.arange(len(bounds) - 1).repeat_interleave(bounds.diff())
        squares_B = torch.zeros(len(bounds) - 1).index_add(0, text_E, weight_E.square())
        weight_E = weight_E * squares_B.clamp(min=1e-12).rsqrt()[text_E]
        votes_BC = F.embedding_bag(at_E, self.votes_UC, bounds[:-1], mode="sum", per_sample_weights=weight_E)
        return votes_BC + self.bias_C

    def of(self, counted: tuple[Any, Any, Any]) -> Tensor:
        """Logits `(B, C)` of texts whose terms are counted as data/terms.py does it."""
        terms_E, counts_E, bounds = counted
        return self(torch.tensor(terms_E, dtype=torch.int64), torch.tensor(counts_E), torch.tensor(bounds))

    def over(self, temperature: float) -> "LinearModel":
        """The one whose logits are those of this over `temperature`."""
        return LinearModel(
            self.terms_U, self.rarity_U, self.votes_UC / temperature, self.bias_C / temperature, self.terms
        )

    @property
    def terms_name(self) -> str:
        """What is counted, as tables and reports say it."""
        return self.terms.value


def counting(labels: Tensor, weights_C: Tensor | None) -> Tensor | None:
    """How much each of what `given` gives counts."""
    if weights_C is None:
        return None
    weights_C = weights_C.double()
    return weights_C[labels] if labels.ndim == 1 else torch.where(labels > 0, weights_C, 1.0)


def likeliest(logits_nC: Tensor, labels: Tensor, weights: Tensor | None) -> float:
    """The temperature with which the labels are likeliest."""
    return max(TEMPERATURES, key=lambda one: likelihood(given(logits_nC / one, labels), weights))


def likelihood(given: Tensor, weights: Tensor | None) -> float:
    """Logarithm of that of all rows."""
    logs = given.clamp(min=LEAST).log()
    return float((logs if weights is None else logs * weights).sum())


def log_given(logits_nC: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    """The logarithms of `given`, by how much each counts."""
    logs = given(logits_nC, labels).clamp(min=LEAST).log()
    return logs if weights is None else logs * weights


def given(logits_nC: Tensor, labels: Tensor) -> Tensor:
    """The probabilities of what rows are labelled: of their classes `(n,)`, or of having or not having each label
    `(n, C)`."""
    if labels.ndim == 1:
        return logits_nC.double().softmax(-1).gather(1, labels[:, None]).squeeze(1)
    return (logits_nC.double() * (2 * labels.double() - 1)).sigmoid()
