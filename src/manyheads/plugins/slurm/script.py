"""`hardware=slurm`: the script that starts the same command in a SLURM queue, and again until it is done.

Standard library only. SLURM sends SIGUSR1 to every task 90 s before the time is up (`slurm.options=--signal=USR1@600`:
ten minutes); the run saves its state and ends with 138, and the script puts its job back into the queue, where the same
command continues by resume=auto. For a verb whose jobs can share its work it is an array of jobs, one machine each;
where they share a file, the script lies next to that.
"""

import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import manyheads.plugin as plugin
from manyheads.config import Accelerator, Resume
from manyheads.config.sentences import format_value
from manyheads.errors import UserError
from manyheads.plugin import Shared
from manyheads.runs.files import refuse_unwritable, replace_file
from manyheads.runs.folder import start_folder

SCRIPT = "job.sbatch"
Config = Any  # the settings of a verb, with a section `slurm`
PATH = re.compile(r"[\w/.,:+=@~ -]+")  # no quote, and no % that SLURM would replace
BODY = """
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


def is_for_the_queue(config: Config) -> bool:
    """Whether a command is to be written into a script instead of being run: hardware=slurm outside of a job."""
    return config.slurm.script and not getattr(config, "dry", False) and "SLURM_JOB_ID" not in os.environ


def slurm_unread(config: Config, name: str) -> str:
    """Why a setting of a script does nothing, and what to do; empty where there is a script."""
    if config.slurm.script or name == "slurm.script" or not name.startswith("slurm."):
        return ""
    return "without hardware=slurm: add that, or remove it"


def refuse_slurm(config: Config, where: str) -> None:
    """Refuse hardware=slurm where no command was typed that a script could start."""
    if where == "-m" and config.slurm.script:
        raise UserError(
            "hardware=slurm is refused under -m, which writes no script: start each run alone, such as "
            "`for n in 2 4; do manyheads train model.n_heads=$n hardware=slurm; done`"
        )
    if is_for_the_queue(config):
        raise UserError(
            "hardware=slurm writes down a command line, which a call from Python is not: type the command with "
            "hardware=slurm and the other settings, or remove it"
        )


def launch(verb: str, config: Config, words: Sequence[str], config_dir: str | None) -> str:
    """With hardware=slurm, write `job.sbatch` into the folder of the run, or `<output>.sbatch` next to a results file,
    and return the line that submits it; else an empty text.

    Args:
        words: what was typed after the verb.
        config_dir: the user's own folder of presets.
    """
    if not is_for_the_queue(config):
        return ""
    if config.hardware.devices == 0:
        raise UserError(
            "hardware.devices=0 takes all GPUs of this machine, but a job runs on others: say how many each has, "
            "such as hardware.devices=4"
        )
    path = os.path.abspath(os.path.expanduser(config.output or "outputs"))
    if not PATH.fullmatch(path):
        raise UserError(
            f"output={format_value(path)} cannot be written in a script of SLURM: use letters, digits, spaces and the "
            "signs / . , : + = @ ~ _ - alone"
        )
    shares = plugin.resolve(plugin.verbs()[verb].shared)
    if shares is None:
        target = start_folder(config.output, resume=config.resume is not Resume.never)
        script, log = target / SCRIPT, f"{target}/slurm-%j.out"
        job, shared, words = "$SLURM_JOB_ID", None, resuming_words(words, target)
    else:
        shared = shares(config)
        if not shared.target:
            raise UserError(
                f"hardware=slurm starts several jobs of {verb}, which find each other by their {shared.remedy}, on a "
                "disk that all machines see"
            )
        if shared.is_folder:
            target = start_folder(config.output, resume=True)
            script, log = target / SCRIPT, f"{target}/slurm-%A_%a.out"
        else:
            target = shared.target
            target.parent.mkdir(parents=True, exist_ok=True)
            script, log = target.with_name(f"{target.name}.sbatch"), f"{target}-slurm-%A_%a.out"
        job = "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
        kept = [word for word in words if not word.startswith("output=")]
        words = [*kept, f"output={target}", *shared.words]
    head = ["#!/bin/bash"]
    for option in job_options(config, shared, target.name, log):
        head.append(f"#SBATCH {option}")
    own_presets = ["--config-dir", config_dir] if config_dir else []
    command = shlex.join([sys.executable, "-m", "manyheads", verb, *own_presets, *words])
    body = BODY.format(here=shlex.quote(os.getcwd()), command=command, job=job)
    with refuse_unwritable(script.parent), replace_file(script) as part:
        part.write_text("\n".join(head) + "\n" + body, encoding="utf-8")
    return f"sbatch {shlex.quote(str(script))}"


def job_options(config: Config, shared: Shared | None, name: str, log: str) -> list[str]:
    """The options of sbatch for the job `name`, which writes into `log`."""
    hardware, slurm = config.hardware, config.slurm
    n_tasks, n_gpus, n_threads = hardware.devices, hardware.devices, hardware.threads
    array = []
    if shared:  # one process a job, which starts the others
        n_tasks, n_gpus = 1, max(hardware.devices, shared.processes)
        n_threads *= n_gpus  # those of all its processes
        array = [f"--array=1-{slurm.tasks}"]
    typed = slurm.options.split()
    if not any(option.startswith("--signal=") for option in typed):
        typed.append("--signal=USR1@90")
    if hardware.accelerator is Accelerator.gpu and not any(one.startswith(("--gres", "--gpus")) for one in typed):
        typed.append(f"--gpus-per-node={n_gpus}")
    optional = []
    for option, value in (
        ("--time", slurm.time),
        ("--partition", slurm.partition),
        ("--account", slurm.account),
        ("--cpus-per-task", n_threads),
    ):
        if value:
            optional.append(f"{option}={value}")
    return [
        *typed,
        f"--job-name={re.sub(r'[^A-Za-z0-9_.-]', '_', name)}",
        f"--nodes={hardware.nodes}",
        f"--ntasks-per-node={n_tasks}",
        *array,
        *optional,
        f'--output="{log}"',
        "--open-mode=append",
        "--requeue",
    ]


def resuming_words(words: Sequence[str], target: Path) -> list[str]:
    """The words of a command that continues its run where it has begun: `resume=auto` in the same folder. A command
    with `resume=FOLDER` names its folder already."""
    resume, kept = "auto", []
    for word in words:
        name, _, value = word.partition("=")
        if name.strip() == "resume":
            resume = value
        if name.strip() not in ("output", "resume"):
            kept.append(word)
    if resume not in Resume.__members__:
        return list(words)
    return [*kept, f"output={target}", "resume=auto"]
