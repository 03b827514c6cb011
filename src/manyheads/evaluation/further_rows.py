"""Rows to learn from in addition to train, and the splits that are judged. NumPy."""

from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from manyheads.config import RunConfig
from manyheads.data.hashes import rows_among
from manyheads.data.rows import Rows, Splits, comparable_hashes
from manyheads.data.sources import read_rows


def not_judged(run: RunConfig, splits: Splits, rows: Rows) -> NDArray[np.int64]:
    """Which of some further rows have no text that is in validation or test, also where the run leaves test unread, and
    are of no group that is."""
    judged, test = [splits.validation], splits.test
    if not run.test:
        with suppress(ValueError):  # it may have no labels; otherwise the run may be judged on it later
            test = read_rows(run, with_test=True).test
    if test is not None:
        judged.append(test)
    is_judged_n = np.zeros(len(rows), dtype=bool)
    for part in judged:
        is_judged_n[rows_among(*comparable_hashes(rows, part))] = True
        if rows.groups is not None and part.groups is not None:
            is_judged_n |= np.isin(rows.groups, part.groups)
    return np.flatnonzero(~is_judged_n)
