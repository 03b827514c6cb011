"""Votes of words and neighbours against a loop over texts."""

from collections import Counter

import pytest
import torch

from manyheads.layout import Packed, Padded
from manyheads.nn import assemble
from manyheads.nn.bag import Bag

TEXTS = [[5, 3, 5, 9], [], [7], [3, 5]]


def made(order: int, n_rows: int = 4099) -> Bag:
    torch.manual_seed(0)
    bag = Bag(n_rows=n_rows, n_classes=3, order=order, dropout=0.5).eval()
    torch.nn.init.normal_(bag.votes.weight)
    return bag


def packed(texts: list[list[int]]) -> tuple[torch.Tensor, Packed]:
    ids = torch.tensor([one for text in texts for one in text], dtype=torch.int64)
    return ids, Packed.of_lengths([len(text) for text in texts])


@pytest.mark.parametrize("order", [1, 2, 3])
def test_logits_are_the_sum_of_votes_over_the_square_root_of_their_number(order):
    bag = made(order)
    logits_BC = bag(*packed(TEXTS))
    for text, logits_C in zip(TEXTS, logits_BC, strict=True):
        expected = torch.zeros(3)
        if text:
            rows = bag.rows_of(*packed([text])).flatten().tolist()
            votes = sum(n * bag.votes.weight[row] for row, n in Counter(rows).items())
            expected = votes / len(rows) ** 0.5
        torch.testing.assert_close(logits_C, expected)


def test_a_row_is_that_of_an_n_gram_wherever_it_stands():
    ids, layout = packed([[4, 8, 6], [1, 4, 8, 6], [8, 4, 6]])
    rows = made(3).rows_of(ids, layout)
    assert torch.equal(rows[2], rows[6])  # 4 8 6
    assert rows[1, 0] == rows[7, 0]
    assert rows[1, 1] != rows[7, 1]  # 8 behind 4, and first in a text
    assert rows[0, 1] != rows[4, 1]  # 4 first in a text, and behind 1


def test_n_grams_are_spread_over_the_table():
    pairs = [[a, b] for a in range(1, 60) for b in range(1, 60)]
    rows = made(2, n_rows=10_007).rows_of(*packed(pairs))[1::2, 1]
    expected = 10_007 * (1 - (1 - 1 / 10_007) ** len(pairs))  # of a hash that is as good as chance
    assert len(rows.unique()) > 0.95 * expected


def test_padding_a_tail_and_neighbouring_texts_never_show():
    bag = made(2)
    ids, layout = packed(TEXTS)
    together = bag(ids, layout)
    torch.testing.assert_close(torch.cat([bag(*packed([text])) for text in TEXTS]), together)
    padded = layout.grid(ids).masked_fill(~layout.keep_BL, 3)
    torch.testing.assert_close(bag(padded, Padded(layout.keep_BL)), together)
    tail = layout.rounded(16)
    torch.testing.assert_close(bag(torch.cat([ids, ids.new_zeros(tail.tail)]), tail), together)


def test_a_fresh_bag_adds_nothing_and_learns(small):
    models = []
    for rows in (0, 64):
        torch.manual_seed(0)
        models.append(assemble(small(bag=rows), vocab_size=9, n_classes=2, max_length=8).eval())
    without, with_it = models
    with_it.load_state_dict(without.state_dict(), strict=False)
    ids, layout = torch.randint(9, (6,)), Packed.of_lengths([6])
    torch.testing.assert_close(with_it(ids, layout), without(ids, layout))
    with_it(ids, layout)[:, 0].sum().backward()
    assert with_it.bag.votes.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("order", [1, 2, 3])
def test_shares_of_tokens_add_up_to_the_logits_and_a_vote_is_shared_alike(order):
    bag = made(order)
    ids, layout = packed(TEXTS)
    shares_NC = bag.shares(ids, layout)
    sums = [one.sum(0) for one in shares_NC.split(layout.lengths_B.tolist())]
    torch.testing.assert_close(torch.stack(sums), bag(ids, layout))
    rows = bag.rows_of(*packed([[5, 3, 5, 9]]))
    alone = rows[1, order - 1]  # the n-gram that ends with the second token
    before = bag.shares(*packed([[5, 3, 5, 9]]))
    with torch.no_grad():
        bag.votes.weight[alone] += 1
    change = (bag.shares(*packed([[5, 3, 5, 9]])) - before)[:, 0] * (4 * order) ** 0.5
    expected = [0.0, 1.0, 0.0, 0.0] if order == 1 else [0.5, 0.5, 0.0, 0.0]
    torch.testing.assert_close(change, torch.tensor(expected), atol=1e-5, rtol=0)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_parts_of_votes_times_the_votes_are_the_logits(order):
    bag = made(order)
    ids, layout = packed(TEXTS)
    tail = layout.rounded(16)
    for one, of in ((ids, layout), (torch.cat([ids, ids.new_zeros(tail.tail)]), tail)):
        torch.testing.assert_close(bag.parts(one, of) @ bag.votes.weight, bag(ids, layout))


def test_in_training_a_share_of_texts_is_answered_by_one_of_both_alone():
    bag = made(1).train()
    bag.dropout.p, bag.apart = 0.0, 0.6
    ids, layout = packed([[4, 7]] * 4000)
    logits_BC = torch.full((4000, 3), 100.0)
    answers_BC, votes_C = bag.beside(logits_BC, ids, layout), bag(*packed([[4, 7]]))[0]
    of_encoder, of_bag, of_both = (
        torch.isclose(answers_BC, expected).all(1).float().mean().item()
        for expected in (logits_BC, votes_C.expand(4000, 3), logits_BC + votes_C)
    )
    assert (of_encoder, of_bag, of_both) == pytest.approx((0.3, 0.3, 0.4), abs=0.04)
    torch.testing.assert_close(bag.eval().beside(logits_BC, ids, layout), logits_BC + votes_C)
