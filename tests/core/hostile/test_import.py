"""What importing does: no connection, no process, no file written."""

import subprocess
import sys

import pytest

WATCH = """
import os, sys
acts = []
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
NEVER = ("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.mkdir", "os.rename",
         "os.remove", "os.rmdir", "os.link", "os.symlink", "os.chmod", "shutil.", "urllib.", "ftplib.", "pickle.")
def watch(event, arguments):
    wrote = event == "open" and (arguments[2] or 0) & WRITES and arguments[0] not in (os.devnull,)
    if wrote or event.startswith(NEVER):
        acts.append((event, repr(arguments)[:200]))
sys.addaudithook(watch)
"""


def acts(code: str, folder) -> list:
    words = [sys.executable, "-B", "-c", f"{WATCH}\n{code}\nprint(acts)"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return eval(done.stdout)  # a list of texts that this test itself printed


@pytest.mark.parametrize(
    "modules", ["manyheads", "manyheads.cli.main", "manyheads.cli.compose", "manyheads.training_run"]
)
def test_importing_does_nothing_else(modules, tmp_path):
    assert acts(f"import {modules}", tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_the_watch_sees_what_it_is_for(tmp_path):
    code = "import os, socket, subprocess; socket.socket(); subprocess.run(['true'])\n"
    code += "open('x', 'w').close(); os.mkdir('y')"
    seen = [one for one, _ in acts(code, tmp_path)]
    assert {"socket.__new__", "subprocess.Popen", "open", "os.mkdir"} <= set(seen)
