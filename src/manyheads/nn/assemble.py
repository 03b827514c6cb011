"""ModelConfig to Classifier: the architecture, read downward."""

from dataclasses import replace

from torch import nn

from manyheads.config import ModelConfig, PairKind, Placement, Positions, Segments
from manyheads.config import Pooler as PoolerKind
from manyheads.config import Pooling as PoolingKind
from manyheads.nn.classifier import AttentionPooling, Classifier, Cross, CrossLayer, Pooler, Pooling
from manyheads.nn.embeddings import Alibi, Embeddings, LearnedPositions, Rotary, SinusoidalPositions
from manyheads.nn.init import initialise
from manyheads.nn.multihead import MultiHeadAttention
from manyheads.nn.recurrent import Recurrent, StateAttention, StatePooling
from manyheads.nn.scores import make_score
from manyheads.nn.transformer import Encoder, EncoderLayer, FeedForward, Residual, make_norm


def assemble(
    model: ModelConfig, *, vocab_size: int, n_classes: int, max_length: int, n_segments: int = 0
) -> Classifier:
    """Build the classifier that `model` describes, freshly initialised from torch's generator.

    Args:
        vocab_size, n_classes, max_length: facts learned from the data.
        n_segments: 2 for pairs of texts, 0 for single ones. Texts of a pair that are read apart are single ones.
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
    """With the norm of post-norm models (Devlin et al., 2019) and of those that ask for it (Warner et al., 2024)."""
    width, is_normed = model.width_of_words, model.placement is Placement.post or model.norm_embedding
    added = {Positions.sinusoidal: SinusoidalPositions, Positions.learned: LearnedPositions}.get(model.positions)
    return Embeddings(
        vocab_size=vocab_size,
        d_model=model.d_model,
        positions=None if added is None else added(max_length=max_length, d_model=width),
        n_segments=n_segments,
        norm=any_norm(model, width) if is_normed else nn.Identity(),
        dropout=model.dropout_at("embedding"),
        dropout_tokens=model.dropout_tokens,
        d_embedding=model.d_embedding,
        matches=model.matches,
    )


def encoder(model: ModelConfig, max_length: int) -> Encoder | Recurrent:
    if model.is_recurrent:
        return recurrent(model, bidirectional=model.bidirectional)
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


def recurrent(model: ModelConfig, *, bidirectional: bool) -> Recurrent:
    return Recurrent(
        kind=model.encoder.name,
        d_model=model.d_model,
        n_layers=model.n_layers,
        bidirectional=bidirectional,
        bias=model.bias,
        dropout=model.dropout_at("residual"),
    )


def cross(model: ModelConfig) -> Cross:
    """What two texts that were read apart go through together."""
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
    """Attention of layer `layer`, from 0, within texts of at most `max_length` tokens; or, where that is None, to
    another text: a place there is neither near nor before a place here."""
    rotary, alibi, window = None, None, 0
    if max_length is not None:
        window = model.window_of(layer)
        if model.positions is Positions.rotary:
            rotary = Rotary(max_length=max_length, d_k=model.d_k, base=model.rotary_base_of(layer))
        elif model.positions is Positions.alibi:
            alibi = Alibi(n_heads=model.n_heads)
    n_heads, n_kv_heads, d_k = model.n_heads, model.kv_heads, model.d_k
    return MultiHeadAttention(
        d_model=model.d_model,
        n_heads=n_heads,
        d_k=d_k,
        d_v=model.d_v,
        n_kv_heads=n_kv_heads,
        bias=model.bias,
        dropout=model.dropout_attention,
        rotary=rotary,
        alibi=alibi,
        score=make_score(
            model.score_of(layer).name, n_heads=n_heads, n_kv_heads=n_kv_heads, d_k=d_k, scale=model.scale
        ),
        normaliser=model.normaliser.name,
        window=window,
        causal=causal,
        project=model.project,
        project_output=model.project_output,
        qk_norm=model.qk_norm,
    )


def state_attention(model: ModelConfig) -> StateAttention:
    """The one attention of a recurrent model: one head as wide as a state."""
    return StateAttention(
        d_model=model.d_model,
        score=make_score(model.score.name, n_heads=1, n_kv_heads=1, d_k=model.d_model, scale=model.scale),
        normaliser=model.normaliser.name,
        dropout=model.dropout_attention,
    )


def feed_forward(model: ModelConfig) -> FeedForward:
    return FeedForward(d_model=model.d_model, d_ff=model.d_ff, activation=model.activation.name, bias=model.bias)


def pooling(model: ModelConfig) -> nn.Module:
    """Tokens to one vector."""
    if model.pooling is not PoolingKind.attention:
        pool: nn.Module = Pooling(model.pooling.name)
    elif model.is_recurrent:
        pool = StatePooling(state_attention(model), bidirectional=model.bidirectional)
    else:
        pool = AttentionPooling(model.d_model)
    if model.pooler is PoolerKind.none:
        return pool
    activation, _, with_norm = model.pooler.name.partition("_")
    norm = any_norm(model, model.d_model) if with_norm else nn.Identity()
    return Pooler(pool, d_model=model.d_model, activation=activation, norm=norm, bias=model.bias)


def residual(model: ModelConfig, block: nn.Module, *, is_normed: bool = False) -> Residual:
    """A block of a layer, with what stands before and after it; what `is_normed` already is not normed before it."""
    return Residual(
        block,
        before=nn.Identity() if is_normed else norm(model, Placement.pre, Placement.both),
        after=norm(model, Placement.post, Placement.both),
        dropout=model.dropout_at("residual"),
    )


def norm(model: ModelConfig, *where: Placement) -> nn.Module:
    """A norm in models of these placements, nothing in others."""
    return any_norm(model, model.d_model) if model.placement in where else nn.Identity()


def any_norm(model: ModelConfig, width: int) -> nn.Module:
    return make_norm(model.norm.name, width, model.norm_eps, bias=model.norm_bias)
