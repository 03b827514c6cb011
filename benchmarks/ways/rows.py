"""Training, validation and test rows of a task: the same for every way. Standard library and manyheads.data."""

import csv
import random
from pathlib import Path

from manyheads.compose import compose
from manyheads.data.rows import Rows, Splits
from manyheads.data.sources import read_splits
from ways.recipes import SHARE, SIZES, Task

Cells = dict[str, str]
UNLABELLED = "unlabelled.csv"


def data_of(task: Task, data: Path, scratch: Path) -> Path:
    """The folder a task reads: the published one, or one in `scratch` with rows drawn of each class and the test file.

    The other training rows lie there without their labels in unlabelled.csv.
    """
    published = data / task.name
    if task.size == "full":
        return published
    folder = scratch / "data"
    folder.mkdir(parents=True, exist_ok=True)
    drawn, others = draw(read(published / "train.csv"), SIZES[task.size], task.seed)
    write(folder / "train.csv", drawn)
    write(folder / UNLABELLED, [{key: cell for key, cell in row.items() if key != "label"} for row in others])
    link = folder / "test.csv"
    link.unlink(missing_ok=True)
    link.symlink_to(published / "test.csv")
    return folder


def data_words(task: Task, folder: Path) -> list[str]:
    """Settings that say which rows: what is carved out to choose by is the same for all ways and seeds."""
    share = [] if (folder / "validation.csv").exists() else [f"data.validation_share={SHARE[task.size]}"]
    return [f"data.path={folder}", "data.split_seed=0", *share]


def draw(rows: list[Cells], n: int, seed: int) -> tuple[list[Cells], list[Cells]]:
    """`n` rows of each class, or all where it has fewer, no text twice; and the others. 10 are among the 100."""
    by_class: dict[str, dict[tuple[str, ...], int]] = {}
    for at, row in enumerate(rows):
        texts = tuple(cell for key, cell in row.items() if key != "label")
        by_class.setdefault(row["label"], {}).setdefault(texts, at)
    drawn: set[int] = set()
    for label, places in sorted(by_class.items()):
        order = list(places.values())
        random.Random(f"{seed} {label}").shuffle(order)
        drawn.update(order[:n])
    return [rows[at] for at in sorted(drawn)], [row for at, row in enumerate(rows) if at not in drawn]


def splits_of(task: Task, folder: Path) -> tuple[Splits, Rows]:
    """As `manyheads train` reads and carves them; and the rows a model is fitted on that has nothing left to choose.

    Those are all rows of train.csv, so a cheap model also learns from what was carved out of it.
    """
    run = compose("train", data_words(task, folder))
    splits = read_splits(run.data, run.seed, task=run.task)
    carved = not (folder / "validation.csv").exists()
    return splits, together(splits.train, splits.validation) if carved else splits.train


def together(first: Rows, second: Rows) -> Rows:
    """The rows of both."""
    pairs = None if first.pairs is None or second.pairs is None else first.pairs + second.pairs
    numbers = [*first.numbers, *second.numbers]
    return Rows(first.texts + second.texts, pairs, first.labels + second.labels, first.source, numbers)


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
