"""metrics.csv of a run, read: one row for each step at which something was logged. Standard library only."""

import csv
from pathlib import Path

MetricsRow = dict[str, float]  # by column; a figure that was not logged at that step is absent


def read_metrics_csv(path: Path) -> list[MetricsRow]:
    """The rows that have a step, without empty and unreadable cells; none if there is no file."""
    if not path.is_file():
        return []
    rows: list[MetricsRow] = []
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        for cells in csv.DictReader(file, restval=""):
            row: MetricsRow = {}
            for name, cell in cells.items():
                number = _to_float(cell)
                if number is not None:
                    row[name] = number
            if "step" in row:
                rows.append(row)
    return rows


def _to_float(cell: object) -> float | None:
    try:
        return float(cell) if isinstance(cell, str) and cell else None
    except ValueError:
        return None
