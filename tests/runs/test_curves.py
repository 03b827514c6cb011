"""metrics.csv as curves."""

from pathlib import Path

from manyheads.runs.folder import read_curves


def test_rows_hold_what_was_logged(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("step,epoch,loss,validation_loss\n10,0,1.5,\n20,,oops,0.5,more\n,1,2,3\n")
    assert read_curves(path) == [
        {"step": 10.0, "epoch": 0.0, "loss": 1.5},
        {"step": 20.0, "validation_loss": 0.5},
    ]


def test_no_file_is_no_curve(tmp_path: Path) -> None:
    assert read_curves(tmp_path / "metrics.csv") == []
