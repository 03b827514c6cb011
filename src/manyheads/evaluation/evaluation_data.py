"""The rows that a finished model is judged on: a split of its own data, or other data that is named. They are read
before torch is imported, so that a mistake in the data is found at once.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import manyheads.plugin as plugin
from manyheads.config import DataConfig, EvaluateConfig, MergeLabels, RunConfig
from manyheads.config.conversion import to_plain
from manyheads.config.data import ROLES, data_name
from manyheads.config.facts import hooks
from manyheads.config.figures import figures_of, measured_by
from manyheads.config.required import bounds_of
from manyheads.config.sentences import list_names
from manyheads.data.class_names import MULTI_LABEL
from manyheads.data.opening import open_tables
from manyheads.data.rows import Rows, Splits
from manyheads.data.sources import read_rows, read_split
from manyheads.errors import UserError
from manyheads.evaluation.held_out import require_same
from manyheads.inference.format import (
    COLUMNS,
    ModelFolder,
    Settings,
    check_text_columns,
    learnt_in,
    refuse_other_task,
)
from manyheads.runs.config_file import read_run
from manyheads.runs.files import read_json
from manyheads.runs.summary import JOINT, written_summary
from manyheads.runs.verb_output import VerbOutput

DEFAULTS = DataConfig()
EVALUATED = VerbOutput(
    "evaluate",
    "metrics.json",
    ('"data":', '"split":', '"source":'),
    (
        *("predictions.csv", "predictions.parquet", "report.html"),
        *(f"{name}.png" for name in ("loss", "accuracy", "f1", "reliability", "risk", "column-*")),
    ),
)
PART = ".answers.part"  # of the folder: the logits of a classifier, while it is evaluated


@dataclass(slots=True)
class EvaluationData:
    """Rows to evaluate.

    Attributes:
        rows: with their answers.
        name: of their data.
        split: the one that was typed, or `all` if a single file is evaluated as a whole.
        run, splits: of the run, if the data is its own.
        digest: of the settings of other data.
        folder: the name of the folder of results.
        role: the split of the run's own data that the rows are; empty if they are none, or it is unknown.
        learnt: says how many rows of other data have a text that the model learnt from.
        label_counts: how many training rows have each class or label; empty if unknown.
    """

    rows: Rows
    name: str
    split: str
    run: RunConfig | None = None
    splits: Splits | None = None
    digest: str = ""
    folder: str = ""
    role: str = ""
    learnt: str = ""
    label_counts: list[int] = field(default_factory=list)

    @property
    def title(self) -> str:
        if self.split == "all":
            return f"{self.name}: all rows"
        return f"{self.name}: {self.split} split"

    @property
    def notes(self) -> list[str]:
        """What was noticed in the data."""
        return self.splits.notes if self.splits else []

    @property
    def about(self) -> dict[str, str]:
        """What metrics.json says of the rows."""
        about = {"data": self.name, "split": self.split, "source": self.rows.source}
        if self.digest:
            about["digest"] = self.digest
        return about


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """What `evaluate` is to do: judge `model` on `data`, run the `analyses` of these names, and write into `folder`."""

    model: ModelFolder
    data: EvaluationData
    analyses: Sequence[str]
    folder: Path


def find_data(config: EvaluateConfig, home: Path | None, settings: Settings, labels: list[str]) -> EvaluationData:
    """Read the rows.

    Args:
        home: the run folder; None if the model/ folder is by itself.

    Raises:
        UserError: no data is named and no run folder names it; it is missing or broken; it has no such split, other
            labels, or single texts and the model takes pairs.
    """
    task = plugin.task(settings.task)
    figures = measured_by(settings.task, settings.kept)
    if settings.task == "classify":
        figures = figures_of("labels" if settings.multi else "classes")
    bounds_of(config.require, figures)
    refuse_other_task(config, settings)
    check_text_columns(config.data.text, settings)
    for unread in ("label", "target"):
        name = getattr(config.data, unread)
        if name and f"data.{unread}" in task.unread and config.data.source in ("run", "files"):
            raise UserError(
                f"data.{unread}={name} does nothing here, as the model of run answers by {task.answers}: remove it"
            )
    named = _named(config, settings)
    if settings.multi and named is not None and (named.votes or named.label_columns):
        raise UserError(
            "data.votes and data.label_columns give a row one class, but the model of run gives any number of labels: "
            "remove them"
        )
    if named is None:
        data = _own_data(config, home, labels, multi=settings.multi)
    else:
        data = _named_data(named, config, settings, labels)
    if settings.pairs and data.rows.pairs is None:
        raise UserError(
            f"{data.rows.source} holds single texts, but the model takes pairs: name the column of the second text by "
            "data.text_pair=<column>"
        )
    if data.run is None and home is not None:
        known, digest = written_summary(home).get("digests"), data.rows.digest(labels)
        if isinstance(known, dict):
            data.role = next((name for name in ROLES if known.get(name) == digest), "")
    data.digest = _digest(named)
    data.folder = results_name(config, home, settings)
    return data


def training_counts(model: Path, settings: Settings, labels: list[str]) -> list[int]:
    """How many training rows of the run around a model have each of its labels, by summary.json, where those of one of
    several columns follow its name; empty if this is unknown."""
    home = learnt_in(model)
    counts = written_summary(home).get("label_counts") if home else None
    if labels and isinstance(counts, dict):
        for column in ("", f"{settings.columns.label}{JOINT}"):
            own = {name.removeprefix(column): n for name, n in counts.items() if name.startswith(column)}
            if list(own) == labels:
                return list(own.values())
    return []


def results_name(config: EvaluateConfig, home: Path | None, settings: Settings) -> str:
    """The name of the folder of results: <data>-<split>, followed by a digest of the data if a folder of this name has
    results of other data."""
    data = _named(config, settings)
    if data is not None:
        name = f"{data_name(data)}-{_split_of(data, config.split)}"
    else:
        assert home is not None, "find_data comes first"
        name = f"{data_name(read_run(home / 'config.yaml').data)}-{config.split}"
    around = home or Path(config.run)
    if home is None and not (around / "config.json").is_file():
        around = around / "model"
    there = around / "evaluate" / name / "metrics.json"
    if not there.is_file():
        return name
    metrics = None
    with suppress(OSError, ValueError):
        metrics = read_json(there)
    digest = _digest(data)
    if isinstance(metrics, dict) and str(metrics.get("digest", "")) == digest:
        return name
    return f"{name}-{digest or 'own'}"


def _digest(data: DataConfig | None) -> str:
    """Eight hex digits of the settings that differ from their defaults; `cache` changes no row, and does not count.
    Empty for the run's own data."""
    if data is None:
        return ""
    path = ""
    if data.path:
        path = str(Path(data.path).expanduser().absolute())
    defaults, changed = to_plain(DEFAULTS), {}
    for name, value in to_plain(replace(data, path=path, cache="")).items():
        if value != defaults[name]:
            changed[name] = value
    return sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()[:8]


def _named(config: EvaluateConfig, settings: Settings) -> DataConfig | None:
    """The data that is named, with its columns; None: the run's own."""
    if config.data.source == "run" and not config.data.path:
        return None
    return with_columns(config.data, settings)


def with_columns(data: DataConfig, settings: Settings) -> DataConfig:
    """`data` with the columns that the model was trained on in place of those that were not typed.

    A preset names its own columns. A model of single texts never reads a second one. Classes that were merged in
    training are merged here, too.
    """
    columns, changes = settings.columns, dict[str, Any]()
    if data.source in ("run", "files"):
        stored = {name: getattr(columns, name) for name in COLUMNS if not getattr(data, name)}
        changes = {"source": "files", **stored}
        if columns.preset and len(stored) == len(COLUMNS):
            changes["source"] = "hub"
        if not (data.label or data.votes or data.label_columns):
            changes |= {"votes": columns.votes, "label_columns": columns.label_columns}
    else:
        changes = {name: getattr(DEFAULTS, name) for name in COLUMNS if not getattr(data, name)}
    for read_as in hooks(data, "read_as"):
        changes |= read_as(settings.kept)
    if not settings.pairs:
        changes["text_pair"] = ""
    if data.merge_labels is MergeLabels.none:
        changes["merge_labels"] = columns.merge_labels
    return replace(data, **changes)


def _own_data(config: EvaluateConfig, home: Path | None, labels: list[str], *, multi: bool) -> EvaluationData:
    if home is None:
        raise UserError(
            f"run={config.run} is a model without its run folder, which would say what data it was trained on: "
            "name the data to judge it on, by data.path=<file or folder> or data=<preset>"
        )
    run = read_run(home / "config.yaml")
    if run.data.path and not Path(run.data.path).expanduser().exists():
        raise UserError(
            f"data.path={run.data.path}, which run={config.run} was trained on, is not there any more: put it back, or "
            "let evaluate judge other data by data.path=<file>, which may hold rows that were learnt from"
        )
    learnt_without = plugin.task(run.task).read is not None and run.test  # it may leave texts of test out of train
    splits = read_rows(run, with_test=config.split == "test" or learnt_without, with_unread=True)
    rows = splits.by_name().get(config.split)
    if rows is None:
        raise UserError(f"split={config.split} is not in the data of run={config.run}: choose split=validation")
    if sorted(splits.labels) != sorted(labels):
        raise UserError(
            f"{rows.source} has changed since training: its labels are {list_names(splits.labels)}, "
            f"the model's are {list_names(labels)}"
        )
    if splits.multi != multi:
        had = "any number of labels" if multi else "one class"
        raise UserError(f"{rows.source} has changed since training, when each row had {had}: give the same data")
    require_same(splits, config.split, home, "let evaluate judge other rows by data.path=<file>")
    if splits.labels != labels:
        renumber(splits, labels)
    is_learnt = config.split == "validation" and run.data.validates_on_train
    role = "train" if is_learnt else config.split
    return EvaluationData(rows, data_name(run.data), config.split, run, splits, role=role)


def renumber(splits: Splits, labels: list[str]) -> None:
    """Give the rows the class ids of the model, which has the same classes in the order of `labels`."""
    ids = [labels.index(name) for name in splits.labels]
    for rows in splits.by_name().values():
        if rows.sets is not None:
            rows.sets = [tuple(sorted(ids[label] for label in of_row)) for of_row in rows.sets]
        ids_or_none = [*ids, len(ids)]  # the number of classes is the id of a row without labels
        rows.labels = [ids_or_none[label] for label in rows.labels]
        if rows.probabilities is not None:
            rows.probabilities = rows.probabilities[:, [splits.labels.index(name) for name in labels]]


def _named_data(data: DataConfig, config: EvaluateConfig, settings: Settings, labels: list[str]) -> EvaluationData:
    own = plugin.task(settings.task).read_split

    def read(data: DataConfig) -> Rows:
        if own is not None:
            return plugin.resolve(own)(data, config.split)
        return read_split(data, config.split, labels, multi=settings.multi)

    try:
        rows = read(data)
    except ValueError:
        usual = _with_usual_names(data, config)
        if usual == data:
            raise
        rows = read(usual)
    return EvaluationData(rows, data_name(data), _split_of(data, config.split))


def _with_usual_names(data: DataConfig, config: EvaluateConfig) -> DataConfig:
    """`data` with the usual names of columns, such as `text`, if the file has these and not those of training."""

    @cache
    def names_there() -> list[str]:
        tables, _ = open_tables(data)
        table = tables.get("all") or tables.get(config.split)
        return table().names if table else []

    usual_names: dict[str, Any] = {}
    for name in COLUMNS:
        usual, of_training = getattr(DEFAULTS, name), getattr(data, name)
        if isinstance(of_training, list):
            continue
        if getattr(config.data, name) or of_training in ("", usual):  # it was typed, or is the same
            continue
        is_there = usual in names_there() or (name == "label" and MULTI_LABEL in names_there())
        if of_training not in names_there() and is_there:
            usual_names[name] = usual
    votes = [data.votes] if data.votes else data.label_columns
    if not (config.data.votes or config.data.label_columns or {*votes} <= {*names_there()}):
        usual_names |= {"votes": "", "label_columns": []}  # labels in place of those votes
    return replace(data, **usual_names)


def _split_of(data: DataConfig, split: str) -> str:
    if data.path and "all" in open_tables(data)[0]:
        return "all"
    return split
