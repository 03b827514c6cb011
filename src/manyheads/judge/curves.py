"""Figures over the steps of a training run, as metrics.csv holds them."""

import csv
from pathlib import Path

Curve = dict[str, float]  # one row of metrics.csv; a figure that was not logged at that step is absent


def read_curves(path: Path) -> list[Curve]:
    """The rows of metrics.csv that tell their step, empty and unreadable cells left out; none if there is no file."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        rows = [{name: _number(cell) for name, cell in row.items()} for row in csv.DictReader(file, restval="")]
    curves = [{name: cell for name, cell in row.items() if cell is not None} for row in rows]
    return [row for row in curves if "step" in row]


def _number(cell: object) -> float | None:
    try:
        return float(cell) if isinstance(cell, str) and cell else None
    except ValueError:
        return None
