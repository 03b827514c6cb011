"""Word vectors that no training text reads are left out of training, at the same result.

Without a gradient and without weight decay AdamW leaves a weight as it is. Most rows of a table of trained weights are
such: of 250,000 tokens of a multilingual encoder a data set has some thousands. Each step would still pass over them:
to clear their gradients, for the norm, for the moments, for the average.

V rows of the whole table . U rows that the training texts read . D d_embedding
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyheads.data.tokens import Tokens, drop_pages
from manyheads.nn.classifier import Classifier

MOST_SEEN = 0.75  # share of the rows; above it little is saved
IDS_AT_ONCE = 2**24


class SeenWords(nn.Embedding):
    """A table of word vectors of which `rows_U` are trained: its weight holds these alone. Others are read as they are
    in `table`, which texts of validation may need."""

    all_VD: Tensor
    place_V: Tensor

    def __init__(self, table: nn.Embedding, rows_U: Tensor) -> None:
        weight_VD = table.weight.detach()
        super().__init__(len(rows_U), table.embedding_dim, _weight=weight_VD[rows_U])
        place_V = rows_U.new_full((len(weight_VD),), -1)
        place_V[rows_U] = torch.arange(len(rows_U))
        self.register_buffer("all_VD", weight_VD, persistent=False)
        self.register_buffer("place_V", place_V, persistent=False)

    def forward(self, input: Tensor) -> Tensor:
        """Ids `(...)` to vectors `(..., D)`."""
        places = self.place_V[input]
        # Without a branch on what the ids are: the host would have to wait for a GPU.
        trained = super().forward(places.clamp(min=0))
        return torch.where((places >= 0).unsqueeze(-1), trained, F.embedding(input, self.all_VD))


@contextmanager
def only_seen_words(network: nn.Module, tokens: Tokens) -> Iterator[None]:
    """Within the block, `network` trains the vectors of the words of `tokens` alone, if these are few; then it has its
    whole table again. After an error it is of no more use. Networks that read their words elsewhere, too, such as
    language models, are left as they are."""
    if not isinstance(network, Classifier):
        yield
        return
    table, rows_U = network.words, seen_ids(tokens, network.words.num_embeddings)
    if len(rows_U) > MOST_SEEN * table.num_embeddings:
        yield
        return
    seen = network.embeddings.words = SeenWords(table, rows_U)
    yield
    network.embeddings.words = table.to(seen.weight.device)
    with torch.no_grad():
        table.weight[rows_U] = seen.weight


def seen_ids(tokens: Tokens, n_ids: int) -> Tensor:
    """The ids that occur, ascending: `(U,)`."""
    seen_V = torch.zeros(n_ids, dtype=torch.bool)
    for ids in tokens.ids_N.split(IDS_AT_ONCE):
        seen_V[ids.long()] = True
        drop_pages(tokens)
    return seen_V.nonzero().flatten()
