"""Processes that begin at once: one process imports torch, Lightning and the pipeline, and forks the others.

A search starts a process for each trial, and importing takes seconds of each. `Warm` starts the server, which is this
module run by `python -m`, and asks it for processes over a socket: the words of a verb, an environment, and the files
for standard input and output travel as descriptors. The server has no threads and has done no work, so a fork of it is
as a process that was started anew: it has the same bits of a training.

What the server forks outlives it and ends by itself where the search is killed, as its standard input is the search's
(see cli/main.py). Standard library only: a search imports no torch, and the server what `IMPORTED` names.
"""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Self

from manyheads.distributed.machine import is_alive
from manyheads.plugin import resolve

SERVER = (sys.executable, "-P", "-m", "manyheads.runs.warm")
IMPORTED = "manyheads.training.pipeline:"  # torch, Lightning and the steps of a training
CALLED = "manyheads.cli.main:worker_main"  # by each forked process
LOOK = 0.02  # seconds between two questions for an exit code
LARGEST = 4096  # bytes of an answer


class ServerLostError(Exception):
    """There is no server: it was killed, one of its imports failed, or this system has none."""


class Warm:
    """The server, started with this object and ended with its block, or with this process.

    There is one on Linux alone: elsewhere libraries of the system do not survive a fork.
    """

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        if sys.platform != "linux":
            return
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                [*SERVER, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # what fails here fails in a process that starts anew, and is said there
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C reaches the search alone
            )

    def start(self, words: Sequence[str], stdin: int, output: int, env: dict[str, str]) -> "WarmProcess":
        """Fork a process that does what `python -m manyheads.cli.main WORDS` would, in a session of its own.

        Args:
            stdin, output: descriptors of its standard input, and of its standard output and error; duplicated.
            env: its whole environment.

        Raises:
            ServerLostError: there is no server, or no more.
        """
        if self._socket is None:
            raise ServerLostError
        with os.fdopen(os.memfd_create("request"), "wb") as request:  # an environment may be longer than a message
            request.write(json.dumps({"words": list(words), "env": env}).encode())
            request.flush()
            answer = self._ask({"ask": "start"}, [request.fileno(), stdin, output])
        return WarmProcess(self, answer["pid"])

    def exit_code(self, pid: int) -> int | None:
        """Of a process that `start` has made; below 0 where a signal ended it, None while it runs.

        Raises:
            ServerLostError: it has ended without a server, and nobody knows how.
        """
        try:
            return self._ask({"ask": "poll", "pid": pid})["code"]
        except ServerLostError:
            if is_alive(pid):
                return None
            raise

    def _ask(self, question: dict[str, Any], descriptors: Sequence[int] = ()) -> dict[str, Any]:
        if self._socket is None:
            raise ServerLostError
        try:
            socket.send_fds(self._socket, [json.dumps(question).encode()], descriptors)
            answer = self._socket.recv(LARGEST)
        except OSError as error:
            raise ServerLostError from error
        if not answer:
            raise ServerLostError
        return json.loads(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the server, which has nothing to save; what it has forked continues."""
        if self._socket is not None:
            self._socket.close()
            self._process.kill()
            self._process.wait()


class WarmProcess:
    """A forked process, with the methods of `subprocess.Popen` that its supervisor uses.

    Attributes:
        has_finished: whether it did all of its work, asked where it has ended and the server is lost, as only the
            server gets to know its exit code.
    """

    def __init__(self, server: Warm, pid: int) -> None:
        self.server, self.pid = server, pid
        self.returncode: int | None = None
        self.has_finished: Callable[[], bool] = lambda: False

    def poll(self) -> int | None:
        if self.returncode is None:
            try:
                self.returncode = self.server.exit_code(self.pid)
            except ServerLostError:
                self.returncode = 0 if self.has_finished() else -signal.SIGKILL
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        until = float("inf") if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() >= until:
                raise subprocess.TimeoutExpired("a training", timeout or 0.0)
            time.sleep(LOOK)
        return code

    def terminate(self) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)


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
    """The server. It only imports: no thread is lost by a fork, and no random number is drawn before it."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    resolve(IMPORTED)
    worker = resolve(CALLED)
    gc.collect()
    gc.freeze()  # what is imported is never garbage: its pages stay shared with the forked processes
    words = serve(connection)
    if words is not None:
        sys.argv = ["manyheads.cli.main", *words]
        worker()


if __name__ == "__main__":
    main()
