"""What the weights of rows and the votes of annotators say of an evaluation, next to the figures of labels; and how far
annotators agree.

n rows . C classes
"""

from dataclasses import asdict
from typing import Any

import numpy as np

from manyheads.evaluation.answered import LogitStore
from manyheads.evaluation.evaluation import Finding, figures_section
from manyheads.evaluation.intervals import Floats, mean_interval, ratio_interval, share_interval
from manyheads.evaluation.metrics import TINY, Outcomes
from manyheads.evaluation.statistics import percentile_interval, resamples
from manyheads.runs.summary import Figures, words_of

WHOLE = 1e-3  # how far a number of votes may be from a whole one, as single precision has it


def by_weights(stored: LogitStore, outcomes: Outcomes) -> Finding | None:
    """Accuracy and loss in which each row counts by its weight; None where rows have none.

    The interval of the accuracy is that of as many rows of equal weight as are known as well: Kish (1965), "Survey
    Sampling", section 11.7. That of the loss follows from what each row adds to it.
    """
    own_n: Floats | None = stored.rows.weights
    if own_n is None or not own_n.any():
        return None
    weight_n = own_n / own_n.max()  # so that squares of small ones are numbers
    n_effective = float(weight_n.sum() ** 2 / (weight_n**2).sum())
    right_n = outcomes.labels == outcomes.answers
    if outcomes.multi:
        right_n = right_n.all(1)
    share = min(1.0, float(weight_n[right_n].sum()) / float(weight_n.sum()))  # a sum may be rounded up
    figures: Figures = {
        "weighted_accuracy": share_interval(share * n_effective, n_effective),
        "weighted_loss": ratio_interval(weight_n * outcomes.loss_n, weight_n),
    }
    line = (
        f"by weights: accuracy {figures['weighted_accuracy'].words} of {n_effective:,.1f} effective rows; with all "
        f"{len(right_n):,} rows alike {share_interval(int(right_n.sum()), len(right_n)).words}"
    )
    return _finding("by_weights", "By the weights of rows", {"effective_rows": n_effective}, figures, line)


def by_votes(stored: LogitStore, outcomes: Outcomes) -> Finding | None:
    """How near the probabilities are to the shares of votes, and how often answers are what most votes are for; None
    where rows have no votes.

    Peterson et al. (2019), "Human uncertainty makes classification more robust", section 4: cross-entropy against the
    distribution of votes. The Kullback-Leibler divergence is what it is above the least possible, the votes' entropy.
    """
    if stored.rows.probabilities is None:
        return None
    shares_nC = np.asarray(stored.rows.probabilities, dtype=np.float64)
    known_nC = np.concatenate([found.probabilities_nC for found in stored.answers()])
    log_loss_n = -(shares_nC * np.log(np.maximum(known_nC, TINY))).sum(1)
    entropy_n = -(shares_nC * np.log(np.maximum(shares_nC, TINY))).sum(1)
    top_n = shares_nC.max(1)
    is_tied_n = (shares_nC == top_n[:, None]).sum(1) > 1
    of_answer_n = shares_nC[np.arange(len(shares_nC)), outcomes.answers]
    n_clear, n_right = int((~is_tied_n).sum()), int(outcomes.right_n[~is_tied_n].sum())
    figures: Figures = {
        "votes_log_loss": mean_interval(log_loss_n, skewed=True),
        "votes_kl": mean_interval(np.maximum(log_loss_n - entropy_n, 0), skewed=True),
        "votes_for_answer": mean_interval(of_answer_n, least=0.0, most=1.0),
        "accuracy_or_tied": share_interval(int((of_answer_n == top_n).sum()), len(top_n)),
    }
    if n_clear:
        figures["accuracy_untied"] = share_interval(n_right, n_clear)
    most, entropy = float(top_n.mean()), float(entropy_n.mean())
    line = (
        f"by votes: log loss {figures['votes_log_loss'].words}, at least {entropy:.4f}; {of_answer_n.mean():.1%} of "
        f"the votes are for the answer, at most {most:.1%}; {int(is_tied_n.sum()):,} of {len(top_n):,} rows tie"
    )
    further = {"tied": int(is_tied_n.sum()), "votes_entropy": entropy, "most_votes_for_answer": most}
    return _finding("by_votes", "By the votes of annotators", further, figures, line)


def _finding(name: str, title: str, further: dict[str, Any], figures: Figures, line: str) -> Finding:
    section = figures_section({words_of(figure): interval for figure, interval in figures.items()})
    section.title, section.notes = title, [line]
    return Finding(name, further | {figure: asdict(one) for figure, one in figures.items()}, [section], [line], figures)


def agreement(shares_nC: Floats, voter_n: Floats) -> dict[str, Any]:
    """How far annotators agree, as audit.json has it; nothing if no two voted on a row, or probabilities were given.

    Krippendorff's alpha of nominal data, for any number of votes a row: 1 less the disagreement that is seen over that
    of votes which are dealt at random: Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability", section C.
    Rows are drawn anew for its interval. `for_most` is the share of votes for what most are for: more of them agree
    with no answer.

    Args:
        shares_nC: of the votes of each row.
        voter_n: how many votes there are.
    """
    shares_nC, voter_n = shares_nC.astype(np.float64), voter_n.astype(np.float64)  # single ones count to 2^24
    votes_nC = np.round(shares_nC * voter_n[:, None])
    is_whole_n = np.abs(votes_nC.sum(1) - voter_n) <= WHOLE * voter_n
    is_whole_n &= (np.abs(shares_nC * voter_n[:, None] - votes_nC) <= WHOLE * np.maximum(1, votes_nC)).all(1)
    several_nC = votes_nC[is_whole_n & (voter_n >= 2 - WHOLE)]
    if not len(several_nC):
        return {}
    n_votes_n = several_nC.sum(1)
    # pairs of votes of a row that differ, each row counting as its votes
    differ_n = (n_votes_n**2 - (several_nC**2).sum(1)) / (n_votes_n - 1)

    def alpha(count_n: np.ndarray) -> float:
        total_C = count_n @ several_nC
        total = total_C.sum()
        by_chance = (total**2 - (total_C**2).sum()) / (total - 1)
        return 1.0 if by_chance == 0 else 1 - float(count_n @ differ_n) / float(by_chance)

    found = percentile_interval(np.array([alpha(count_n) for count_n in resamples(len(several_nC))]), most=1.0)
    return {
        "rows": len(several_nC),
        "votes": int(n_votes_n.sum()),
        "alpha": asdict(found),
        "for_most": float(several_nC.max(1).sum() / n_votes_n.sum()),
    }
