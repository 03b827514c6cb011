"""Processes that torchrun starts again find each other, not those that are gone."""

import threading
import time
from datetime import timedelta

import pytest
from torch import distributed as dist

from manyheads.distributed.ranks import Ranks
from manyheads.training.strategies import gathered

SOON = timedelta(seconds=60)


@pytest.mark.parametrize("first_is_late", [False, True])
def test_what_an_earlier_start_left_in_the_store_leads_nowhere(first_is_late):
    store = dist.HashStore()
    for key, value in {"call": "old", "old/1": "gone", "old/2": "gone too", "old/go": "gone,gone too"}.items():
        store.set(f"manyheads/{key}", value)
    found: dict[int, dist.Store] = {}

    def come(rank: int) -> None:
        time.sleep(0.3 * (first_is_late == (rank == 0)))
        found[rank] = gathered(store, Ranks(rank, 3, rank, 3, started_by="torchrun"), SOON)

    threads = [threading.Thread(target=come, args=(rank,)) for rank in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    found[0].set("address", "today")
    assert found[1].get("address") == found[2].get("address") == b"today"
    with pytest.raises(RuntimeError, match="rank 0 has not called within"):
        gathered(store, Ranks(1, 3, 1, 3), timedelta(seconds=0.2))
