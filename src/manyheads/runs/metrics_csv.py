"""metrics.csv of a run, read: one row for each step at which something was logged. Standard library only."""

import csv
from contextlib import suppress
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
                with suppress(TypeError, ValueError):  # of cells beyond the last column a list
                    row[name] = float(cell)
            if "step" in row:
                rows.append(row)
    return rows
