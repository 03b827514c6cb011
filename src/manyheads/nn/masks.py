"""Which words of a text are hidden: drawn anew in training, always the same ones in texts that are held out.

N tokens of a batch, end to end . P places that are guessed . V vocabulary
"""

from typing import NamedTuple

import torch
from torch import Tensor

from manyheads.nn.dropout import GOLDEN, mixed

HELD_OUT_SHARE = 0.15  # hidden of texts that are held out, whatever training hides, so that figures can be compared
MOST_PLACES = 2**20  # of a text, as of data.max_length
BITS = 24  # of a draw


class Hidden(NamedTuple):
    """Ids as the model sees them, the places in them that it guesses, and what stood there."""

    ids_N: Tensor
    places_P: Tensor
    words_P: Tensor


def choose(draws_N: Tensor, barred_N: Tensor, n: int) -> Tensor:
    """The `n` places with the smallest draws, in order; of barred ones none, but where there are no others.

    How many there are is known to the host, so that no GPU is waited for.
    """
    draws_N = draws_N.masked_fill(barred_N, 2.0)
    return draws_N.topk(min(n, draws_N.numel()), largest=False, sorted=False).indices.sort().values


def choose_words(draws_N: Tensor, begins_N: Tensor, barred_N: Tensor, n: int) -> Tensor:
    """At least `n` places, in order, and with each of them all places of its word: a word has the draw of the token
    that begins it. The host waits for their number."""
    every_N = torch.arange(draws_N.numel(), device=draws_N.device)
    if not draws_N.numel():
        return every_N
    draws_N = draws_N[every_N.mul(begins_N).cummax(0).values].masked_fill(barred_N, 2.0)
    last = draws_N.topk(min(n, draws_N.numel()), largest=False).values.max()
    return (draws_N <= last).nonzero().squeeze(1)


def hide(ids_N: Tensor, places_P: Tensor, mask: int) -> Hidden:
    """`mask` stands at the places."""
    return Hidden(ids_N.index_fill(0, places_P, mask), places_P, ids_N[places_P])


def hide_mixed(ids_N: Tensor, places_P: Tensor, mask: int, words_W: Tensor, draws_P: Tensor) -> Hidden:
    """At 80 % of the places stands `mask`, at 10 % any of `words_W`; 10 % are left as they are. Draws are uniform."""
    others_P = words_W[torch.randint(words_W.numel(), places_P.shape, device=ids_N.device)]
    kept_P = ids_N[places_P]
    seen_P = torch.where(draws_P < 0.8, mask, torch.where(draws_P < 0.9, others_P, kept_P))
    return Hidden(ids_N.index_copy(0, places_P, seen_P), places_P, kept_P)


def settled_draws(rows_N: Tensor, positions_N: Tensor) -> Tensor:
    """Uniform draws that hang on the row and the position alone: the same in any batch, on any device."""
    bits_N = mixed((rows_N * MOST_PLACES + positions_N + 1) * GOLDEN)
    return (bits_N.bitwise_right_shift(64 - BITS) % 2**BITS).double() / 2**BITS


def hold_out(ids_N: Tensor, rows_N: Tensor, positions_N: Tensor, barred_N: Tensor, mask: int) -> Hidden:
    """`HELD_OUT_SHARE` of the tokens that are not barred."""
    is_chosen_N = (settled_draws(rows_N, positions_N) < HELD_OUT_SHARE) & ~barred_N
    return hide(ids_N, is_chosen_N.nonzero().squeeze(1), mask)
