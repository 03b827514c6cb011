"""A vector for every two neighbouring tokens: Joulin et al. (2017), "Bag of Tricks", section 2.1.

... tokens in a layout (N packed, or B L padded) . D d_model
"""

import torch
from torch import Tensor, nn

from manyheads.layout import Layout

FIRST_PRIME, SECOND_PRIME = 1_000_003, 92_821


class Bigrams(nn.Embedding):
    """Pairs of ids share `n_rows` rows by a hash, as there are too many to give each its own.

    What a pair adds starts at nothing: see weights.py.
    """

    def __init__(self, *, n_rows: int, d_model: int) -> None:
        super().__init__(n_rows, d_model)

    def rows_of(self, ids: Tensor, layout: Layout) -> Tensor:
        """Ids `(...)` to the row `(...)` of each token with the one before it; before the first stands id 0.

        Rows are what the table is read by, as any embedding: see fit/lazy.py.
        """
        before = torch.cat((torch.zeros_like(ids[..., :1]), ids[..., :-1]), dim=-1)
        before = before.masked_fill(layout.positions == 0, 0)
        return (ids * FIRST_PRIME ^ before * SECOND_PRIME) % self.num_embeddings
