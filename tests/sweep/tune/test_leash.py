"""A run does not outlive its search, however that ends."""

import os
import signal
import subprocess
import sys

import pytest

CHILD = """
import os, signal, sys, time
from manyheads.distributed.signals import leave_with
signal.signal(signal.SIGTERM, {handler})
leave_with(sys.stdin.fileno(), grace=0.5)
print("ready", flush=True)
time.sleep(100)
"""


def test_a_mistake_is_one_line_with_its_exit_code(tmp_path):
    config = tmp_path / "001-seed-0.yaml"
    config.write_text("optim: {lr: fast}\n")
    child = subprocess.Popen(
        [sys.executable, "-m", "manyheads.sweep.scheduler", str(config)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.wait(60) == 2
    assert child.stdout is not None
    assert child.stderr is not None
    assert child.stdout.read() == ""
    said = child.stderr.read()
    assert said.count("\n") == 1
    assert "optim.lr=fast has the wrong type" in said


@pytest.mark.parametrize(("handler", "code"), [("lambda *_: os._exit(143)", 143), ("lambda *_: None", -signal.SIGKILL)])
def test_it_is_told_to_end_and_then_made_to(handler, code):
    script = CHILD.format(handler=handler)
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == b"ready\n"
        assert child.poll() is None
        child.stdin.close()  # as the death of the search does
        assert child.wait(60) == code
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
