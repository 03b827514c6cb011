"""What `evaluate` judges: which rows, read before torch is imported, so that mistakes in the data come at once."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from manyheads.compose import read_run
from manyheads.config import DataConfig, EvaluateConfig, RunConfig, Source
from manyheads.config import Task as Answered
from manyheads.config.plain import listed
from manyheads.data.rows import Rows, Splits
from manyheads.data.sources import read_split
from manyheads.data.tables import open_tables
from manyheads.data.texts import read_rows, read_text_split
from manyheads.ship.settings import COLUMNS, Columns, Settings

DEFAULTS = DataConfig()
UNREAD = {  # the column of an answer that a model does not give, and by what it does
    Answered.classify: ("target", "classes"),
    Answered.seq2seq: ("label", "texts"),
    Answered.pretrain: ("target", "hidden words"),
}
ROLES = ("train", "validation", "test")
LONGEST = 60  # letters of a name, four bytes each at the most, that a disk takes


@dataclass(slots=True)
class Task:
    """Rows to judge and what their data is called; `run` and `splits` where the data is the run's own.

    `split` is the one that was asked for, or `all` where a single file holds all that there is.
    """

    rows: Rows
    name: str
    split: str
    run: RunConfig | None = None
    splits: Splits | None = None

    @property
    def title(self) -> str:
        return f"{self.name}: {'all rows' if self.split == 'all' else f'{self.split} split'}"

    @property
    def notes(self) -> list[str]:
        """What was noticed in the data."""
        return self.splits.notes if self.splits else []

    @property
    def about(self) -> dict[str, str]:
        """What metrics.json says of the rows."""
        return {"data": self.name, "split": self.split, "source": self.rows.source}

    @property
    def folder(self) -> str:
        """What the folder of its results is called."""
        return f"{self.name}-{self.split}"


def find_task(config: EvaluateConfig, home: Path | None, settings: Settings, labels: list[str]) -> Task:
    """Read the rows.

    Args:
        home: the run folder, None where the model/ folder stands alone.

    Raises:
        ValueError: no data is named and there is no run folder to tell; the data is missing or broken, has no such
            split, other labels, or single texts where the model takes pairs.
    """
    config.generate.check_read(by_texts=settings.task is Answered.seq2seq)
    _check_columns(config.data, settings)
    task = (
        _named_data(config, settings, labels)
        if _names_data(config)
        else _own_data(config, home, labels, multi=settings.multi)
    )
    if settings.pairs and task.rows.pairs is None:
        raise ValueError(
            f"{task.rows.source} holds single texts, but the model takes pairs: name the column of the second text by "
            "data.text_pair=<column>"
        )
    return task


def results_name(config: EvaluateConfig, home: Path | None, settings: Settings) -> str:
    """`Task.folder` of what `find_task` finds, without its rows."""
    if _names_data(config):
        data = with_columns(config.data, settings.columns, pairs=settings.pairs)
        return f"{data_name(data)}-{_split_of(data, config.split)}"
    assert home is not None, "find_task comes first"
    return f"{data_name(read_run(home / 'config.yaml').data)}-{config.split}"


def _names_data(config: EvaluateConfig) -> bool:
    return config.data.source is not Source.run or bool(config.data.path)


def _check_columns(data: DataConfig, settings: Settings) -> None:
    """Refuse the column of an answer that a model of this task does not give."""
    unread, answers = UNREAD[settings.task]
    name = getattr(data, unread)
    if name != getattr(DEFAULTS, unread) and data.source in (Source.run, Source.files):
        raise ValueError(
            f"data.{unread}={name} does nothing here, as the model of run answers by {answers}: leave it away"
        )


def data_name(data: DataConfig) -> str:
    """What a reader calls the data: the name of its file, folder or hub dataset, fit for a folder's name."""
    name = data.hub.rsplit("/", 1)[-1] or data.source.name
    if data.path:
        path = Path(data.path).expanduser()
        name = path.name if path.is_dir() else path.name.split(".")[0]
        name = f"{path.absolute().parent.name}-{name}" if name in ROLES and not path.is_dir() else name
    return re.sub(r"[^\w.-]+", "-", name)[:LONGEST].strip("-.") or "data"


def _own_data(config: EvaluateConfig, home: Path | None, labels: list[str], *, multi: bool) -> Task:
    if home is None:
        raise ValueError(
            f"run={config.run} is a model without its run folder, which would say what data it was trained on: "
            "name the data to judge it on, by data.path=<file or folder> or data=<preset>"
        )
    run = read_run(home / "config.yaml")
    splits = read_rows(run, with_test=config.split == "test")
    rows = splits.by_name().get(config.split)
    if rows is None:
        raise ValueError(f"split={config.split} is not in the data of run={config.run}: choose split=validation")
    if sorted(splits.labels) != sorted(labels):
        raise ValueError(
            f"{rows.source} has changed since training: its labels are {listed(splits.labels)}, "
            f"the model's are {listed(labels)}"
        )
    if splits.multi != multi:
        had = "any number of labels" if multi else "one class"
        raise ValueError(f"{rows.source} has changed since training, when each row had {had}: give the same data")
    for part in splits.by_name().values() if labels else ():
        _number(part, [labels.index(name) for name in splits.labels])
    return Task(rows, data_name(run.data), config.split, run, splits)


def _number(rows: Rows, ids: list[int]) -> None:
    """Give labels the ids that they have in the model."""
    if rows.sets is not None:
        rows.sets = [tuple(sorted(ids[label] for label in one)) for one in rows.sets]
    rows.labels = [label if label == len(ids) else ids[label] for label in rows.labels]


def _named_data(config: EvaluateConfig, settings: Settings, labels: list[str]) -> Task:
    data = with_columns(config.data, settings.columns, pairs=settings.pairs)
    if settings.task is Answered.pretrain:
        rows = read_text_split(data, config.split)
    else:
        rows = read_split(data, config.split, labels, multi=settings.multi)
    return Task(rows, data_name(data), _split_of(data, config.split))


def _split_of(data: DataConfig, split: str) -> str:
    return "all" if data.path and "all" in open_tables(data) else split


def with_columns(data: DataConfig, columns: Columns, *, pairs: bool) -> DataConfig:
    """`data` with the columns the model was trained on, except those that were typed.

    A preset names its own columns. A model of single texts never reads a second one.
    """
    never = {} if pairs else {"text_pair": ""}
    if data.source not in (Source.run, Source.files):
        return replace(data, **never)
    stored = {name: getattr(columns, name) for name in COLUMNS if getattr(data, name) == getattr(DEFAULTS, name)}
    source = Source.hub if columns.preset and len(stored) == len(COLUMNS) else Source.files
    return replace(data, source=source, **(stored | never))
