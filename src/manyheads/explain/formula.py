"""The formula step by step; attention as a soft look-up; why scores are divided by √d_k.

NumPy transcribes the papers with a token a row, Q = X W^Q; the blocks are those of manyheads.nn. As the temperature of
the softmax falls one record is returned, as it rises the mean of all. q · k has variance d_k, and 1 / √d_k decides what
the softmax does with it: Vaswani et al. (2017), section 3.2.1 and its footnote 4.

T tokens . B documents . D d_model . H heads . K d_k . V d_v . R rows of scores . L queries . M records, or keys
"""

import math
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from manyheads.config import ExplainConfig
from manyheads.evaluation.report import BLUE, GREY, INK, RED, draw, heatmap, lines, name, png, powers_of_two
from manyheads.explain.explain import Finding
from manyheads.layout import Packed
from manyheads.nn.attention import Dot, attention_weights
from manyheads.nn.multihead import MultiHeadAttention

Array = np.ndarray
T, D_MODEL, N_HEADS, D_K, D_V = 7, 16, 4, 6, 5  # all different, so that a shape tells which it is
FREE_WIDTHS = [16, 64, 256, 1024]  # of the parameter-free form
N_TEXTS = 50  # of the parameter-free form
N_RECORDS, KEY_WIDTH, VALUE_WIDTH = 8, 16, 4
ASKED = 2  # the record whose key the query resembles
NOISE = 0.3
TEMPERATURES = [10 ** (step / 4) for step in range(8, -9, -1)]  # 100 to 0.01
WIDTHS = [4, 8, 16, 32, 64, 128, 256, 512, 1024]
N_KEYS = 64
QUERIES_OF_A_SET = 50
DEAD = 0.01  # a Jacobian below: a hundredth of a score moves no weight by more than 0.0001


def formula(config: ExplainConfig) -> Finding:
    """Walk one text of seven tokens through four heads, then through attention without any weights."""
    torch.manual_seed(config.seed)
    layer = MultiHeadAttention(d_model=D_MODEL, n_heads=N_HEADS, d_k=D_K, d_v=D_V, bias=False)
    x_TD = torch.randn(T, D_MODEL)
    ours, steps = compute(layer, x_TD), transcribe(x_TD.numpy(), *weights_of(layer))
    worst = max(float(np.abs(ours[step] - steps[step]).max()) for step in ours)
    says = (
        f"the blocks and the transcribed formula differ by {worst:.0e} at most, from X {T}x{D_MODEL} to Y {T}x{D_MODEL}"
    )
    numbers = {
        **{"tokens": T, "d_model": D_MODEL, "n_heads": N_HEADS, "d_k": D_K, "d_v": D_V},
        "shapes": {step: list(value.shape) for step, value in steps.items()},
        "largest_difference": worst,
        "parameter_free": [parameter_free(width, config.seed) for width in FREE_WIDTHS],
    }
    return Finding(says, numbers, {"formula": _picture(steps)})


def weights_of(layer: MultiHeadAttention) -> tuple[Array, Array, Array, Array]:
    """W^Q `(H, D, K)`, W^K `(H, D, K)`, W^V `(H, D, V)` and W^O `(H V, D)` as the papers write them."""
    assert layer.project is not None
    stacked = [part.T.detach().numpy() for part in layer.project.weight.split(layer.widths)]
    w_q, w_k, w_v = (np.stack(np.split(part, layer.n_heads, axis=1)) for part in stacked)
    return w_q, w_k, w_v, cast(nn.Linear, layer.output).weight.T.detach().numpy()


def transcribe(x_TD: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array) -> dict[str, Array]:
    """Every step of head 1, then all heads together: Vaswani et al. (2017), sections 3.2.1 and 3.2.2."""
    heads = []
    steps: dict[str, Array] = {"X": x_TD, "W_1^Q": w_q[0], "W_1^K": w_k[0], "W_1^V": w_v[0]}
    for head in range(len(w_q)):
        q, k, v = x_TD @ w_q[head], x_TD @ w_k[head], x_TD @ w_v[head]
        scores = q @ k.T / math.sqrt(q.shape[1])
        weights = softmax_rows(scores)
        heads.append(weights @ v)
        if head == 0:
            steps |= {"Q_1": q, "K_1": k, "V_1": v, "S_1": scores, "A_1": weights, "Z_1": heads[0]}
    concat = np.concatenate(heads, axis=1)
    return steps | {"Z": concat, "W^O": w_o, "Y": concat @ w_o}


def softmax_rows(scores: Array) -> Array:
    """Each row becomes positive and sums to one."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


@torch.no_grad()
def compute(layer: MultiHeadAttention, x_TD: torch.Tensor) -> dict[str, Array]:
    """The same quantities from our blocks."""
    layout = Packed.of_lengths([x_TD.size(0)])
    q_THK, k_THK, v_THV = layer.queries_keys_values(x_TD, None, layout, layout)
    weights_BHLM, context_BHLV = layer.maps(x_TD, layout)
    return {
        "Q_1": q_THK[:, 0].numpy(),
        "K_1": k_THK[:, 0].numpy(),
        "V_1": v_THV[:, 0].numpy(),
        "A_1": weights_BHLM[0, 0].numpy(),
        "Z_1": context_BHLV[0, 0].numpy(),
        "Z": context_BHLV[0].transpose(0, 1).flatten(1).numpy(),
        "Y": layer(x_TD, layout).numpy(),
    }


@torch.no_grad()
def parameter_free(d_model: int, seed: int) -> dict[str, Any]:
    """softmax(X Xᵀ / √d) X of tokens of independent standard normals: how much a token keeps to itself.

    x · x is near d where x · y is near 0, so the expected weight is about e^√d / (e^√d + (T − 1) √e).
    """
    layer = MultiHeadAttention(
        d_model=d_model, n_heads=1, d_k=d_model, d_v=d_model, project=False, project_output=False
    )
    random = torch.Generator().manual_seed(seed)
    on_itself, worst = [], 0.0
    for _ in range(N_TEXTS):
        x_TD = torch.randn(T, d_model, generator=random)
        layout = Packed.of_lengths([T])
        weights_BHLM, _ = layer.maps(x_TD, layout)
        on_itself.append(float(weights_BHLM[0, 0].diagonal().mean()))
        plain = x_TD.double().numpy()
        expected = softmax_rows(plain @ plain.T / math.sqrt(d_model)) @ plain
        worst = max(worst, float(np.abs(layer(x_TD, layout).numpy() - expected).max()))
    root = math.sqrt(d_model)
    return {
        "d_model": d_model,
        "weight_on_itself": float(np.mean(on_itself)),
        "expected": 1 / (1 + (T - 1) * math.exp(0.5 - root)),
        "parameters": sum(one.numel() for one in layer.parameters()),
        "largest_difference": worst,
    }


def _picture(steps: dict[str, Array]) -> bytes:
    """Each line one equation; a cell has the same size in every matrix, its colour is relative to the largest there."""
    steps = steps | {"K_1^T": steps["K_1"].T}
    lines = [
        ["X", "·", "W_1^Q", " ", "W_1^K", " ", "W_1^V", "=", "Q_1", " ", "K_1", " ", "V_1"],
        ["Q_1", "·", "K_1^T", "/ √6  =", "S_1", "softmax\nof each row", "A_1", "·", "V_1", "=", "Z_1"],
        ["Z", "·", "W^O", "=", "Y"],
    ]
    gaps = {" ": 1.2, "·": 2.4, "=": 2.6, "/ √6  =": 4.8, "softmax\nof each row": 7.0}
    figure, panels = draw(1, 1, width=9.6, height=8.3)
    axes, top, widest = panels[0, 0], 0.0, 0.0
    for line in lines:
        left, tallest = 0.0, max(len(steps[step]) for step in line if step in steps)
        middle = top - tallest / 2
        for step in line:
            if step in steps:
                _draw_matrix(axes, step, steps[step], left, middle)
                left += steps[step].shape[1]
            else:
                axes.text(left + gaps[step] / 2, middle, step, ha="center", va="center", fontsize=11, color=INK)
                left += gaps[step]
        widest, top = max(widest, left), top - tallest - 4.6
    axes.set(xlim=(-0.5, widest + 0.5), ylim=(top + 2.6, 2.2), aspect="equal")
    axes.axis("off")
    return png(figure)


def _draw_matrix(axes: Any, step: str, values: Array, left: float, middle: float) -> None:
    (rows, columns), largest = values.shape, float(np.abs(values).max())
    low, colours = (0.0, "Blues") if step == "A_1" else (-largest, "RdBu_r")
    extent = (left, left + columns, middle - rows / 2, middle + rows / 2)
    axes.imshow(values, cmap=colours, vmin=low, vmax=largest, extent=extent)
    title = "$[Z_1\\ Z_2\\ Z_3\\ Z_4]$" if step == "Z" else f"${step}$"
    centre, above, below = left + columns / 2, middle + rows / 2 + 0.3, middle - rows / 2 - 0.4
    axes.text(centre, above, title, ha="center", va="bottom", fontsize=11, color=INK)
    axes.text(centre, below, f"{rows} x {columns}", ha="center", va="top", fontsize=8, color=INK)


def retrieval(config: ExplainConfig) -> Finding:
    """Ask eight records with a noisy key, at temperatures from 100 down to 0.01."""
    random = torch.Generator().manual_seed(config.seed)
    k_MK, v_MV = (
        torch.randn(N_RECORDS, width, generator=random, dtype=torch.float64) for width in (KEY_WIDTH, VALUE_WIDTH)
    )
    q_K = k_MK[ASKED] + NOISE * torch.randn(KEY_WIDTH, generator=random, dtype=torch.float64)
    scores_M = k_MK @ q_K / math.sqrt(KEY_WIDTH)
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
    score = Dot(1 / (math.sqrt(q_K.numel()) * temperature))
    weights = attention_weights(q_K[None, None, None], k_MK[None, None], score=score)[0, 0, 0]
    return weights, weights @ v_MV


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
    looks = {
        "distance_to_mean": ("to the mean of all values", BLUE, "s-"),
        "distance_to_record": ("to the best match's value", RED, "o-"),
        "bound": ("bound on the weight of all others", GREY, "--"),
    }
    lines(axes, TEMPERATURES, looks, {key: [row[key] for row in rows] for key in looks}, width=1.3)
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
    numbers = {"n_keys": N_KEYS, "samples": config.samples, "widths": widths}
    return Finding(says, numbers, {"scale": _scale_picture(widths)})


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
        weights = attention_weights(q_LK[None, None], k_MK[None, None], score=Dot(factor))
        jacobian_RMM = softmax_jacobian(weights[0, 0])
        entropies.append(torch.special.entr(weights[0, 0]).sum(-1))
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
    return (jacobian_RMM @ (k_MK @ k_MK.T) * jacobian_RMM).sum((1, 2)).clamp(min=0).sqrt()


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
        medians, means = ([one[f"jacobian_{which}"] for one in of_arm] for which in ("median", "mean"))
        jacobian.plot(d_k, medians, "o-", color=colour, markersize=4, label=f"{label}: median")
        jacobian.plot(d_k, means, ":", color=colour, linewidth=1.6, label=f"{label}: mean")
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
