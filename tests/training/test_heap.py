"""What is kept, by the page faults of a process that takes and frees the same memory again and again.

The fewest of a round count: until the heap has settled, a small object behind the freed memory may keep it from being
used again for some rounds.
"""

import platform
import subprocess
import sys

import pytest

PAGES = """
import resource, sys, torch
from manyheads.training.trainer import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
def faults():
    torch.empty(12_000_000).fill_(1.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    faults()
counts = [faults() for _ in range(10)]
print(min(after - before for before, after in zip(counts, counts[1:])))
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries of C have no such setting")
def test_freed_memory_is_not_asked_for_again():
    lent, kept = (
        int(subprocess.run([sys.executable, "-c", PAGES, how], capture_output=True, check=True).stdout)
        for how in ("lent", "kept")
    )
    assert kept * 10 < lent
