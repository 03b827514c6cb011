"""Rank and world size of this process, from the environment. Standard library only."""

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Ranks:
    """`rank` of `n_ranks` processes of the run, and `local_rank` of `n_local` on this machine, which is number `node`.

    `started_by` is "", "launch", "torchrun" or "srun".
    """

    rank: int = 0
    n_ranks: int = 1
    local_rank: int = 0
    n_local: int = 1
    node: int = 0
    started_by: str = ""

    @property
    def is_first(self) -> bool:
        """Whether this process writes what belongs to the whole run."""
        return self.rank == 0


def this_process() -> Ranks:
    """Read the environment anew: a test, or a run started from this process, may have changed it."""
    env = os.environ
    elastic = "TORCHELASTIC_RUN_ID" in env
    if "RANK" in env and (elastic or int(env.get("WORLD_SIZE", 1)) > 1):
        rank, n_ranks, local = int(env["RANK"]), int(env["WORLD_SIZE"]), int(env.get("LOCAL_RANK", 0))
        n_local = int(env.get("LOCAL_WORLD_SIZE", n_ranks))
        node = int(env.get("GROUP_RANK", env.get("NODE_RANK", rank // n_local)))
        return Ranks(rank, n_ranks, local, n_local, node, "torchrun" if elastic else "launch")
    n_tasks = int(env.get("SLURM_STEP_NUM_TASKS", env.get("SLURM_NTASKS", 1)))
    if n_tasks > 1 and "SLURM_STEP_ID" in env and "SLURM_PROCID" in env:
        local, node = int(env.get("SLURM_LOCALID", 0)), int(env.get("SLURM_NODEID", 0))
        tasks = env.get("SLURM_STEP_TASKS_PER_NODE", env.get("SLURM_TASKS_PER_NODE", "1"))
        return Ranks(int(env["SLURM_PROCID"]), n_tasks, local, tasks_of_nodes(tasks)[node], node, "srun")
    return Ranks()


def job_name() -> str:
    """A folder name that all processes of a job of torchrun or srun derive independently; empty where there is none.

    torchrun without an id, on one machine, is identified by the id and start time of its processes' parent.
    """
    ranks, env = this_process(), os.environ
    if ranks.started_by == "srun":
        return f"slurm-{env.get('SLURM_JOB_ID', '0')}-{env['SLURM_STEP_ID']}"
    if ranks.started_by != "torchrun":
        return ""
    given = env["TORCHELASTIC_RUN_ID"]
    if given != "none":
        return f"torchrun-{re.sub(r'[^A-Za-z0-9_-]+', '-', given)}"
    if ranks.n_local < ranks.n_ranks:
        return ""
    began = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(_began(os.getppid())))
    return f"{began}-{os.getppid():04x}"


def rendezvous() -> tuple[str, int]:
    """Address and port of the first process, at which all find each other."""
    ranks, env = this_process(), os.environ
    address, port = env.get("MASTER_ADDR"), env.get("MASTER_PORT")
    if ranks.started_by == "srun":
        if ranks.n_local < ranks.n_ranks:
            address = address or first_host(env.get("SLURM_STEP_NODELIST", ""))
        job, step = int(env.get("SLURM_JOB_ID", 0)), int(env["SLURM_STEP_ID"])
        port = port or 12000 + (job * 31 + step * 7) % 20000  # steps that run at the same time get different ones
    return address or "127.0.0.1", int(port or 29500)


def tasks_of_nodes(words: str) -> list[int]:
    """SLURM's count of tasks of each node: "2(x3),1" is [2, 2, 2, 1]."""
    counts: list[int] = []
    for one in words.split(","):
        count, _, times = one.rstrip(")").partition("(x")
        counts += [int(count)] * int(times or 1)
    return counts


def first_host(names: str) -> str:
    """The first of SLURM's list of machines: "gpu[07-09,12],login" is gpu07."""
    return re.sub(r"\[([^],-]*)[^]]*\]", r"\1", re.split(r",(?![^[]*\])", names)[0]) or "127.0.0.1"


def _began(process: int) -> float:
    """Start time of a process of this machine in seconds, the same for whoever asks; 0 where /proc does not say."""
    try:
        ticks = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
        (boot,) = re.findall(r"^btime (\d+)$", Path("/proc/stat").read_text(), re.MULTILINE)
    except (OSError, ValueError, IndexError):
        return 0.0
    return int(boot) + ticks // os.sysconf("SC_CLK_TCK")
