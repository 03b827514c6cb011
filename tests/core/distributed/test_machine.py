"""What cores and memory this machine has left."""

import os
import subprocess
import sys
import time

import pytest

from manyheads.distributed.machine import Load, n_cores, spare_memory

GROUPS = {
    "the machine alone": ("0::/job\n", {}, 8 << 30),
    "a group above, of version 2": (
        "0::/job/step\n",
        {
            "job/memory.max": "3000",
            "job/memory.current": "2500",
            "job/memory.stat": "anon 9\ninactive_file 400\n",
            "job/step/memory.max": "max",
            "job/step/memory.current": "9",
        },
        900,
    ),
    "of version 1": (
        "9:cpu,memory:/job\n4:pids:/job\n",
        {
            "memory/job/memory.limit_in_bytes": "3000",
            "memory/job/memory.usage_in_bytes": "3100",
            "memory/job/memory.stat": "inactive_file 40\n",
            "pids/memory.max": "1",
        },
        0,
    ),
}


def write_groups(tmp_path, place, files):
    known = {f"groups/{name}": text for name, text in files.items()}
    known |= {"proc/meminfo": f"MemTotal: 1 kB\nMemAvailable:  {8 << 20} kB\n", "proc/self/cgroup": place}
    for name, text in known.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)


@pytest.mark.parametrize("kind", GROUPS)
def test_memory_that_is_left_is_that_of_the_machine_and_its_groups(kind, tmp_path):
    place, files, left = GROUPS[kind]
    write_groups(tmp_path, place, files)
    assert spare_memory(tmp_path / "proc", tmp_path / "groups") == left
    assert spare_memory(tmp_path / "none", tmp_path / "groups") == 0


LIMITS = {
    "of version 2, above": ("0::/job/step\n", {"job/cpu.max": "300000 100000", "job/step/cpu.max": "max 100000"}, 3),
    "less than a core": ("0::/\n", {"cpu.max": "20000 100000"}, 1),
    "of version 1": (
        "3:cpu,cpuacct:/job\n0::/\n",
        {"cpu/job/cpu.cfs_quota_us": "200000", "cpu/job/cpu.cfs_period_us": "100000", "cpu/cpu.cfs_quota_us": "-1"},
        2,
    ),
    "none": ("0::/job\n", {"job/cpu.max": "max 100000"}, 8),
    "more than there are": ("0::/job\n", {"job/cpu.max": "6400000 100000"}, 8),
    "damaged": ("0::/job\n", {"job/cpu.max": "0 0"}, 8),
}


@pytest.mark.parametrize("kind", LIMITS)
def test_cores_are_those_that_control_groups_allow(kind, tmp_path, monkeypatch):
    place, files, n = LIMITS[kind]
    write_groups(tmp_path, place, files)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    assert n_cores(tmp_path / "proc", tmp_path / "groups") == n


def test_memory_that_is_left_here():
    psutil = pytest.importorskip("psutil")
    left = spare_memory()
    assert 0 < left < psutil.virtual_memory().total


def write_stat(tmp_path, *ticks):
    """Ticks of user, nice and system of each core."""
    lines = [f"cpu{at} {user} {nice} {system} 900 4 0 1 0 0 0" for at, (user, nice, system) in enumerate(ticks)]
    (tmp_path / "stat").write_text("\n".join(["cpu 1 2 3 4 5 6 7 8 9 10", *lines, "intr 1 2", "ctxt 5", ""]))


@pytest.mark.parametrize(
    ("after", "used"),
    [
        ([(160, 0, 40), (0, 0, 0)], 1.0),
        ([(100, 500, 0), (0, 0, 0)], 0.0),  # processes of low priority give way
        ([(100, 0, 0), (0, 0, 0), (900, 0, 0)], 0.0),  # a core that this process may not use
    ],
)
def test_load_is_what_others_use_of_the_cores_of_this_process(after, used, tmp_path, monkeypatch):
    clock = iter([10.0, 11.0, 11.0])  # a look at the start; then the time so far, and a look
    monkeypatch.setattr("os.sysconf", lambda _: 100)
    monkeypatch.setattr("os.times", lambda: os.times_result((7.0, 1.0, 0.0, 0.0, 0.0)))
    write_stat(tmp_path, (100, 0, 0), (0, 0, 0))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    load = Load(tmp_path, [0, 1])
    write_stat(tmp_path, *after)
    assert load.cores_of_others() == pytest.approx(used)


@pytest.mark.parametrize(
    ("chosen", "used", "policy"), [(None, 0.4, None), (None, 0.6, "passive"), ("active", 2.0, "active")]
)
def test_threads_that_wait_sleep_where_others_want_the_cores(chosen, used, policy, monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", chosen or "")
    if chosen is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    load = Load()
    monkeypatch.setattr(load, "cores_of_others", lambda: used)
    load.let_threads_sleep()
    assert os.environ.get("OMP_WAIT_POLICY") == policy


def test_a_busy_process_is_seen():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            time.sleep(0.2)
            load, least = Load(), 0.0
            for _ in range(50):  # other tests may hold the cores for a while
                least = load.cores_of_others()
                if least > 0.1:
                    break
        finally:
            other.kill()
    assert least > 0.1


def test_without_counts_nobody_is_busy(tmp_path):
    assert Load(tmp_path, [0]).cores_of_others() == 0
