"""A run does not outlive its search, however that ends."""

import os
import signal
import subprocess
import sys

import pytest

from manyheads.runs.many import COMMAND

CHILD = """
import os, signal, sys, time
from manyheads.distributed.signals import die_with_parent
signal.signal(signal.SIGTERM, {handler})
die_with_parent(sys.stdin.fileno(), grace=0.5)
print("ready", flush=True)
time.sleep(100)
"""


def test_a_mistake_is_one_line_with_its_exit_code():
    child = subprocess.Popen(
        [*COMMAND, "train", "0", "2", "1.0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdin is not None
    child.stdin.write(b'{"optim": {"lr": "fast"}}\n')
    child.stdin.flush()
    assert child.wait(60) == 2
    said, sentence = child.communicate()
    assert said == b""
    assert sentence.startswith(b"optim.lr=fast has the wrong type: ")
    assert sentence.count(b"\n") == 1


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
