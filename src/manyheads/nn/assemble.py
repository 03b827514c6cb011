"""ModelConfig to Classifier: `assemble` builds the blocks, `initialise` draws all weights, and the rest counts what a
model costs in parameters and floating-point operations.

The table of initialisations:

words, positions, segments   normal, standard deviation d_model^-1/2; words are multiplied by √d_model
                             when read, so a word vector has unit variance (Vaswani et al., 2017, section 3.4)
W^Q, W^K, W^V, W1, W3        Xavier uniform, each matrix by itself although they are stored side by side
W, U and v of a score        Xavier uniform, each head's matrix by itself
W^O, W2                      the same, divided by √n of the n residual blocks of their stack, 2 a layer in an encoder
                             and 3 in a decoder: the residual stream keeps its size (Radford et al., 2019, "GPT-2",
                             section 2.3)
a user's part                as its own constructor made it
recurrent layers             each gate by itself: Xavier uniform from the input, orthogonal from the state
                             (Saxe et al., 2014)
the head, other matrices     Xavier uniform
biases zero, that of an LSTM's forget gate one (Jozefowicz et al., 2015, section 2.2); norms one
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

import manyheads.plugin as plugin
from manyheads.config import ModelConfig, PairKind, Placement, Segments
from manyheads.config import Pooler as PoolerKind
from manyheads.nn.attention import make_score
from manyheads.nn.classifier import Classifier, Cross, CrossLayer, Pooler, Pooling
from manyheads.nn.embeddings import Embeddings
from manyheads.nn.multihead import MultiHeadAttention
from manyheads.nn.parts import make_block
from manyheads.nn.transformer import Decoder, Encoder, EncoderLayer, FeedForward, Residual


@torch.no_grad()
def initialise(model: nn.Module, *, zero_output: bool = False) -> None:
    """Draw all weights of a model or of a single block from torch's global generator, by the table above.

    Args:
        model: changed in place.
        zero_output: set W^O and W2 to zero, so that a fresh layer returns its input: Zhang et al. (2019), "Fixup",
            section 3.
    """
    shrink = dict.fromkeys(model.modules(), 0.0) if zero_output else {}
    for stack in model.modules() if not zero_output else ():
        if isinstance(stack, Encoder | Decoder | Cross):
            blocks = [module.block for module in stack.modules() if isinstance(module, Residual)]
            shrink |= dict.fromkeys(blocks, 1 / math.sqrt(len(blocks)))
    users = {module for part in model.modules() if hasattr(part, "own_part") for module in part.modules()}
    drawn = {*users}
    for module in model.modules():
        if module in users:
            continue
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
        elif isinstance(module, MultiHeadAttention):
            if module.project is not None:
                _draw(module.project, blocks=module.widths)
            if isinstance(module.output, nn.Linear):
                _draw(module.output, gain=shrink.get(module, 1.0))
        elif isinstance(module, FeedForward):
            width = module.widen.out_features
            _draw(module.widen, blocks=(width // 2, width // 2) if module.is_gated else (width,))
            _draw(module.narrow, gain=shrink.get(module, 1.0))
        elif init_weights := getattr(module, "init_weights", None):  # a score, or recurrent cells
            init_weights()
        if isinstance(module, MultiHeadAttention | FeedForward):
            drawn.update(module.children())
    for module in reversed(list(model.modules())):  # other matrices, from the head down: the order fixes the bits
        if isinstance(module, nn.Linear) and module not in drawn:
            _draw(module)


def _draw(linear: nn.Linear, *, blocks: tuple[int, ...] | None = None, gain: float = 1.0) -> None:
    """Xavier uniform for each of the matrices that are concatenated in a weight, of `blocks` rows each; bias zero."""
    weights: tuple[Tensor, ...] = linear.weight.split(blocks or (linear.out_features,))
    for weight in weights:
        nn.init.xavier_uniform_(weight, gain=gain)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)


def assemble(
    model: ModelConfig, *, vocab_size: int, n_classes: int, max_length: int, n_segments: int = 0
) -> Classifier:
    """The classifier that `model` describes, with fresh weights from torch's global generator.

    Args:
        model: the settings `model.*`.
        vocab_size: V, the number of token ids.
        n_classes: C, the number of classes or labels.
        max_length: the longest text, in tokens.
        n_segments: 2 for pairs of texts, 0 for single ones.
    """
    model = model if n_segments else replace(model, matches=False)
    across, unmarked = model.pair is PairKind.cross, model.segments is Segments.never
    assert n_segments or not across, "checks.check_pair comes first"
    classifier = Classifier(
        embeddings=embeddings(
            model,
            vocab_size=vocab_size,
            max_length=max_length,
            n_segments=2 if model.segments is Segments.always else 0 if across or unmarked else n_segments,
        ),
        encoder=encoder(model, max_length),
        cross=cross(model) if across else None,
        pooling=pooling(model),
        dropout=model.dropout_at("classifier"),
        head=nn.Linear((4 if across else 1) * model.d_model, n_classes),
    )
    initialise(classifier, zero_output=model.zero_output)
    return classifier


def embeddings(model: ModelConfig, *, vocab_size: int, max_length: int, n_segments: int = 0) -> Embeddings:
    """Token embeddings; with a norm in post-norm models (Devlin et al., 2019) and with `model.norm_embedding` (Warner
    et al., 2024, "ModernBERT")."""
    width, is_normed = model.width_of_words, model.placement is Placement.post or model.norm_embedding
    is_added = model.facts("positions").get("enters", "embedding") == "embedding"
    return Embeddings(
        vocab_size=vocab_size,
        d_model=model.d_model,
        positions=_positions(model, max_length=max_length, d_model=width) if is_added else None,
        n_segments=n_segments,
        norm=any_norm(model, width) if is_normed else nn.Identity(),
        dropout=model.dropout_at("embedding"),
        dropout_tokens=model.dropout_tokens,
        d_embedding=model.d_embedding,
        matches=model.matches,
    )


def _positions(model: ModelConfig, **numbers: Any) -> Any:
    return make_block("positions", model.positions, model.options("positions"), **numbers)


def encoder(model: ModelConfig, max_length: int) -> nn.Module:
    return make_block(
        "encoder",
        model.encoder,
        model.options("encoder"),
        model=model,
        max_length=max_length,
        d_model=model.d_model,
        n_layers=model.n_layers,
        n_heads=model.n_heads,
        d_k=model.d_k,
        d_v=model.d_v,
        d_ff=model.d_ff,
        bias=model.bias,
        dropout=model.dropout_at("residual"),
    )


def transformer(*, model: ModelConfig, max_length: int) -> Encoder:
    layers = [
        EncoderLayer(
            attention=residual(
                model,
                attention(model, layer, max_length=max_length, causal=model.causal),
                is_normed=model.norm_embedding and layer == 0,
            ),
            feed_forward=residual(model, feed_forward(model)),
        )
        for layer in range(model.n_layers)
    ]
    return Encoder(layers, norm=norm(model, Placement.pre))


def cross(model: ModelConfig) -> Cross:
    """The cross layers of `model.pair=cross`."""
    layers = [
        CrossLayer(
            attention=residual(model, attention(model, model.n_layers + layer)),
            feed_forward=residual(model, feed_forward(model)),
        )
        for layer in range(model.n_cross_layers)
    ]
    return Cross(layers, norm=norm(model, Placement.pre))


def attention(
    model: ModelConfig, layer: int, *, max_length: int | None = None, causal: bool = False
) -> MultiHeadAttention:
    """The attention block of layer `layer`, from 0.

    Args:
        max_length: the longest text, in tokens; None for cross-attention, which has no window and no positions, since
            distances between tokens of two texts mean nothing.
    """
    n_heads, n_kv_heads, d_k = model.n_heads, model.kv_heads, model.d_k
    window, entering, enters = 0, None, model.facts("positions").get("enters")
    if max_length is not None:
        window, base = model.window_of(layer), model.rotary_base_of(layer)
        if enters in ("queries", "scores"):
            numbers = {"max_length": max_length, "n_heads": n_heads, "d_k": d_k, "base": base}
            entering = _positions(model, **numbers)
    return MultiHeadAttention(
        d_model=model.d_model,
        n_heads=n_heads,
        d_k=d_k,
        d_v=model.d_v,
        n_kv_heads=n_kv_heads,
        bias=model.bias,
        dropout=model.dropout_attention,
        rotary=entering if enters == "queries" else None,
        alibi=entering if enters == "scores" else None,
        score=make_score(
            model.score_of(layer),
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            d_k=d_k,
            scale=model.scale,
            options=model.options("score", model.score_of(layer)),
        ),
        normaliser=make_block("normaliser", model.normaliser, model.options("normaliser")),
        window=window,
        causal=causal,
        project=model.project,
        project_output=model.project_output,
        qk_norm=model.qk_norm,
    )


def feed_forward(model: ModelConfig) -> FeedForward:
    return FeedForward(
        d_model=model.d_model,
        d_ff=model.d_ff,
        activation=model.activation,
        options=model.options("activation"),
        bias=model.bias,
    )


def pooling(model: ModelConfig) -> nn.Module:
    """The pooling: the token vectors of a document to one vector."""
    own = model.facts("encoder").get("poolings", {}).get(model.pooling)
    options = model.options("pooling")
    pool = plugin.resolve(own)(model) if own else make_block("pooling", model.pooling, options, d_model=model.d_model)
    pool = pool if isinstance(pool, nn.Module) else Pooling(pool)
    if model.pooler is PoolerKind.none:
        return pool
    activation, _, with_norm = model.pooler.name.partition("_")
    norm = any_norm(model, model.d_model) if with_norm else nn.Identity()
    return Pooler(pool, d_model=model.d_model, activation=activation, norm=norm, bias=model.bias)


def residual(model: ModelConfig, block: nn.Module, *, is_normed: bool = False) -> Residual:
    """A residual block with the norms of `model.placement`; without one before it if its input `is_normed` already."""
    return Residual(
        block,
        before=nn.Identity() if is_normed else norm(model, Placement.pre, Placement.both),
        after=norm(model, Placement.post, Placement.both),
        dropout=model.dropout_at("residual"),
    )


def norm(model: ModelConfig, *where: Placement) -> nn.Module:
    """A norm if `model.placement` is one of these, else the identity."""
    return any_norm(model, model.d_model) if model.placement in where else nn.Identity()


def any_norm(model: ModelConfig, width: int) -> nn.Module:
    options = model.options("norm")
    return make_block("norm", model.norm, options, d_model=width, eps=model.norm_eps, bias=model.norm_bias)


def count_parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def mean_flops(model: ModelConfig, texts: Iterable[tuple[int, int, int]], *, pooled: bool = True) -> float:
    """`flops_per_token`, averaged over the tokens of all texts.

    Args:
        texts: (tokens of a text, those of them in the second text of a pair, number of such texts).
        pooled: whether the tokens are pooled to one vector, as in a classifier.
    """
    total = n_tokens = 0.0
    for length, second, n_texts in texts:
        n_tokens += length * n_texts
        total += length * n_texts * flops_per_token(model, length, second, pooled=pooled)
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
    With model.pair=cross two texts have `length` tokens together and one more is read, since both have a [CLS]. A layer
    reads each text alone; in a cross layer each token attends to all tokens of the other text.
    A recurrent layer has 2 g d_model (d_model + h) for its g gates (GRU 3, LSTM 4), h being the width of a direction:
    d_model, or half of it. Pooling by attention over its states adds 2 d_model² where the score maps each key
    (additive, concat), then the score and the sum as above, d_k and d_v being d_model.
    Softmax, norms, biases and what is computed once a text are not counted. A backward pass costs twice as much again
    (Kaplan et al., 2020, "Scaling Laws", section 2.1).

    Args:
        second: the number of tokens in the second text of a pair; None: half of them, without [CLS].
        pooled: see `mean_flops`.
    """
    each = 2 * model.width_of_words * model.d_model * (model.width_of_words != model.d_model)
    if not model.has_heads:
        count = model.facts("encoder").get("flops")
        if count:
            return each + plugin.resolve(count)(model, pooled=pooled)
        with torch.device("meta"):  # two for each weight
            each += 2 * count_parameters(encoder(model, max_length=int(length) + 1))
        return each + model.facts("pooling").get("flops", 0) * model.d_model * pooled
    each += model.facts("pooling").get("flops", 0) * model.d_model * pooled
    n_layers, n_cross = model.n_layers, model.n_cross_layers
    if not n_cross:
        return each + sum(_of_layer(model, layer, length) for layer in range(n_layers))
    second = (length - 1) / 2 if second is None else second
    total, lengths = 0.0, (length - second, second + 1)
    for own, other in (lengths, lengths[::-1]):
        apart = sum(_of_layer(model, layer, own) for layer in range(n_layers))
        crossed = sum(_of_layer(model, n_layers + layer, other, across=True) for layer in range(n_cross))
        total += own * (each + apart + crossed)
    return total / length


def flops_per_answer(model: ModelConfig, source: float, target: float, vocab_size: int) -> float:
    """Operations of one forward pass of a sequence-to-sequence model, all target tokens at once.

    In addition to the encoder's operations and those of causal layers, a decoder layer has a cross-attention: queries
    and W^O for each target token, keys and values for each source token. The head has 2 d_model `vocab_size` for each
    target token. A recurrent decoder has one cross-attention, after its layers, and 4 d_model² to combine its output
    with each state.

    Args:
        source, target: lengths of the texts, in tokens.
    """
    head = 2 * model.d_model * vocab_size
    if not model.has_heads:
        return plugin.resolve(model.facts("encoder")["flops_of_answer"])(model, source, target) + target * head
    total = source * flops_per_token(model, source, pooled=False) + target * head
    for layer in range(model.n_layers):
        score = model.score_of(layer)
        total += target * _of_layer(replace(model, causal=True), layer, target)
        total += target * (_of_query(model, score) + source * _of_match(model, score)) + source * _of_key(model, score)
    return total


def keys_per_query(length: float, *, window: int, causal: bool) -> float:
    """The number of keys that a token attends to, averaged over its positions in a text of `length` tokens.

    On one side of it there are (length - 1) / 2 on average, or w - w (w + 1) / (2 length) within a window w.
    """
    reach = min(window, length - 1) if window else length - 1
    return 1 + (1 if causal else 2) * (reach - reach * (reach + 1) / (2 * length))


def _of_layer(model: ModelConfig, layer: int, length: float, *, across: bool = False) -> float:
    score = model.score_of(layer)
    keys = length if across else keys_per_query(length, window=model.window_of(layer), causal=model.causal)
    feed_forward = 2 * model.d_model * model.d_ff * (3 if model.facts("activation").get("gated") else 2)
    return _of_query(model, score) + _of_key(model, score) + keys * _of_match(model, score) + feed_forward


def _of_query(model: ModelConfig, score: str) -> int:
    """Operations for a query: W^Q, the score's map of it, and W^O."""
    widths = model.d_k * model.project + model.d_v * model.project_output
    maps = plugin.find("score", score).facts.get("maps_query", False)
    return 2 * model.n_heads * (model.d_model * widths + maps * model.d_k**2)


def _of_key(model: ModelConfig, score: str) -> int:
    """Operations for a key: W^K, the score's map of it, and W^V."""
    heads = plugin.find("score", score).facts.get("maps_key", "")
    maps = getattr(model, heads) if heads else 0
    return 2 * (model.d_model * model.kv_heads * (model.d_k + model.d_v) * model.project + maps * model.d_k**2)


def _of_match(model: ModelConfig, score: str) -> int:
    """Operations for a pair of query and key, in all heads: the score, and the weighted value."""
    is_sum = plugin.find("score", score).facts.get("is_sum", False)
    return 2 * model.n_heads * (model.d_k * (1 + is_sum) + model.d_v)
