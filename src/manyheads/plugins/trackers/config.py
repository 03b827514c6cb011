"""Settings of the trackers, which are those of the section `logger`. Standard library only."""

from importlib.util import find_spec
from typing import Any

from manyheads.config.facts import section, setting
from manyheads.config.sentences import install_extra
from manyheads.errors import UserError

TRACKERS = ("tensorboard", "mlflow", "wandb", "trackio")
Config = Any  # the settings of a verb, with a section `logger`


@section("logger.")
class TrackersConfig:
    """Any of the trackers may be added to metrics.csv: `logger=[tensorboard,mlflow]`."""

    tensorboard: bool = setting(False, "write what TensorBoard reads, too, into the run folder")
    mlflow: bool = setting(False, "log to MLflow, too: where MLFLOW_TRACKING_URI points")
    wandb: bool = setting(False, "log to Weights & Biases, too; WANDB_MODE=offline keeps it here")
    trackio: bool = setting(False, "log to Trackio, too: its store on this machine, or where TRACKIO_SPACE_ID points")
    project: str = setting("manyheads", "project of wandb and trackio, experiment of mlflow", may_be_empty=False)


def chosen_trackers(config: Config) -> list[str]:
    """The trackers that `logger=` names."""
    return [name for name in TRACKERS if getattr(config.logger, name)]


def refuse_not_installed(config: Config, where: str) -> None:
    """The package of each tracker, which has its name, must be installed."""
    for name in chosen_trackers(config):
        if not find_spec(name) and not (name == "tensorboard" and find_spec("tensorboardX")):
            raise UserError(f"logger={name} needs a package that is not installed: {install_extra('track')}")


def project_unread(config: Config, name: str) -> str:
    """Why a project does nothing."""
    if name != "logger.project" or {"mlflow", "wandb", "trackio"} & {*chosen_trackers(config)}:
        return ""
    return "without a tracker that has projects: add logger=wandb, mlflow or trackio, or remove it"
