"""The server from which tests fork processes that begin at once: it has imported torch and Lightning, which takes
seconds, and all processes of a pytest session share it (the fixtures `python`, `forks` and `bare` of conftest.py).

    python -P fork_server.py SOCKET SOCKET

What connects to the first socket gets processes that have imported nothing of ours, to the second those that have
imported all that trains and judges. They are asked for as `manyheads/runs/warm.py` says. Their first word says what
they do: `python`, which is here, or a function of forked.py.
"""

import functools
import gc
import os
import runpy
import select
import socket
import sys
import warnings
from pathlib import Path

import hydra  # noqa: F401
import lightning.pytorch  # noqa: F401
import matplotlib.figure  # noqa: F401
import pyarrow.csv  # noqa: F401
import sklearn.linear_model  # noqa: F401
from lightning.fabric.utilities import registry

from manyheads.runs import warm


def words_of_a_fork(listener: socket.socket) -> list[str]:
    """Serve whoever connects, each by a process of its own, until standard input ends; in what these fork its words."""
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            os._exit(0)
        connection, _ = listener.accept()
        if not os.fork():
            os.setsid()
            listener.close()
            words = warm.serve(connection)
            if words is None:
                os._exit(0)
            return words
        connection.close()


def python(folder: str, error: str, *words: str) -> None:
    """Do in this folder what `python WORDS` does, its standard error in a file; it ends as that ends."""
    os.chdir(folder)
    os.dup2(os.open(error, os.O_WRONLY | os.O_APPEND), sys.stderr.fileno())
    encoding = os.environ.get("PYTHONIOENCODING") or None
    sys.stdin, sys.stdout = os.fdopen(0, encoding=encoding), os.fdopen(1, "w", encoding=encoding)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding=encoding, errors="backslashreplace")
    while words[0] == "-W":
        warnings.simplefilter(words[1])  # type: ignore[arg-type]
        words = words[2:]
    sys.path[:0] = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one and one not in sys.path]
    first, *others = words
    if first == "-c":
        sys.path.insert(0, "")
        sys.argv = ["-c", *others[1:]]
        exec(compile(others[0], "<string>", "exec"), {"__name__": "__main__"})
    elif first == "-m":
        sys.path.insert(0, folder)
        sys.argv = others
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(first).parent.absolute()))
        sys.argv = [first, *others]
        runpy.run_path(first, run_name="__main__")


def main() -> None:
    bare, full = (socket.socket(fileno=int(one)) for one in sys.argv[1:])
    sys.path.append(str(Path(__file__).parents[1]))  # of `tests`
    os.fsync = lambda descriptor: None  # as in conftest.py
    registry.entry_points = functools.cache(registry.entry_points)  # likewise
    registry.entry_points(group="lightning.pytorch.callbacks_factory")  # which each Trainer asks for
    gc.freeze()  # what is imported is never garbage: its pages stay shared with the forked processes
    if not os.fork():
        full.close()
        kind, *words = words_of_a_fork(bare)
        for name in [name for name in sys.modules if name.partition(".")[0] == "manyheads"]:
            del sys.modules[name]
    else:
        bare.close()
        from tests import forked

        gc.freeze()
        kind, *words = words_of_a_fork(full)
    (python if kind == "python" else getattr(forked, kind))(*words)


if __name__ == "__main__":
    main()
