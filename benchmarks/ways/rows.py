"""Training, validation and test rows of a task: the same for every way. Standard library and manyheads.data."""

import csv
import random
from pathlib import Path

from manyheads.cli.compose import compose
from manyheads.data.rows import Rows, Splits
from manyheads.data.sources import read_splits
from ways.recipes import DRAWN, Task

Cells = dict[str, str]


def data_of(task: Task, data: Path, scratch: Path, test_rows: int = 0) -> Path:
    """The folder a task reads: the published one, or one in `scratch`: rows drawn of each class, and the test file or
    `test_rows` of it."""
    published = data / task.name
    if task.size == "full" and not test_rows:
        return published
    folder = scratch / "data"
    folder.mkdir(parents=True, exist_ok=True)
    whole = []
    if task.size == "full":
        whole = [name for name in ("train.csv", "validation.csv") if (published / name).exists()]
    else:
        write(folder / "train.csv", draw(read(published / "train.csv"), DRAWN[task.size], task.seed))
    if test_rows:
        rows = read(published / "test.csv")
        write(folder / "test.csv", [rows[at] for at in tested(len(rows), test_rows)])
    else:
        whole.append("test.csv")
    for name in whole:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(published / name)
    return folder


def tested(n_rows: int, most: int) -> list[int]:
    """Which of the rows of a test file are answered where at most this number are: the same for every way."""
    if n_rows <= most:
        return list(range(n_rows))
    return sorted(random.Random(0).sample(range(n_rows), most))


def data_words(folder: Path) -> list[str]:
    """The words that say which rows: what is carved out to choose by is the same for all ways and seeds."""
    return [f"data.path={folder}", "data.split_seed=0"]


def draw(rows: list[Cells], n: int, seed: int) -> list[Cells]:
    """`n` rows of each class, or all where it has fewer, no text twice. The 10 of a seed are among its 100."""
    by_class: dict[str, dict[tuple[str, ...], int]] = {}
    for at, row in enumerate(rows):
        texts = tuple(cell for key, cell in row.items() if key != "label")
        by_class.setdefault(row["label"], {}).setdefault(texts, at)
    drawn: set[int] = set()
    for label, places in sorted(by_class.items()):
        order = list(places.values())
        random.Random(f"{seed} {label}").shuffle(order)
        drawn.update(order[:n])
    return [rows[at] for at in sorted(drawn)]


def splits_of(folder: Path) -> tuple[Splits, Rows]:
    """As `manyheads train` reads and carves them; and the rows a model is fitted on that has nothing left to choose.

    Those are all rows of train.csv, so a cheap model also learns from what was carved out of it.
    """
    run = compose("train", data_words(folder))
    splits = read_splits(run.data, run.seed)
    carved = not (folder / "validation.csv").exists()
    return splits, together(splits.train, splits.validation) if carved else splits.train


def together(first: Rows, second: Rows) -> Rows:
    """The rows of both."""
    pairs = None if first.pairs is None or second.pairs is None else [*first.pairs, *second.pairs]
    texts, labels = [*first.texts, *second.texts], [*first.labels, *second.labels]
    return Rows(texts, pairs, labels, first.source, [*first.numbers, *second.numbers])


def read(file: Path) -> list[Cells]:
    """Rows of a csv, a cell by each column's name."""
    csv.field_size_limit(10**9)
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def write(file: Path, rows: list[Cells]) -> None:
    """What `read` reads."""
    with file.open("w", newline="", encoding="utf-8") as lines:
        table = csv.DictWriter(lines, list(rows[0]) if rows else ["text"])
        table.writeheader()
        table.writerows(rows)
