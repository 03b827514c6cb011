"""What a classifier costs: parameters, and floating-point operations of a token."""

from torch import nn

from manyheads.config import Activation, ModelConfig, Pooling, Score
from manyheads.config.model import EncoderKind

OF_TWO_TOKENS = (Score.additive, Score.concat)  # these look at a query and a key together, beyond a product


def count_parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def flops_per_token(model: ModelConfig, length: float) -> float:
    """Operations of one forward pass for one token of a text of `length` tokens.

    A product with an m x n matrix is 2 m n operations. So a layer has 2 d_model n_heads (2 d_k + 2 d_v) for W^Q,
    W^K, W^V and W^O (fewer with shared keys and values, with project=false and project_output=false),
    4 d_model d_ff for the feed-forward block (6 where it is gated), and for each head
    - the score's own maps of a query and a key: general 2 d_k², additive and concat 4 d_k²;
    - 2 d_v for each key attended to, and to score it 2 d_k: a product of d_k numbers, or as many differences and
      squares; for additive and concat 4 d_k: a sum, its tanh, and a product with v.
    Keys attended to are those a window or a causal mask leaves; a kernel that masks the whole grid does more.
    Two texts that are read apart (model.pair=cross) have `length` tokens together, half of them each, [CLS] in both:
    a layer is that of a text of length / 2, and so is a cross layer, in which each token attends to all of the other
    text.
    A recurrent layer has 2 g d_model (d_model + h) for its g gates (GRU 3, LSTM 4), h being the width of a direction:
    d_model, or half of it. Pooling by attention over its states adds 2 d_model² where the score maps each key
    (additive, concat), then the score and the sum as above, d_k and d_v being d_model.
    Softmax, norms, biases and what is done once a text are left out. A backward pass costs twice as much again
    (Kaplan et al., 2020, "Scaling Laws", section 2.1).
    """
    if model.is_recurrent:
        return _of_recurrence(model)
    n_layers, n_cross = model.n_layers, model.n_cross_layers
    if not n_cross:
        return sum(_of_layer(model, layer, length) for layer in range(n_layers))
    read_apart = sum(_of_layer(model, layer, length / 2) for layer in range(n_layers))
    return read_apart + sum(_of_layer(model, n_layers + layer, length / 2, across=True) for layer in range(n_cross))


def keys_per_query(length: float, *, window: int, causal: bool) -> float:
    """Keys a token of a text of `length` tokens attends to, on average over its places in the text.

    To one side of it there are (length - 1) / 2 on average, and w - w (w + 1) / (2 length) within a window w.
    """
    reach = min(window, length - 1) if window else length - 1
    return 1 + (1 if causal else 2) * (reach - reach * (reach + 1) / (2 * length))


def _of_layer(model: ModelConfig, layer: int, length: float, *, across: bool = False) -> float:
    heads, kv_heads, score = model.n_heads, model.kv_heads, model.score_of(layer)
    into = model.d_model * (heads * model.d_k + kv_heads * (model.d_k + model.d_v)) if model.project else 0
    out_of = model.d_model * heads * model.d_v if model.project_output else 0
    maps = {Score.general: heads, Score.additive: heads + kv_heads, Score.concat: 2 * heads}.get(score, 0)
    is_gated = model.activation in (Activation.geglu, Activation.swiglu)
    feed_forward = model.d_model * model.d_ff * (3 if is_gated else 2)
    keys = length if across else keys_per_query(length, window=model.window_of(layer), causal=model.causal)
    of_pair = model.d_k * (2 if score in OF_TWO_TOKENS else 1) + model.d_v
    return 2 * (into + out_of + maps * model.d_k**2 + feed_forward + heads * keys * of_pair)


def _of_recurrence(model: ModelConfig) -> int:
    d_model, n_gates = model.d_model, 4 if model.encoder is EncoderKind.lstm else 3
    width = d_model // 2 if model.bidirectional else d_model
    cells = model.n_layers * n_gates * d_model * (d_model + width)
    if model.pooling is not Pooling.attention:
        return 2 * cells
    looks_at_both = model.score in OF_TWO_TOKENS
    return 2 * (cells + looks_at_both * d_model**2 + (3 if looks_at_both else 2) * d_model)
