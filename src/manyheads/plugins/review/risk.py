"""The risk of a classifier if only its most confident answers are given.

n rows
"""

import math
from dataclasses import asdict

import numpy as np

from manyheads.evaluation.answered import LogitStore
from manyheads.evaluation.evaluation import Finding
from manyheads.evaluation.intervals import share_interval
from manyheads.evaluation.metrics import Outcomes
from manyheads.evaluation.report import BLUE, PALE, SMALL, Picture, ReportSection, draw

SHARES = [at / 20 for at in range(1, 21)]  # of the rows, that are answered


def risk_by_coverage(stored: LogitStore, outcomes: Outcomes) -> Finding | None:
    """The share of wrong answers if only the most confident are given, by how many are given: a part of kind `finding`.
    Answers of the same confidence are given together. None where rows have any number of labels.

    Source: El-Yaniv and Wiener (2010), "On the Foundations of Noise-free Selective Classification".
    """
    if outcomes.multi:
        return None
    n = len(outcomes.labels)
    order_n = np.argsort(-outcomes.confidence_n, kind="stable")
    confidence_n = outcomes.confidence_n[order_n]
    n_wrong_n = np.cumsum(~outcomes.right_n[order_n])
    points, risks = [], []
    for share in SHARES:
        last = max(0, math.ceil(share * n - 1e-9) - 1)
        least = float(confidence_n[last])
        n_answered = int(np.searchsorted(-confidence_n, -least, side="right"))
        risk = share_interval(int(n_wrong_n[n_answered - 1]), n_answered)
        points.append({"answered": n_answered / n, "confidence": least, "risk": asdict(risk)})
        risks.append(risk)

    figure, ((axes,),) = draw(1, 1, **SMALL)
    answered = [point["answered"] for point in points]
    axes.fill_between(answered, [risk.low for risk in risks], [risk.high for risk in risks], color=PALE)
    axes.plot(answered, [risk.value for risk in risks], color=BLUE, marker=".", markersize=4)
    axes.set(xlim=(0, 1), ylim=(0, None), xlabel="share answered", ylabel="wrong among them")
    caption = "wrong answers if only the most confident are given, with 95 % intervals"
    return Finding("risk_coverage", points, [ReportSection("", pictures=[Picture("risk", figure, caption)])])
