"""DeBERTa's encoder: what a query says of the distance to a key, and the key of that to the query, adds to their score.

He et al. (2021), "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", section 3.1; distances in buckets, and
the convolution, are of its second version (github.com/microsoft/DeBERTa), which DeBERTa-v3 (He et al., 2023) keeps.

... tokens in a layout (N packed, or B L padded) . B documents . L positions of queries, M of keys, which are as many
H heads . K d_k . D d_model . S rows on each side of the table of distances . R rows that are needed . E the heads' H K
P columns, one for each distance: 2 L
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyheads.config import ModelConfig
from manyheads.config.sentences import one_of
from manyheads.errors import UserError
from manyheads.layout import Layout, as_layout
from manyheads.nn import Encoder, MultiHeadAttention
from manyheads.nn.assemble import any_norm, transformer
from manyheads.nn.attention import share_heads
from manyheads.nn.dropout import Dropout
from manyheads.nn.transformer import EncoderLayer, Run
from manyheads.plugins.hub.families import MOST_DISTANCES, WIDEST_CONVOLUTION

KEPT_ROWS = 512  # of projected distances that a layer keeps: 3 MB of DeBERTa-v3-base
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "gelu": F.gelu, "relu": F.relu}


def deberta(
    *,
    model: ModelConfig,
    max_length: int,
    buckets: int = 256,
    max_distance: int = 512,
    c2p: bool = True,
    p2c: bool = True,
    share: bool = True,
    norm: bool = True,
    convolution: int = 0,
    convolution_groups: int = 1,
    convolution_activation: str = "tanh",
) -> Encoder:
    """The Transformer's encoder with relative positions in its scores, which are divided by √(terms · d_k) unless
    `model.scale` says otherwise.

    Args:
        buckets: rows on each side of the table of distances; those beyond half of it are for several distances each, up
            to `max_distance`; 0: `max_distance` rows, one for each.
        c2p, p2c: the terms: content to position, position to content.
        share: positions are projected by W^K and W^Q of the tokens, else by matrices of their own.
        norm: of the rows of the table.
        convolution: width of a convolution over the first layer's input, which is added to its output; 0: none.

    Raises:
        UserError: the numbers do not go together.
    """
    setting = "model.encoder_options"
    if buckets and not 4 <= buckets < 2 * max_distance - 2:
        raise UserError(
            f"{setting}.buckets={buckets} must be at least 4 and less than twice {setting}.max_distance={max_distance} "
            "- 2, or 0: the second half of them is for distances beyond the first"
        )
    if not 1 <= (buckets or max_distance) <= MOST_DISTANCES:
        raise UserError(f"{setting}.max_distance={max_distance} is out of range: use 1 to {MOST_DISTANCES}")
    if convolution and not (convolution % 2 and 0 < convolution <= WIDEST_CONVOLUTION):
        raise UserError(
            f"{setting}.convolution={convolution} must be odd, so that a token is in its middle, and at most "
            f"{WIDEST_CONVOLUTION}"
        )
    if convolution_groups < 1 or model.d_model % convolution_groups:
        raise UserError(
            f"{setting}.convolution_groups={convolution_groups} does not divide model.d_model={model.d_model}: use a "
            "divisor"
        )
    if convolution_activation not in ACTIVATIONS:
        raise UserError(f"{setting}.convolution_activation={convolution_activation} must be {one_of([*ACTIVATIONS])}")
    if (c2p or p2c) and model.facts("positions").get("enters") == "queries":
        raise UserError(
            f"model.positions={model.positions} turns queries and keys, which model.encoder=deberta compares with "
            "distances as well: use model.positions=none, learned, sinusoidal or alibi"
        )
    if model.scale is None and model.score == "scaled_dot":
        model = replace(model, scale=((1 + c2p + p2c) * model.d_k) ** -0.5)
    dropout = model.dropout_at("residual")
    distances = None
    if c2p or p2c:
        rows_norm = any_norm(model, model.d_model) if norm else nn.Identity()
        distances = Distances(d_model=model.d_model, buckets=buckets, max_distance=max_distance, norm=rows_norm)
    make = partial(DisentangledAttention, distances=distances, c2p=c2p, p2c=p2c, share=share, dropout_distances=dropout)
    encoder = transformer(model=model, max_length=max_length, attention=make)
    if distances is not None:
        encoder.distances = distances
    if convolution:
        width = model.d_model
        encoder.layers[0] = ConvolvedLayer(
            encoder.layers[0],
            convolution=nn.Conv1d(width, width, convolution, padding=convolution // 2, groups=convolution_groups),
            activate=ACTIVATIONS[convolution_activation],
            norm=any_norm(model, width),
            dropout=dropout,
        )
    return encoder


class Distances(nn.Module):
    """A vector for each distance of a query from a key, for all layers."""

    def __init__(self, *, d_model: int, buckets: int, max_distance: int, norm: nn.Module) -> None:
        super().__init__()
        self.buckets, self.max_distance = buckets, max_distance
        self.rows = nn.Embedding(2 * (buckets or max_distance), d_model)
        self.norm = norm

    def forward(self, length: int) -> tuple[Tensor, Tensor]:
        """The vectors `(R, D)` that texts of `length` tokens need, and which of them those of the distances from
        -length to length are: `(2 length + 1,)`. That of ±length itself is not read."""
        n_side = self.rows.num_embeddings // 2
        n_own = self.buckets // 2 or n_side  # distances that have a row of their own
        if not torch.compiler.is_exporting() and length <= n_own:  # an exported graph cannot choose by the length
            reach = length
        else:
            reach = n_side
        rows_RD = self.norm(self.rows.weight[n_side - reach : n_side + reach])
        distances = torch.arange(-length, length + 1, device=rows_RD.device)
        return rows_RD, (bucketed(distances, self.buckets, self.max_distance) + reach).clamp(0, 2 * reach - 1)


def bucketed(distances: Tensor, buckets: int, max_distance: int) -> Tensor:
    """Distances of whole numbers, those beyond half of `buckets` on a logarithmic scale that puts `max_distance` - 1
    into the last; 0 buckets: as they are. In single precision, as the models were trained."""
    if not buckets:
        return distances
    half = buckets // 2
    size = distances.abs()
    steps = (size.clamp(min=1) / half).log() / torch.tensor((max_distance - 1) / half).log() * (half - 1)
    return torch.where(size <= half, distances, ((steps.ceil() + half) * distances.sign()).long())


class DisentangledAttention(MultiHeadAttention):
    """Scores (q_l · k_m + q_l · K(d) + k_m · Q(d)) · scale, where K and Q are the key and the query of the distance
    d = l - m: equation 4 of the paper.

    Args:
        distances: their vectors, which belong to the encoder; None: there are no such terms.
        c2p, p2c, share: see `deberta`.
        dropout_distances: of the elements of their vectors.
        settings: of `MultiHeadAttention`.
    """

    def __init__(
        self,
        *,
        distances: Distances | None,
        c2p: bool,
        p2c: bool,
        share: bool,
        dropout_distances: float,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.shared = [distances]  # in a list, so that its weights are not those of each layer, too
        self.c2p, self.p2c, self.share = c2p, p2c, share
        self.dropout_distances = Dropout(dropout_distances)
        sizes = settings["d_model"], self.n_heads * self.d_k
        self.distance_key = nn.Linear(*sizes, bias=settings["bias"]) if c2p and not share else None
        self.distance_query = nn.Linear(*sizes, bias=settings["bias"]) if p2c and not share else None
        self.kept: dict[Any, tuple[Tensor, Tensor]] = {}

    def train(self, mode: bool = True) -> "DisentangledAttention":
        """As in every module; what is kept goes, as the fused AdamW changes weights without counting it."""
        self.kept = {}
        return super().train(mode)

    def bias(self, q: Tensor, k: Tensor, layout: Layout, keys: Layout) -> Tensor | None:
        """What distances add to the scores of queries and keys `(..., H, K)`: `(B, H, L, M)`."""
        assert layout is keys, "this is self-attention"
        bias, (distances,) = super().bias(q, k, layout, keys), self.shared
        if distances is None:
            return bias
        key_PE, query_PE = self.kept_columns(distances, layout.longest)
        if self.c2p:
            scores_BHLM = along_distances(layout.grid(q), key_PE) * self.score.scale
            bias = scores_BHLM if bias is None else bias + scores_BHLM
        if self.p2c:
            k_BMGK = keys.grid(k)
            k_BMHK = share_heads(k_BMGK.transpose(1, 2), self.n_heads).transpose(1, 2)
            scores_BHML = along_distances(k_BMHK, query_PE) * self.score.scale
            scores_BHLM = scores_BHML.transpose(-2, -1)
            bias = scores_BHLM if bias is None else bias + scores_BHLM
        return bias

    def kept_columns(self, distances: Distances, length: int) -> tuple[Tensor, Tensor]:
        """`columns`; in inference those of short texts are computed once, until a weight changes: for a single text
        they take as long as its tokens."""
        weights = [*self.parameters(), *distances.parameters()]
        if (
            not torch.is_inference_mode_enabled()
            or torch.compiler.is_compiling()
            or self.training
            or 2 * length > KEPT_ROWS
            or any(one.is_inference() for one in weights)  # whose changes are not counted
        ):
            return self.columns(distances, length)
        device = weights[0].device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weights[0].dtype
        state = dtype, *((one.data_ptr(), one._version) for one in weights)
        found = self.kept.get((length, state))
        if found is None:
            found = self.columns(distances, length)
            kept = {key: one for key, one in self.kept.items() if key[1] == state}
            if sum(len(key_PE) for key_PE, _ in kept.values()) + 2 * length > KEPT_ROWS:
                kept = {}
            self.kept = {**kept, (length, state): found}  # not changed in place: other threads may read it
        return found

    def columns(self, distances: Distances, length: int) -> tuple[Tensor, Tensor]:
        """Keys and queries `(P, E)` of distances in texts of `length` tokens L: column c is the key of the distance
        L - c of a query from a key, and the query of c - L, as rows of that product are of keys."""
        rows_RD, at = distances(length)
        key_RE, query_RE = self.project_distances(self.dropout_distances(rows_RD))
        return F.embedding(at.flip(0)[:-1], key_RE), F.embedding(at[:-1], query_RE)

    def project_distances(self, rows_RD: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and queries `(R, E)` of distances; those that no term reads are undefined."""
        if self.share:
            query_RHK, key_RGK, _ = self.project_heads(rows_RD, None, None, None)
            key_RHK = share_heads(key_RGK.transpose(0, 1)[None], self.n_heads)[0].transpose(0, 1)
            return key_RHK.flatten(1), query_RHK.flatten(1)
        key_RE = rows_RD if self.distance_key is None else self.distance_key(rows_RD)
        query_RE = rows_RD if self.distance_query is None else self.distance_query(rows_RD)
        return key_RE, query_RE


def along_distances(x_BLHK: Tensor, vectors_PE: Tensor) -> Tensor:
    """The product of the token at position l with the vector of column m - l + L, for all l and m: `(B, H, L, L)`.

    A row of products is as long as there are columns, 2 L; read in rows that are one shorter, each begins one column
    earlier than the row before. So nothing is gathered, and the gradient is a plain sum in a fixed order.
    """
    B, L, H, K = x_BLHK.shape
    x_HNK = x_BLHK.permute(2, 0, 1, 3).reshape(H, B * L, K)
    vectors_HKP = vectors_PE.unflatten(1, (H, K)).permute(1, 2, 0)
    products_HBZ = (x_HNK @ vectors_HKP.to(x_HNK.dtype)).reshape(H, B, 2 * L * L)
    return products_HBZ[..., L:].reshape(H, B, L, max(0, 2 * L - 1))[..., :L].transpose(0, 1)


class ConvolvedLayer(EncoderLayer):
    """norm(layer(x) + activate(dropout(convolution(x)))): a token meets its neighbours before all else.

    Args:
        layer: the layer that it takes the blocks of.
        convolution: over positions, of the width of a token.
    """

    def __init__(
        self,
        layer: Any,
        *,
        convolution: nn.Conv1d,
        activate: Callable[[Tensor], Tensor],
        norm: nn.Module,
        dropout: float,
    ) -> None:
        super().__init__(attention=layer.attention, feed_forward=layer.feed_forward)
        self.convolution, self.activate, self.norm = convolution, activate, norm
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, layout: Layout | Tensor | None = None) -> Tensor:
        """Tokens `(..., D)` to tokens `(..., D)`; `layout` is that of `MultiHeadAttention`."""
        return self.convolved(x, super().forward(x, layout), as_layout(x, layout))

    def in_parts(self, run: Run, x: Tensor, layout: Layout) -> Tensor:
        """The same in parts, see `EncoderLayer.in_parts`; the convolution looks across tokens, and is not compiled."""
        return self.convolved(x, super().in_parts(run, x, layout), layout)

    def convolved(self, x: Tensor, output: Tensor, layout: Layout) -> Tensor:
        x_BLD = layout.grid(x).masked_fill(~layout.keep_BL[..., None], 0.0)  # so that nothing comes from padding
        near = layout.flat(self.convolution(x_BLD.transpose(1, 2)).transpose(1, 2))
        return self.norm(output + self.activate(self.dropout(near)))
