"""The formula step by step, and that it does not see order.

What each product is, its shape, and that our blocks compute the same: NumPy transcribes the papers with a token a row,
Q = X W^Q; the blocks are those of manyheads.nn. Exchange the tokens and the same vectors come out, exchanged:
positions, a causal mask or a window end that.

T, N tokens . B documents . D d_model . H heads . K d_k . V d_v
"""

import math
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from manyheads.config import ExplainConfig, ModelConfig, Pooling, Positions
from manyheads.explain.drawing import BLUE, INK, RED, draw, png
from manyheads.explain.explain import Finding
from manyheads.explain.models import model_of
from manyheads.layout import Packed
from manyheads.nn import Classifier, assemble
from manyheads.nn.multihead import MultiHeadAttention

T, D_MODEL, N_HEADS, D_K, D_V = 7, 16, 4, 6, 5  # all different, so that a shape tells which it is
WIDTHS = [16, 64, 256, 1024]  # of the parameter-free form
N_TEXTS = 50
Array = np.ndarray
N_TOKENS, N_ORDERS = 16, 20
VOCAB = 50
CASES = {
    "no positions": {},
    "no positions, in float32": {},
    "sinusoidal": {"positions": Positions.sinusoidal},
    "sinusoidal, each token keeps its own": {"positions": Positions.sinusoidal},
    "learned": {"positions": Positions.learned},
    "rotary": {"positions": Positions.rotary},
    "alibi": {"positions": Positions.alibi},
    "no positions, causal": {"causal": True},
    "no positions, window of 2": {"window": 2},
}


def formula(config: ExplainConfig) -> Finding:
    """Walk one text of seven tokens through four heads, then through attention without any weights."""
    torch.manual_seed(config.seed)
    layer = MultiHeadAttention(d_model=D_MODEL, n_heads=N_HEADS, d_k=D_K, d_v=D_V, bias=False)
    x_TD = torch.randn(T, D_MODEL)
    ours, steps = compute(layer, x_TD), transcribe(x_TD.numpy(), *weights_of(layer))
    worst = max(float(np.abs(ours[name] - steps[name]).max()) for name in ours)
    shapes = {name: list(steps[name].shape) for name in steps}
    free = [parameter_free(width, config.seed) for width in WIDTHS]
    says = (
        f"the blocks and the transcribed formula differ by {worst:.0e} at most, from X {T}x{D_MODEL} to Y {T}x{D_MODEL}"
    )
    numbers = {
        "tokens": T,
        "d_model": D_MODEL,
        "n_heads": N_HEADS,
        "d_k": D_K,
        "d_v": D_V,
        "shapes": shapes,
        "largest_difference": worst,
        "parameter_free": free,
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
    drawn = steps | {"K_1^T": steps["K_1"].T}
    lines = [
        ["X", "·", "W_1^Q", " ", "W_1^K", " ", "W_1^V", "=", "Q_1", " ", "K_1", " ", "V_1"],
        ["Q_1", "·", "K_1^T", "/ √6  =", "S_1", "softmax\nof each row", "A_1", "·", "V_1", "=", "Z_1"],
        ["Z", "·", "W^O", "=", "Y"],
    ]
    gaps = {" ": 1.2, "·": 2.4, "=": 2.6, "/ √6  =": 4.8, "softmax\nof each row": 7.0}
    figure, panels = draw(1, 1, width=9.6, height=8.3)
    axes, top, widest = panels[0, 0], 0.0, 0.0
    for line in lines:
        left, tallest = 0.0, max(len(drawn[name]) for name in line if name in drawn)
        for name in line:
            middle = top - tallest / 2
            if name in drawn:
                _draw_matrix(axes, name, drawn[name], left, middle)
            else:
                axes.text(left + gaps[name] / 2, middle, name, ha="center", va="center", fontsize=11, color=INK)
            left += drawn[name].shape[1] if name in drawn else gaps[name]
        widest, top = max(widest, left), top - tallest - 4.6
    axes.set(xlim=(-0.5, widest + 0.5), ylim=(top + 2.6, 2.2), aspect="equal")
    axes.axis("off")
    return png(figure)


def _draw_matrix(axes: Any, name: str, values: Array, left: float, middle: float) -> None:
    rows, columns = values.shape
    largest = float(np.abs(values).max())
    low, colours = (0.0, "Blues") if name == "A_1" else (-largest, "RdBu_r")
    extent = (left, left + columns, middle - rows / 2, middle + rows / 2)
    axes.imshow(values, cmap=colours, vmin=low, vmax=largest, extent=extent)
    title = "$[Z_1\\ Z_2\\ Z_3\\ Z_4]$" if name == "Z" else f"${name}$"
    centre, above, below = left + columns / 2, middle + rows / 2 + 0.3, middle - rows / 2 - 0.4
    axes.text(centre, above, title, ha="center", va="bottom", fontsize=11, color=INK)
    axes.text(centre, below, f"{rows} x {columns}", ha="center", va="top", fontsize=8, color=INK)


def order(config: ExplainConfig) -> Finding:
    """Largest difference between the encoded exchange and the exchanged encoding, over twenty orders of 16 tokens."""
    numbers = {}
    for case, settings in CASES.items():
        torch.manual_seed(config.seed)
        dtype = torch.float32 if "float32" in case else torch.float64
        numbers[case] = differences(
            build(model_of({"positions": Positions.none} | settings)).to(dtype),
            carried="keeps its own" in case,
            random=torch.Generator().manual_seed(config.seed),
        )
    without, with_them = numbers["no positions"]["token_vectors"], numbers["sinusoidal"]["token_vectors"]
    says = f"exchanged tokens change the encoder by {without:.1e} without positions, by {with_them:.1f} with sinusoidal"
    return Finding(
        says, {"n_tokens": N_TOKENS, "orders": N_ORDERS, "cases": numbers}, {"order": _order_picture(numbers)}
    )


def build(model: ModelConfig) -> Classifier:
    """Untrained, as training would start it, and mean-pooled."""
    model.pooling = Pooling.mean
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
    worst = {"token_vectors": 0.0, "logits": 0.0}
    for _ in range(N_ORDERS):
        order_N = torch.randperm(N_TOKENS, generator=random)
        encoded_ND = encode(order_N)
        for key, gap in (
            ("token_vectors", encoded_ND - plain_ND[order_N]),
            ("logits", logits(encoded_ND) - logits(plain_ND)),
        ):
            worst[key] = max(worst[key], float(gap.abs().max()))
    return worst


def _order_picture(numbers: dict[str, dict[str, float]]) -> bytes:
    figure, panels = draw(1, 1, width=7.6, height=3.6)
    axes = panels[0, 0]
    cases = list(numbers)[::-1]
    errors = [numbers[case]["token_vectors"] for case in cases]
    axes.barh(cases, errors, color=[RED if error > 1e-3 else BLUE for error in errors], height=0.62)
    for row, error in enumerate(errors):
        axes.text(error * 1.6, row, f"{error:.0e}" if error < 1e-3 else f"{error:.2f}", va="center", fontsize=8)
    axes.set(xscale="log", xlim=(1e-17, 1e3), xlabel="largest difference of a number in a token vector")
    axes.bar(0, 0, color=BLUE, label="the same vectors, exchanged")
    axes.bar(0, 0, color=RED, label="other vectors: order is seen")
    axes.legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0)
    axes.grid(False, axis="y")
    axes.grid(True, axis="x", color="#e6e9ef", linewidth=0.8)
    return png(figure)
