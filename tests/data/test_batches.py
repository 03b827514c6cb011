"""Batches against what was promised: every row once, budgets kept, ranks in step, nothing but the arguments."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from manyheads.data.batches import Batches, gather, padding_share, plan_epoch, plan_evaluation
from manyheads.data.tokens import Tokens

lengths_of = st.lists(st.integers(0, 60), max_size=120).map(lambda values: torch.tensor(values, dtype=torch.int64))
budgets = st.fixed_dictionaries({"tokens": st.integers(1, 200), "rows": st.integers(1, 12)})
places = st.fixed_dictionaries({"world_size": st.integers(1, 4), "accumulate": st.integers(1, 3)})


def tokens_of(lengths: list[int], *, paired: bool = False) -> Tokens:
    """Row i holds the ids 100 i, 100 i + 1, ..."""
    ids = torch.cat([torch.arange(n, dtype=torch.int32) + 100 * i for i, n in enumerate(lengths)])
    offsets = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()])
    return Tokens(ids, offsets, (ids % 2).to(torch.uint8) if paired else None, torch.arange(len(lengths)) % 3)


@settings(deadline=None)
@given(lengths_of, budgets, places, st.integers(0, 2**32 - 1), st.integers(0, 100))
def test_an_epoch_reads_every_row_once_within_budget_and_all_ranks_in_step(lengths, budget, place, seed, epoch):
    world_size, accumulate = place["world_size"], place["accumulate"]
    plans = [plan_epoch(lengths, seed=seed, epoch=epoch, rank=rank, **budget, **place) for rank in range(world_size)]
    rows = [row for plan in plans for planned in plan for row in planned.rows.tolist()]
    assert sorted(rows) == list(range(lengths.numel()))
    assert len({len(plan) for plan in plans}) == 1
    assert len(plans[0]) % accumulate == 0
    for planned in (planned for plan in plans for planned in plan):
        assert planned.rows.numel() <= budget["rows"]
        assert planned.rows.numel() <= 1 or int(lengths[planned.rows].sum()) <= budget["tokens"]
    for start in range(0, len(plans[0]), accumulate):
        of_step = [planned for plan in plans for planned in plan[start : start + accumulate]]
        n_rows = sum(planned.rows.numel() for planned in of_step)
        assert n_rows > 0
        for planned in of_step:
            assert planned.scale == pytest.approx(world_size * accumulate / n_rows)


@settings(deadline=None)
@given(lengths_of, budgets, st.integers(1, 4))
def test_evaluation_reads_every_row_once(lengths, budget, world_size):
    plans = [plan_evaluation(lengths, world_size=world_size, rank=rank, **budget) for rank in range(world_size)]
    rows = [row for plan in plans for planned in plan for row in planned.rows.tolist()]
    assert sorted(rows) == list(range(lengths.numel()))
    assert len({len(plan) for plan in plans}) == 1
    for planned in (planned for plan in plans for planned in plan):
        assert planned.rows.numel() <= 1 or int(lengths[planned.rows].sum()) <= budget["tokens"]


def test_a_plan_depends_on_its_arguments_alone():
    lengths = torch.randint(3, 40, (500,))

    def plan(seed: int, epoch: int) -> list[list[int]]:
        torch.manual_seed(seed + epoch)
        return [one.rows.tolist() for one in plan_epoch(lengths, tokens=400, rows=16, seed=seed, epoch=epoch)]

    assert plan(7, 3) == plan(7, 3)
    assert plan(7, 3) != plan(7, 4)
    assert plan(7, 3) != plan(8, 3)


def test_the_mean_over_ranks_and_micro_batches_is_the_mean_over_rows():
    lengths, losses = torch.randint(3, 40, (101,)), torch.rand(101)
    plans = [
        plan_epoch(lengths, tokens=300, rows=16, seed=0, epoch=0, world_size=3, rank=rank, accumulate=2)
        for rank in range(3)
    ]
    for step in range(len(plans[0]) // 2):
        micro = [planned for plan in plans for planned in plan[2 * step : 2 * step + 2]]
        averaged = sum(float(losses[one.rows].sum()) * one.scale for one in micro) / len(micro)
        assert averaged == pytest.approx(float(losses[torch.cat([one.rows for one in micro])].mean()), rel=1e-5)


def test_short_texts_are_hardly_padded():
    lengths = (torch.randn(6000, generator=torch.Generator().manual_seed(0)).abs() * 12).long() + 3
    in_windows = plan_epoch(lengths, tokens=4096, rows=64, seed=0, epoch=0)
    assert padding_share(in_windows, lengths) < 0.08
    assert padding_share(plan_evaluation(lengths, tokens=4096, rows=64), lengths) < 0.08
    unsorted = [one._replace(rows=rows) for one, rows in zip(in_windows, torch.arange(6000).split(64), strict=False)]
    assert padding_share(unsorted, lengths) > 0.4


def test_no_batch_is_a_stray_row():
    plan = plan_epoch(torch.full((6 * 64 + 1,), 10), tokens=4096, rows=64, seed=0, epoch=0)
    assert sorted(one.rows.numel() for one in plan)[:2] == [32, 33]


@pytest.mark.parametrize("paired", [False, True])
def test_batches_hold_the_planned_rows_end_to_end(paired):
    lengths = [3, 1, 5, 0, 2, 4]
    tokens = tokens_of(lengths, paired=paired)
    plan = plan_epoch(tokens.lengths, tokens=6, rows=3, seed=1, epoch=0)
    batches = Batches(tokens, plan)
    assert len(batches) == len(plan)
    for batch, planned in zip(batches, plan, strict=True):
        expected = [100 * row + i for row in planned.rows.tolist() for i in range(lengths[row])]
        assert batch.ids_N.tolist() == expected
        assert batch.ids_N.dtype == torch.int64
        assert batch.layout.lengths_B.tolist() == [lengths[row] for row in planned.rows.tolist()]
        assert batch.layout.longest == max(lengths[row] for row in planned.rows.tolist())
        assert batch.labels_B.tolist() == [row % 3 for row in planned.rows.tolist()]
        assert batch.rows_B.tolist() == planned.rows.tolist()
        assert (batch.segments_N is None) is not paired
        if batch.segments_N is not None:
            assert batch.segments_N.tolist() == [i % 2 for i in expected]


@pytest.mark.parametrize("n_rows", [5, 3000])
def test_very_many_micro_batches_halve_the_largest_until_each_has_a_row(n_rows):
    plan = plan_epoch(torch.full((n_rows,), 4), tokens=4096, rows=64, seed=0, epoch=0, accumulate=4096)
    sizes = sorted(one.rows.numel() for one in plan)
    assert len(plan) == 4096
    assert sizes == [0] * (4096 - n_rows) + [1] * n_rows
    assert {one.scale for one in plan} == {4096 / n_rows}


def test_a_batch_may_have_no_rows():
    tokens = tokens_of([3, 2])
    plan = plan_epoch(tokens.lengths, tokens=64, rows=8, seed=0, epoch=0, world_size=4, rank=3)
    assert [one.rows.numel() for one in plan] == [0]
    batch = gather(tokens, plan[0])
    assert (batch.ids_N.numel(), batch.layout.n_documents, batch.layout.longest, batch.labels_B.numel()) == (0, 0, 0, 0)
