"""Tokens that live on the device: batches gathered there are those gathered on the host."""

from types import SimpleNamespace

import pytest
import torch

from manyheads.config import BatchConfig
from manyheads.data.batches import FEWEST, Batch, gather, n_bytes, plan_epoch, tokens_on
from manyheads.data.datamodule import TextData
from manyheads.data.tokens import Tokens

LENGTHS = [5, 0, 9, 4, 7, 6, 1]
META = torch.device("meta")  # holds no values: whatever reads one back fails


def tokens(*, answered: bool = False) -> Tokens:
    torch.manual_seed(0)
    offsets = torch.tensor([0, *LENGTHS]).cumsum(0)
    n = int(offsets[-1])
    segments = torch.randint(2, (n,), dtype=torch.uint8)
    return Tokens(
        torch.randint(5, 30, (n,), dtype=torch.int32),
        offsets,
        segments,
        torch.randint(3, (len(LENGTHS),)),
        targets=tokens() if answered else None,
    )


def tensors(batch: Batch) -> list[torch.Tensor]:
    parts = [batch, batch.targets] if batch.targets else [batch]
    return [x for one in parts for x in (one.ids_N, one.segments_N, one.layout.offsets, one.labels_B, one.rows_B)]


@pytest.mark.parametrize("few_counts", [False, True])
def test_a_device_that_holds_no_values_can_gather(few_counts):
    """So nothing is read back from it, and shapes and what the host knows are those of the host."""
    host = tokens(answered=True)
    for planned in plan_epoch(host.lengths, tokens=30, rows=3, seed=0, epoch=0):
        here, there = (gather(one, planned, few_counts=few_counts) for one in (host, tokens_on(host, META)))
        assert [x.shape for x in tensors(here)] == [x.shape for x in tensors(there)]
        assert [x.dtype for x in tensors(here)] == [x.dtype for x in tensors(there)]
        assert all(x.device == META for x in tensors(there))
        for one, other in zip(here.parts, there.parts, strict=True):
            assert (one.layout.n_tokens, one.layout.longest) == (other.layout.n_tokens, other.layout.longest)


def test_few_counts_add_a_tail_and_change_no_text():
    host = tokens()
    for planned in plan_epoch(host.lengths, tokens=30, rows=3, seed=0, epoch=0):
        plain, filled = gather(host, planned), gather(host, planned, few_counts=True)
        n = plain.ids_N.numel()
        assert filled.ids_N.numel() == FEWEST == n + filled.layout.tail
        assert torch.equal(filled.ids_N[:n], plain.ids_N)
        assert not filled.ids_N[n:].any()
        assert torch.equal(filled.layout.offsets, plain.layout.offsets)


def test_counts_are_powers_of_two_beyond_the_fewest():
    n = FEWEST + 1
    long = Tokens(torch.ones(n, dtype=torch.int32), torch.tensor([0, n]), None, torch.zeros(1, dtype=torch.int64))
    (planned,) = plan_epoch(long.lengths, tokens=9999, rows=9, seed=0, epoch=0)
    assert gather(long, planned, few_counts=True).ids_N.numel() == 2 * FEWEST


def test_what_is_moved_is_counted():
    n = sum(LENGTHS)
    assert n_bytes(tokens()) == 5 * n + 8 * len(LENGTHS)
    assert n_bytes(tokens(answered=True)) == 2 * n_bytes(tokens())


@pytest.mark.parametrize(("free", "is_moved"), [(10**9, True), (100, False)])
def test_a_split_is_moved_once_where_it_fits(monkeypatch, free, is_moved):
    calls = []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 10**12))
    monkeypatch.setattr("manyheads.data.datamodule.tokens_on", lambda one, device: calls.append(device) or one)
    data = TextData({"train": tokens()}, BatchConfig(), 0)
    data.trainer = SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device("cuda", 0)))
    for _ in range(3):
        data._near("train")
    assert len(calls) == is_moved


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("few_counts", [False, True])
def test_a_gpu_gathers_what_the_host_does(few_counts):
    host = tokens(answered=True)
    device = torch.device("cuda", 0)
    for planned in plan_epoch(host.lengths, tokens=30, rows=3, seed=0, epoch=0):
        here = gather(host, planned, few_counts=few_counts)
        for there in (gather(tokens_on(host, device), planned, few_counts=few_counts), here.to(device)):
            assert all(torch.equal(x, y.cpu()) for x, y in zip(tensors(here), tensors(there), strict=True))
