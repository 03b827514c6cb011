"""Attention as a soft look-up, and why scores are divided by √d_k.

weights = softmax(scores / temperature): as the temperature falls one record is returned, as it rises the mean of all.
q · k has variance d_k, and 1 / √d_k decides what the softmax does with it: Vaswani et al. (2017), section 3.2.1 and its
footnote 4.

R temperatures, or rows of scores . L queries of one set . M records, or keys . K d_k . V d_v
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyheads.config import ExplainConfig
from manyheads.explain.drawing import BLUE, GREY, RED, draw, heatmap, name, png, powers_of_two
from manyheads.explain.explain import Finding
from manyheads.nn.attention import attend
from manyheads.nn.scores import Dot

N_RECORDS, D_K, D_V = 8, 16, 4
ASKED = 2  # the record whose key the query resembles
NOISE = 0.3
TEMPERATURES = [10 ** (step / 4) for step in range(8, -9, -1)]  # 100 to 0.01
WIDTHS = [4, 8, 16, 32, 64, 128, 256, 512, 1024]
N_KEYS = 64
QUERIES_OF_A_SET = 50
DEAD = 0.01  # a Jacobian below: a hundredth of a score moves no weight by more than 0.0001


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
    return Finding(says, numbers, {"retrieval": _retrieval_picture(rows)})


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


def _retrieval_picture(rows: list[dict[str, Any]]) -> bytes:
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


def scale(config: ExplainConfig) -> Finding:
    """Moments of q · k; entropy and Jacobian of the softmax over its scores, for d_k from 4 to 1024."""
    random = torch.Generator().manual_seed(config.seed)
    widths = [
        {
            "d_k": d_k,
            **moments(d_k, config.samples, random),
            "with_scale": softmax_figures(d_k, d_k**-0.5, config.samples, random),
            "without": softmax_figures(d_k, 1.0, config.samples, random),
        }
        for d_k in WIDTHS
    ]
    last = widths[-1]
    says = (
        f"variance of q·k is {last['variance']:.0f} at d_k {last['d_k']}; without the scale "
        f"{last['without']['dead_share']:.0%} of the softmaxes have stopped moving there, with it "
        f"{last['with_scale']['dead_share']:.0%}"
    )
    return Finding(
        says, {"n_keys": N_KEYS, "samples": config.samples, "widths": widths}, {"scale": _scale_picture(widths)}
    )


def moments(d_k: int, n_samples: int, random: torch.Generator) -> dict[str, float]:
    """Mean and variance of q · k for independent q and k of independent standard normals, and the mean of q · q.

    The errors are standard errors: √(d_k / n) of the mean, and of the variance, relative, √((2 + 6 / d_k) / n), as
    the product of two normals has an excess kurtosis of 6.
    """
    dots, selves = [], []
    for start in range(0, n_samples, 4096):
        n = min(4096, n_samples - start)
        q, k = (torch.randn(n, d_k, generator=random, dtype=torch.float64) for _ in range(2))
        dots.append((q * k).sum(-1))
        selves.append((q * q).sum(-1))
    dot = torch.cat(dots)
    return {
        "mean": float(dot.mean()),
        "mean_error": math.sqrt(d_k / n_samples),
        "variance": float(dot.var()),
        "variance_relative_error": math.sqrt((2 + 6 / d_k) / n_samples),
        "mean_of_q_with_itself": float(torch.cat(selves).mean()),
    }


def softmax_figures(d_k: int, factor: float, n_samples: int, random: torch.Generator) -> dict[str, float]:
    """Entropy of the weights over 64 keys in nats, norm of their Jacobian by scores and by the query."""
    entropies, by_scores, by_query = [], [], []
    for _ in range(max(1, n_samples // 10 // QUERIES_OF_A_SET)):
        q_LK = torch.randn(QUERIES_OF_A_SET, d_k, generator=random, dtype=torch.float64)
        k_MK = torch.randn(N_KEYS, d_k, generator=random, dtype=torch.float64)
        _, weights = attend(*(x[None, None] for x in (q_LK, k_MK, k_MK)), score=Dot(factor), return_weights=True)
        jacobian_RMM = softmax_jacobian(weights[0, 0])
        entropies.append(entropy(weights[0, 0]))
        by_scores.append(jacobian_RMM.flatten(1).norm(dim=1))
        by_query.append(factor * norms_of_products(jacobian_RMM, k_MK))
    norm_R, query_R = torch.cat(by_scores), torch.cat(by_query)
    low, median, high = norm_R.quantile(torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)).tolist()
    return {
        "entropy": float(torch.cat(entropies).mean()),
        "jacobian_median": median,
        "jacobian_low": low,
        "jacobian_high": high,
        "jacobian_mean": float(norm_R.mean()),
        "dead_share": float((norm_R < DEAD).double().mean()),
        "query_gradient_median": float(query_R.median()),
        "query_gradient_mean": float(query_R.mean()),
    }


def softmax_jacobian(weights_RM: Tensor) -> Tensor:
    """∂ weights / ∂ scores = diag(w) − w wᵀ: `(R, M, M)`."""
    return weights_RM.diag_embed() - weights_RM[:, :, None] * weights_RM[:, None, :]


def norms_of_products(jacobian_RMM: Tensor, k_MK: Tensor) -> Tensor:
    """Frobenius norm of each J K by the M x M matrix K Kᵀ, as d_k may be large: ‖J K‖² = trace(J K Kᵀ Jᵀ)."""
    squares_R = (jacobian_RMM @ (k_MK @ k_MK.T) * jacobian_RMM).sum((1, 2))
    return squares_R.clamp(min=0).sqrt()


def entropy(weights_RM: Tensor) -> Tensor:
    """−Σ w ln w of each row, in nats: 0 where one weight is everything, ln M where all are equal."""
    return torch.special.entr(weights_RM).sum(-1)


def _scale_picture(widths: list[dict[str, Any]]) -> bytes:
    figure, panels = draw(2, 2, width=9.0, height=6.4)
    d_k = [one["d_k"] for one in widths]
    variance, weights, jacobian, dead = panels.flat
    variance.plot(d_k, d_k, color=GREY, linewidth=1, linestyle="--", label="d_k")
    variance.plot(d_k, [one["variance"] for one in widths], "o", color=BLUE, markersize=5, label="measured")
    variance.set_yscale("log")
    name(variance, "variance of q·k")
    arms = (("with_scale", BLUE, "q·k / √d_k"), ("without", RED, "q·k"))
    weights.axhline(math.log(N_KEYS), color=GREY, linewidth=1, linestyle="--", label=f"all {N_KEYS} weights equal")
    for arm, colour, label in arms:
        of_arm = [one[arm] for one in widths]
        weights.plot(d_k, [one["entropy"] for one in of_arm], "o-", color=colour, markersize=4, label=label)
        jacobian.plot(
            d_k, [one["jacobian_median"] for one in of_arm], "o-", color=colour, markersize=4, label=f"{label}: median"
        )
        jacobian.plot(
            d_k, [one["jacobian_mean"] for one in of_arm], ":", color=colour, linewidth=1.6, label=f"{label}: mean"
        )
        dead.plot(d_k, [one["dead_share"] for one in of_arm], "o-", color=colour, markersize=4, label=label)
    weights.set_ylim(0, None)
    jacobian.set(yscale="log", ylim=(1e-5, 1))
    dead.set_ylim(-0.03, 1)
    name(weights, f"entropy of the weights over {N_KEYS} keys, nats")
    name(jacobian, "norm of ∂ weights / ∂ scores")
    name(dead, f"share of rows where that norm is below {DEAD}")
    for panel in panels.flat:
        powers_of_two(panel, d_k, "d_k")
        panel.legend(frameon=False, fontsize=8)
    return png(figure)
