"""The position-wise feed-forward block: Vaswani et al. (2017), section 3.3; gated forms: Shazeer (2020).

... tokens in a layout . D d_model . F d_ff
"""

from torch import Tensor, nn
from torch.nn import functional as F

GATES = {"geglu": F.gelu, "swiglu": F.silu}
PLAIN = {"relu": F.relu, "gelu": F.gelu}


class FeedForward(nn.Module):
    """W2 f(W1 x + b1) + b2; with a gate W2 (f(W1 x + b1) * (W3 x + b3)) + b2, W1 and W3 side by side in one weight."""

    def __init__(self, *, d_model: int, d_ff: int, activation: str, bias: bool = True) -> None:
        super().__init__()
        self.is_gated = activation in GATES
        self.activate = GATES[activation] if self.is_gated else PLAIN[activation]
        self.widen = nn.Linear(d_model, d_ff * (2 if self.is_gated else 1), bias=bias)
        self.narrow = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens `(..., D)` to tokens `(..., D)`."""
        hidden = self.widen(x)
        if self.is_gated:
            gate, hidden = hidden.chunk(2, dim=-1)
            return self.narrow(self.activate(gate) * hidden)
        return self.narrow(self.activate(hidden))
