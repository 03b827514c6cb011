"""Attention does not see order: exchange the tokens and the same vectors come out, exchanged.

Positions, a causal mask or a window end that. B documents . N tokens . D d_model
"""

import torch
from torch import Tensor

from manyheads.config import ModelConfig, Pooling, Positions
from manyheads.config.explain import ExplainConfig
from manyheads.explain.drawing import BLUE, RED, draw, png
from manyheads.explain.finding import Finding
from manyheads.explain.recipe import model_of
from manyheads.layout import Packed
from manyheads.nn import Classifier, assemble

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
    return Finding(says, {"n_tokens": N_TOKENS, "orders": N_ORDERS, "cases": numbers}, {"order": _picture(numbers)})


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


def _picture(numbers: dict[str, dict[str, float]]) -> bytes:
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
