"""The heads of a classifier over a corpus: where they look, what changes without each of them, and whether attention
points at the tokens that an answer depends on.

A figure of a text is the mean over its queries, all real tokens; queries that attend to nothing are not counted. A
figure of a head is the mean over texts, each of equal weight, however long: over rows, or over both texts of each pair
where a model reads them apart. Only sums over texts are kept. A head is silenced as by Michel et al. (2019), "Are
Sixteen Heads Really Better than One?", section 3.2.

Faithfulness: the k tokens that receive most attention are silenced, and compared with k drawn at random. If attention
is faithful, the logit of the predicted class falls further for the first. Serrano and Smith (2019), "Is Attention
Interpretable?", section 4; Jain and Wallace (2019), "Attention is not Explanation". Marks such as [CLS] and [SEP] are
never silenced, neither by attention nor at random.

n rows . N tokens of a batch . B documents . T texts . L query positions . M key positions . P heads of all layers
F figures . R attention, then random draws . C classes
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from manyheads.data.batches import Batch
from manyheads.data.tokens import Tokens
from manyheads.evaluation.intervals import mean_interval
from manyheads.evaluation.metrics import change_of_answers, score_answers
from manyheads.inference.classifier import TextClassifier
from manyheads.plugins.interpret.maps import (
    Head,
    Maps,
    answer_batch,
    batches,
    every_head,
    find_marks,
    look_at_batch,
    with_silence,
    without_head,
)
from manyheads.runs.summary import Interval

FIGURES = {
    "entropy": "entropy in nats (Clark et al., 2019, section 4.1)",
    "evenness": "entropy as a share of the largest there can be, log n",
    "distance": "mean distance |i - j| in tokens; NaN where i and j are of different texts",
    "first": "share on the first token",
    "separators": "share on the separator tokens",
}
AMOUNTS: tuple[int | float, ...] = (1, 2, 4, 0.1)
N_DRAWS = 5


@dataclass(slots=True)
class HeadStatistics:
    """Figures of all heads, `figures[name][p]` of the head `heads[p]`: the mean over texts."""

    heads: list[Head]
    n_texts: int
    n_tokens: int
    figures: dict[str, list[float]]


def head_statistics(predictor: TextClassifier, tokens: Tokens, *, budget: int = 4096) -> HeadStatistics:
    """Read every row once; memory is bounded by `maps.CELLS`, whatever the number of rows."""
    separators, n_texts = find_marks(predictor).separators, 0
    sums_FP = torch.zeros((), dtype=torch.float64)
    for batch in batches(predictor, tokens, budget=budget, maps=True):
        maps = look_at_batch(predictor, batch)
        separator_N = torch.isin(batch.ids_N[maps.place_N], separators)
        n_texts += maps.layout.n_documents
        sums_FP = sums_FP + torch.stack(list(text_figures(maps, separator_N).values())).sum(-1).cpu()
    means = (sums_FP / n_texts).tolist()
    return HeadStatistics(
        heads=every_head(predictor.network),
        n_texts=n_texts,
        n_tokens=int(tokens.lengths.sum()),
        figures=dict(zip(FIGURES, means, strict=True)),
    )


def text_figures(maps: Maps, separator_N: Tensor) -> dict[str, Tensor]:
    """Each of FIGURES, `(P, T)` in fp64; `separator_N` marks tokens of `maps.layout`."""
    shares_PTLM, keep_TL = maps.shares_PTLM, maps.layout.keep_BL
    separator_PTM = maps.of_keys(maps.layout.grid(separator_N) & keep_TL)
    n_keys_PT = maps.of_keys(keep_TL).sum(-1).double()
    at = torch.arange(keep_TL.size(1), device=keep_TL.device)
    far_LM = (at[:, None] - at).abs().to(shares_PTLM.dtype)
    across_P1 = torch.tensor(maps.across, device=keep_TL.device)[:, None]
    n_queries_PT = shares_PTLM.any(-1).sum(-1).clamp(min=1).double()  # that attend to anything
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
    """The figures of the whole model, and how they change without each head."""

    whole: dict[str, Interval]
    silenced: list[Silenced]


def ablate_heads(
    predictor: TextClassifier,
    tokens: Tokens,
    *,
    budget: int = 4096,
    progress: Callable[[int], None] = lambda n_rows: None,
) -> Ablation:
    """Answer every row with all heads, then once without each; `progress` is called with a number of rows that are
    done."""
    classifier, every = predictor.network, every_head(predictor.network)
    answers_nP = torch.empty(len(tokens), len(every) + 1, dtype=torch.int64)
    with torch.inference_mode():
        for batch in batches(predictor, tokens, budget=budget):
            answers_nP[batch.rows_B, 0] = answer_batch(predictor, batch).argmax(-1)
            for at, head in enumerate(every, 1):
                with without_head(classifier, head):
                    answers_nP[batch.rows_B, at] = answer_batch(predictor, batch).argmax(-1)
            progress(len(batch.rows_B))
    labels, n_classes = tokens.labels.numpy(), len(predictor.labels)
    whole, *without = answers_nP.T.contiguous().numpy()
    changes = change_of_answers(labels, whole, without, n_classes)
    silenced = []
    for head, answers, change in zip(every, without, changes, strict=True):
        answers_changed = float((answers != whole).mean())
        silenced.append(Silenced(head, change["macro_f1"], change["accuracy"], answers_changed))
    return Ablation(score_answers(labels, whole, n_classes), silenced)


@dataclass(slots=True)
class Faithfulness:
    """The k tokens that get most attention silenced, compared with k random ones, over the rows that have more than k
    to choose from.

    Attributes:
        amount: k; below 1 it is a share of the row's tokens, rounded up.
        ranked: the mean fall of the predicted class's logit, without the tokens that get most attention.
        random: the same without random ones; a row's fall is the mean over draws.
        difference: the mean of the first less the second, paired row by row.
        ranked_flips, random_flips: shares of rows whose answer changes.
    """

    amount: int | float
    n_rows: int
    ranked: Interval
    random: Interval
    difference: Interval
    ranked_flips: float
    random_flips: float


def faithfulness(
    predictor: TextClassifier,
    tokens: Tokens,
    *,
    amounts: Sequence[int | float] = AMOUNTS,
    n_draws: int = N_DRAWS,
    budget: int = 4096,
    seed: int = 0,
    progress: Callable[[int], None] = lambda n_rows: None,
) -> list[Faithfulness]:
    """Silence tokens of every row, by attention and at random, each of `amounts`; amounts that no row has tokens for
    are left out. A row's random tokens depend only on `seed` and its number, and those of a larger amount include
    those of a smaller one.
    """
    marks, network = find_marks(predictor).every, predictor.network
    falls = np.full((len(amounts), 1 + n_draws, len(tokens)), np.nan)
    flips = np.zeros((len(amounts), 1 + n_draws, len(tokens)))
    for batch in batches(predictor, tokens, budget=budget, maps=True):
        maps = look_at_batch(predictor, batch)
        received_N, logits_BC = received(maps, len(batch.ids_N)), maps.logits_BC
        del maps
        lengths_B, answer_B1 = batch.layout.rows.lengths_B, logits_BC.argmax(-1, keepdim=True)
        for ranking, score_N in enumerate([received_N, *noise(batch, n_draws, seed)]):
            rank_N, n_choices_B = ranks(score_N, ~torch.isin(batch.ids_N, marks), batch)
            for at, amount in enumerate(amounts):
                k_B = how_many(amount, n_choices_B)
                silence_N = rank_N < k_B.repeat_interleave(lengths_B)
                with torch.no_grad(), with_silence(network, batch, silence_N):
                    silenced_BC = answer_batch(predictor, batch)
                fall_B = (logits_BC - silenced_BC).gather(-1, answer_B1).squeeze(-1).double()
                falls[at, ranking, batch.rows_B] = fall_B.where((k_B < n_choices_B).cpu(), torch.nan)
                flips[at, ranking, batch.rows_B] = silenced_BC.argmax(-1) != answer_B1.squeeze(-1)
        progress(len(batch.rows_B))

    found = []
    for at, amount in enumerate(amounts):
        enough_n = ~np.isnan(falls[at, 0])  # rows with more than `amount` tokens
        if not enough_n.any():
            continue
        fall_Rn, flip_Rn = falls[at][:, enough_n], flips[at][:, enough_n]
        ranked_n, random_n = fall_Rn[0], fall_Rn[1:].mean(0)
        found.append(
            Faithfulness(
                amount=amount,
                n_rows=int(enough_n.sum()),
                ranked=mean_interval(ranked_n),
                random=mean_interval(random_n),
                difference=mean_interval(ranked_n - random_n),
                ranked_flips=float(flip_Rn[0].mean()),
                random_flips=float(flip_Rn[1:].mean()),
            )
        )
    return found


def received(maps: Maps, n_tokens: int) -> Tensor:
    """The attention each token of the batch gets, `(N,)`: the mean over a text's queries and all heads."""
    n_queries_T1 = maps.layout.lengths_B[:, None].clamp(min=1)
    got_PTM = maps.shares_PTLM.sum(2) / n_queries_T1
    across_P11 = torch.tensor(maps.across, device=got_PTM.device)[:, None, None]
    own_PTM = torch.where(across_P11, got_PTM.roll(got_PTM.size(1) // 2, 1), got_PTM)
    return torch.zeros(n_tokens, device=got_PTM.device).index_add_(0, maps.place_N, maps.layout.flat(own_PTM.mean(0)))


def noise(batch: Batch, n_draws: int, seed: int) -> list[Tensor]:
    """A random order of every document's tokens for each draw, `(N,)`: the same in any batch."""
    drawn = []
    for row, length in zip(batch.rows_B.tolist(), batch.layout.rows.lengths_B.tolist(), strict=True):
        drawn.append(np.random.default_rng((seed, row)).random((n_draws, length)))
    draws_N = torch.from_numpy(np.concatenate(drawn, axis=1)).to(batch.ids_N.device)
    return list(draws_N)


def ranks(score_N: Tensor, choice_N: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """The rank of each token among the choices of its document, from 0 for the highest score, `(N,)`, and the number of
    choices, `(B,)`. Other tokens come after all choices; of equal scores the earlier token comes first.
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
