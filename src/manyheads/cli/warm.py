"""The server of runs/warm.py: imports what a training needs, then forks a process for each request.

It imports and does nothing else, so that no thread is lost by a fork and no random number is drawn. A request names
what `python -m manyheads.cli.main WORDS` is to be given.
"""

import gc
import json
import os
import socket
import sys
from typing import Any

import manyheads.training.pipeline  # noqa: F401  torch, Lightning and the steps of a training
from manyheads.cli.main import worker_main

LARGEST = 4096  # bytes of a question


def serve(connection: socket.socket) -> list[str] | None:
    """Answer questions until nobody is there to ask.

    Returns:
        In each forked process the words that it is to be called with; in the server None.
    """
    while True:
        question, descriptors, _, _ = socket.recv_fds(connection, LARGEST, 3)
        if not question:
            return None
        asked = json.loads(question)
        if asked["ask"] == "poll":
            answer = {"code": exit_code(asked["pid"])}
        else:
            request, stdin, output = descriptors
            with os.fdopen(request, "rb") as file:
                file.seek(0)
                wanted: dict[str, Any] = json.load(file)
            pid = os.fork()
            if pid == 0:
                connection.close()
                become(stdin, output, wanted["env"])
                return wanted["words"]
            os.close(stdin)
            os.close(output)
            answer = {"pid": pid}
        connection.send(json.dumps(answer).encode())


def exit_code(pid: int) -> int | None:
    """Below 0 where a signal ended the process, None while it runs."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def become(stdin: int, output: int, env: dict[str, str]) -> None:
    """Give a forked process its session, its environment and its standard files."""
    os.setsid()
    for standard, descriptor in ((0, stdin), (1, output), (2, output)):
        os.dup2(descriptor, standard)
    os.close(stdin)
    os.close(output)
    os.environ.clear()
    os.environ.update(env)


def main() -> None:
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    gc.collect()
    gc.freeze()  # what is imported is never garbage: its pages stay shared with the forked processes
    words = serve(connection)
    if words is not None:
        sys.argv = ["manyheads.cli.main", *words]
        worker_main()


if __name__ == "__main__":
    main()
