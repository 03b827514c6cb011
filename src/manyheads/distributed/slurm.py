"""`hardware=slurm`: the script that starts these very words in a SLURM queue, and again until they are done.

Standard library only. SLURM sends SIGUSR1 to every task 90 s before the time is up (`slurm.options=--signal=USR1@600`:
ten minutes); the run saves its state and ends with 138, and the script puts its job back into the queue, where the same
words go on by resume=auto. Of `tune` it is an array of jobs, one machine each, which share a search by `storage=`.
"""

import os
import re
import shlex
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from manyheads.config import Accelerator, Resume, RunConfig, Task, TuneConfig
from manyheads.config.fields import show
from manyheads.runs.folder import refuse_unwritable, replace_file, start_folder

SCRIPT, LOG = "job.sbatch", "slurm-{}.out"
STORAGE = "storage.journal"  # of a search that names none
_PATH = re.compile(r"[\w/.,:+=@~ -]+")  # no quote, and no % that SLURM would replace
_BODY = """
cd -- {here} || exit 2
export SRUN_CPUS_PER_TASK="${{SLURM_CPUS_PER_TASK:-1}}"
for start in {{1..20}}; do
    srun {command}
    code=$?
    [ "$code" -eq 75 ] || break  # 75: the run asks to be started again, from its newest checkpoint
done
if [ "$code" -eq 138 ]; then  # SIGUSR1: the time is nearly up, the state is saved
    scontrol requeue "{job}"
fi
exit "$code"
"""


def is_for_the_queue(run: RunConfig | TuneConfig) -> bool:
    """Whether `run` is to be written down for a queue, not begun: hardware=slurm outside of a job."""
    is_dry = isinstance(run, RunConfig) and run.dry
    return run.slurm.script and not is_dry and "SLURM_JOB_ID" not in os.environ


def refuse_unwritten(run: RunConfig | TuneConfig) -> None:
    """Refuse hardware=slurm outside of a job where nothing was typed that a script could say."""
    if is_for_the_queue(run):
        raise ValueError(
            f"hardware=slurm writes down a command line, which a call from Python is not: type manyheads {_verb(run)} "
            "hardware=slurm and the other settings, or remove it"
        )


def holds_a_script_alone(folder: Path) -> bool:
    """Whether a run may begin in the folder: it is empty but for a script, and what SLURM wrote of jobs of it."""
    return all(one.name == SCRIPT or fnmatch(one.name, LOG.format("*")) for one in folder.iterdir())


def write_job(run: RunConfig | TuneConfig, words: Sequence[str], config_dir: str | None = None) -> str:
    """Write `job.sbatch` into the folder of the run, and return the line that submits it.

    Args:
        words: what was typed after the verb.
        config_dir: the user's own folder of presets.
    """
    path = os.path.abspath(os.path.expanduser(run.output or "outputs"))
    if run.hardware.devices == 0:
        raise ValueError(
            "hardware.devices=0 takes all GPUs of this machine, but a job runs on others: say how many each has, "
            "such as hardware.devices=4"
        )
    if not _PATH.fullmatch(path):
        raise ValueError(
            f"output={show(path)} cannot stand in a script of SLURM: use letters, digits, spaces and the signs "
            "/ . , : + = @ ~ _ - alone"
        )
    if isinstance(run, TuneConfig) and not run.output:
        raise ValueError(
            "hardware=slurm starts several jobs of tune, which find each other by their folder: add output=FOLDER, on "
            "a disk that all machines see"
        )
    folder = start_folder(run.output, again=isinstance(run, TuneConfig) or run.resume is not Resume.never)
    script = folder / SCRIPT
    lines = ["#!/bin/bash", *(f"#SBATCH {one}" for one in _options(run, folder))]
    command = shlex.join(_command(run, words, folder, config_dir))
    with refuse_unwritable(folder), replace_file(script) as part:
        job = "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" if isinstance(run, TuneConfig) else "$SLURM_JOB_ID"
        body = _BODY.format(here=shlex.quote(os.getcwd()), command=command, job=job)
        part.write_text("\n".join(lines) + "\n" + body, encoding="utf-8")
    return f"sbatch {shlex.quote(str(script))}"


def _options(run: RunConfig | TuneConfig, folder: Path) -> list[str]:
    """What is asked of SLURM."""
    hardware, slurm = run.hardware, run.slurm
    n_tasks, n_gpus, n_threads, log = hardware.devices, hardware.devices, hardware.threads, LOG.format("%j")
    array = []
    if isinstance(run, TuneConfig):  # one process a job, which starts those of its trials
        n_tasks, n_gpus, log = 1, max(hardware.devices, run.jobs), LOG.format("%A_%a")
        n_threads *= n_gpus  # those of all its processes
        array = [f"--array=1-{run.slurm.tasks}"]
    own = slurm.options.split()
    if not any(one.startswith("--signal=") for one in own):
        own.append("--signal=USR1@90")
    if hardware.accelerator is Accelerator.gpu and not any(one.startswith(("--gres", "--gpus")) for one in own):
        own.append(f"--gpus-per-node={n_gpus}")
    asked = {
        "--time": slurm.time,
        "--partition": slurm.partition,
        "--account": slurm.account,
        "--cpus-per-task": n_threads or "",
    }
    return [
        *own,
        f"--job-name={re.sub(r'[^A-Za-z0-9_.-]', '_', folder.name)}",
        f"--nodes={hardware.nodes}",
        f"--ntasks-per-node={n_tasks}",
        *array,
        *(f"{name}={value}" for name, value in asked.items() if value),
        f'--output="{folder}/{log}"',
        "--open-mode=append",
        "--requeue",
    ]


def _verb(run: RunConfig | TuneConfig) -> str:
    if isinstance(run, TuneConfig):
        return "tune"
    return "pretrain" if run.task is Task.pretrain else "train"


def _command(run: RunConfig | TuneConfig, words: Sequence[str], folder: Path, config_dir: str | None) -> list[str]:
    """The same words in the same folder, where `resume=auto` takes them on; a folder to resume says both itself. Jobs
    of a search share a storage."""
    typed = {word.partition("=")[0].strip(): word.partition("=")[2] for word in words}
    more = ["--config-dir", config_dir] if config_dir else []
    command = [sys.executable, "-m", "manyheads", _verb(run), *more]
    if isinstance(run, TuneConfig):
        storage = [] if run.storage else [f"storage={folder / STORAGE}"]
        return [*command, *(word for word in words if not word.startswith("output=")), f"output={folder}", *storage]
    if typed.get("resume", "auto") not in Resume.__members__:
        return [*command, *words]
    kept = [word for word in words if word.partition("=")[0].strip() not in ("output", "resume")]
    return [*command, *kept, f"output={folder}", "resume=auto"]
