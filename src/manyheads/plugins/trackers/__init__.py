"""logger=tensorboard, mlflow, wandb, trackio: figures of a run in trackers, in addition to metrics.csv.

A section that adds settings to one of core (`logger`), and a hook that gives the training further Lightning loggers.
"""

from pathlib import Path

from manyheads.plugin import Plugin, Section

SETTINGS = Section(
    "",  # its settings become those of the section that they widen: logger.wandb
    config="manyheads.plugins.trackers.config:TrackersConfig",
    help="trackers of figures",
    into=("logger",),
    unread="manyheads.plugins.trackers.config:project_unread",
    refuse="manyheads.plugins.trackers.config:refuse_not_installed",
    logger="manyheads.plugins.trackers.trackers:open_trackers",
    links=("wandb",),  # to its newest run, and to its own logs
)
PLUGIN = Plugin("trackers", sections=[SETTINGS], presets=Path(__file__).parent / "conf")
