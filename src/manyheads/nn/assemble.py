"""ModelConfig to Classifier: `assemble` builds the blocks, `initialise` draws all weights.

The blocks take plain numbers; which settings they follow from is decided here and nowhere else. cost.py counts what a
model costs.

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
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

import manyheads.plugin as plugin
from manyheads.config import ModelConfig, PairKind, Placement, Segments
from manyheads.config import Pooler as PoolerKind
from manyheads.nn.attention import make_score
from manyheads.nn.classifier import Classifier, Pooler, Pooling
from manyheads.nn.embeddings import Embeddings
from manyheads.nn.multihead import MultiHeadAttention
from manyheads.nn.pairs import Cross, CrossLayer, comparison, pair_features
from manyheads.nn.parts import make_block
from manyheads.nn.transformer import Encoder, EncoderLayer, FeedForward, Residual, Stack


@torch.no_grad()
def initialise(model: nn.Module, *, zero_output: bool = False) -> None:
    """Draw all weights of a model or of a single block from torch's global generator, by the table above.

    Args:
        model: changed in place.
        zero_output: set W^O and W2 to zero, so that a fresh layer returns its input: Zhang et al. (2019), "Fixup",
            section 3.
    """
    gains = _output_gains(model)
    users = set[nn.Module]()  # the modules of users' parts, which stay as their constructors made them
    for part in model.modules():
        if hasattr(part, "own_part"):
            users.update(part.modules())
    drawn = {*users}
    for module in model.modules():
        if module in users:
            continue
        gain = 0.0 if zero_output else gains.get(module, 1.0)
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
        elif isinstance(module, MultiHeadAttention):
            if module.project is not None:
                _draw(module.project, blocks=module.widths)
            if isinstance(module.output, nn.Linear):
                _draw(module.output, gain=gain)
            drawn.update(one for one in (module.project, module.output) if one is not None)
        elif isinstance(module, FeedForward):
            width = module.widen.out_features
            blocks = (width // 2, width // 2) if module.is_gated else (width,)
            _draw(module.widen, blocks=blocks)
            _draw(module.narrow, gain=gain)
            drawn.update(module.children())
        elif init_weights := getattr(module, "init_weights", None):  # a score, or recurrent cells
            init_weights()
    for module in reversed(list(model.modules())):  # other matrices, from the head down: the order fixes the bits
        if isinstance(module, nn.Linear) and module not in drawn:
            _draw(module)


def _output_gains(model: nn.Module) -> dict[nn.Module, float]:
    """The gain of the last matrix of each residual block: 1 / √n of the n blocks of its stack."""
    gains: dict[nn.Module, float] = {}
    for stack in model.modules():
        if isinstance(stack, Stack | Cross):
            blocks = [module.block for module in stack.modules() if isinstance(module, Residual)]
            gains |= dict.fromkeys(blocks, 1 / math.sqrt(max(1, len(blocks))))
    return gains


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
    if not n_segments:
        model = replace(model, matches=False)
    is_apart = model.reads_apart  # then each text is encoded alone, and the head sees how they compare
    assert n_segments or not is_apart, "checks.check_rows comes first"
    if model.segments is Segments.always:
        n_segments = 2
    elif is_apart or model.segments is Segments.never:
        n_segments = 0
    classifier = Classifier(
        embeddings=embeddings(model, vocab_size=vocab_size, max_length=max_length, n_segments=n_segments),
        encoder=encoder(model, max_length),
        cross=cross(model) if is_apart else None,
        pooling=pooling(model),
        dropout=model.dropout_at("classifier"),
        head=nn.Linear(head_width(model), n_classes),
    )
    initialise(classifier, zero_output=model.zero_output)
    return classifier


def head_width(model: ModelConfig) -> int:
    """The length of what the head sees of a document."""
    if model.pair is PairKind.cross:
        return 4 * model.d_model
    return 3 * model.d_model + 1 if model.pair is PairKind.compare else model.d_model


def embeddings(model: ModelConfig, *, vocab_size: int, max_length: int, n_segments: int = 0) -> Embeddings:
    """Token embeddings; with a norm in post-norm models (Devlin et al., 2019) and with `model.norm_embedding` (Warner
    et al., 2024, "ModernBERT")."""
    width = model.width_of_words
    positions = None
    if _positions_enter(model) == "embedding":
        positions = _positions(model, max_length=max_length, d_model=width)
    is_normed = model.placement is Placement.post or model.norm_embedding
    return Embeddings(
        vocab_size=vocab_size,
        d_model=model.d_model,
        positions=positions,
        n_segments=n_segments,
        norm=any_norm(model, width) if is_normed else nn.Identity(),
        dropout=model.dropout_at("embedding"),
        dropout_tokens=model.dropout_tokens,
        d_embedding=model.d_embedding,
        matches=model.matches,
    )


def _positions_enter(model: ModelConfig) -> str:
    """Where positions enter the model: at the "embedding", the "queries" and keys, or the "scores"."""
    return model.facts("positions").get("enters", "embedding")


def _positions(model: ModelConfig, **numbers: Any) -> Any:
    return make_block("positions", model.positions, model.options("positions"), **numbers)


def encoder(model: ModelConfig, max_length: int) -> nn.Module:
    """The encoder that `model.encoder` names: the Transformer below, or that of a plugin."""
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


def transformer(
    *, model: ModelConfig, max_length: int, attention: Callable[..., MultiHeadAttention] = MultiHeadAttention
) -> Encoder:
    """The Transformer's encoder; `attention` makes the block of a layer, as `MultiHeadAttention` does."""
    layers = []
    for layer in range(model.n_layers):
        is_normed = model.norm_embedding and layer == 0
        block = attention_block(model, layer, max_length=max_length, causal=model.causal, make=attention)
        layers.append(
            EncoderLayer(
                attention=residual(model, block, is_normed=is_normed),
                feed_forward=residual(model, feed_forward(model)),
            )
        )
    return Encoder(layers, norm=norm(model, Placement.pre))


def cross(model: ModelConfig) -> Cross:
    """What reads two texts apart: with `model.pair=compare`, or without heads, it has no layers."""
    layers = [
        CrossLayer(
            attention=residual(model, attention_block(model, model.n_layers + layer)),
            feed_forward=residual(model, feed_forward(model)),
        )
        for layer in range(model.n_cross_layers)
    ]
    return Cross(
        layers,
        norm=norm(model, Placement.pre) if layers else nn.Identity(),
        compare=comparison if model.pair is PairKind.compare else pair_features,
    )


def attention_block(
    model: ModelConfig,
    layer: int,
    *,
    max_length: int | None = None,
    causal: bool = False,
    make: Callable[..., MultiHeadAttention] = MultiHeadAttention,
) -> MultiHeadAttention:
    """The attention block of layer `layer`, from 0.

    Args:
        max_length: the longest text, in tokens; None for cross-attention, which has no window and no positions, since
            distances between tokens of two texts mean nothing.
        make: called with the arguments of `MultiHeadAttention`.
    """
    score, enters = model.score_of(layer), _positions_enter(model)
    window, positions = 0, None
    if max_length is not None:
        window = model.window_of(layer)
        if enters in ("queries", "scores"):
            positions = _positions(
                model,
                max_length=max_length,
                n_heads=model.n_heads,
                d_k=model.d_k,
                base=model.rotary_base_of(layer),
            )
    return make(
        d_model=model.d_model,
        n_heads=model.n_heads,
        d_k=model.d_k,
        d_v=model.d_v,
        n_kv_heads=model.kv_heads,
        bias=model.bias,
        dropout=model.dropout_attention,
        rotary=positions if enters == "queries" else None,
        alibi=positions if enters == "scores" else None,
        score=make_score(
            score,
            n_heads=model.n_heads,
            n_kv_heads=model.kv_heads,
            d_k=model.d_k,
            scale=model.scale,
            options=model.options("score", score),
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
    of_encoder = model.facts("encoder").get("poolings", {}).get(model.pooling)  # an encoder may bring its own
    if of_encoder:
        pool = plugin.resolve(of_encoder)(model)
    else:
        pool = make_block("pooling", model.pooling, model.options("pooling"), d_model=model.d_model)
    if not isinstance(pool, nn.Module):
        pool = Pooling(pool)
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
    """The norm that `model.norm` names, wherever it is placed."""
    options = model.options("norm")
    return make_block("norm", model.norm, options, d_model=width, eps=model.norm_eps, bias=model.norm_bias)
