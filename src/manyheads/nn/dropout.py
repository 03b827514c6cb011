"""Dropout (Srivastava et al., 2014) whose random numbers are cheap on a CPU."""

from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import _get_current_dispatch_mode

TABLE = 2**22  # random numbers that all masks are made of: 8 MB
MOST_DRAWN = 2**20  # of a mask by one pair of windows
ONE = int(torch.ones((), dtype=torch.bfloat16).view(torch.int16))
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
    """1 with probability 1 - p and else 0, to a resolution of 2^-16 in `p`: of the shape and type of `x`.

    torch's own dropout draws 64 bits an element, one after another. Here 16 bits decide: the sum of two windows of a
    table of random numbers, at places that torch's generator draws. Elements of one mask are independent of each other,
    and so are any two of different masks, as sums of different pairs of numbers.
    """
    if has_no_values():  # one opaque operator: the bits are those of the code as written
        return _kept(x.detach(), p)
    table, n = random_table(x.device), x.numel()
    draws = torch.empty(n, dtype=torch.int16, device=x.device)
    for piece in draws.split(MOST_DRAWN):
        first, second = torch.randint(TABLE - piece.numel() + 1, (2,)).tolist()
        torch.add(table[first : first + piece.numel()], table[second : second + piece.numel()], out=piece)
    ones = draws.ge_(min(round(p * 2**16), 2**16 - 1) - 2**15).mul_(ONE).view(torch.bfloat16)  # 0 or the bits of a one
    return ones.view(x.shape).to(x.dtype)


def has_no_values() -> bool:
    """Whether only shapes are computed: where a graph is compiled, or under FakeTensorMode, as in a dry run."""
    return torch.compiler.is_compiling() or _get_current_dispatch_mode() is not None


@torch.library.custom_op("manyheads::kept", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def _kept(x: Tensor, p: float) -> Tensor:
    return kept(x, p)


@_kept.register_fake
def _like(x: Tensor, p: float) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@cache
def random_table(device: torch.device) -> Tensor:
    """`TABLE` random numbers of 16 bits, the same in every process."""
    numbers = torch.arange(TABLE // 4, device=device).mul_(GOLDEN)  # of 64 bits, four numbers each
    return mixed(numbers).view(torch.int16)


def mixed(z: Tensor) -> Tensor:
    """Numbers of int64, each turned in place into bits that look random: the finaliser of SplitMix64 (Steele et al.,
    2014), which wants multiples of `GOLDEN`."""
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        z.bitwise_xor_(_shifted(z, shift)).mul_(factor)
    return z.bitwise_xor_(_shifted(z, 31))


def _shifted(z: Tensor, by: int) -> Tensor:
    """Shifted to the right, zeros coming in."""
    return z.bitwise_right_shift(by).bitwise_and_(2 ** (64 - by) - 1)
