"""Rows by the million: what is generated, and how the memory of all processes is counted."""

import subprocess
import sys

import pytest
import scale

from manyheads.config import DataConfig
from manyheads.data.sources import read_splits


@pytest.mark.slow
def test_both_kinds_hold_the_same_rows(tmp_path):
    splits = [read_splits(DataConfig(path=str(scale.generated(tmp_path, 640, kind))), 0) for kind in ("csv", "parquet")]
    one, other = splits
    assert [rows.texts for rows in one.by_name().values()] == [rows.texts for rows in other.by_name().values()]
    assert one.labels == sorted(scale.CLASSES)
    n_bytes = (tmp_path / "rows-640.csv").stat().st_size
    assert abs(n_bytes / 640 - scale.BYTES) < 20


def test_the_memory_of_children_counts():
    holds = [sys.executable, "-c", "held = b'x' * 2**26; input('up')"]
    parent = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess; input('up'); subprocess.run({holds})"], stdin=-1, stdout=-1
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    assert parent.stdout.read(2) == b"up"
    alone = scale.memory(parent.pid)
    parent.stdin.write(b"\n")
    parent.stdin.flush()
    assert parent.stdout.read(2) == b"up"
    both = scale.memory(parent.pid)
    parent.communicate(b"\n")
    assert all(more > less + 2**16 for more, less in zip(both, alone, strict=True)), "64 MB in KiB"
