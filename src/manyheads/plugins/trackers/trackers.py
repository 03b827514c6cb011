"""Trackers in addition to metrics.csv: TensorBoard, MLflow, Weights & Biases and Trackio, by Lightning's or their own
clients.

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
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger, MLFlowLogger, TensorBoardLogger, WandbLogger
from lightning.pytorch.utilities import rank_zero_only

from manyheads.config import RunConfig
from manyheads.config.fields import plain_settings
from manyheads.distributed.signals import Stopped
from manyheads.plugins.trackers.config import chosen
from manyheads.runs.checkpoints import json_or_none
from manyheads.terminal import one_line

log = logging.getLogger("manyheads")
ID = re.compile(r"[\w.-]{1,200}", re.ASCII)  # of a record: it becomes a part of paths and addresses
IN_ADDRESS = re.compile(r"//[^/\s]*@")  # a name, and perhaps a password
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}  # MLflow's own: minutes


# A client opens the record of the id `record`, or a new one where that is empty, and keeps its id; then it is given
# figures to `log`, page and model to `keep`, and how the run ended: FINISHED, FAILED or KILLED. Any call may raise.


class TensorBoard:
    """Writes to `<output>/tensorboard`. It keeps no files: page and model lie beside it."""

    def __init__(self, project: str, folder: Path, record: str, settings: dict[str, Any]) -> None:
        self.logger = TensorBoardLogger(folder, name="", version="tensorboard", default_hp_metric=False)
        self.record = "tensorboard"
        if not record:
            text = "\n".join(f"    {name}: {value}" for name, value in settings.items())  # Markdown for: as it is
            self.logger.experiment.add_text("settings", text)

    def log(self, figures: Mapping[str, float], step: int) -> None:
        self.logger.log_metrics(dict(figures), step)
        self.logger.experiment.flush()

    def keep(self, report: Path, model: Path) -> None:
        self.logger.experiment.add_text("files", f"    {report}\n    {model}")

    def end(self, status: str) -> None:
        self.logger.experiment.close()


class MLflow:
    """Writes to where MLFLOW_TRACKING_URI points, else to MLflow's own default."""

    def __init__(self, project: str, folder: Path, record: str, settings: dict[str, Any]) -> None:
        for name, value in PATIENCE.items():
            os.environ.setdefault(name, value)
        import mlflow  # pyright: ignore[reportMissingImports]

        where = {"tracking_uri": mlflow.get_tracking_uri(), "run_id": record or None}
        self.logger = MLFlowLogger(project, folder.name, **where)
        if record:  # whose settings MLflow does not let anybody change
            self.logger.experiment.update_run(record, status="RUNNING")
        else:
            self.logger.log_hyperparams(settings)
        self.record = str(self.logger.run_id)

    def log(self, figures: Mapping[str, float], step: int) -> None:
        self.logger.log_metrics(figures, step)

    def keep(self, report: Path, model: Path) -> None:
        self.logger.experiment.log_artifact(self.record, str(report))
        self.logger.experiment.log_artifacts(self.record, str(model), model.name)

    def end(self, status: str) -> None:
        self.logger.experiment.set_terminated(self.record, status)


class WandB:
    """Writes to `<output>/wandb`, and on to its server unless WANDB_MODE=offline."""

    def __init__(self, project: str, folder: Path, record: str, settings: dict[str, Any]) -> None:
        import wandb  # pyright: ignore[reportMissingImports]

        self.wandb, self.record = wandb, record or secrets.token_hex(4)
        words = {
            "console": "off",
            "disable_git": True,
            "disable_code": True,
            "x_disable_meta": True,
        }  # of other programs
        more = {"settings": self.wandb.Settings(**words, init_timeout=60), "reinit": "create_new"}
        self.logger = WandbLogger(folder.name, folder, version=self.record, project=project, **more)
        self.logger.log_hyperparams(settings)

    def log(self, figures: Mapping[str, float], step: int) -> None:
        self.logger.log_metrics(figures, step)

    def keep(self, report: Path, model: Path) -> None:
        self.logger.experiment.log_artifact(filled(self.wandb.Artifact(f"run-{self.record}", "model"), report, model))

    def end(self, status: str) -> None:
        self.logger.experiment.finish(exit_code=0 if status == "FINISHED" else 1)


class Trackio:
    """Writes to Trackio's own store on this machine, or where TRACKIO_SPACE_ID or TRACKIO_SERVER_URL point."""

    def __init__(self, project: str, folder: Path, record: str, settings: dict[str, Any]) -> None:
        import trackio  # pyright: ignore[reportMissingImports]

        self.trackio, self.record = trackio, record or f"{folder.name}-{secrets.token_hex(4)}"
        off = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
        self.run = self.trackio.init(project, self.record, config=settings, resume="allow", **off)

    def log(self, figures: Mapping[str, float], step: int) -> None:
        self.run.log(dict(figures), step=step)

    def keep(self, report: Path, model: Path) -> None:
        name = re.sub(r"[^\w.-]", "-", self.record, flags=re.ASCII)
        self.run.log_artifact(filled(self.trackio.Artifact(name, "model"), report, model))

    def end(self, status: str) -> None:
        self.run.finish()


def filled(artifact: Any, report: Path, model: Path) -> Any:
    artifact.add_dir(str(model), name=model.name)
    artifact.add_file(str(report))
    return artifact


CLIENTS: dict[str, Any] = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WandB, "trackio": Trackio}


class Tracker(Logger):
    """One of `CLIENTS`, asked until it fails for the first time."""

    version = ""  # type: ignore[assignment]

    def __init__(self, kind: str, project: str, folder: Path) -> None:
        super().__init__()
        self.kind, self.project, self.folder, self.failed = kind, project, folder, False
        self.client: Any = None
        self.file = folder / "trackers" / f"{kind}.json"
        found = json_or_none(self.file)
        known = found if isinstance(found, dict) and ID.fullmatch(str(found.get("record"))) else {}
        self.record = str(known.get("record", ""))
        steps = known.get("steps")
        steps = steps if isinstance(steps, dict) and {*map(type, steps.values())} <= {int} else {}
        self.steps: dict[str, int] = steps  # the last step at which each figure was logged

    @property
    def name(self) -> str:
        return self.kind

    def begin(self, settings: dict[str, Any]) -> None:
        def open_client() -> None:
            self.client = CLIENTS[self.kind](self.project, self.folder, self.record, settings)
            self.record = self.client.record
            self._write()

        self._ask(open_client)

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

    def end(self, status: str) -> None:
        """Also hands over the files of a run that is finished."""
        if status == "FINISHED":
            self._ask(lambda: self.client.keep(self.folder / "report.html", self.folder / "model"))
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
def tracked(run: RunConfig, folder: Path) -> Iterator[list[Tracker]]:
    """The trackers that `logger=` names; each is given how the block ended."""
    config: Any = run.logger
    found = [Tracker(kind, config.project, folder) for kind in chosen(run)]
    status = "FAILED"
    try:
        for one in found:
            one.begin(plain_settings(run))
        yield found
        status = "FINISHED"
    except (Stopped, KeyboardInterrupt):
        status = "KILLED"
        raise
    finally:
        for one in found:
            one.end(status)
