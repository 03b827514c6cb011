"""Rows by the million: what is generated, and how the memory of all processes is counted."""

import os
import subprocess
import sys

import scale

from manyheads.config import DataConfig
from manyheads.data.sources import read_splits


def test_both_kinds_hold_the_same_rows(tmp_path):
    splits = [read_splits(DataConfig(path=str(scale.generated(tmp_path, 640, kind))), 0) for kind in ("csv", "parquet")]
    one, other = splits
    assert [rows.texts for rows in one.by_name().values()] == [rows.texts for rows in other.by_name().values()]
    assert one.labels == sorted(scale.CLASSES)
    n_bytes = (tmp_path / "rows-640.csv").stat().st_size
    assert abs(n_bytes / 640 - scale.BYTES) < 20


def test_the_memory_of_children_counts():
    alone = scale.memory(os.getpid())
    child = subprocess.Popen([sys.executable, "-c", "held = b'x' * 2**26; input('up')"], stdin=-1, stdout=-1)
    assert child.stdout is not None
    assert child.stdout.read(2) == b"up"
    both = scale.memory(os.getpid())
    child.communicate(b"\n")
    assert all(more > less + 2**16 for more, less in zip(both, alone, strict=True)), "64 MB in KiB"
