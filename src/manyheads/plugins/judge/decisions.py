"""What becomes of probabilities: which texts to leave unanswered, which classes to leave open, what mistakes cost.

n rows . C classes . P cells of rows
"""

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from manyheads.errors import UserError
from manyheads.evaluation.answered import LogitStore
from manyheads.evaluation.evaluation import Finding
from manyheads.evaluation.intervals import NO_ROWS, Floats, Ints, Z, clipped, find_root, share_interval
from manyheads.evaluation.report import Example, ReportSection, ReportTable
from manyheads.plugins.judge.abstain import Rules
from manyheads.plugins.judge.checks import read_costs
from manyheads.plugins.judge.outliers import Outliers
from manyheads.runs.summary import Figures, Interval, figures_to_plain

MOST_SHOWN = 10  # rows that are least like the training


def promises_kept(stored: LogitStore, rules: Rules, marks_n: None = None) -> Finding:
    """How the rules that were set on other rows do on these."""
    n_classes = len(stored.names)
    n = n_answered = n_wrong = n_held = n_in_sets = 0
    of_class_C, held_C = np.zeros(n_classes, dtype=int), np.zeros(n_classes, dtype=int)
    for found in stored.answers():
        answered_n = found.probabilities_nC.max(1) >= rules.least
        n += len(answered_n)
        n_answered += int(answered_n.sum())
        n_wrong += int((answered_n & ~found.right_n).sum())
        if rules.coverage:
            sets_nC = rules.sets(found.probabilities_nC)
            is_held_nC = sets_nC & found.marks_nC
            n_in_sets += int(sets_nC.sum())
            n_held += int(is_held_nC.sum())
            of_class_C += found.marks_nC.sum(0)
            held_C += is_held_nC.sum(0)
    content: dict[str, Any] = {"labelled_rows": rules.rows}
    lines, rows = rules.words(), list[list[str]]()
    if rules.risk:
        answered = share_interval(n_answered, n)
        wrong = asdict(share_interval(n_wrong, n_answered)) if n_answered else None
        content["abstain"] = {
            "risk": rules.risk,
            "confidence": rules.least,
            "answered": asdict(answered),
            "wrong": wrong,
        }
        rows.append(["texts that are answered", _words(asdict(answered)), "", f"{n:,}"])
        if wrong:
            rows.append(["wrong among them", _words(wrong), f"at most {rules.risk:g}", f"{n_answered:,}"])
        lines += [f"here: {row[0]}: {row[1]}" for row in rows]
    if rules.coverage:
        held, promised = asdict(share_interval(n_held, n)), f"at least {rules.coverage:g}"
        content["sets"] = {"coverage": rules.coverage, "held": held, "mean_size": n_in_sets / n}
        rows.append(["sets that hold the right class", _words(held), promised, f"{n:,}"])
        lines.append(f"here: sets that hold the right class: {rows[-1][1]}; a set has {n_in_sets / n:.2f} classes")
        if rules.by_class:
            per_class = content["sets"]["per_class"] = []
            for name, n_rows, n_in in zip(stored.names, of_class_C.tolist(), held_C.tolist(), strict=True):
                of_class = asdict(share_interval(n_in, n_rows)) if n_rows else None
                per_class.append({"name": name, "n_rows": n_rows, "held": of_class})
                if of_class:
                    rows.append([f"of {name}", _words(of_class), promised, f"{n_rows:,}"])
    table = ReportTable(["", "here", "promised", "rows"], rows, "wnnn")
    return Finding("promises", content, [ReportSection("Promised and measured", table, rules.words())], lines)


def outlier_rows(stored: LogitStore, set_by: tuple[Outliers, float], p_n: Floats) -> Finding:
    """How many rows are marked as unlike those of the training, by their p-values; those that are most so are shown."""
    rows, (outliers, false_alarms) = stored.rows, set_by
    marked = share_interval(int((p_n <= false_alarms).sum()), len(p_n))
    content = {"false_alarms": false_alarms, "validation_rows": len(outliers.scores_Z), "marked": asdict(marked)}
    line = f"rows marked as unlike those of the training: {_words(content['marked'])}"
    promise = f"of rows like those of the validation split at most {false_alarms:g} are to be marked"
    shown = []
    for at in np.argsort(p_n, kind="stable")[:MOST_SHOWN].tolist():
        if p_n[at] <= false_alarms:
            shown.append(Example(f"p = {p_n[at]:.4f}, row {rows.numbers[at]:,}", rows.texts_of(at)))
    section = ReportSection("Texts unlike those of the training", notes=[line, promise], examples=shown, long=True)
    return Finding("outliers", content, [section], [f"outliers.false_alarms={false_alarms:g}: {line}"])


def _words(one: dict[str, float]) -> str:
    return f"{one['value']:.3f} ({one['low']:.3f} to {one['high']:.3f})"


def costs(config: Any, stored: LogitStore) -> Finding:
    """What answers cost, by the file that `costs` names."""
    return least_costs(stored, np.array(read_costs(config.costs, stored.names)))


def least_costs(stored: LogitStore, costs_CC: Floats) -> Finding:
    """What the likeliest class costs, and the class whose expected cost is least by the probabilities: Elkan (2001),
    "The Foundations of Cost-Sensitive Learning". `costs_CC` has true classes in rows, answers in columns."""
    triples = []
    for found in stored.answers():
        cheapest_n = (found.probabilities_nC @ costs_CC).argmin(1)
        triples.append(np.stack([found.labels, found.answers, cheapest_n]))
    (labels_P, likeliest_P, cheapest_P), count_P = np.unique(
        np.concatenate(triples, axis=1), axis=1, return_counts=True
    )
    moved = int(count_P[likeliest_P != cheapest_P].sum())
    content = {**figures_to_plain(cost_figures(labels_P, likeliest_P, cheapest_P, count_P, costs_CC)), "changed": moved}
    words = {"likeliest": "the likeliest class", "least_cost": "the class of least expected cost", "change": "change"}
    rows = []
    for key, word in words.items():
        rows.append([word, *(f"{content[key][end]:.4f}" for end in ("value", "low", "high"))])
    section = ReportSection(
        "Cost of mistakes",
        ReportTable(["cost of a row", "value", "low", "high"], rows, "wnnn"),
        [f"{moved:,} of {int(count_P.sum()):,} rows are answered otherwise where the expected cost decides"],
    )
    usual, least, of = (content[key] for key in words)
    line = (
        f"costs: {usual['value']:.4f} a row by the likeliest class ({usual['low']:.4f} to {usual['high']:.4f}), "
        f"{least['value']:.4f} by the least expected cost ({least['low']:.4f} to {least['high']:.4f}), a change of "
        f"{of['value']:+.4f} (95 % interval {of['low']:+.4f} to {of['high']:+.4f})"
    )
    return Finding("costs", content, [section], [line])


def cost_figures(labels_P: Ints, likeliest_P: Ints, cheapest_P: Ints, count_P: Ints, costs_CC: Floats) -> Figures:
    """What a row costs by the likeliest class, by the class of least expected cost, and the change; `count_P`
    rows have a true class and both answers. Answers that none of the rows has may come as well."""
    usual_P, least_P = costs_CC[labels_P, likeliest_P], costs_CC[labels_P, cheapest_P]
    ends = float(costs_CC.min()), float(costs_CC.max())
    most = float(np.ptp(costs_CC, axis=1).max())
    return {
        "likeliest": weighted_interval(usual_P, count_P, *ends),
        "least_cost": weighted_interval(least_P, count_P, *ends),
        "change": weighted_interval(least_P - usual_P, count_P, -most, most),
    }


def weighted_interval(weight_P: Floats, count_P: Ints, least: float, most: float) -> Interval:
    """The mean over all rows of a weight that each row has by its kind, such as what its answer costs.

    The mean is a sum of the shares of kinds times their weights, and has a score interval like that of
    `shares_interval`: an end is the mean of the likeliest shares of all with this mean, and lies `Z` of their standard
    deviations from the mean seen. So a rare weight is not taken as known from the few rows that have it, nor ruled out
    if no row has it: kinds of the weights `least` and `most` are always possible. Of these two kinds alone it is
    Wilson's interval.

    Assumes that rows are drawn independently.

    Source: as `shares_interval`, with the multinomial distribution for the binomial.

    Args:
        weight_P: the weight of each kind `(P,)`.
        count_P: how many rows are of each kind `(P,)`.
        least: the smallest weight that a row can have.
        most: the largest.

    Raises:
        UserError: there are no rows.
    """
    if not count_P.sum():
        raise UserError(NO_ROWS)
    mean = float(count_P @ weight_P) / int(count_P.sum())
    low = least + _least_gap(weight_P - least, count_P)
    high = most - _least_gap(most - weight_P, count_P)
    return clipped(mean, low, high, -math.inf, math.inf)


def _least_gap(gap_P: Floats, count_P: Ints) -> float:
    """The lower end of a mean of gaps, none of them negative, of which 0 is possible.

    The likeliest shares with a given mean are proportional to n / (gap + slope), with one slope for all (Lagrange). If
    no row has a gap of 0, next to none is assumed to.
    """
    largest = float(gap_P.max(initial=0.0))
    if not largest:
        return 0.0
    gap_P, n_P = np.append(gap_P / largest, 0.0), np.append(count_P, 1e-9)
    n = float(n_P.sum())
    seen = float(n_P @ gap_P) / n

    def mean_and_excess(log_slope: float) -> tuple[float, float]:
        """The mean of the likeliest shares, and by how much `Z` standard deviations are further, in squares."""
        share_P = n_P / (gap_P + math.exp(log_slope))
        share_P /= share_P.sum()
        mean = float(share_P @ gap_P)
        variance = float(share_P @ (gap_P - mean) ** 2)
        return mean, Z**2 * variance - n * (seen - mean) ** 2

    highest = 1.0
    while mean_and_excess(highest)[1] < 0:
        highest += 4.0
    end = find_root(lambda log_slope: mean_and_excess(log_slope)[1], -60.0, highest)
    return largest * mean_and_excess(end)[0]
