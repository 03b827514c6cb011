"""Batches against what was promised: every row once, budgets kept, ranks in step, nothing but the arguments."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from manyheads.config import Balance, BatchConfig
from manyheads.data.batches import Batches, Planned, gather, micro_batches, padding_share, plan_epoch, plan_evaluation
from manyheads.data.datamodule import TextData
from manyheads.data.tokens import Tokens

lengths_of = st.lists(st.integers(0, 60), max_size=120).map(lambda values: torch.tensor(values, dtype=torch.int64))
budgets = st.fixed_dictionaries({"tokens": st.integers(1, 200), "rows": st.integers(1, 12)})
accumulations, splits = st.integers(1, 5), st.sampled_from([1, 2, 4])


def tokens_of(lengths: list[int], *, paired: bool = False) -> Tokens:
    """Row i holds the ids 100 i, 100 i + 1, ..."""
    ids = torch.cat([torch.arange(n, dtype=torch.int32) + 100 * i for i, n in enumerate(lengths)])
    offsets = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()])
    return Tokens(ids, offsets, (ids % 2).to(torch.uint8) if paired else None, torch.arange(len(lengths)) % 3)


def by_rank(lengths: torch.Tensor, n_ranks: int, **how) -> list[list[list[Planned]]]:
    """The batches of each step, of each rank."""
    each = micro_batches(how.get("accumulate", 1), n_ranks, how.get("split", 1))
    plans = [plan_epoch(lengths, n_ranks=n_ranks, rank=rank, **how) for rank in range(n_ranks)]
    assert len({len(plan) for plan in plans}) == 1, "all ranks take equally many steps"
    assert len(plans[0]) % each == 0
    return [[plan[at : at + each] for at in range(0, len(plan), each)] for plan in plans]


def rows_of(batches: list[Planned]) -> list[int]:
    return [row for one in batches for row in one.rows.tolist()]


@settings(deadline=None)
@given(lengths_of, budgets, accumulations, splits, st.integers(1, 5), st.integers(0, 2**32 - 1), st.integers(0, 100))
def test_an_epoch_reads_every_row_once_in_the_same_steps_on_however_many_ranks(
    lengths, budget, accumulate, split, n_ranks, seed, epoch
):
    how = {**budget, "seed": seed, "epoch": epoch, "accumulate": accumulate}
    plans = by_rank(lengths, n_ranks, split=split, **how)
    steps = [[one for batches in of_ranks for one in batches] for of_ranks in zip(*plans, strict=True)]
    assert sorted(row for step in steps for row in rows_of(step)) == list(range(lengths.numel()))
    alone = by_rank(lengths, 1, **how)[0]
    assert [sorted(rows_of(step)) for step in steps] == [sorted(rows_of(step)) for step in alone]
    for step in steps:
        assert {one.scale for one in step if one.rows.numel()} == {len(step) / len(rows_of(step))}
        for one in step:
            assert one.rows.numel() <= budget["rows"]
            assert one.rows.numel() <= 1 or int(lengths[one.rows].sum()) <= budget["tokens"]


@settings(deadline=None)
@given(lengths_of, budgets, accumulations, splits, st.integers(1, 5))
def test_ranks_are_loaded_evenly(lengths, budget, accumulate, split, n_ranks):
    """No rank has more tokens than another by more than the largest batch has."""
    how = {**budget, "seed": 1, "epoch": 2, "accumulate": accumulate}
    for step in zip(*by_rank(lengths, n_ranks, split=split, **how), strict=True):
        loads = [sum(int(lengths[one.rows].sum()) for one in batches) for batches in step]
        largest = max(int(lengths[one.rows].sum()) for batches in step for one in batches)
        assert max(loads) - min(loads) <= largest


def test_one_batch_is_shared_among_ranks_to_the_row():
    lengths = torch.randint(20, 60, (4000,), generator=torch.Generator().manual_seed(0))
    for step in zip(*by_rank(lengths, 8, tokens=8192, rows=512, seed=0, epoch=0), strict=True):
        loads = [int(lengths[batches[0].rows].sum()) for batches in step]
        assert max(loads) - min(loads) <= max(int(lengths[batches[0].rows].max()) for batches in step)


@settings(deadline=None)
@given(lengths_of, budgets, st.integers(1, 4))
def test_evaluation_reads_every_row_once(lengths, budget, n_ranks):
    plans = [plan_evaluation(lengths, n_ranks=n_ranks, rank=rank, **budget) for rank in range(n_ranks)]
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
    for step in zip(*by_rank(lengths, 3, tokens=300, rows=16, seed=0, epoch=0, accumulate=5, split=2), strict=True):
        micro = [one for batches in step for one in batches]
        averaged = sum(float(losses[one.rows].sum()) * one.scale for one in micro) / len(micro)
        assert averaged == pytest.approx(float(losses[torch.cat([one.rows for one in micro])].mean()), rel=1e-5)


def test_rows_count_in_the_mean_of_a_step_as_much_as_asked():
    """The rows of one batch share what they count together, as hidden words do, which are drawn among all of them."""
    lengths, values = torch.randint(3, 40, (101,)), torch.rand(101)
    how = {"tokens": 300, "rows": 16, "seed": 0, "epoch": 0, "accumulate": 5, "split": 2}
    for step in zip(*by_rank(lengths, 3, counts=lengths - 2, **how), strict=True):
        micro = [one for batches in step for one in batches if one.rows.numel()]
        n_places = sum(len(batches) for batches in step)
        means = [float((values * (lengths - 2))[one.rows].sum() / (lengths - 2)[one.rows].sum()) for one in micro]
        found = sum(mean * len(one.rows) * one.scale for mean, one in zip(means, micro, strict=True)) / n_places
        rows = torch.cat([one.rows for one in micro])
        wanted = float((values * (lengths - 2))[rows].sum() / (lengths - 2)[rows].sum())
        assert found == pytest.approx(wanted, rel=1e-5)


def test_short_texts_are_hardly_padded():
    lengths = (torch.randn(6000, generator=torch.Generator().manual_seed(0)).abs() * 12).long() + 3
    tokens = Tokens(
        torch.zeros(0).int(), torch.cat([torch.zeros(1).long(), lengths.cumsum(0)]), None, torch.zeros(6000)
    )
    in_windows = plan_epoch(lengths, tokens=4096, rows=64, seed=0, epoch=0)
    assert padding_share(in_windows, tokens) < 0.08
    assert padding_share(plan_evaluation(lengths, tokens=4096, rows=64), tokens) < 0.08
    unsorted = [one._replace(rows=rows) for one, rows in zip(in_windows, torch.arange(6000).split(64), strict=False)]
    assert padding_share(unsorted, tokens) > 0.4


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
    assert {one.scale for one in plan if one.rows.numel()} == {4096 / n_rows}


def test_a_batch_may_have_no_rows():
    tokens = tokens_of([3, 2])
    plan = plan_epoch(tokens.lengths, tokens=64, rows=8, seed=0, epoch=0, n_ranks=4, rank=3)
    assert [one.rows.numel() for one in plan] == [0]
    batch = gather(tokens, plan[0])
    assert (batch.ids_N.numel(), batch.layout.n_documents, batch.layout.longest, batch.labels_B.numel()) == (0, 0, 0, 0)


balances = st.sampled_from([Balance.sqrt, Balance.uniform])
labels_of = st.lists(st.sampled_from([0, 0, 0, 0, 1, 1, 3, 4]), min_size=1, max_size=120).map(torch.tensor)


@given(labels_of, balances, st.integers(0, 9), st.integers(1, 4), st.integers(1, 3))
def test_rows_are_drawn_by_the_size_of_their_class(labels, balance, seed, n_ranks, accumulate):
    n_rows = len(labels)
    how = {"tokens": 60, "rows": 5, "seed": seed, "epoch": 1, "labels": labels.int(), "balance": balance}
    steps = by_rank(torch.arange(n_rows) % 7 + 1, n_ranks, accumulate=accumulate, **how)[0]
    drawn = [
        row
        for plans in by_rank(torch.arange(n_rows) % 7 + 1, n_ranks, accumulate=accumulate, **how)
        for step in plans
        for row in rows_of(step)
    ]
    assert len(drawn) == n_rows, "an epoch keeps its number of rows"
    n_C = labels.bincount().double()
    weights = n_C[labels] ** (-0.5 if balance is Balance.sqrt else -1.0)
    due = n_rows * weights / weights.sum()
    counts = torch.tensor(drawn).bincount(minlength=n_rows).double()
    assert ((counts - due).abs() < 1 + 1e-6).all()
    of_classes = torch.zeros_like(n_C).index_add(0, labels, counts - due)
    assert (of_classes.abs() < 1 + 1e-6).all(), "each class has its share, but for a row"
    alone = by_rank(torch.arange(n_rows) % 7 + 1, 1, accumulate=accumulate, **how)[0]
    together = by_rank(torch.arange(n_rows) % 7 + 1, n_ranks, accumulate=accumulate, **how)
    assert len(steps) == len(alone)
    for at, step in enumerate(alone):
        assert sorted(rows_of(step)) == sorted(row for plans in together for row in rows_of(plans[at]))


@pytest.mark.parametrize("balance", [Balance.sqrt, Balance.uniform])
def test_a_balanced_epoch_is_drawn_anew_and_goes_on_where_it_was(balance):
    rows = tokens_of([1 + at % 5 for at in range(90)])
    rows.labels = (torch.arange(90) % 10 == 0).int()
    data = TextData({"train": rows}, BatchConfig(tokens=20, rows=6, balance=balance), seed=3)
    plan, again = data.plan(1), data.plan(1)
    assert [one.rows.tolist() for one in plan] == [one.rows.tolist() for one in again]
    assert [one.rows.tolist() for one in plan] != [one.rows.tolist() for one in data.plan(2)]
    data.begin = (0, 4)
    rest, whole = list(data.train_dataloader()), [gather(rows, one) for one in data.plan(0)]
    assert [one.ids_N.tolist() for one in rest] == [one.ids_N.tolist() for one in whole[4:]]
    assert all(one.labels_B.dtype == torch.int64 for one in rest)
    assert sum(one.labels_B.float().sum() for one in whole) == pytest.approx(45 if balance.value == 1 else 22.5, abs=1)
