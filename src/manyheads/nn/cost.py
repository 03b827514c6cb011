"""What a model costs: parameters, and floating-point operations of a forward pass."""

from collections.abc import Iterable

import torch
from torch import nn

import manyheads.plugin as plugin
from manyheads.config import ModelConfig, PairKind
from manyheads.nn.assemble import encoder


def count_parameters(module: nn.Module) -> int:
    """Numbers in all weights of a module, frozen ones too."""
    return sum(p.numel() for p in module.parameters())


def mean_flops(model: ModelConfig, texts: Iterable[tuple[int, int, int, int]], *, pooled: bool = True) -> float:
    """`flops_per_token`, averaged over the tokens of all texts.

    Args:
        texts: (tokens of a text, those of them in the second text of a pair, those that `embeddings.is_surplus` names,
            number of such texts).
        pooled: whether the tokens are pooled to one vector, as in a classifier.
    """
    total = n_tokens = 0.0
    for length, second, surplus, n_texts in texts:
        n_tokens += length * n_texts
        n_read = length - surplus if model.pair is PairKind.compare else length
        total += n_read * n_texts * flops_per_token(model, n_read, second, pooled=pooled)
    return total / n_tokens


def flops_per_token(model: ModelConfig, length: float, second: float | None = None, *, pooled: bool = True) -> float:
    """Operations of one forward pass for one token of a text of `length` tokens.

    A product with an m x n matrix is 2 m n operations. So a layer has 2 d_model n_heads (2 d_k + 2 d_v) for W^Q,
    W^K, W^V and W^O (fewer with shared keys and values, with project=false and project_output=false),
    4 d_model d_ff for the feed-forward block (6 where it is gated), and for each head
    - the score's own maps of a query and a key: general 2 d_k², additive and concat 4 d_k²;
    - 2 d_v for each key attended to, and to score it 2 d_k: a product of d_k numbers, or as many differences and
      squares; for additive and concat 4 d_k: a sum, its tanh, and a product with v.
    Words narrower than d_model (d_embedding) are widened by 2 d_embedding d_model.
    Keys attended to are those that a window or a causal mask allows; a kernel that masks the whole grid does more.
    Users' layers count two operations for each of their weights, unless their part has the fact `flops`.
    Pooling by attention takes 4 d_model: a score and a weighted sum.
    With model.pair=cross and compare two texts have `length` tokens together and one more is read, since both have a
    [CLS]. A layer reads each text alone; in a cross layer each token attends to all tokens of the other text.
    A recurrent layer has 2 g d_model (d_model + h) for its g gates (GRU 3, LSTM 4), h being the width of a direction:
    d_model, or half of it. Pooling by attention over its states adds 2 d_model² where the score maps each key
    (additive, concat), then the score and the sum as above, d_k and d_v being d_model.
    Softmax, norms, biases and what is computed once a text are not counted. A backward pass costs twice as much again
    (Kaplan et al., 2020, "Scaling Laws", section 2.1).

    Args:
        second: the number of tokens in the second text of a pair; None: half of them, without [CLS].
        pooled: see `mean_flops`.
    """
    widening = 0
    if model.width_of_words != model.d_model:
        widening = 2 * model.width_of_words * model.d_model
    pooling = model.facts("pooling").get("flops", 0) * model.d_model if pooled else 0
    if not model.has_heads:
        count = model.facts("encoder").get("flops")
        if count:
            return widening + plugin.resolve(count)(model, pooled=pooled)
        with torch.device("meta"):
            n_weights = count_parameters(encoder(model, max_length=int(length) + 1))
        return widening + 2 * n_weights + pooling
    n_layers, n_cross = model.n_layers, model.n_cross_layers
    if not model.reads_apart:
        return widening + pooling + sum(layer_flops(model, layer, length) for layer in range(n_layers))
    if second is None:
        second = (length - 1) / 2
    first_length, second_length = length - second, second + 1
    total = 0.0
    for own, other in ((first_length, second_length), (second_length, first_length)):
        alone = sum(layer_flops(model, layer, own) for layer in range(n_layers))
        across = sum(layer_flops(model, n_layers + layer, other, across=True) for layer in range(n_cross))
        total += own * (widening + pooling + alone + across)
    return total / length


def keys_per_query(length: float, *, window: int, causal: bool) -> float:
    """The number of keys that a token attends to, averaged over its positions in a text of `length` tokens.

    On one side of it there are (length - 1) / 2 on average, or w - w (w + 1) / (2 length) within a window w.
    """
    reach = length - 1
    if window:
        reach = min(window, length - 1)
    on_one_side = reach - reach * (reach + 1) / (2 * length)
    n_sides = 1 if causal else 2
    return 1 + n_sides * on_one_side


def layer_flops(model: ModelConfig, layer: int, length: float, *, across: bool = False) -> float:
    """Operations of a layer for one token, which attends to keys of its own text, or with `across` to all of another
    text of `length` tokens."""
    score = model.score_of(layer)
    n_keys = length
    if not across:
        n_keys = keys_per_query(length, window=model.window_of(layer), causal=model.causal)
    n_matrices = 3 if model.facts("activation").get("gated") else 2
    feed_forward = n_matrices * 2 * model.d_model * model.d_ff
    return query_flops(model, score) + key_flops(model, score) + n_keys * pair_flops(model, score) + feed_forward


def query_flops(model: ModelConfig, score: str) -> int:
    """Operations for a query: W^Q, the score's map of it, and W^O."""
    widths = model.d_k * model.project + model.d_v * model.project_output
    maps = plugin.find("score", score).facts.get("maps_query", False)
    return 2 * model.n_heads * (model.d_model * widths + maps * model.d_k**2)


def key_flops(model: ModelConfig, score: str) -> int:
    """Operations for a key: W^K, the score's map of it, and W^V."""
    heads = plugin.find("score", score).facts.get("maps_key", "")
    maps = getattr(model, heads) if heads else 0
    return 2 * (model.d_model * model.kv_heads * (model.d_k + model.d_v) * model.project + maps * model.d_k**2)


def pair_flops(model: ModelConfig, score: str) -> int:
    """Operations for a pair of query and key, in all heads: the score, and the weighted value."""
    is_sum = plugin.find("score", score).facts.get("is_sum", False)
    return 2 * model.n_heads * (model.d_k * (1 + is_sum) + model.d_v)
