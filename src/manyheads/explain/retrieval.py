"""Attention as a soft look-up: as the temperature falls it returns one record, as it rises the mean of all.

weights = softmax(scores / temperature). R temperatures . M records . K d_k . V d_v
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyheads.config.explain import ExplainConfig
from manyheads.explain.drawing import BLUE, GREY, RED, draw, heatmap, name, png
from manyheads.explain.finding import Finding
from manyheads.nn.attention import attend
from manyheads.nn.scores import Dot

N_RECORDS, D_K, D_V = 8, 16, 4
ASKED = 2  # the record whose key the query resembles
NOISE = 0.3
TEMPERATURES = [10 ** (step / 4) for step in range(8, -9, -1)]  # 100 to 0.01


def retrieval(config: ExplainConfig) -> Finding:
    """Ask eight records with a noisy key, at temperatures from 100 down to 0.01."""
    random = torch.Generator().manual_seed(config.seed)
    k_MK, v_MV = (torch.randn(N_RECORDS, width, generator=random, dtype=torch.float64) for width in (D_K, D_V))
    q_K = k_MK[ASKED] + NOISE * torch.randn(D_K, generator=random, dtype=torch.float64)
    scores_M = k_MK @ q_K / math.sqrt(D_K)
    winner = int(scores_M.argmax())
    gap = float(scores_M.topk(2).values.diff().abs())
    rows: list[dict[str, Any]] = []
    for temperature in TEMPERATURES:
        weights_M, context_V = look_up(q_K, k_MK, v_MV, temperature)
        rows.append(
            {
                "temperature": temperature,
                "weights": weights_M.tolist(),
                "off_the_record": float(weights_M.sum() - weights_M[winner]),
                "bound": (N_RECORDS - 1) * math.exp(-gap / temperature),
                "distance_to_record": float((context_V - v_MV[winner]).norm()),
                "distance_to_mean": float((context_V - v_MV.mean(0)).norm()),
            }
        )
    says = (
        f"at temperature {rows[-1]['temperature']:g} the weight {max(rows[-1]['weights']):.6f} of the best match, "
        f"at {rows[0]['temperature']:g} {max(rows[0]['weights']):.3f}, near 1/{N_RECORDS}"
    )
    numbers = {"records": N_RECORDS, "asked": ASKED, "found": winner, "gap": gap, "temperatures": rows}
    return Finding(says, numbers, {"retrieval": _picture(rows)})


def look_up(q_K: Tensor, k_MK: Tensor, v_MV: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Weights `(M,)` and context `(V,)` of one query; `model.scale` is what divides by the temperature in a model."""
    context, weights = attend(
        q_K[None, None, None],
        k_MK[None, None],
        v_MV[None, None],
        score=Dot(1 / (math.sqrt(q_K.numel()) * temperature)),
        return_weights=True,
    )
    return weights[0, 0, 0], context[0, 0, 0]


def _picture(rows: list[dict[str, Any]]) -> bytes:
    figure, panels = draw(1, 2, width=9.6, height=4.0, width_ratios=(1, 1.15))
    shown = rows[::2]
    heatmap(
        panels[0, 0],
        np.array([row["weights"] for row in shown]),
        rows=[f"{row['temperature']:.2g}" if row["temperature"] < 100 else "100" for row in shown],
        columns=[f"record {at + 1}" for at in range(N_RECORDS)],
        numbers=True,
    )
    panels[0, 0].set_ylabel("temperature")
    name(panels[0, 0], "weights of one query over eight records")
    axes = panels[0, 1]
    for key, colour, style, label in (
        ("distance_to_mean", BLUE, "s-", "to the mean of all values"),
        ("distance_to_record", RED, "o-", "to the best match's value"),
        ("bound", GREY, "--", "bound on the weight of all others"),
    ):
        points = [(row["temperature"], row[key]) for row in rows]
        axes.plot(*zip(*points, strict=True), style, color=colour, markersize=4, linewidth=1.3, label=label)
    axes.set(xscale="log", yscale="log", ylim=(1e-6, 20), xlabel="temperature")
    name(axes, "distance of what is returned")
    axes.invert_xaxis()
    axes.legend(frameon=False, fontsize=8, loc="lower left")
    return png(figure)
