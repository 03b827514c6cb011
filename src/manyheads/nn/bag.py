"""A bag of words and neighbours that votes for classes, beside an encoder that reads them in order.

Cheng et al. (2016), "Wide & Deep Learning": what is rare is learned by heart by the one, the other generalises.

... tokens in a layout (N packed, or B L padded) . B documents . K lengths of neighbourhoods . C classes
R texts, each of one document or several . V rows of votes
"""

import torch
from torch import Tensor, nn

from manyheads.layout import Layout, Packed
from manyheads.nn.bigrams import Hashed, before
from manyheads.nn.dropout import Dropout
from manyheads.nn.pooling import mean

PRIMES = (1_000_003, 92_821, 15_485_863, 32_452_843, 49_979_687)


class Bag(nn.Module):
    """The sum of the votes of all n-grams of a text, n up to `order`, over the square root of how many they are.

    It stands `beside` an encoder, which answers with it, but while training a share `apart` of the texts is answered by
    one of the two alone: else what the bag has learned by heart leaves the encoder nothing to learn.

    An n-gram that hashes to the same row as another shares its vote. `dropout` silences whole n-grams.
    """

    def __init__(self, *, n_rows: int, n_classes: int, order: int, dropout: float, apart: float = 0.0) -> None:
        super().__init__()
        self.votes = Hashed(n_rows, n_classes)
        self.order = order
        self.dropout = Dropout(dropout)
        self.apart = apart

    def forward(self, ids: Tensor, layout: Layout) -> Tensor:
        """Ids `(...)`, or any other names of tokens from 0, to logits `(B, C)`."""
        votes = self.votes(self.rows_of(ids, layout))
        if self.training and self.dropout.p > 0:
            votes = votes * self.dropout(votes.new_ones(*votes.shape[:-1], 1))
        scale_B1 = (layout.lengths_B[:, None] / self.order).sqrt()
        return mean(votes.sum(-2), layout) * scale_B1

    def beside(self, logits_BC: Tensor, ids: Tensor, layout: Layout) -> Tensor:
        """The logits `(B, C)` of an encoder and the votes together."""
        votes_BC = self(ids, layout)
        if self.training and self.apart > 0:
            draws_B1 = torch.rand(layout.n_documents, 1, device=votes_BC.device)
            logits_BC = logits_BC * (draws_B1 >= self.apart / 2)
            votes_BC = votes_BC * ((draws_B1 < self.apart / 2) | (draws_B1 >= self.apart))
        return logits_BC + votes_BC

    def shares(self, ids: Tensor, layout: Packed) -> Tensor:
        """What each token has in the logits, `(N, C)`: a vote is shared alike by the tokens of its n-gram, so all the
        shares of a text add up to its logits."""
        votes_NKC, at_N1 = self.votes(self.rows_of(ids, layout)), layout.positions[:, None]
        shares_NC = torch.zeros_like(votes_NKC[:, 0])
        for back in range(self.order):
            each_NC = votes_NKC[:, back] / (at_N1.clamp(max=back) + 1)
            for by in range(min(back + 1, ids.size(0))):
                reaches_N1 = at_N1[by:] >= by
                shares_NC[: ids.size(0) - by] += each_NC[by:] * reaches_N1
        return shares_NC / (self.order * layout.lengths_B.repeat_interleave(layout.lengths_B))[:, None].sqrt()

    def parts(self, ids_N: Tensor, layout: Packed) -> Tensor:
        """What each text has of every vote, on the CPU, sparse and `(R, V)`: times the votes, these are its logits."""
        rows_NK = self.rows_of(ids_N, layout)[: layout.n_tokens]
        counts_R = torch.ones_like(layout.lengths_B) if layout.counts_R is None else layout.counts_R
        text_B = torch.arange(len(counts_R)).repeat_interleave(counts_R)
        part_B = (layout.lengths_B * self.order).rsqrt() / counts_R[text_B]
        where_2E = torch.stack((_each(text_B, layout, rows_NK), rows_NK)).flatten(1)
        parts_E = _each(part_B, layout, rows_NK).flatten()
        size = (len(counts_R), self.votes.num_embeddings)
        return torch.sparse_coo_tensor(where_2E, parts_E, size, check_invariants=True).coalesce()

    def rows_of(self, ids: Tensor, layout: Layout) -> Tensor:
        """The rows `(..., K)` of the 1, 2, ... tokens that end with each; before the first of a text stands id 0."""
        mixed, rows = torch.zeros_like(ids), []
        for back in range(self.order):
            token = before(ids, layout, back) if back else ids
            mixed = mixed ^ (token + back + 1) * PRIMES[back]
            rows.append(mixed % self.votes.num_embeddings)
        return torch.stack(rows, dim=-1)


def _each(x_B: Tensor, layout: Packed, like_NK: Tensor) -> Tensor:
    """A number of each document for each of its n-grams: `(N, K)`."""
    return x_B.repeat_interleave(layout.lengths_B)[:, None].expand_as(like_NK)
