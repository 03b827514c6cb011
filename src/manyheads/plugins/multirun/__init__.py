"""The flag `-m`: a verb once for each of several values, such as model.n_heads=2,4, as jobs of Hydra."""

from manyheads.plugin import Flag, Plugin

MULTIRUN = Flag(
    "-m",
    long="--multirun",
    run="manyheads.plugins.multirun.jobs:run_sweep",
    help="run once for each of several values: model.n_heads=2,4 (one device)",
)
PLUGIN = Plugin("multirun", flags=[MULTIRUN])
