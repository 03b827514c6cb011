"""The rows that a finished model is judged on: those of its own data, or what is named in their place. They are read
before torch is imported, so that a mistake in the data is found at once.
"""

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import manyheads.plugin as plugin
from manyheads.config import DataConfig, EvaluateConfig, MergeLabels, RunConfig
from manyheads.config.conversion import to_plain
from manyheads.config.data import ROLES, data_name
from manyheads.config.figures import figures_of
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
    ColumnNames,
    Settings,
    refuse_other_task,
)
from manyheads.runs.config_file import read_run
from manyheads.runs.files import read_json
from manyheads.runs.summary import written_summary
from manyheads.runs.verb_output import VerbOutput

DEFAULTS = DataConfig()
EVALUATED = VerbOutput(
    "evaluate",
    "metrics.json",
    ('"data":', '"split":', '"source":'),
    (
        *("predictions.csv", "predictions.parquet", "report.html"),
        *(f"{name}.png" for name in ("loss", "accuracy", "f1", "reliability", "risk")),
    ),
)
PART = ".answers.part"  # of the folder: the logits of a classifier, while it is evaluated


@dataclass(slots=True)
class EvaluationData:
    """Rows to evaluate and the name of their data; `run` and `splits` where the data is the run's own, else the
    `digest` of its settings. `split` is the one that was asked for, or `all` where a single file is evaluated whole;
    `folder` the name of the folder of results. Where they are known, `role` is the split of the run's own data that the
    rows are, and `most_frequent` the class or label that most training rows have; `learnt` says how many other rows
    hold a text that the model learnt from.
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
    most_frequent: str = ""

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
        digest = {"digest": self.digest} if self.digest else {}
        return {"data": self.name, "split": self.split, "source": self.rows.source, **digest}


def find_data(config: EvaluateConfig, home: Path | None, settings: Settings, labels: list[str]) -> EvaluationData:
    """Read the rows; `home` is the run folder, None where the model/ folder stands alone. A UserError where no data is
    named and no run folder names it, where it is missing or broken, has no such split, other labels, or single texts
    and the model takes pairs."""
    task = plugin.task(settings.task)
    of_rows = "labels" if settings.multi else "classes"
    bounds_of(config.require, figures_of(of_rows) if settings.task == "classify" else task.required)
    refuse_other_task(config, settings)
    for unread in ("label", "target"):
        name = getattr(config.data, unread)
        if name and f"data.{unread}" in task.unread and config.data.source in ("run", "files"):
            raise UserError(
                f"data.{unread}={name} does nothing here, as the model of run answers by {task.answers}: remove it"
            )
    named = _named(config, settings)
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
        written = written_summary(home)
        known, digest = written.get("digests"), data.rows.digest(labels)
        data.role = next((name for name in ROLES if isinstance(known, dict) and known.get(name) == digest), "")
        most_frequent = written.get("most_frequent")
        data.most_frequent = most_frequent if most_frequent in labels else ""
    data.digest = _digest(named)
    data.folder = results_name(config, home, settings)
    return data


def results_name(config: EvaluateConfig, home: Path | None, settings: Settings) -> str:
    """The `folder` of what `find_data` finds, without its rows: <data>-<split>, with the digest of the data after it
    where results of other data have that name."""
    if (data := _named(config, settings)) is not None:
        name = f"{data_name(data)}-{_split_of(data, config.split)}"
    else:
        assert home is not None, "find_data comes first"
        name = f"{data_name(read_run(home / 'config.yaml').data)}-{config.split}"
    digest, run = _digest(data), Path(config.run)
    there = (home or (run if (run / "config.json").is_file() else run / "model")) / "evaluate" / name / "metrics.json"
    if not there.is_file():
        return name
    metrics = None
    with suppress(OSError, ValueError):
        metrics = read_json(there)
    same = isinstance(metrics, dict) and str(metrics.get("digest", "")) == digest
    return name if same else f"{name}-{digest or 'own'}"


def _digest(data: DataConfig | None) -> str:
    """Eight hex digits of what is not left at its default; where token ids are kept changes no row."""
    if data is None:
        return ""
    path, usual = str(Path(data.path).expanduser().absolute()) if data.path else "", to_plain(DEFAULTS)
    plain = to_plain(replace(data, path=path, cache=""))
    changed = {name: value for name, value in plain.items() if value != usual[name]}
    return sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()[:8]


def _named(config: EvaluateConfig, settings: Settings) -> DataConfig | None:
    """The data that is named, with its columns; None: the run's own."""
    if config.data.source == "run" and not config.data.path:
        return None
    return with_columns(config.data, settings.columns, pairs=settings.pairs)


def with_columns(data: DataConfig, columns: ColumnNames, *, pairs: bool) -> DataConfig:
    """`data` with the columns the model was trained on in place of those that are empty: what was typed stays. A preset
    names its own columns. A model of single texts never reads a second one. Classes that were one stay so."""
    own: dict[str, Any] = {} if pairs else {"text_pair": ""}
    if data.merge_labels is MergeLabels.none:
        own["merge_labels"] = columns.merge_labels
    untyped = [name for name in COLUMNS if not getattr(data, name)]
    if data.source not in ("run", "files"):
        return replace(data, **({name: getattr(DEFAULTS, name) for name in untyped} | own))
    stored = {name: getattr(columns, name) for name in untyped}
    source = "hub" if columns.preset and len(stored) == len(COLUMNS) else "files"
    return replace(data, source=source, **(stored | own))


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
    ids = [labels.index(name) for name in splits.labels]  # that labels have in the model
    for part in splits.by_name().values() if ids != list(range(len(ids))) else ():
        if part.sets is not None:
            part.sets = [tuple(sorted(ids[label] for label in one)) for one in part.sets]
        part.labels = [label if label == len(ids) else ids[label] for label in part.labels]
    return EvaluationData(rows, data_name(run.data), config.split, run, splits, role=config.split)


def _named_data(data: DataConfig, config: EvaluateConfig, settings: Settings, labels: list[str]) -> EvaluationData:
    own = plugin.task(settings.task).read_split

    def read(data: DataConfig) -> Rows:
        if own is not None:
            return plugin.resolve(own)(data, config.split)
        return read_split(data, config.split, labels, multi=settings.multi)

    try:
        rows = read(data)
    except ValueError:
        if (usual := _with_usual(data, config)) == data:
            raise
        rows = read(usual)
    return EvaluationData(rows, data_name(data), _split_of(data, config.split))


def _with_usual(data: DataConfig, config: EvaluateConfig) -> DataConfig:
    """`data` with the usual names of columns, such as `text`, where the file has those and not the ones of training."""
    usual = {name: getattr(DEFAULTS, name) for name in COLUMNS if not getattr(config.data, name)}
    of_training = {name for name, one in usual.items() if getattr(data, name) not in ("", one)}
    if not of_training:
        return data
    tables, _ = open_tables(data)
    table = tables.get("all") or tables.get(config.split)
    there = table().names if table else []
    missing = {name for name in of_training if getattr(data, name) not in there}
    found = {name for name in missing if usual[name] in there or (name == "label" and MULTI_LABEL in there)}
    return replace(data, **{name: usual[name] for name in found})


def _split_of(data: DataConfig, split: str) -> str:
    return "all" if data.path and "all" in open_tables(data)[0] else split
