"""What a model costs: parameters, and floating-point operations of a token, or of a text and its answer."""

from dataclasses import replace

from torch import nn

from manyheads.config import Activation, EncoderKind, ModelConfig, Pooling, Score

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
    Words narrower than d_model (d_embedding) are widened by 2 d_embedding d_model.
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
    widening = 2 * model.width_of_words * model.d_model * (model.width_of_words != model.d_model)
    if model.is_recurrent:
        pooling = _of_key_states(model) + _of_match_of_states(model) if model.pooling is Pooling.attention else 0
        return widening + _of_cells(model, bidirectional=model.bidirectional) + pooling
    n_layers, n_cross = model.n_layers, model.n_cross_layers
    if not n_cross:
        return widening + sum(_of_layer(model, layer, length) for layer in range(n_layers))
    read_apart = sum(_of_layer(model, layer, length / 2) for layer in range(n_layers))
    crossed = sum(_of_layer(model, n_layers + layer, length / 2, across=True) for layer in range(n_cross))
    return widening + read_apart + crossed


def flops_per_answer(model: ModelConfig, source: float, target: float, vocab_size: int) -> float:
    """Operations of one forward pass of a sequence-to-sequence model over texts of so many tokens, all at once.

    Beside the encoder's and those of a causal layer a decoder has in each layer an attention to the source: queries
    and W^O at each target token, keys and values at each source token. The head is 2 d_model `vocab_size` at each
    target token. A recurrent decoder has one attention, behind its layers, and 4 d_model² to join what it finds with
    each state.
    """
    head = 2 * model.d_model * vocab_size
    if model.is_recurrent:
        reads = _of_cells(model, bidirectional=model.bidirectional) + _of_key_states(model)
        maps_query = model.score in (Score.general, *OF_TWO_TOKENS)
        asks = 2 * (maps_query + 2) * model.d_model**2 + source * _of_match_of_states(model)
        return source * reads + target * (_of_cells(model, bidirectional=False) + asks + head)
    total = source * flops_per_token(model, source) + target * head
    for layer in range(model.n_layers):
        score = model.score_of(layer)
        total += target * _of_layer(replace(model, causal=True), layer, target)
        total += target * (_of_query(model, score) + source * _of_match(model, score)) + source * _of_key(model, score)
    return total


def keys_per_query(length: float, *, window: int, causal: bool) -> float:
    """Keys a token of a text of `length` tokens attends to, on average over its places in the text.

    To one side of it there are (length - 1) / 2 on average, and w - w (w + 1) / (2 length) within a window w.
    """
    reach = min(window, length - 1) if window else length - 1
    return 1 + (1 if causal else 2) * (reach - reach * (reach + 1) / (2 * length))


def _of_layer(model: ModelConfig, layer: int, length: float, *, across: bool = False) -> float:
    score = model.score_of(layer)
    keys = length if across else keys_per_query(length, window=model.window_of(layer), causal=model.causal)
    is_gated = model.activation in (Activation.geglu, Activation.swiglu)
    feed_forward = 2 * model.d_model * model.d_ff * (3 if is_gated else 2)
    return _of_query(model, score) + _of_key(model, score) + keys * _of_match(model, score) + feed_forward


def _of_query(model: ModelConfig, score: Score) -> int:
    """W^Q, the score's map of it, and W^O."""
    widths = model.d_k * model.project + model.d_v * model.project_output
    maps = score in (Score.general, *OF_TWO_TOKENS)
    return 2 * model.n_heads * (model.d_model * widths + maps * model.d_k**2)


def _of_key(model: ModelConfig, score: Score) -> int:
    """W^K, the score's map of it, and W^V."""
    maps = {Score.additive: model.kv_heads, Score.concat: model.n_heads}.get(score, 0)
    return 2 * (model.d_model * model.kv_heads * (model.d_k + model.d_v) * model.project + maps * model.d_k**2)


def _of_match(model: ModelConfig, score: Score) -> int:
    """A query and a key of every head, and the value weighed."""
    return 2 * model.n_heads * (model.d_k * (1 + (score in OF_TWO_TOKENS)) + model.d_v)


def _of_cells(model: ModelConfig, *, bidirectional: bool) -> int:
    n_gates, width = 4 if model.encoder is EncoderKind.lstm else 3, model.d_model // (1 + bidirectional)
    return 2 * model.n_layers * n_gates * model.d_model * (model.d_model + width)


def _of_key_states(model: ModelConfig) -> int:
    return 2 * (model.score in OF_TWO_TOKENS) * model.d_model**2


def _of_match_of_states(model: ModelConfig) -> int:
    return 2 * (2 + (model.score in OF_TWO_TOKENS)) * model.d_model
