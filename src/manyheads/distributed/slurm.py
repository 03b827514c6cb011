"""`hardware=slurm`: the script that starts these very words in a SLURM queue, and again until they are done.

Standard library only. SLURM sends SIGUSR1 to every task 90 s before the time is up (`slurm.options=--signal=USR1@600`:
ten minutes); the run saves its state and ends with 138, and the script puts its job back into the queue, where the same
words go on by resume=auto. Of `tune` it is an array of jobs, one machine each, which share a search by `storage=`; of
`ablate` one whose jobs share a results file, beside which the script lies.
"""

import os
import re
import shlex
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from manyheads.config import AblateConfig, Accelerator, Resume, RunConfig, Task, TuneConfig
from manyheads.config.fields import show
from manyheads.runs.folder import refuse_unwritable, replace_file, start_folder

SCRIPT, LOG = "job.sbatch", "slurm-{}.out"
STORAGE = "storage.journal"  # of a search that names none
Queued = RunConfig | TuneConfig | AblateConfig
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


def is_for_the_queue(run: Queued) -> bool:
    """Whether `run` is to be written down for a queue, not begun: hardware=slurm outside of a job."""
    is_dry = isinstance(run, RunConfig) and run.dry
    return run.slurm.script and not is_dry and "SLURM_JOB_ID" not in os.environ


def refuse_unwritten(run: Queued) -> None:
    """Refuse hardware=slurm outside of a job where nothing was typed that a script could say."""
    if is_for_the_queue(run):
        raise ValueError(
            f"hardware=slurm writes down a command line, which a call from Python is not: type manyheads {_verb(run)} "
            "hardware=slurm and the other settings, or remove it"
        )


def holds_a_script_alone(folder: Path) -> bool:
    """Whether a run may begin in the folder: it is empty but for a script, and what SLURM wrote of jobs of it."""
    return all(one.name == SCRIPT or fnmatch(one.name, LOG.format("*")) for one in folder.iterdir())


def write_job(run: Queued, words: Sequence[str], config_dir: str | None = None) -> str:
    """Write `job.sbatch` into the folder of the run, or `<output>.sbatch` beside a results file, and return the line
    that submits it.

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
    is_array = not isinstance(run, RunConfig)
    if is_array and not run.output:
        what = "folder: add output=FOLDER" if isinstance(run, TuneConfig) else "results file: add output=FILE"
        raise ValueError(
            f"hardware=slurm starts several jobs of {_verb(run)}, which find each other by their {what}, on a disk "
            "that all machines see"
        )
    if isinstance(run, AblateConfig):
        target = Path(path.removesuffix(".json"))
        script, log = target.with_name(f"{target.name}.sbatch"), f"{target}-{LOG.format('%A_%a')}"
        target.parent.mkdir(parents=True, exist_ok=True)
    else:
        target = start_folder(run.output, again=is_array or run.resume is not Resume.never)
        script, log = target / SCRIPT, f"{target}/{LOG.format('%A_%a' if is_array else '%j')}"
    lines = ["#!/bin/bash", *(f"#SBATCH {one}" for one in _options(run, target.name, log))]
    command = shlex.join(_command(run, words, target, config_dir))
    with refuse_unwritable(script.parent), replace_file(script) as part:
        job = "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" if is_array else "$SLURM_JOB_ID"
        body = _BODY.format(here=shlex.quote(os.getcwd()), command=command, job=job)
        part.write_text("\n".join(lines) + "\n" + body, encoding="utf-8")
    return f"sbatch {shlex.quote(str(script))}"


def _options(run: Queued, name: str, log: str) -> list[str]:
    """What is asked of SLURM for the job `name`, which writes into `log`."""
    hardware, slurm = run.hardware, run.slurm
    n_tasks, n_gpus, n_threads = hardware.devices, hardware.devices, hardware.threads
    array = [] if isinstance(run, RunConfig) else [f"--array=1-{run.slurm.tasks}"]
    if isinstance(run, TuneConfig):  # one process a job, which starts those of its trials
        n_tasks, n_gpus = 1, max(hardware.devices, run.jobs)
        n_threads *= n_gpus  # those of all its processes
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
        f"--job-name={re.sub(r'[^A-Za-z0-9_.-]', '_', name)}",
        f"--nodes={hardware.nodes}",
        f"--ntasks-per-node={n_tasks}",
        *array,
        *(f"{name}={value}" for name, value in asked.items() if value),
        f'--output="{log}"',
        "--open-mode=append",
        "--requeue",
    ]


def _verb(run: Queued) -> str:
    if not isinstance(run, RunConfig):
        return "tune" if isinstance(run, TuneConfig) else "ablate"
    return "pretrain" if run.task is Task.pretrain else "train"


def _command(run: Queued, words: Sequence[str], target: Path, config_dir: str | None) -> list[str]:
    """The same words in the same folder, where `resume=auto` takes them on; a folder to resume says both itself. Jobs
    of a search share a storage."""
    typed = {word.partition("=")[0].strip(): word.partition("=")[2] for word in words}
    more = ["--config-dir", config_dir] if config_dir else []
    command = [sys.executable, "-m", "manyheads", _verb(run), *more]
    if not isinstance(run, RunConfig):
        storage = [f"storage={target / STORAGE}"] if isinstance(run, TuneConfig) and not run.storage else []
        return [*command, *(word for word in words if not word.startswith("output=")), f"output={target}", *storage]
    if typed.get("resume", "auto") not in Resume.__members__:
        return [*command, *words]
    kept = [word for word in words if word.partition("=")[0].strip() not in ("output", "resume")]
    return [*command, *kept, f"output={target}", "resume=auto"]
