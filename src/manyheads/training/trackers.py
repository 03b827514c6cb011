"""Trackers beside metrics.csv: TensorBoard, MLflow, Weights & Biases and Trackio, by Lightning's and their own clients.

A tracker is given the settings, the figures of each logged step, at the end those of the evaluation with their
intervals, and then report.html and the model folder. None of them can end a run: what a client raises is said once, and
that tracker is left out from there on. A run that goes on does so in the same record, whose id and last logged steps
are kept in `<output>/trackers/`. Where a client sends its data, and with which key, its own environment variables say:
no setting holds a secret, and no variable is read here.
"""

import json
import logging
import os
import re
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from lightning.pytorch.loggers import Logger, MLFlowLogger, TensorBoardLogger, WandbLogger
from lightning.pytorch.utilities import rank_zero_only

from manyheads.config import LoggerConfig
from manyheads.distributed.signals import Stopped
from manyheads.runs.checkpoints import json_or_none
from manyheads.runs.folder import is_first_process
from manyheads.terminal import one_line

log = logging.getLogger("manyheads")
ID = re.compile(r"[\w.-]{1,200}", re.ASCII)  # of a record: it becomes a part of paths and addresses
IN_ADDRESS = re.compile(r"//[^/\s]*@")  # a name, and perhaps a password
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}  # MLflow's own: minutes


class Client(Protocol):
    """What a tracker can be asked for. Any call may raise anything."""

    def __init__(self, project: str, folder: Path) -> None: ...

    def begin(self, record: str, settings: dict[str, Any]) -> str:
        """Open the record of this id, or a new one where it is empty, and return its id."""
        ...

    def log(self, figures: Mapping[str, float], step: int) -> None: ...

    def keep(self, report: Path, model: Path) -> None:
        """Take the page and the folder as they are now."""
        ...

    def end(self, status: str) -> None:
        """FINISHED, FAILED or KILLED, as MLflow has it."""
        ...


class TensorBoard:
    """Writes to `<output>/tensorboard`. It keeps no files: page and model lie beside it."""

    def __init__(self, project: str, folder: Path) -> None:
        self.logger = TensorBoardLogger(folder, name="", version="tensorboard", default_hp_metric=False)

    def begin(self, record: str, settings: dict[str, Any]) -> str:
        if not record:
            text = "\n".join(f"    {name}: {value}" for name, value in settings.items())  # Markdown for: as it is
            self.logger.experiment.add_text("settings", text)
        return "tensorboard"

    def log(self, figures: Mapping[str, float], step: int) -> None:
        self.logger.log_metrics(dict(figures), step)
        self.logger.experiment.flush()

    def keep(self, report: Path, model: Path) -> None:
        self.logger.experiment.add_text("files", f"    {report}\n    {model}")

    def end(self, status: str) -> None:
        self.logger.experiment.close()


class MLflow:
    """Writes to where MLFLOW_TRACKING_URI points, else to MLflow's own default."""

    def __init__(self, project: str, folder: Path) -> None:
        for name, value in PATIENCE.items():
            os.environ.setdefault(name, value)
        self.project, self.name, self.mlflow = project, folder.name, import_module("mlflow")

    def begin(self, record: str, settings: dict[str, Any]) -> str:
        where = {"tracking_uri": self.mlflow.get_tracking_uri(), "run_id": record or None}
        self.logger = MLFlowLogger(self.project, self.name, **where)
        if record:  # whose settings MLflow does not let anybody change
            self.logger.experiment.update_run(record, status="RUNNING")
        else:
            self.logger.log_hyperparams(settings)
        return str(self.logger.run_id)

    def log(self, figures: Mapping[str, float], step: int) -> None:
        self.logger.log_metrics(figures, step)

    def keep(self, report: Path, model: Path) -> None:
        self.logger.experiment.log_artifact(self.logger.run_id, str(report))
        self.logger.experiment.log_artifacts(self.logger.run_id, str(model), model.name)

    def end(self, status: str) -> None:
        self.logger.experiment.set_terminated(self.logger.run_id, status)


class WandB:
    """Writes to `<output>/wandb`, and on to its server unless WANDB_MODE=offline."""

    def __init__(self, project: str, folder: Path) -> None:
        self.project, self.name, self.folder = project, folder.name, folder
        self.wandb = import_module("wandb")

    def begin(self, record: str, settings: dict[str, Any]) -> str:
        self.id = record or secrets.token_hex(4)
        words = {
            "console": "off",
            "disable_git": True,
            "disable_code": True,
            "x_disable_meta": True,
        }  # of other programs
        quiet = self.wandb.Settings(**words, init_timeout=60)
        self.logger = WandbLogger(
            self.name, self.folder, version=self.id, project=self.project, settings=quiet, reinit="create_new"
        )
        self.logger.log_hyperparams(settings)
        return self.id

    def log(self, figures: Mapping[str, float], step: int) -> None:
        self.logger.log_metrics(figures, step)

    def keep(self, report: Path, model: Path) -> None:
        artifact = self.wandb.Artifact(f"run-{self.id}", type="model")
        artifact.add_dir(str(model), model.name)
        artifact.add_file(str(report))
        self.logger.experiment.log_artifact(artifact)

    def end(self, status: str) -> None:
        self.logger.experiment.finish(exit_code=0 if status == "FINISHED" else 1)


class Trackio:
    """Writes to Trackio's own store on this machine, or where TRACKIO_SPACE_ID or TRACKIO_SERVER_URL point."""

    def __init__(self, project: str, folder: Path) -> None:
        self.project, self.name, self.trackio = project, folder.name, import_module("trackio")

    def begin(self, record: str, settings: dict[str, Any]) -> str:
        name = record or f"{self.name}-{secrets.token_hex(4)}"
        self.run = self.trackio.init(
            self.project, name, config=settings, resume="allow", embed=False, auto_log_gpu=False, auto_log_cpu=False
        )
        return name

    def log(self, figures: Mapping[str, float], step: int) -> None:
        self.run.log(dict(figures), step=step)

    def keep(self, report: Path, model: Path) -> None:
        artifact = self.trackio.Artifact(re.sub(r"[^\w.-]", "-", self.run.name, flags=re.ASCII), type="model")
        artifact.add_dir(str(model), name=model.name)
        artifact.add_file(str(report))
        self.run.log_artifact(artifact)

    def end(self, status: str) -> None:
        self.run.finish()


CLIENTS: dict[str, type[Client]] = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WandB, "trackio": Trackio}


class Tracker(Logger):
    """One of `CLIENTS`, asked until it fails for the first time. Lightning calls `log_metrics`, the first process alone
    `begin`, `judged` and `end`."""

    version = ""  # type: ignore[assignment]

    def __init__(self, kind: str, project: str, folder: Path) -> None:
        super().__init__()
        self.kind, self.project, self.folder, self.failed = kind, project, folder, False
        self.file = folder / "trackers" / f"{kind}.json"
        found = json_or_none(self.file)
        known = found if isinstance(found, dict) and ID.fullmatch(str(found.get("record"))) else {}
        self.record = str(known.get("record", ""))
        self.steps: dict[str, int] = known.get("steps") or {}  # the last step at which each figure was logged

    @property
    def name(self) -> str:
        return self.kind

    def begin(self, settings: dict[str, Any]) -> None:
        self._ask(self._begin, settings)

    def _begin(self, settings: dict[str, Any]) -> None:
        self.client = CLIENTS[self.kind](self.project, self.folder)
        self.record = self.client.begin(self.record, settings)
        self._write()

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """`begin` was given the settings."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        at = step or 0  # a step that was logged before the run was interrupted has the same figures again
        fresh = {name: float(one) for name, one in metrics.items() if at > self.steps.get(name, -1)}
        if fresh:
            self._ask(self._log, fresh, at)

    def _log(self, figures: dict[str, float], step: int) -> None:
        self.client.log(figures, step)
        self.steps |= dict.fromkeys(figures, step)
        self._write()

    def judged(self, figures: Mapping[str, Mapping[str, Mapping[str, float]]], step: int) -> None:
        """The figures by split and name, each with `value`, `low` and `high`, then the files of the finished run."""
        ends = {"value": "", "low": "_low", "high": "_high"}
        flat = {
            f"{split}/{name}{ends[key]}": value
            for split, named in figures.items()
            for name, one in named.items()
            for key, value in one.items()
        }
        self.log_metrics(flat, step)
        self._ask(lambda: self.client.keep(self.folder / "report.html", self.folder / "model"))

    def end(self, status: str) -> None:
        self._ask(lambda: self.client.end(status))

    def _ask(self, call: Any, *given: Any) -> None:
        if self.failed:
            return
        try:
            with redirect_stdout(sys.stderr):  # some clients print
                call(*given)
        except Exception as problem:
            self.failed = True
            said = IN_ADDRESS.sub("//", one_line(str(problem).strip()))[:200]
            log.warning(
                "logger=%s failed (%s: %s): the run goes on without it, metrics.csv has every figure",
                *(self.kind, type(problem).__name__, said),
            )

    def _write(self) -> None:
        """Without waiting for the disk: what a power cut loses is logged twice, or begun anew."""
        self.file.parent.mkdir(exist_ok=True)
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps({"record": self.record, "steps": self.steps}), encoding="utf-8")
        os.replace(part, self.file)


@contextmanager
def tracked(logger: LoggerConfig, settings: dict[str, Any], folder: Path) -> Iterator[list[Tracker]]:
    """The trackers that `logger` asks for, in the first process; each is told how the block ended."""
    found = [Tracker(kind, logger.project, folder) for kind in logger.trackers() if is_first_process()]
    status = "FAILED"
    try:
        for one in found:
            one.begin(settings)
        yield found
        status = "FINISHED"
    except (Stopped, KeyboardInterrupt):
        status = "KILLED"
        raise
    finally:
        for one in found:
            one.end(status)
