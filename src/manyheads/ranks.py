"""Which of how many processes this is, as the environment says. Standard library only.

torchrun and `launch.py` set RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE; srun, where a step has several tasks,
the variables that begin with SLURM_. Without either there is one process alone.
"""

import os
from dataclasses import dataclass


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
    if "RANK" in env and "WORLD_SIZE" in env:
        rank, n_ranks, local = int(env["RANK"]), int(env["WORLD_SIZE"]), int(env.get("LOCAL_RANK", 0))
        n_local = int(env.get("LOCAL_WORLD_SIZE", n_ranks))
        node = int(env.get("GROUP_RANK", env.get("NODE_RANK", rank // n_local)))
        return Ranks(rank, n_ranks, local, n_local, node, "torchrun" if "TORCHELASTIC_RUN_ID" in env else "launch")
    n_tasks = int(env.get("SLURM_NTASKS", 1))
    if n_tasks > 1 and "SLURM_STEP_ID" in env and "SLURM_PROCID" in env:
        n_local = int(env.get("SLURM_STEP_TASKS_PER_NODE", env.get("SLURM_TASKS_PER_NODE", "1")).partition("(")[0])
        local, node = int(env.get("SLURM_LOCALID", 0)), int(env.get("SLURM_NODEID", 0))
        return Ranks(int(env["SLURM_PROCID"]), n_tasks, local, n_local, node, "srun")
    return Ranks()
