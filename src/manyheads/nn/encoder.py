"""The encoder: residual blocks around attention and feed-forward. Vaswani et al. (2017), section 3.1.

... tokens in a layout (N packed, or B L padded) . D d_model
"""

from collections.abc import Iterable

from torch import Tensor, nn

from manyheads.layout import Layout
from manyheads.nn.dropout import Dropout
from manyheads.nn.walk import Walk, through


class Residual(nn.Module):
    """after(x + dropout(block(before(x)))).

    Identity after is pre-norm (Xiong et al., 2020), identity before is the paper's post-norm, a norm at both
    places is LN(x + block(LN(x))).
    """

    def __init__(self, block: nn.Module, *, before: nn.Module, after: nn.Module, dropout: float) -> None:
        super().__init__()
        self.before, self.block, self.after = before, block, after
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, *context: Tensor | Layout) -> Tensor:
        return self.join(x, self.block(self.before(x), *context))

    def join(self, x: Tensor, change: Tensor) -> Tensor:
        """What is left to do once the block has answered."""
        return self.after(self.dropout.add(x, change))


class EncoderLayer(nn.Module):
    """Tokens of a document look at each other, then each is thought over alone."""

    def __init__(self, *, attention: Residual, feed_forward: Residual) -> None:
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """Tokens `(..., D)` to tokens `(..., D)`."""
        return self.feed_forward(self.attention(x, layout))


class Encoder(nn.Module):
    """Layers one after another, and the norm that pre-norm leaves to the end.

    While training each layer is gone through by `walk`: see walk.py.
    """

    def __init__(self, layers: Iterable[EncoderLayer], *, norm: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm
        self.walk: Walk = through

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """Tokens `(..., D)` to tokens `(..., D)`."""
        walk = self.walk if self.training else through
        filled, of_filled = layout.filled_up(x)
        for layer in self.layers:
            filled = walk(layer, filled, of_filled)
        return self.norm(filled[: x.size(0)])
