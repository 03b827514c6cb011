"""The verb `evaluate`: a finished model, rows with their answers, figures with intervals, and a page to read them on.

The rows are read before torch is imported, so that a mistake in the data is found at once.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import manyheads.plugin as plugin
from manyheads.config import DataConfig, EvaluateConfig, MergeLabels, RunConfig
from manyheads.config.data import ROLES, data_name
from manyheads.config.fields import listed, to_plain
from manyheads.config.required import OF_CLASSES, OF_LABELS, bounds_of, check_reached
from manyheads.data.opening import open_tables
from manyheads.data.rows import MULTI_LABEL, Rows, Splits
from manyheads.data.seen import fingerprint
from manyheads.data.sources import read_split
from manyheads.data.texts import read_rows
from manyheads.distributed.launch import n_to_start, on_all
from manyheads.distributed.ranks import this_process
from manyheads.evaluation.held_out import learnt_texts, require_same
from manyheads.inference.answers import Answers, opened_answers
from manyheads.inference.format import (
    COLUMNS,
    Columns,
    ModelFolder,
    Settings,
    home_of,
    open_folder,
    refuse_other_task,
    run_folder,
)
from manyheads.inference.predict import answer_together, origin
from manyheads.inference.rules import fit_rules
from manyheads.runs.config_file import read_run
from manyheads.runs.folder import Results, read_json, refuse_kept, refuse_unwritable, within
from manyheads.runs.summary import written_summary
from manyheads.terminal import progress_bar

if TYPE_CHECKING:
    from manyheads.inference.folder import AnyPredictor
    from manyheads.inference.predictor import Workers


DEFAULTS = DataConfig()
EVALUATED = Results(
    "evaluate",
    "metrics.json",
    ('"data":', '"split":', '"source":'),
    (
        *("predictions.csv", "predictions.parquet", "report.html"),
        *(f"{name}.png" for name in ("loss", "accuracy", "f1", "reliability", "risk")),
    ),
)
PART = "answers"  # of a classifier, while it is judged


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


def evaluate(config: EvaluateConfig) -> dict[str, Any]:
    """Evaluate a run on its own test split, or on any data with its answers; returns the content of metrics.json, of
    several processes in the first.

    Writes metrics.json, predictions.csv or .parquet, pictures and report.html to `output`, else
    <run>/evaluate/<data>-<split>/ (<data>-all for a single file, of which all rows count), where an earlier evaluation
    of the same data is replaced file by file. Answers of a classifier are kept in a hidden part there as they come: the
    same command, repeated after a kill, goes on after them.

    Raises:
        ValueError: one sentence; the run, the data, its labels, or the output. All but broken weights are found
            before torch is imported, where there is one process.
    """
    if n_local := n_to_start(config.hardware):
        model, settings = open_folder(config.run, graph=True)
        _check_output(config, model)
        on_all("evaluate", config, n_local=n_local, timeout=config.hardware.timeout)
        home = run_folder(model)
        folder = config.output or within(home_of(config.run, model), "evaluate", results_name(config, home, settings))
        found = json.loads(Path(folder, "metrics.json").read_text(encoding="utf-8"))
    else:
        found = answer_together(partial(_evaluate, config), partial(_opened, config), config.hardware) or {}
    if found and config.require and this_process().started_by != "launch":
        check_reached(config.require, found, f"{found['split']} of {found['data']}")
    return found


def _evaluate(config: EvaluateConfig, workers: "Workers | None") -> dict[str, Any]:
    opened = open_folder(config.run, graph=True)
    model, settings = opened
    home = run_folder(model)
    _check_output(config, model)
    plugin.asked("answer_rule", config, opened)
    labels = opened.labels()
    data = find_data(config, home, settings, labels)
    analyses = plugin.asked("analysis", config, opened, data.rows)
    if settings.task == "classify" and data.run is None and not data.role:
        n, said = learnt_texts(home, data.rows, labels)
        data.learnt = f"{said}: figures and lead flatter the model" if n else ""
    folder = Path(config.output or within(home_of(config.run, model), "evaluate", data.folder))
    if config.overwrite:
        refuse_kept(folder, EVALUATED, overwrite=True)

    from manyheads.evaluation.evaluation import Setup
    from manyheads.evaluation.results import baseline_of, evaluate_rows, write_evaluation

    predictor = replace(_opened(config, opened), workers=workers)
    rules = fit_rules(config, opened, predictor)
    fitted = getattr(predictor, "calibration", None)
    if fitted is not None and fitted.digest == data.rows.digest(labels):
        raise ValueError(
            f"{data.rows.source} holds the rows that calibrate was fitted on, which say nothing: judge others"
        )
    for rule in rules:
        if rule.set_on and rule.set_on == data.rows.digest(labels):
            raise ValueError(rule.refusal.format(source=data.rows.source))
    with _kept_answers(config, opened, predictor, data, folder) as answers, progress_bar(len(data.rows)) as progress:
        setup = Setup(
            train=data.splits.train if data.splits else None,
            most_frequent=labels.index(data.most_frequent) if data.most_frequent else None,
            baseline=baseline_of(predictor, home),
            tokens=config.batch.tokens,
            config=config,
            progress=progress,
            answers=answers,
            analyses=[partial(plugin.make("analysis", name), config) for name in analyses],
            rules=rules,
        )
        evaluation = evaluate_rows(predictor, data.rows, setup)
        return write_evaluation(folder, evaluation, data, config, predictor, home)


@contextmanager
def _kept_answers(
    config: EvaluateConfig, opened: ModelFolder, predictor: "AnyPredictor", data: EvaluationData, folder: Path
) -> "Iterator[Answers | None]":
    """A part in the `folder` of results for what a classifier answers, which a killed command has begun maybe."""
    with refuse_unwritable(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        if opened.settings.task != "classify":
            yield None
            return
        from manyheads.linear.model import BASELINE

        home = run_folder(opened.path)
        files = [one for name in BASELINE if home and (one := home / name).is_file()]
        plain = {"tokens": config.batch.tokens, "baseline": [fingerprint(one) for one in files]}
        of = None if config.overwrite else origin(data.rows.digest(opened.labels()), opened, predictor, plain)
        with opened_answers(str(folder / PART), of=of, kept=False) as answers:
            yield answers
    finally:
        with suppress(OSError):
            folder.rmdir()  # if nothing came of it


def _opened(config: EvaluateConfig, folder: ModelFolder | None = None) -> "AnyPredictor":
    from manyheads.inference.folder import load, place

    return place(load(folder or config.run), config.hardware)


def _check_output(config: EvaluateConfig, model: Path) -> None:
    begun = Path(config.output or home_of(config.run, model), f".{PART}.part")  # by a command that was killed
    if config.output and (config.overwrite or not begun.exists() or (begun.parent / EVALUATED.mark).exists()):
        refuse_kept(Path(config.output), EVALUATED, overwrite=config.overwrite)


def find_data(config: EvaluateConfig, home: Path | None, settings: Settings, labels: list[str]) -> EvaluationData:
    """Read the rows; `home` is the run folder, None where the model/ folder stands alone. A ValueError where no data is
    named and no run folder names it, where it is missing or broken, has no such split, other labels, or single texts
    and the model takes pairs."""
    of_classes = OF_LABELS if settings.multi else OF_CLASSES
    task = plugin.task(settings.task)
    bounds_of(config.require, of_classes if settings.task == "classify" else task.required)
    refuse_other_task(config, settings)
    for unread in ("label", "target"):
        name = getattr(config.data, unread)
        if name and f"data.{unread}" in task.unread and config.data.source in ("run", "files"):
            raise ValueError(
                f"data.{unread}={name} does nothing here, as the model of run answers by {task.answers}: remove it"
            )
    named = _named(config, settings)
    if named is None:
        data = _own_data(config, home, labels, multi=settings.multi)
    else:
        data = _named_data(named, config, settings, labels)
    if settings.pairs and data.rows.pairs is None:
        raise ValueError(
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


def with_columns(data: DataConfig, columns: Columns, *, pairs: bool) -> DataConfig:
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
        raise ValueError(
            f"run={config.run} is a model without its run folder, which would say what data it was trained on: "
            "name the data to judge it on, by data.path=<file or folder> or data=<preset>"
        )
    run = read_run(home / "config.yaml")
    if run.data.path and not Path(run.data.path).expanduser().exists():
        raise ValueError(
            f"data.path={run.data.path}, which run={config.run} was trained on, is not there any more: put it back, or "
            "let evaluate judge other data by data.path=<file>, which may hold rows that were learnt from"
        )
    learnt_without = plugin.task(run.task).read is not None and run.test  # it may leave texts of test out of train
    splits = read_rows(run, with_test=config.split == "test" or learnt_without, with_unread=True)
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
