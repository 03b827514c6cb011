"""What the tests of data share: small files, and the sentence that reading them gives."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from manyheads.config import DataConfig
from manyheads.data.sources import read_splits

Rows = list[tuple[object, ...]]


@pytest.fixture(scope="session")
def write() -> Callable[..., Path]:
    """`write(path, rows, header)` writes a csv file and returns its path."""

    def write_csv(path: Path, rows: Rows, header: tuple[str, ...] = ("text", "label")) -> Path:
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([header, *rows])
        return path

    return write_csv


@pytest.fixture(scope="session")
def two_classes() -> Callable[..., Rows]:
    """`two_classes(n_rows, mark)`: rows of text and label, no and yes in turn."""

    def rows(n_rows: int, mark: str = "") -> Rows:
        return [(f"{mark}text number {i}", ("no", "yes")[i % 2]) for i in range(n_rows)]

    return rows


@pytest.fixture(scope="session")
def complaint() -> Callable[..., str]:
    """`complaint(data)`: the one sentence with which reading the splits is refused."""

    def sentence(data: DataConfig, **options: Any) -> str:
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - every test compares the whole sentence
            read_splits(data, 0, **options)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return sentence
