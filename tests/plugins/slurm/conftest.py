"""A SLURM of this machine alone: its daemons in a temporary folder, with ports of their own, ended afterwards."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

DAEMONS = ("munged", "slurmctld", "slurmd")
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
WAIT = 600  # seconds: two processes import torch on a machine that may be busy
HOST = socket.gethostname().partition(".")[0]
NODES = (HOST, f"{HOST}-b")  # the first in order of the alphabet, whose name can be looked up, is where rank 0 is
CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
JobRequeue=1
KillWait=10
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
NodeName={nodes[0]},{nodes[1]} NodeHostname={host} NodeAddr=127.0.0.1 Port=[{ports[1]},{ports[2]}] CPUs=2 State=UNKNOWN
PartitionName=usual Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=9
"""


class Cluster:
    """Commands of SLURM. `run` and `wait` fail with what was said."""

    def __init__(self, folder: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "MANYHEADS_"))}
        for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            kept.pop(name, None)
        self.folder, self.daemons = folder, list[subprocess.Popen[bytes]]()
        self.environment = kept | {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": PATH, "OMP_NUM_THREADS": "1"}

    def run(self, *command: str | Path, cwd: Path | None = None, code: int = 0) -> str:
        """What a command printed."""
        words = [str(word) for word in command]
        done = subprocess.run(words, cwd=cwd, env=self.environment, capture_output=True, text=True, timeout=WAIT)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def submit(self, line: Sequence[str], cwd: Path) -> str:
        """The number of the job."""
        said = self.run(*line, cwd=cwd)
        assert said.startswith("Submitted batch job "), said
        return said.split()[-1]

    def job(self, number: str) -> dict[str, str]:
        """What `scontrol show job` says: JobState, ExitCode, Restarts and so on."""
        said = self.run("scontrol", "--oneliner", "show", "job", number)
        return dict(word.partition("=")[::2] for word in said.split() if "=" in word)

    def wait(self, number: str, *states: str) -> dict[str, str]:
        """Wait until the job is in one of the states."""
        until = time.monotonic() + WAIT
        while (job := self.job(number))["JobState"] not in states:
            assert time.monotonic() < until, f"{job}\n{self.logs()}"
            time.sleep(0.2)
        return job

    def logs(self) -> str:
        """The ends of the daemons' logs."""
        return "\n".join(f"{file.name}:\n{file.read_text()[-800:]}" for file in self.folder.glob("*.log"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes of two processors, and two partitions: jobs of `urgent` take the place of those of `usual`."""
    missing = [name for name in (*DAEMONS, "sbatch", "srun") if shutil.which(name, path=PATH) is None]
    if missing:
        pytest.skip(f"{missing[0]} is not installed: apt-get install slurm-wlm munge")
    if os.geteuid() != 0:
        pytest.skip("the daemons of SLURM are started by root alone")
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    cluster = Cluster(folder)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        write_settings(folder)
        key = ("--key-file", folder / "munge" / "key", "--socket", folder / "munge" / "socket")
        own = [word for name in ("pid", "seed", "log") for word in (f"--{name}-file", folder / "munge" / name)]
        stack.enter_context(daemon(cluster, "munged", "--foreground", *key, *own, user="munge"))
        wait_for((folder / "munge" / "socket").exists, cluster)
        stack.enter_context(daemon(cluster, "slurmctld", "-D", "-i"))
        for name in NODES:
            stack.enter_context(daemon(cluster, "slurmd", "-D", "-N", name))
        wait_for(lambda: is_idle(cluster), cluster)
        stack.callback(cancel_all, cluster)
        yield cluster


def write_settings(folder: Path) -> None:
    """slurm.conf and a key of munge. Others than root must be able to look into the folder."""
    folder.chmod(0o755)
    for name in ("munge", "state"):
        (folder / name).mkdir(mode=0o755)
    text = CONF.format(folder=folder, host=HOST, ports=free_ports(3), nodes=NODES)
    (folder / "slurm.conf").write_text(text)
    version = subprocess.run(["slurmd", "-V"], env={"PATH": PATH}, capture_output=True, text=True).stdout.split()[-1]
    unused = "cgroup/v1" if int(version.partition(".")[0]) < 23 else "disabled"  # 22.05 knows no other word for none
    (folder / "cgroup.conf").write_text(f"CgroupPlugin={unused}\n")
    (folder / "munge" / "key").write_bytes(os.urandom(1024))
    (folder / "munge" / "key").chmod(0o600)
    try:
        munge = pwd.getpwnam("munge")
    except KeyError:
        pytest.skip("there is no user munge, who keeps SLURM's key")
    for path in (folder / "munge", folder / "munge" / "key"):
        os.chown(path, munge.pw_uid, munge.pw_gid)


def free_ports(n: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextmanager
def daemon(cluster: Cluster, *command: str | Path, user: str | None = None) -> Iterator[None]:
    """Started here, in a session of its own, ended when the block ends."""
    with (cluster.folder / f"{command[0]}.said.log").open("w") as said:
        process = subprocess.Popen(
            [str(word) for word in command],
            env=cluster.environment,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=user,
            group=user,
            extra_groups=[] if user else None,
        )
        cluster.daemons.append(process)
        try:
            yield
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()


def wait_for(condition, cluster: Cluster) -> None:
    until = time.monotonic() + 60
    while not condition():
        if time.monotonic() > until or any(one.poll() is not None for one in cluster.daemons):
            pytest.skip(f"SLURM does not come up on this machine:\n{cluster.logs()}")
        time.sleep(0.2)


def is_idle(cluster: Cluster) -> bool:
    command = ["sinfo", "--noheader", "--Node", "--partition=usual", "--format=%T"]
    said = subprocess.run(command, env=cluster.environment, capture_output=True, text=True, timeout=60)
    return said.stdout.split() == ["idle", "idle"]


def cancel_all(cluster: Cluster) -> None:
    """Wait until no job is left, so that none outlives the daemons."""
    until = time.monotonic() + 60
    while cluster.run("squeue", "--noheader").strip() and time.monotonic() < until:
        cluster.run("scancel", "--user=root")
        time.sleep(0.5)
