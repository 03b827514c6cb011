"""What to do next, as far as the figures of an evaluation of a classifier say it.

n rows . C classes or labels
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from manyheads.config.sentences import count_rows, format_value, list_names
from manyheads.data.rows import Rows, class_counts
from manyheads.evaluation.evaluation import Judged
from manyheads.evaluation.metrics import Outcomes, Scores
from manyheads.evaluation.report import Advice
from manyheads.runs.summary import LINEAR, NETWORK, POINTS, Figures, words_of

MOST = 3
SURE, TRUSTED = 0.95, 0.9  # the confidence of a mistake that may be a wrong label; how often such answers are right
GAP = 0.03  # from training to new rows, from which on more rows should help; a lead that is less is none
WIDE = 0.03  # half an interval that is too wide to compare models by


def advise(judged: Judged, training: dict[str, Any]) -> list[Advice]:
    """At most `MOST` steps, the most useful first.

    Args:
        training: what only the training loop knows, as in `Summary`; empty: nothing.
    """
    scores, members, leads = judged.scores, judged.members, judged.leads
    found = [*_nothing_learnt(leads)]
    if not found:
        found += [*_labels_to_check(judged.outcomes, judged.stored.rows), *_class_to_learn(scores, judged.train)]
        found += [*_rows_or_steps(members.get(NETWORK, {}), training), *_other_model(leads, kept=LINEAR in members)]
    return [*found, *_rows_to_judge(scores)][:MOST]


def _nothing_learnt(leads: dict[str, Figures]) -> Iterator[Advice]:
    """A model that is in no figure better than one answer to all rows: what it confuses says nothing."""
    for name, figures in leads.items():
        if name != LINEAR and all(lead.low <= 0 and lead.value < GAP for lead in figures.values()):
            step = "Check that the right columns were read (manyheads audit), then train longer or on more rows"
            yield Advice(step, f"The model is no better than the answer of the {name} to all rows")


def _labels_to_check(outcomes: Outcomes, rows: Rows) -> Iterator[Advice]:
    """Labels that the model contradicts where it is nearly always right: some of them are wrong."""
    sure_n = outcomes.confidence_n >= SURE
    if outcomes.multi or not sure_n.any() or outcomes.right_n[sure_n].mean() < TRUSTED:
        return
    doubted = np.flatnonzero(sure_n & ~outcomes.right_n)
    if len(doubted):
        worst = doubted[np.argsort(-outcomes.confidence_n[doubted], kind="stable")].tolist()
        why = f"{len(worst):,} of {sure_n.sum():,} answers of at least {SURE:.0%} confidence contradict the label"
        numbers = [f"{rows.numbers[at]:,}" for at in worst]
        which = f"rows {list_names(numbers)}" if numbers[1:] else f"row {numbers[0]}"
        yield Advice(f"Check the label{'s' * (len(worst) > 1)} of {which}", why)


def _class_to_learn(scores: Scores, train: Rows | None) -> Iterator[Advice]:
    """The class that most mistakes are about, or the label that is found worst."""
    counts_C = class_counts(train, len(scores.labels)) if train is not None else [0] * len(scores.labels)
    known = f" in {len(train):,} training rows" if train is not None else ""
    if scores.confusion:
        wrong_CC = np.array(scores.confusion)
        np.fill_diagonal(wrong_CC, 0)
        label, answer = divmod(int(wrong_CC.argmax()), len(wrong_CC))
        n_wrong, n_rows = int(wrong_CC[label, answer]), scores.per_class[label].support
        name, other = format_value(scores.labels[label]), format_value(scores.labels[answer])
        step = f"Write down what separates {name} from {other}, or label more rows of both"
        if counts_C[label] < counts_C[answer]:
            step = f"Label more rows of {name}"
        why = f"{n_wrong:,} of {n_rows:,} rows of {name} are answered as {other}, the most frequent confusion"
    else:
        label, worst = min(enumerate(scores.per_class), key=lambda pair: (not pair[1].support, pair[1].f1))
        n_wrong, name = worst.support * (worst.f1 < 1), format_value(worst.name)
        step, why = f"Label more rows of {name}", f"It has the lowest F1, {worst.f1:.2f} on {worst.support:,} rows"
    if n_wrong > 1:
        yield Advice(step, f"{why}; {name} occurs {counts_C[label]:,} times{known}" if known else why)


def _rows_or_steps(network: Figures, training: dict[str, Any]) -> Iterator[Advice]:
    """Whether more rows or more epochs should help, by the network's figures on training and new rows."""
    name, best, learnt = next(iter(network), ""), training.get("best"), training.get("train", {})
    if name in learnt:
        figures = f"{words_of(name)} of the network is {learnt[name]:.3f} on training rows, with dropout, and "
        figures += f"{network[name].value:.3f} on these"
        if learnt[name] > network[name].high + GAP:
            yield Advice("Label more training rows", f"The {figures}")
        elif best and best["epoch"] == training["epochs"] and network[name].value < 1:
            last = f"The last of {best['epoch']} epochs was the best" if best["epoch"] > 1 else "There was one epoch"
            yield Advice("Train longer", f"{last}; the {figures}")


def _other_model(leads: dict[str, Figures], *, kept: bool) -> Iterator[Advice]:
    """Other weights, or the linear model, if that is as good; whether it is `kept` with the network."""
    name, lead = next(iter(leads.get(LINEAR, {}).items()), ("", None))
    if lead is not None and lead.low <= 0:
        step = "Begin from other weights (init_from=), or "
        if kept:
            step += "use the linear model alone (members=linear), which is faster"
        else:
            step += "train with a linear model (linear=true)"
        better = "better" if lead.high < 0 else "not significantly worse"
        yield Advice(step, f"In {words_of(name)} the linear model is {better}")


def _rows_to_judge(scores: Scores) -> Iterator[Advice]:
    """More test rows, where the main figure is uncertain."""
    name, figure = next(iter(scores.figures.items()))
    half = (figure.high - figure.low) / 2
    if half > WIDE:
        why = f"With {count_rows(scores.n_rows)} {words_of(name)} is known to ±{POINTS * half:.0f} points"
        yield Advice("Judge on more rows before you compare models", f"{why}; four times as many halve that")
