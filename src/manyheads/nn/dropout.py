"""Dropout (Srivastava et al., 2014) whose random bits are cheap on a CPU."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LANES = 4  # draws of 16 bits in one number of 64
GOLDEN = -0x61C8864680B583EB  # 2^64 / golden ratio


class Dropout(nn.Module):
    """Zero each element with probability `p` while training and scale the others by 1 / (1 - p)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Any shape, which stays."""
        if not self.training:
            return x
        return dropout(x, self.p)

    def add(self, x: Tensor, change: Tensor) -> Tensor:
        """x + dropout(change), of the same shape."""
        if not self.training or self.p == 0 or x.is_cuda or x.element_size() < 4:
            return x + self(change)
        # On a CPU the factor is applied while adding, in one pass over memory less.
        return torch.add(x, change * kept(change, self.p), alpha=1 / (1 - self.p))

    def extra_repr(self) -> str:
        return f"p={self.p}"


def dropout(x: Tensor, p: float) -> Tensor:
    """`x` with a share `p` of its elements zeroed and the rest scaled up.

    By a number, not a tensor of the type of `x`: bf16 would round the factor, 1.111 to 1.109.
    """
    if p == 0 or x.is_cuda:
        return F.dropout(x, p, training=p > 0)
    return (x * kept(x, p)).mul_(1 / (1 - p))


def kept(x: Tensor, p: float) -> Tensor:
    """1 with probability 1 - p and else 0, to a resolution of 2^-15 in `p`: of the shape and type of `x`.

    torch's own dropout draws 64 bits an element, one after another. Here 16 bits decide, and what turns them into ones
    and zeros works on many at a time: a seventh of the time.
    """
    n_numbers = -(-x.numel() // LANES)  # rounded up
    draws = random_bits(n_numbers, x.device).view(torch.int16)[: x.numel()].view(x.shape)
    below = draws.bitwise_and_(0x7FFF).neg_().add_(round(p * 2**15) - 1)  # negative where the draw reaches p
    # The sign bit fills all 16 bits, of which those of a one in bf16 are kept.
    ones = below.bitwise_right_shift_(15).bitwise_and_(ONE).view(torch.bfloat16)
    return ones.to(x.dtype)


ONE = int(torch.ones((), dtype=torch.bfloat16).view(torch.int16))


def random_bits(n: int, device: torch.device) -> Tensor:
    """`n` int64 numbers of random bits: SplitMix64 (Steele et al., 2014), seeded from torch's generator."""
    return mixed(torch.arange(n, device=device).mul_(GOLDEN).add_(torch.randint(2**62, (), device=device)))


def mixed(z: Tensor) -> Tensor:
    """Numbers of int64, each turned in place into bits that look random: the finaliser of SplitMix64, which wants
    multiples of `GOLDEN`."""
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        z.bitwise_xor_(_shifted(z, shift)).mul_(factor)
    return z.bitwise_xor_(_shifted(z, 31))


def _shifted(z: Tensor, by: int) -> Tensor:
    """Shifted to the right, zeros coming in."""
    return z.bitwise_right_shift(by).bitwise_and_(2 ** (64 - by) - 1)
