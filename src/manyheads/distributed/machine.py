"""What this machine has left for this process: cores, and who else uses them; memory. Standard library only."""

import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

PROC, GROUPS = Path("/proc"), Path("/sys/fs/cgroup")  # of Linux
LEAST_LOOK = 0.1  # seconds over which the use of cores is measured: the kernel counts in hundredths
SPARE = 0.5  # cores that others may use


def n_cores(proc: Path = PROC, groups: Path = GROUPS) -> int:
    """CPU cores that this process may use: those it may run on, or what its control groups allow if that is less."""
    n_found = len(usable_cores())
    for folder in control_groups("cpu", proc, groups):
        with suppress(OSError, ValueError):  # the outermost has no limit, and "max" or -1 stands for none
            if (folder / "cpu.max").exists():
                quota, period = map(int, (folder / "cpu.max").read_text().split())
            else:
                quota = int((folder / "cpu.cfs_quota_us").read_text())
                period = int((folder / "cpu.cfs_period_us").read_text())
            if quota > 0:
                n_found = min(n_found, max(1, round(quota / period)))
    return n_found


def usable_cores() -> list[int]:
    """The numbers of the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _seconds_used(cores: list[int], proc: Path) -> float:
    """Processor time of all processes on these cores since the machine was started, but for those of low priority
    (`nice`), which give way."""
    ticks = 0
    for line in (proc / "stat").read_text().splitlines():
        name, *counts = line.split()
        if re.fullmatch(r"cpu[0-9]+", name) and int(name[3:]) in cores:
            user, _, system, *_ = map(int, counts)
            ticks += user + system
    return ticks / os.sysconf("SC_CLK_TCK")


@dataclass
class Load:
    """The use of the cores since this object was made."""

    proc: Path = PROC
    cores: list[int] = field(default_factory=usable_cores)

    def __post_init__(self) -> None:
        self._before = self._now()

    def _now(self) -> tuple[float, float]:
        """The time, and processor seconds of other processes; these are 0 where the system does not say."""
        with suppress(OSError, ValueError):
            own = os.times()
            return time.monotonic(), _seconds_used(self.cores, self.proc) - own.user - own.system
        return time.monotonic(), 0.0

    def cores_of_others(self) -> float:
        """How many of the cores other processes used, on average. Waits until there is enough to average over."""
        begun, used = self._before
        time.sleep(max(0.0, begun + LEAST_LOOK - time.monotonic()))
        now, used_now = self._now()
        return (used_now - used) / (now - begun)

    def let_threads_sleep(self) -> None:
        """Where other processes want the cores, let OpenMP's threads sleep while they wait for work, unless the user
        has chosen; it has an effect before torch is imported.

        By default they spin, for some milliseconds. On idle cores sleeping costs 10 to 31 % of the speed, as a thread
        wakes late. On cores that others use too, spinning costs a third to two thirds: the thread that is waited for
        has lost its core to one that spins (benchmarks/load.json).
        """
        if "OMP_WAIT_POLICY" not in os.environ and self.cores_of_others() > SPARE + len(self.cores) - n_cores():
            os.environ["OMP_WAIT_POLICY"] = "passive"


def is_alive(process: int) -> bool:
    """Whether a process of this machine runs; where /proc does not say, it does. One that has ended may stay there for
    good where its new parent never waits for it, as in a container whose first process is a search."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return not Path("/proc/self/stat").exists()
    except (OSError, IndexError):
        return True
    return state not in "ZX"


def processor() -> str:
    """The processor's name."""
    import platform  # which `--help` does without

    listing = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*: (.+)", listing.read_text()) if listing.exists() else None
    return named[1] if named else platform.processor() or platform.machine()


def spare_memory(proc: Path = PROC, groups: Path = GROUPS) -> int:
    """Bytes of memory that are free on this machine and within the control groups (v1 or v2) of this process; 0 where
    that is unknown. The page cache counts as free, apart from files that were read lately."""
    left: list[int] = []
    with suppress(OSError):
        for kilobytes in re.findall(r"(?m)^MemAvailable: +(\d+) kB", (proc / "meminfo").read_text()):
            left.append(1024 * int(kilobytes))
    for folder in control_groups("memory", proc, groups):
        limit, usage = "memory.max", "memory.current"
        if not (folder / limit).exists():  # version 1
            limit, usage = "memory.limit_in_bytes", "memory.usage_in_bytes"
        with suppress(OSError, ValueError):  # the outermost has no limit, and "max" stands for none
            most, used = int((folder / limit).read_text()), int((folder / usage).read_text())
            idle = re.findall(r"(?m)^inactive_file (\d+)", (folder / "memory.stat").read_text())
            left.append(most - used + sum(map(int, idle)))
    return max(0, min(left, default=0))


def control_groups(kind: str, proc: Path = PROC, groups: Path = GROUPS) -> list[Path]:
    """The folders of the control groups of this process that may limit `kind`, the innermost first: those of version 2
    limit all kinds, those of version 1 one each."""
    folders: list[Path] = []
    with suppress(OSError):
        for line in (proc / "self" / "cgroup").read_text().splitlines():
            _, kinds, place = line.split(":", 2)
            if not kinds:  # version 2
                root = groups
            elif kind in kinds.split(","):
                root = groups / kind
            else:
                continue
            folder = root / place.lstrip("/")
            folders += [folder, *folder.parents]
    return folders
