"""What Lightning is handed: the plan of this epoch and rank, and the exact number of steps."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from manyheads.config import BatchConfig, DataConfig, RunConfig
from manyheads.data.datamodule import COUNTED_EPOCHS, TextData
from manyheads.data.tokens import Tokens

CPU = torch.device("cpu")


@pytest.fixture
def data() -> TextData:
    lengths = torch.randint(3, 30, (200,), generator=torch.Generator().manual_seed(0))
    ids = torch.arange(int(lengths.sum()), dtype=torch.int32)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    split = Tokens(ids, offsets, None, torch.zeros(200, dtype=torch.int64))
    return TextData({"train": split, "validation": split}, BatchConfig(tokens=200, rows=16, accumulate=2), seed=3)


def test_folds_without_one_of_them_are_refused(tmp_path):
    """Its validation rows would be those that it learns from."""
    run = RunConfig(data=DataConfig(cache=str(tmp_path), folds=3))
    with pytest.raises(ValueError, match=r"^data.folds=3 stands for as many runs.*by data.fold=1 to 3, or 0"):
        TextData.from_run(run)


def attach(data: TextData, **place: int) -> None:
    here = {"current_epoch": 0, "world_size": 1, "global_rank": 0, "strategy": SimpleNamespace(root_device=CPU)}
    here["max_steps"] = -1
    data.trainer = SimpleNamespace(**{**here, **place})  # type: ignore[assignment]


def rows(batches) -> list[int]:
    return [row for batch in batches for row in batch.rows_B.tolist()]


def test_each_epoch_has_its_own_order_and_reads_every_row(data):
    orders = []
    for epoch in (0, 1):
        attach(data, current_epoch=epoch)
        orders.append(rows(data.train_dataloader()))
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(200))
    assert orders[0] != orders[1]


@pytest.mark.parametrize("loader", ["train_dataloader", "val_dataloader"])
def test_ranks_share_the_rows(data, loader):
    seen = []
    for rank in range(3):
        attach(data, world_size=3, global_rank=rank)
        seen += rows(getattr(data, loader)())
    assert sorted(seen) == list(range(200))


@pytest.mark.parametrize(("world_size", "per_step"), [(1, 2), (2, 1), (3, 1)])
def test_steps_are_counted_exactly_on_however_many_ranks(data, world_size, per_step):
    expected = 0
    assert data.per_step(world_size) == per_step
    for epoch in range(3):
        attach(data, current_epoch=epoch, world_size=world_size)
        expected += len(data.train_dataloader()) // per_step
    assert data.n_steps(3, -1) == expected
    assert data.n_steps(3, 5) == 5
    assert data.n_steps(-1, 1000) == 1000
    assert data.n_steps(3, 10**6) == expected


@pytest.mark.parametrize("world_size", [1, 2])
def test_the_last_steps_and_the_first_are_cut_off(data, world_size):
    attach(data, world_size=world_size)
    per_step, whole = data.per_step(world_size), rows(data.train_dataloader())
    data.begin = (0, 3 * per_step)
    attach(data, world_size=world_size, global_step=3, max_steps=7)
    batches = data.train_dataloader()
    assert len(batches) == 7 * per_step
    found = rows(batches)
    assert 0 < len(found) < len(whole)
    assert found == whole[-len(whole) :][whole.index(found[0]) :][: len(found)]


def test_very_many_epochs_are_counted_from_the_first(data, monkeypatch):
    planned = []
    monkeypatch.setattr(data, "steps_of", lambda epoch: planned.append(epoch) or 10 + epoch % 2)
    assert data.n_steps(COUNTED_EPOCHS, -1) == COUNTED_EPOCHS * 21 // 2
    planned.clear()
    assert data.n_steps(10**9, -1) == 10**9 * 21 // 2
    assert data.n_steps(10**9, 7) == 7
    assert data.n_steps(10**9, 10**6) == 10**6
    assert data.n_steps(-1, 10**12) == 10**12
    assert data.n_steps(0, -1) == 0
    assert max(planned) < COUNTED_EPOCHS


def test_the_largest_batch_is_found_among_batches_without_rows(data):
    data.batch = replace(data.batch, accumulate=512)
    assert data.largest_batch().labels_B.numel() == 1


@pytest.mark.parametrize("split", [1, 2, 4, 1024])
def test_batches_that_are_cut_are_cut_in_validation_too_and_read_every_row_once(data, split):
    data.split = split
    batches = list(data.val_dataloader())
    most = max(1, data.batch.rows // split), data.batch.tokens // split
    assert sorted(row for one in batches for row in one.rows_B.tolist()) == list(range(len(data.tokens["validation"])))
    assert all(len(one.rows_B) == 1 or (len(one.rows_B), len(one.ids_N)) <= most for one in batches)


def test_a_batch_moves_whole(data):
    attach(data)
    batch = next(iter(data.train_dataloader()))
    moved = data.transfer_batch_to_device(batch, torch.device("meta"), 0)
    assert {moved.ids_N.device.type, moved.labels_B.device.type, moved.layout.offsets.device.type} == {"meta"}
    assert moved.layout.longest == batch.layout.longest
    assert data.transfer_batch_to_device(batch, torch.device("cpu"), 0) is batch
