"""What is hidden: as many words as asked for, never a mark, and of held-out texts always the same."""

import torch

from manyheads.plugins.language.networks import HELD_OUT_SHARE, choose_places, hide, hold_out, settled_draws

MASK = 99


def draws(n, seed=0):
    return torch.rand(n, generator=torch.Generator().manual_seed(seed))


def test_as_many_places_as_asked_for_and_none_of_them_barred():
    barred = torch.arange(1000) % 7 == 0
    places = choose_places(draws(1000), barred, 300)
    assert places.numel() == 300 == places.unique().numel()
    assert not barred[places].any()
    assert places.equal(places.sort().values)


def test_every_place_is_chosen_equally_often():
    times = torch.zeros(20)
    for seed in range(2000):
        times[choose_places(draws(20, seed), torch.zeros(20, dtype=torch.bool), 6)] += 1
    assert ((times / 2000 - 0.3).abs() < 0.05).all()


def test_hidden_words_are_told_apart_from_what_stands_there():
    ids = torch.arange(10)
    hidden = hide(ids, torch.tensor([2, 5]), MASK)
    assert hidden.ids_N.tolist() == [0, 1, MASK, 3, 4, MASK, 6, 7, 8, 9]
    assert hidden.words_P.tolist() == [2, 5]
    assert ids.tolist() == list(range(10))


def test_of_held_out_texts_the_same_words_are_hidden_in_any_batch():
    lengths = [5, 9, 30, 4]
    rows = torch.arange(4).repeat_interleave(torch.tensor(lengths))
    positions = torch.cat([torch.arange(n) for n in lengths])
    ids, bare = torch.arange(48), torch.zeros(48, dtype=torch.bool)
    whole = hold_out(ids, rows, positions, bare, MASK)
    alone = [hold_out(ids[rows == row], rows[rows == row], positions[rows == row], bare[rows == row], MASK)
             for row in (2, 0, 3, 1)]  # fmt: skip
    assert sorted(torch.cat([one.words_P for one in alone]).tolist()) == whole.words_P.tolist()


def test_settled_draws_are_even_and_hang_on_nothing_near():
    rows, positions = torch.arange(1000).repeat_interleave(100), torch.arange(100).repeat(1000)
    found = settled_draws(rows, positions)
    assert found.min() >= 0
    assert found.max() < 1
    counts = torch.histc(found, 20, 0, 1)
    assert ((counts - 5000) ** 2 / 5000).sum() < 43.8  # chi-squared, 19 degrees of freedom, 0.1 %
    for shift in (1, 100):
        assert abs(float(torch.corrcoef(torch.stack((found[shift:], found[:-shift])))[0, 1])) < 0.015
    share = float((found < HELD_OUT_SHARE).double().mean())
    assert abs(share - HELD_OUT_SHARE) < 0.005
