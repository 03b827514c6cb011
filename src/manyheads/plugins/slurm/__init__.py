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
RUN = "manyheads.plugins.slurm.config:SlurmConfig"
ARRAY = "manyheads.plugins.slurm.config:ArrayConfig"
PLUGIN = Plugin(
    "slurm",
    sections=[
        Section("slurm", RUN, "the job that hardware=slurm writes", ("run",), **HOOKS),
        Section("slurm", ARRAY, "the jobs that hardware=slurm writes", ("search", "table"), **HOOKS),
    ],
    presets=Path(__file__).parent / "conf",
)
