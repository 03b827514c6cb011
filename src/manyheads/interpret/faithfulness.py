"""Does attention point at the tokens an answer hangs on?

The k tokens that receive most attention are silenced, and beside them k drawn at random: if attention is faithful, the
logit of the predicted class falls further for the first. Serrano and Smith (2019), "Is Attention Interpretable?",
section 4; Jain and Wallace (2019), "Attention is not Explanation". For a scale, the same is done to the k tokens whose
silence should lower the logit most by its gradient, to first order.

A silent token keeps its place: its word vector is zero, as under `model.dropout_tokens`. Marks such as [CLS] and [SEP]
are never silenced, neither by attention nor at random.

n rows . N tokens of a batch . B documents . L positions . R random draws . C classes
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from manyheads.data.batches import Batch
from manyheads.data.tokens import Tokens
from manyheads.evaluation.metrics import Interval, mean_interval
from manyheads.inference.classifier import TextClassifier
from manyheads.interpret.maps import (
    Maps,
    answer_batch,
    batches,
    find_marks,
    look_at_batch,
    places,
    silent,
    with_silence,
)

AMOUNTS: tuple[int | float, ...] = (1, 2, 4, 0.1)
N_DRAWS = 5
RANKINGS = ("attention", "gradient")


@dataclass(slots=True)
class Faithfulness:
    """k tokens silenced by one ranking beside k random ones, over the rows that have more than k to choose from.

    `ranked` and `random` are mean falls of the predicted class's logit, `difference` the mean of the first less the
    second, paired row by row (a row's random fall is the mean over draws); `*_flips` shares of rows whose answer
    changes. `amount` below 1 is a share of the row's tokens, rounded up.
    """

    ranking: str
    amount: int | float
    n_rows: int
    ranked: Interval
    random: Interval
    difference: Interval
    ranked_flips: float
    random_flips: float


def faithfulness(
    deliverable: TextClassifier,
    tokens: Tokens,
    *,
    amounts: Sequence[int | float] = AMOUNTS,
    n_draws: int = N_DRAWS,
    budget: int = 4096,
    n_resamples: int = 1000,
    seed: int = 0,
    progress: Callable[[int], None] = lambda n_rows: None,
) -> list[Faithfulness]:
    """Silence tokens of every row, by each ranking and each of `amounts`; amounts that no row has tokens for are left
    out. A row's random tokens depend on `seed` and its number alone, and those of a larger amount hold those of a
    smaller one.
    """
    marks = torch.tensor(find_marks(deliverable).every, device=deliverable.network.head.weight.device)
    n_rankings = len(RANKINGS) + n_draws
    fall = np.full((len(amounts), n_rankings, len(tokens)), np.nan)
    flip = np.zeros((len(amounts), n_rankings, len(tokens)))
    for batch in batches(deliverable, tokens, budget=budget, maps=True):
        maps = look_at_batch(deliverable, batch)
        received_N, logits_BC = received(maps, len(batch.ids_N)), maps.logits_BC
        del maps
        rankings = [received_N, first_order(deliverable, batch), *noise(batch, n_draws, seed)]
        for ranking, score_N in enumerate(rankings):
            rank_N, n_choices_B = ranks(score_N, ~torch.isin(batch.ids_N, marks), batch)
            for at, amount in enumerate(amounts):
                k_B = how_many(amount, n_choices_B)
                falls_B, flips_B = _silence(deliverable, batch, rank_N, k_B, logits_BC)
                enough_B = (k_B < n_choices_B).cpu()
                fall[at, ranking, batch.rows_B] = falls_B.where(enough_B, torch.nan)
                flip[at, ranking, batch.rows_B] = flips_B
        progress(len(batch.rows_B))
    return [
        _compare(name, amount, fall[at], flip[at], ranking, n_resamples, seed)
        for ranking, name in enumerate(RANKINGS)
        for at, amount in enumerate(amounts)
        if not np.isnan(fall[at]).all()
    ]


def received(maps: Maps, n_tokens: int) -> Tensor:
    """The attention each token of the batch gets, `(N,)`: the mean over a text's queries and all heads."""
    n_queries_T1 = maps.layout.lengths_B[:, None].clamp(min=1)
    got_PTM = maps.shares_PTLM.sum(2) / n_queries_T1
    across_P11 = torch.tensor(maps.across, device=got_PTM.device)[:, None, None]
    own_PTM = torch.where(across_P11, got_PTM.roll(got_PTM.size(1) // 2, 1), got_PTM)
    return torch.zeros(n_tokens, device=got_PTM.device).index_add_(0, maps.place_N, maps.layout.flat(own_PTM.mean(0)))


def first_order(deliverable: TextClassifier, batch: Batch) -> Tensor:
    """How far the predicted class's logit would fall to first order if a token's word vector were zero: `(N,)`."""
    vectors: list[Tensor] = []

    def keep(embedding: torch.nn.Module, args: tuple[Tensor], output: Tensor) -> Tensor:
        vectors.append(output.detach().requires_grad_())
        return vectors[-1]

    handle = deliverable.network.embeddings.words.register_forward_hook(keep)
    try:
        with torch.enable_grad():
            logits_BC = answer_batch(deliverable, batch)
            (grad_ND,) = torch.autograd.grad(logits_BC.max(-1).values.sum(), vectors)
    finally:
        handle.remove()
    fall_N = (grad_ND * vectors[0].detach()).sum(-1)
    place_N = places(deliverable.network, batch.layout, batch.segments_N)
    return torch.zeros(len(batch.ids_N), device=fall_N.device).index_add_(0, place_N, fall_N.float())


def noise(batch: Batch, n_draws: int, seed: int) -> list[Tensor]:
    """A random order of every document's tokens for each draw, `(N,)`: the same in any batch."""
    lengths = batch.layout.rows.lengths_B.tolist()
    drawn = [
        np.random.default_rng((seed, row)).random((n_draws, length))
        for row, length in zip(batch.rows_B.tolist(), lengths, strict=True)
    ]
    return [
        torch.from_numpy(np.concatenate([one[draw] for one in drawn])).to(batch.ids_N.device) for draw in range(n_draws)
    ]


def ranks(score_N: Tensor, choice_N: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """The place of each token among its document's choices, from 0 for the highest score, `(N,)`, and how many choices
    there are, `(B,)`. What is no choice comes after all that are; of equal scores the earlier token comes first.
    """
    layout = batch.layout.rows
    choice_BL = layout.grid(choice_N) & layout.keep_BL
    score_BL = layout.grid(score_N).masked_fill(~choice_BL, -torch.inf)
    order_BL = torch.sort(score_BL, dim=-1, descending=True, stable=True).indices
    return layout.flat(order_BL.argsort(-1)), choice_BL.sum(-1)


def how_many(amount: int | float, n_choices_B: Tensor) -> Tensor:
    """Tokens to silence in each document: `(B,)`."""
    if amount >= 1:
        return torch.full_like(n_choices_B, int(amount))
    return torch.tensor([math.ceil(round(amount * n, 9)) for n in n_choices_B.tolist()], device=n_choices_B.device)


def _silence(
    deliverable: TextClassifier, batch: Batch, rank_N: Tensor, k_B: Tensor, logits_BC: Tensor
) -> tuple[Tensor, Tensor]:
    """How far the predicted class's logit falls without the first k tokens, and whether the answer changes: `(B,)`."""
    silence_N = rank_N < k_B.repeat_interleave(batch.layout.rows.lengths_B)
    with torch.no_grad(), with_silence(deliverable.network):
        silenced_BC = answer_batch(deliverable, batch, silent(batch.ids_N, silence_N))
    answer_B1 = logits_BC.argmax(-1, keepdim=True)
    fall_B = (logits_BC - silenced_BC).gather(-1, answer_B1).squeeze(-1)
    return fall_B.double(), silenced_BC.argmax(-1) != answer_B1.squeeze(-1)


def _compare(
    name: str,
    amount: int | float,
    fall_Rn: np.ndarray,
    flip_Rn: np.ndarray,
    ranking: int,
    n_resamples: int,
    seed: int,
) -> Faithfulness:
    enough_n = ~np.isnan(fall_Rn[0])
    ranked_n, random_n = fall_Rn[ranking, enough_n], fall_Rn[len(RANKINGS) :, enough_n].mean(0)

    def interval(values: np.ndarray) -> Interval:
        return mean_interval(values, n_resamples=n_resamples, seed=seed)

    return Faithfulness(
        ranking=name,
        amount=amount,
        n_rows=int(enough_n.sum()),
        ranked=interval(ranked_n),
        random=interval(random_n),
        difference=interval(ranked_n - random_n),
        ranked_flips=float(flip_Rn[ranking, enough_n].mean()),
        random_flips=float(flip_Rn[len(RANKINGS) :, enough_n].mean()),
    )
