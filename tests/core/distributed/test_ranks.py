"""Which of how many processes this is, and what processes started side by side agree on."""

import pytest

from manyheads.distributed.ranks import (
    Ranks,
    first_host,
    job_name,
    rendezvous,
    tasks_of_nodes,
    this_process,
)

NAMES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
)
TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1"}
SRUN = {"SLURM_JOB_ID": "70", "SLURM_STEP_ID": "2", "SLURM_NTASKS": "7", "SLURM_PROCID": "6", "SLURM_LOCALID": "0"}
SRUN |= {"SLURM_NODEID": "3", "SLURM_STEP_TASKS_PER_NODE": "2(x3),1", "SLURM_STEP_NODELIST": "gpu[07-09,12],login"}


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    import os

    for name in [*os.environ]:
        if name in NAMES or name.startswith(("SLURM_", "TORCHELASTIC_")):
            monkeypatch.delenv(name)


@pytest.fixture
def given(monkeypatch):
    def set_all(*environments: dict[str, str]) -> None:
        for one in environments:
            for name, value in one.items():
                monkeypatch.setenv(name, value)

    return set_all


def test_one_process_alone(given):
    assert this_process() == Ranks(0, 1, 0, 1, 0, "")
    given({"RANK": "0", "WORLD_SIZE": "1"})  # as some queues set for every job
    assert this_process() == Ranks(0, 1, 0, 1, 0, "")
    assert job_name() == ""


def test_torchrun_and_our_own(given):
    given(TORCHRUN)
    assert this_process() == Ranks(5, 8, 1, 4, 1, "launch")
    given({"TORCHELASTIC_RUN_ID": "none"})
    assert this_process() == Ranks(5, 8, 1, 4, 1, "torchrun")
    assert job_name() == "", "the parents of other machines are others"
    given({"TORCHELASTIC_RUN_ID": "../a b/7"})
    assert job_name() == "torchrun--a-b-7"


def test_srun(given):
    given(SRUN)
    assert this_process() == Ranks(6, 7, 0, 1, 3, "srun")
    assert job_name() == "slurm-70-2"
    place = rendezvous()
    assert place[0] == "gpu07"
    assert 12000 <= place[1] < 32000
    given({"SLURM_STEP_ID": "3"})
    assert rendezvous()[1] != place[1], "two steps of one job at once"
    given({"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "4000"})
    assert rendezvous() == ("10.0.0.1", 4000)


def test_one_task_of_a_batch_script_is_alone(given):
    given(SRUN | {"SLURM_NTASKS": "1"})
    assert this_process().started_by == ""


def test_a_batch_script_without_srun_is_alone(given):
    given({"SLURM_JOB_ID": "70", "SLURM_NTASKS": "2", "SLURM_PROCID": "0"})
    assert this_process().started_by == ""


@pytest.mark.parametrize(
    ("words", "counts"), [("1", [1]), ("2(x3),1", [2, 2, 2, 1]), ("4,3", [4, 3]), ("2(x2)", [2, 2])]
)
def test_tasks_of_nodes(words, counts):
    assert tasks_of_nodes(words) == counts


@pytest.mark.parametrize(
    ("names", "first"),
    [("gpu[07-09,12],login", "gpu07"), ("a,b", "a"), ("n[3,5]", "n3"), ("n[1-2]-ib", "n1-ib"), ("", "127.0.0.1")],
)
def test_first_host(names, first):
    assert first_host(names) == first
