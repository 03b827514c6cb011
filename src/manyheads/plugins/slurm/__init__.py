"""hardware=slurm: a script for `sbatch` in place of a run, and an array of jobs in place of a search.

A section of settings whose `launch` writes the script and prints how to submit it, so that the verb does not run.
"""

from pathlib import Path

from manyheads.plugin import Plugin, Section

HOOKS = {
    "facts": {"resume": "free"},
    "unread": "manyheads.plugins.slurm.script:slurm_unread",
    "launch": "manyheads.plugins.slurm.script:launch",
    "refuse": "manyheads.plugins.slurm.script:refuse_slurm",
    "files": ("job.sbatch", "slurm-*.out"),
    "barred": {"slurm": "a job of training"},
}
JOB = Section(
    "slurm",
    config="manyheads.plugins.slurm.config:SlurmConfig",
    help="the job that hardware=slurm writes",
    into=("run",),
    **HOOKS,
)
ARRAY = Section(
    "slurm",
    config="manyheads.plugins.slurm.config:ArrayConfig",
    help="the jobs that hardware=slurm writes",
    into=("search", "table"),
    **HOOKS,
)
PLUGIN = Plugin(
    "slurm",
    sections=[JOB, ARRAY],
    presets=Path(__file__).parent / "conf",
)
