"""The verbs that judge, by rows: what is measured begins at the first row."""

from pathlib import Path

import judging
import pytest


def test_a_measurement_goes_on_after_no_stopped_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [tmp_path / name for name in (".predict-10.parquet.part", ".predict-10.parquet.part.json")]
    for one in left:
        one.write_text("{}")
    there = []
    monkeypatch.setattr(judging, "to_parquet", lambda *_: None)
    monkeypatch.setattr(judging, "check", lambda *_: None)
    monkeypatch.setattr(judging, "half", lambda *_: there.append([one.exists() for one in left]) or 7.0)
    monkeypatch.setattr(judging, "manyheads", lambda *_: 5.0)
    assert judging.measured("predict", 10, tmp_path / "rows-10.csv", tmp_path)["most_mib"] == 7.0
    assert there == [[False, False]]
