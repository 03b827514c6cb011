"""Tables whose rows are shared, by a hash, among tokens and their neighbours, as there are too many of these to give
each a row of its own: Joulin et al. (2017), "Bag of Tricks", section 2.1.

... tokens in a layout (N packed, or B L padded) . D d_model
"""

import torch
from torch import Tensor, nn

from manyheads.layout import Layout

FIRST_PRIME, SECOND_PRIME = 1_000_003, 92_821


class Hashed(nn.Embedding):
    """Rows that start at nothing: what is hardly seen adds hardly anything. See weights.py.

    It is read by rows, as any embedding, so that they may be updated one by one: see fit/lazy.py.
    """


class Bigrams(Hashed):
    """A vector for every two neighbouring tokens."""

    def __init__(self, *, n_rows: int, d_model: int) -> None:
        super().__init__(n_rows, d_model)

    def rows_of(self, ids: Tensor, layout: Layout) -> Tensor:
        """Ids `(...)` to the row `(...)` of each token with the one before it; before the first stands id 0."""
        return (ids * FIRST_PRIME ^ before(ids, layout) * SECOND_PRIME) % self.num_embeddings


def before(ids: Tensor, layout: Layout, by: int = 1) -> Tensor:
    """The id `by` places before each token in its document, 0 where none is: `(...)`."""
    earlier = torch.cat((torch.zeros_like(ids[..., :by]), ids[..., : ids.size(-1) - by]), dim=-1)
    return earlier[..., : ids.size(-1)].masked_fill(layout.positions < by, 0)
