"""What becomes of probabilities: which texts to leave unanswered, which classes to leave open, what mistakes cost.

n rows . C classes . P cells of rows
"""

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from manyheads.config.fields import listed, show
from manyheads.data.opening import read_file
from manyheads.data.rows import Known
from manyheads.data.table import require_whole
from manyheads.evaluation.answered import Stored
from manyheads.evaluation.calibration import Calibration, Cells
from manyheads.evaluation.evaluation import Finding
from manyheads.evaluation.intervals import Floats, Ints, plain, share_interval, weighted_interval
from manyheads.evaluation.report import BLUE, PALE, Example, Picture, Section, Table, draw
from manyheads.inference.abstain import Rules
from manyheads.inference.outliers import Outliers
from manyheads.runs.summary import Figures

MOST_SHOWN = 10  # rows that are least like the training
MOST_COST = 1e12  # of an answer, so that squares of costs have sums
SHARES = [at / 20 for at in range(1, 21)]  # of the rows, that are answered


def risk_by_coverage(calibration: Calibration) -> Finding:
    """The share of wrong answers where only the surest texts are answered, by how many are, with all that are as sure:
    El-Yaniv and Wiener (2010), "On the Foundations of Noise-free Selective Classification"."""
    _, count_P, mean_PV, _ = calibration.confidences.get()
    order = np.argsort(-mean_PV[:, 0], kind="stable")
    sure_P, answered_P = mean_PV[order, 0], np.cumsum(count_P[order])
    wrong_P = np.cumsum(count_P[order] * (1 - mean_PV[order, 1]))
    points, n = [], int(answered_P[-1])
    for share in SHARES:
        least = float(sure_P[np.searchsorted(answered_P, math.ceil(share * n - 1e-9))])
        at = int(np.searchsorted(-sure_P, -least, side="right")) - 1
        risk = share_interval(round(float(wrong_P[at])), int(answered_P[at]))
        points.append({"answered": int(answered_P[at]) / n, "confidence": least, "risk": asdict(risk)})
    figure, ((axes,),) = draw(1, 1, width=5.2, height=3.4)
    shares = [one["answered"] for one in points]
    axes.fill_between(
        shares, [one["risk"]["low"] for one in points], [one["risk"]["high"] for one in points], color=PALE
    )
    axes.plot(shares, [one["risk"]["value"] for one in points], color=BLUE, marker=".", markersize=4)
    axes.set(xlim=(0, 1), ylim=(0, None), xlabel="share of texts that are answered", ylabel="wrong among them")
    caption = "wrong answers if only the surest texts are answered, with 95 % intervals"
    picture = Picture("risk", figure, caption)
    return Finding("risk_coverage", points, [Section("What if it answers only when sure?", pictures=[picture])])


def promises_kept(stored: Stored, rules: Rules) -> Finding:
    """How the rules that were set on other rows do on these."""
    n_classes = len(stored.names)
    n = n_answered = n_wrong = n_held = n_in_sets = 0
    of_class_C, held_C = np.zeros(n_classes, dtype=int), np.zeros(n_classes, dtype=int)
    for found in stored.own():
        answered_n = found.probabilities_nC.max(1) >= rules.least
        n, n_answered = n + len(answered_n), n_answered + int(answered_n.sum())
        n_wrong += int((answered_n & ~found.right_n).sum())
        if rules.coverage:
            sets_nC = rules.sets(found.probabilities_nC)
            in_set_nC = sets_nC & found.marks_nC
            n_held, n_in_sets = n_held + int(in_set_nC.sum()), n_in_sets + int(sets_nC.sum())
            of_class_C, held_C = of_class_C + found.marks_nC.sum(0), held_C + in_set_nC.sum(0)
    content: dict[str, Any] = {"labelled_rows": rules.rows}
    lines, rows = rules.words(), list[list[str]]()
    if rules.risk:
        answered = share_interval(n_answered, n)
        risk = share_interval(n_wrong, n_answered) if n_answered else None
        wrong = asdict(risk) if risk else None
        content["abstain"] = {
            "risk": rules.risk,
            "confidence": rules.least,
            "answered": asdict(answered),
            "wrong": wrong,
        }
        rows.append(["texts that are answered", _words(asdict(answered)), "", f"{n:,}"])
        rows += [["wrong among them", _words(wrong), f"at most {rules.risk:g}", f"{n_answered:,}"]] if wrong else []
        lines += [f"here: {row[0]}: {row[1]}" for row in rows]
    if rules.coverage:
        held, promised = asdict(share_interval(n_held, n)), f"at least {rules.coverage:g}"
        content["sets"] = {"coverage": rules.coverage, "held": held, "mean_size": n_in_sets / n}
        rows.append(["sets that hold the right class", _words(held), promised, f"{n:,}"])
        lines.append(f"here: sets that hold the right class: {rows[-1][1]}; a set has {n_in_sets / n:.2f} classes")
        if rules.by_class:
            each = [
                {"name": name, "n_rows": of, "held": asdict(share_interval(held_in, of)) if of else None}
                for name, of, held_in in zip(stored.names, of_class_C.tolist(), held_C.tolist(), strict=True)
            ]
            content["sets"]["per_class"] = each
            rows += [
                [f"of {of['name']}", _words(of["held"]), promised, f"{of['n_rows']:,}"] for of in each if of["held"]
            ]
    table = Table(["", "here", "promised", "rows"], rows, "wnnn")
    return Finding("promises", content, [Section("Are its promises kept?", table, rules.words())], lines)


def outlier_rows(stored: Stored, outliers: Outliers, false_alarms: float) -> Finding:
    """How many rows are marked as unlike those of the training; those that are most so are shown."""
    rows, p_n = stored.rows, stored.p_n
    marked = share_interval(int((p_n <= false_alarms).sum()), len(p_n))
    content = {"false_alarms": false_alarms, "validation_rows": len(outliers.scores_Z), "marked": asdict(marked)}
    line = f"rows marked as unlike those of the training: {_words(content['marked'])}"
    promise = f"of rows like those of the validation split at most {false_alarms:g} are to be marked"
    shown = [
        Example(
            f"p = {p_n[at]:.4f}, row {rows.numbers[at]:,}", [rows.texts[at], *([rows.pairs[at]] if rows.pairs else [])]
        )
        for at in np.argsort(p_n, kind="stable")[:MOST_SHOWN].tolist()
        if p_n[at] <= false_alarms
    ]
    section = Section("Is it like what it learnt from?", notes=[line, promise], examples=shown, long=True)
    return Finding("outliers", content, [section], [f"outliers.false_alarms={false_alarms:g}: {line}"])


def _words(one: dict[str, float]) -> str:
    return f"{one['value']:.3f} ({one['low']:.3f} to {one['high']:.3f})"


def read_costs(file: str, names: list[str]) -> Floats:
    """What an answer costs `(C, C)`, of the true class of a row of the file and the answer of a column: the first
    column has the true class, the header the answers. A ValueError where it is not so of all classes."""
    path = Path(file)
    if not path.is_file():
        raise ValueError(f"costs={file} is not a file: name a csv whose header names the answers, and a row each class")
    table = read_file(path)
    require_whole(table, f"costs={file}")
    first, *answers = table.names
    known = Known(names, any_case=True)
    answers = [known.named(one) for one in answers]
    if sorted(map(known.named, table.names)) == sorted(names):  # a column without a name is not read
        raise ValueError(
            f"costs={file}: its first column, of the true classes, has no name in the header: give it one, with pandas "
            "by to_csv(file, index_label='true')"
        )
    classes = [known.named(one) for one in table.column(first)]
    for what, found in (("header", answers), ("first column", classes)):
        if sorted(found) != sorted(names):
            raise ValueError(f"costs={file}: its {what} names {listed(found)}, but the classes are {listed(names)}")
    costs = np.zeros((len(names), len(names)))
    for answer, column in zip(answers, table.names[1:], strict=True):
        for true, cell in zip(classes, table.column(column), strict=True):
            try:
                costs[names.index(true), names.index(answer)] = float(cell)
            except (TypeError, ValueError):
                costs[names.index(true), names.index(answer)] = math.nan
            if not abs(costs[names.index(true), names.index(answer)]) <= MOST_COST:
                raise ValueError(
                    f"costs={file}: '{show(cell)}' of {true} answered as {answer} is not a number up to {MOST_COST:g}: "
                    "give one"
                )
    return costs


def least_costs(stored: Stored, costs_CC: Floats) -> Finding:
    """What the likeliest class costs, and the class whose expected cost is least by the probabilities."""
    n_classes, cells = len(stored.names), Cells(most=0)
    for found in stored.own():
        labels_n, likeliest_n = found.marks_nC.argmax(1), found.probabilities_nC.argmax(1)
        cheapest_n = (found.probabilities_nC @ costs_CC).argmin(1)
        cells.add((labels_n * n_classes + likeliest_n) * n_classes + cheapest_n)
    key_P, count_P, _, _ = cells.get()
    pair_P, cheapest_P = np.divmod(key_P, n_classes)
    labels_P, likeliest_P = np.divmod(pair_P, n_classes)
    moved = int(count_P[likeliest_P != cheapest_P].sum())
    content = {**plain(cost_figures(labels_P, likeliest_P, cheapest_P, count_P, costs_CC)), "changed": moved}
    words = {"likeliest": "the likeliest class", "least_cost": "the class of least expected cost", "change": "change"}
    rows = [[word, *(f"{content[key][end]:.4f}" for end in ("value", "low", "high"))] for key, word in words.items()]
    section = Section(
        "What do mistakes cost?",
        Table(["cost of a row", "value", "low", "high"], rows, "wnnn"),
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
