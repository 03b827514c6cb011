"""benchmarks/serving.py: a short soak, and its table."""

import asyncio
from pathlib import Path

import pytest

serving = pytest.importorskip("serving", reason="needs the extras serve and bench")
TEXTS = [f"{first} {second} film" for first in ("good", "bad", "not so good", "very awful") for second in ("a", "the")]


@pytest.mark.slow
def test_a_soak_loses_nothing_and_keeps_its_memory(model_folder: Path) -> None:
    found = asyncio.run(serving.soak(model_folder, TEXTS, 40.0, share=0.4))  # other programs may take half the machine
    assert found["sent"] == found["answered"] > 500
    assert found["lost"] == found["refused"] == found["other bits"] == 0
    assert found["exit code"] == 0
    assert found["kills"] >= 2
    assert min(found[name] for name in ("malformed", "slow", "left")) > 10
    first, last = found["MiB of the server, first and last quarter"]
    assert last < first + 30


def test_a_table_names_everyone() -> None:
    one = {"requests/s": {"median": 100.0, "min": 90.0, "max": 110.0}, "p50 ms": 9.0, "p99 ms": 12.3}
    found = {name: {str(n): one for n in serving.CLIENTS} for name in (*serving.OURS, *serving.THEIRS)}
    lines = serving.table(found).splitlines()
    assert len(lines) == 2 + len(serving.OURS) + len(serving.THEIRS)
    assert "100 (90-110); 9.0 / 12.3" in lines[2]
