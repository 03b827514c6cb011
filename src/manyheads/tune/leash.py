"""The process of one run, `python -m manyheads.tune.leash CONFIG`: it ends when the search that started it is gone.

CONFIG holds every setting of the run, written by the search: no word is read twice, so none is read differently.

Its standard input is a pipe whose other end the search holds open and never writes to. Where the search is killed,
even by `kill -9`, the pipe comes to its end, and the run is told to stop as by SIGTERM: it saves its state.
"""

import os
import signal
import sys
import threading
import time

GRACE = 120.0  # seconds to save in


def leave_with(descriptor: int, grace: float = GRACE) -> None:
    """End this process once nobody holds the other end of the pipe, at the latest `grace` seconds later."""

    def wait() -> None:
        while os.read(descriptor, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def train_alone(config: str) -> int:
    """Train the run of a config.yaml; returns the exit code."""
    from manyheads.cli import answer, call
    from manyheads.door.plain_yaml import read_run

    def work() -> int:
        call("train", read_run(config))
        return 0

    def say(sentence: str, code: int) -> int:
        print(sentence, file=sys.stderr)
        return code

    return answer(work, say)


if __name__ == "__main__":
    leave_with(sys.stdin.fileno())
    sys.exit(train_alone(sys.argv[1]))
