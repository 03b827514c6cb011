"""Lightning's loggers of TensorBoard, MLflow and Weights & Biases, and one of Trackio, in addition to metrics.csv.

`GuardedLogger` is around each of them, for two reasons: no tracker may end a training, and a resumed run continues its
run in the tracker, so the id of that and the last logged steps are kept in `<output>/trackers/`.

Where a client sends its data, and with which key, is said by its own environment variables: no setting holds a secret,
and no variable is read here.
"""

import json
import logging
import os
import re
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger, MLFlowLogger, TensorBoardLogger, WandbLogger
from lightning.pytorch.utilities import rank_zero_only

from manyheads.config import RunConfig
from manyheads.config.conversion import plain_settings
from manyheads.distributed.signals import Stopped
from manyheads.plugins.trackers.config import chosen_trackers
from manyheads.runs.files import read_json_or_none
from manyheads.terminal import one_line

log = logging.getLogger("manyheads")
ID = re.compile(r"[\w.-]{1,200}", re.ASCII)  # it becomes a part of paths and addresses
IN_ADDRESS = re.compile(r"//[^/\s]*@")  # a name, and perhaps a password
MLFLOW_LIMITS = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}  # its own take minutes
WANDB_SETTINGS = {
    "console": "off",
    "disable_git": True,
    "disable_code": True,
    "x_disable_meta": True,
}  # what it would send, too


class TrackioLogger(Logger):
    """Trackio, of which Lightning has no logger: its store on this machine, or where TRACKIO_SPACE_ID points."""

    def __init__(self, project: str, run_id: str, settings: dict[str, Any]) -> None:
        super().__init__()
        import trackio  # pyright: ignore[reportMissingImports]

        self.experiment = trackio.init(
            project, run_id, config=settings, resume="allow", embed=False, auto_log_gpu=False, auto_log_cpu=False
        )
        self.project, self.run_id = project, run_id

    @property
    def name(self) -> str:
        return self.project

    @property
    def version(self) -> str:
        return self.run_id

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """`init` was given the settings."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self.experiment.log(dict(metrics), step=step)

    def finalize(self, status: str) -> None:
        self.experiment.finish()


def open_logger(kind: str, project: str, folder: Path, run_id: str, settings: dict[str, Any]) -> Logger:
    """The logger of a tracker.

    Args:
        kind: one of `TRACKERS`.
        run_id: the run of the tracker that it continues; empty: it begins a new one, which is given the settings.
    """
    if kind == "tensorboard":
        logger = TensorBoardLogger(folder, name="", version="tensorboard", default_hp_metric=False)
        if not run_id:
            lines = [f"    {name}: {value}" for name, value in settings.items()]  # indented: a code block of Markdown
            logger.experiment.add_text("settings", "\n".join(lines))
        return logger
    if kind == "mlflow":
        for name, value in MLFLOW_LIMITS.items():
            os.environ.setdefault(name, value)
        import mlflow  # pyright: ignore[reportMissingImports]

        logger = MLFlowLogger(project, folder.name, tracking_uri=mlflow.get_tracking_uri(), run_id=run_id or None)
        if run_id:  # MLflow refuses settings that differ from those of the first start
            logger.experiment.update_run(run_id, status="RUNNING")
        else:
            logger.log_hyperparams(settings)
        return logger
    if kind == "wandb":
        import wandb  # pyright: ignore[reportMissingImports]

        client = {"settings": wandb.Settings(**WANDB_SETTINGS, init_timeout=60), "reinit": "create_new"}
        logger = WandbLogger(folder.name, folder, version=run_id or secrets.token_hex(4), project=project, **client)
        logger.log_hyperparams(settings)
        return logger
    return TrackioLogger(project, run_id or f"{folder.name}-{secrets.token_hex(4)}", settings)


def log_files(logger: Logger, report: Path, model: Path) -> None:
    """Hand over report.html and the model folder; TensorBoard, which keeps no files, is given their paths."""
    if isinstance(logger, TensorBoardLogger):
        logger.experiment.add_text("files", f"    {report}\n    {model}")
    elif isinstance(logger, MLFlowLogger):
        logger.experiment.log_artifact(str(logger.run_id), str(report))
        logger.experiment.log_artifacts(str(logger.run_id), str(model), model.name)
    else:
        if isinstance(logger, WandbLogger):
            from wandb import Artifact  # pyright: ignore[reportMissingImports]

            name = f"run-{logger.version}"
        else:
            from trackio import Artifact  # pyright: ignore[reportMissingImports]

            name = re.sub(r"[^\w.-]", "-", str(logger.version), flags=re.ASCII)
        artifact = Artifact(name, "model")
        artifact.add_dir(str(model), name=model.name)
        artifact.add_file(str(report))
        logger.experiment.log_artifact(artifact)  # type: ignore[attr-defined]


def close(logger: Logger, status: str) -> None:
    """End the tracker's run, as FINISHED, FAILED or KILLED."""
    if isinstance(logger, WandbLogger):  # whose `finalize` leaves it open
        logger.experiment.finish(exit_code=0 if status == "FINISHED" else 1)
    else:
        logger.finalize(status)


class GuardedLogger(Logger):
    """A logger that is left out once it has failed, and logs no step twice in the same run of its tracker."""

    def __init__(self, kind: str, folder: Path) -> None:
        super().__init__()
        self.kind, self.folder, self.failed = kind, folder, False
        self.logger: Any = None
        self.file = folder / "trackers" / f"{kind}.json"
        self.run_id = ""  # of the tracker's run; empty: a new one
        self.steps: dict[str, int] = {}  # the last step at which each figure was logged
        found = read_json_or_none(self.file)
        if isinstance(found, dict) and ID.fullmatch(str(found.get("record"))):
            self.run_id = str(found["record"])
            steps = found.get("steps")
            if isinstance(steps, dict) and all(type(step) is int for step in steps.values()):
                self.steps = steps

    @property
    def name(self) -> str:
        return self.kind

    @property
    def version(self) -> str:
        return self.run_id

    def open(self, project: str, settings: dict[str, Any]) -> None:
        """Open the logger, and keep the id of its run."""

        def open_it() -> None:
            self.logger = open_logger(self.kind, project, self.folder, self.run_id, settings)
            self.run_id = str(self.logger.version)
            self._save()

        self._try(open_it)

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """`open` was given the settings."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        at = step or 0
        fresh = {}
        for name, value in metrics.items():
            if at > self.steps.get(name, -1):  # else it was logged before the run was interrupted, with the same value
                fresh[name] = float(value)

        def log_them() -> None:
            self.logger.log_metrics(fresh, at)
            if isinstance(self.logger, TensorBoardLogger):
                self.logger.experiment.flush()
            self.steps |= dict.fromkeys(fresh, at)
            self._save()

        if fresh:
            self._try(log_them)

    def end(self, status: str) -> None:
        """End the tracker's run; of a run that is finished hand over its files. (Lightning's `finalize` would be too
        early: it comes before the evaluation.)"""
        if status == "FINISHED":
            self._try(lambda: log_files(self.logger, self.folder / "report.html", self.folder / "model"))
        self._try(lambda: close(self.logger, status))

    def _try(self, call: Callable[[], None]) -> None:
        """Call a tracker, unless it has failed; whatever it raises becomes one warning."""
        if self.failed:
            return
        try:
            with redirect_stdout(sys.stderr):  # some clients print
                call()
        except Exception as problem:
            self.failed = True
            log.warning(
                "logger=%s failed (%s: %s): the run continues without it, metrics.csv has every figure",
                self.kind,
                type(problem).__name__,
                IN_ADDRESS.sub("//", one_line(str(problem).strip()))[:200],
            )

    def _save(self) -> None:
        """Keep id and steps, without waiting for the disk: what a power cut loses is logged twice, or begun anew."""
        self.file.parent.mkdir(exist_ok=True)
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps({"record": self.run_id, "steps": self.steps}), encoding="utf-8")
        os.replace(part, self.file)


@contextmanager
def open_trackers(run: RunConfig, folder: Path) -> Iterator[list[GuardedLogger]]:
    """The loggers that `logger=` names; their runs end as the block does."""
    config: Any = run.logger
    loggers = [GuardedLogger(kind, folder) for kind in chosen_trackers(run)]
    status = "FAILED"
    try:
        for one in loggers:
            one.open(config.project, plain_settings(run))
        yield loggers
        status = "FINISHED"
    except (Stopped, KeyboardInterrupt):
        status = "KILLED"
        raise
    finally:
        for one in loggers:
            one.end(status)
