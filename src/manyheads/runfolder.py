"""The folder of a run, chosen once however many processes take part in it. Standard library only.

One process alone, or the first of those that Lightning starts, makes the folder and hands its path on by
the environment variable MANYHEADS_OUTPUT. Processes started side by side, by torchrun or srun, agree on a
name made from the number of their job.
"""

import os
import secrets
import time
from pathlib import Path

HANDED_ON = "MANYHEADS_OUTPUT"


def start_folder(output: str = "", *, again: bool = False) -> Path:
    """Make the folder of a run and return its absolute path; other processes of the same run get the same.

    Args:
        output: the folder that was asked for; empty: outputs/<date>-<time>-<4 hex digits>.
        again: it may hold a run already, which goes on.

    Raises:
        ValueError: the folder asked for exists and is not empty, or cannot be agreed on.
    """
    if _rank() > 0:
        return _folder_of_others(output)
    if again:
        folder = named_folder(output)
        folder.mkdir(parents=True, exist_ok=True)
    else:
        folder = _make_named(Path(output).expanduser()) if output else _make_new(_job_name())
    folder = folder.absolute()
    os.environ[HANDED_ON] = str(folder)
    return folder


def leave_folder() -> None:
    """Hand the folder on no longer: the next run of this process gets its own. For the process that made it."""
    if is_first_process():
        os.environ.pop(HANDED_ON, None)


def named_folder(output: str) -> Path:
    """The folder that `output` names, or the number of the job: one that a second start finds again.

    Raises:
        ValueError: neither does.
    """
    handed_on = os.environ.get(HANDED_ON)
    if _rank() > 0 and handed_on:
        return Path(handed_on)
    name = output or (f"outputs/{_job_name()}" if _job_name() else "")
    if not name:
        raise ValueError("output is empty, but resume=auto and resume=must go on in a folder: name it by output=FOLDER")
    return Path(name).expanduser().absolute()


def refuse_taken(output: str) -> None:
    """Refuse a folder that holds something: the first process asks before any work, the others never.

    Raises:
        ValueError: the folder is a file, or not empty.
    """
    folder = Path(output).expanduser()
    if not output or _rank() > 0:
        return
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"output={folder} is a file: name a new folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise ValueError(f"output={folder} exists and is not empty: name a new folder, or delete this one")


def is_first_process() -> bool:
    """Whether this process is the one that writes what belongs to the whole run."""
    return _rank() == 0


def _make_named(folder: Path) -> Path:
    refuse_taken(str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _make_new(job: str) -> Path:
    """A folder nobody else has: made, not looked for, so that runs that start together stay apart."""
    while True:
        name = job or f"{time.strftime('%Y-%m-%d_%H-%M-%S')}-{secrets.token_hex(2)}"
        folder = Path("outputs", name)
        folder.parent.mkdir(exist_ok=True)
        try:
            folder.mkdir()
        except FileExistsError:
            if job:
                return _make_named(folder)
            continue
        return folder


def _folder_of_others(output: str) -> Path:
    handed_on = os.environ.get(HANDED_ON)
    if handed_on:
        return Path(handed_on)
    name = output or (f"outputs/{_job_name()}" if _job_name() else "")
    if not name:
        raise ValueError(
            "output is empty, but several processes run side by side: name the folder of the run by output=FOLDER"
        )
    return Path(name).expanduser().absolute()


def _rank() -> int:
    """Number of this process among those of the run: Lightning's own, torchrun's or srun's."""
    if "RANK" in os.environ:
        return int(os.environ["RANK"])
    if int(os.environ.get("SLURM_NTASKS", 1)) > 1 and "SLURM_PROCID" in os.environ:
        return int(os.environ["SLURM_PROCID"])
    return int(os.environ.get("LOCAL_RANK", 0)) + int(os.environ.get("NODE_RANK", 0))


def _job_name() -> str:
    """A name that all processes of a job started side by side can work out alone, empty for a single process."""
    elastic = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    if elastic != "none":
        return f"torchrun-{elastic}"
    if int(os.environ.get("SLURM_NTASKS", 1)) > 1 and "SLURM_JOB_ID" in os.environ:
        return f"slurm-{os.environ['SLURM_JOB_ID']}-{os.environ.get('SLURM_STEP_ID', '0')}"
    return ""
