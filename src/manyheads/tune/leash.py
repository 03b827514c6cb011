"""The process of one run, `python -m manyheads.tune.leash train ...`: it ends when the search that started it is gone.

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


if __name__ == "__main__":
    leave_with(sys.stdin.fileno())
    from manyheads.cli import main

    sys.exit(main(sys.argv[1:]))
