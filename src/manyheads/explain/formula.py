"""The formula step by step; attention as a soft look-up; why scores are divided by √d_k; that order is not seen.

NumPy transcribes the papers with a token a row, Q = X W^Q; the blocks are those of manyheads.nn. As the temperature of
the softmax falls one record is returned, as it rises the mean of all. q · k has variance d_k, and 1 / √d_k decides what
the softmax does with it: Vaswani et al. (2017), section 3.2.1 and its footnote 4. Exchange the tokens of a text and an
encoder gives the same vectors, exchanged: positions, a causal mask or a window end that.

T, N tokens . B documents . D d_model . H heads . K d_k . V d_v . R rows of scores . L queries . M records, or keys
"""

import math
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from manyheads.config import ExplainConfig, ModelConfig
from manyheads.evaluation.report import INK, draw, heatmap, png
from manyheads.explain.explain import Finding
from manyheads.layout import Packed
from manyheads.nn import Classifier, assemble
from manyheads.nn.attention import Dot, attention_weights
from manyheads.nn.multihead import MultiHeadAttention

Array = np.ndarray
T, D_MODEL, N_HEADS, D_K, D_V = 7, 16, 4, 6, 5  # all different, so that a shape tells which it is
FREE_WIDTHS = [16, 64]  # of the parameter-free form
N_TEXTS = 50  # of the parameter-free form
N_RECORDS, KEY_WIDTH, VALUE_WIDTH = 8, 16, 4
ASKED = 2  # the record whose key the query resembles
NOISE = 0.3
TEMPERATURES = [10 ** (step / 4) for step in range(8, -9, -1)]  # 100 to 0.01
WIDTHS = [4, 8, 16, 32, 64, 128, 256, 512, 1024]
N_KEYS = 64
QUERIES_OF_A_SET = 50
SMALL = ModelConfig(n_layers=2, n_heads=4, d_model=64, d_k=16, d_v=16, d_ff=128, dropout=0.0, dropout_tokens=0.0)
N_TOKENS, N_ORDERS, VOCAB = 16, 20, 50
CASES = {
    "no positions": {},
    "no positions, in float32": {},
    "sinusoidal": {"positions": "sinusoidal"},
    "sinusoidal, each token keeps its own": {"positions": "sinusoidal"},
    "learned": {"positions": "learned"},
    "rotary": {"positions": "rotary"},
    "alibi": {"positions": "alibi"},
    "no positions, causal": {"causal": True},
    "no positions, window of 2": {"window": 2},
}
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
        weights_M, _ = look_up(q_K, k_MK, v_MV, temperature)
        rows.append(
            {
                "temperature": temperature,
                "weights": weights_M.tolist(),
                "off_the_record": float(weights_M.sum() - weights_M[winner]),
                "bound": (N_RECORDS - 1) * math.exp(-gap / temperature),
            }
        )
    says = (
        f"at temperature {rows[-1]['temperature']:g} the weight {max(rows[-1]['weights']):.6f} of the best match, "
        f"at {rows[0]['temperature']:g} {max(rows[0]['weights']):.3f}, near 1/{N_RECORDS}"
    )
    numbers = {"records": N_RECORDS, "asked": ASKED, "found": winner, "gap": gap, "temperatures": rows}
    figure, panels = draw(1, 1, width=5.2, height=4.0)
    heatmap(
        panels[0, 0],
        np.array([row["weights"] for row in rows[::2]]),
        rows=[f"{row['temperature']:.2g}" for row in rows[::2]],
        columns=[f"record {at + 1}" for at in range(N_RECORDS)],
        numbers=True,
    )
    panels[0, 0].set_ylabel("temperature")
    return Finding(says, numbers, {"retrieval": png(figure)})


def look_up(q_K: Tensor, k_MK: Tensor, v_MV: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Weights `(M,)` and context `(V,)` of one query; `model.scale` is what divides by the temperature in a model."""
    score = Dot(scale=1 / (math.sqrt(q_K.numel()) * temperature))
    weights = attention_weights(q_K[None, None, None], k_MK[None, None], score=score)[0, 0, 0]
    return weights, weights @ v_MV


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
    return Finding(says, numbers)


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
        weights = attention_weights(q_LK[None, None], k_MK[None, None], score=Dot(scale=factor))
        jacobian_RMM = softmax_jacobian(weights[0, 0])
        entropies.append(torch.special.entr(weights[0, 0]).sum(-1))
        by_scores.append(jacobian_RMM.flatten(1).norm(dim=1))
        by_query.append(factor * norms_of_products(jacobian_RMM, k_MK))
    norm_R, query_R = torch.cat(by_scores), torch.cat(by_query)
    return {
        "entropy": float(torch.cat(entropies).mean()),
        "jacobian_median": float(norm_R.quantile(0.5)),
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


def order(config: ExplainConfig) -> Finding:
    """Largest difference between the encoded exchange and the exchanged encoding, over twenty orders of 16 tokens."""
    numbers = {}
    for case, settings in CASES.items():
        torch.manual_seed(config.seed)
        dtype = torch.float32 if "float32" in case else torch.float64
        numbers[case] = differences(
            build(replace(SMALL, **{"positions": "none"} | settings)).to(dtype),
            carried="keeps its own" in case,
            random=torch.Generator().manual_seed(config.seed),
        )
    without, with_them = numbers["no positions"]["token_vectors"], numbers["sinusoidal"]["token_vectors"]
    says = f"exchanged tokens change the encoder by {without:.1e} without positions, by {with_them:.1f} with sinusoidal"
    figures = {"n_tokens": N_TOKENS, "orders": N_ORDERS, "cases": numbers}
    return Finding(says, figures)


def build(model: ModelConfig) -> Classifier:
    """Untrained, as training would start it."""
    return assemble(model, vocab_size=VOCAB, n_classes=4, max_length=N_TOKENS).eval()


@torch.no_grad()
def differences(classifier: Classifier, *, carried: bool, random: torch.Generator) -> dict[str, float]:
    """Largest |encode(P x) − P encode(x)| of a number, and |logits(P x) − logits(x)|.

    Args:
        carried: exchange the embedded vectors, so that a token takes its added position along.
    """
    layout = Packed.of_lengths([N_TOKENS])
    ids_N = torch.randint(VOCAB, (N_TOKENS,), generator=random)
    vectors_ND = classifier.embeddings(ids_N, layout)

    def encode(order_N: Tensor) -> Tensor:
        embedded = vectors_ND[order_N] if carried else classifier.embeddings(ids_N[order_N], layout)
        return classifier.encoder(embedded, layout)

    def logits(encoded_ND: Tensor) -> Tensor:
        return classifier.head(classifier.pooling(encoded_ND, layout))

    plain_ND = encode(torch.arange(N_TOKENS))
    vectors, answers = [], []
    for _ in range(N_ORDERS):
        order_N = torch.randperm(N_TOKENS, generator=random)
        encoded_ND = encode(order_N)
        vectors.append(encoded_ND - plain_ND[order_N])
        answers.append(logits(encoded_ND) - logits(plain_ND))
    return {
        name: float(torch.stack(gaps).abs().max()) for name, gaps in (("token_vectors", vectors), ("logits", answers))
    }
