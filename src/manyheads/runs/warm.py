"""Processes that begin at once: one process imports torch, Lightning and the pipeline, and forks the others.

A search starts a process for each trial, and importing takes seconds of each. `Warm` starts the server (`python -m
manyheads.cli.warm`) and asks it for processes over a socket: the words of a verb, an environment, and the files for
standard input and output travel as descriptors. The server has no threads and has done no work, so a fork of it is as
a process that was started anew: it has the same bits of a training.

What the server forks outlives it and ends by itself where the search is killed, as its standard input is the search's
(see cli/main.py). Standard library only: a search imports no torch.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Self

SERVER = (sys.executable, "-P", "-m", "manyheads.cli.warm")
LOOK = 0.02  # seconds between two questions for an exit code
LARGEST = 4096  # bytes of an answer


class ServerLostError(Exception):
    """The server has ended: it was killed, or one of its imports failed."""


class Warm:
    """The server, started with this object and ended with its block, or with this process."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                [*SERVER, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C reaches the search alone
            )

    def start(self, words: Sequence[str], stdin: int, output: int, env: dict[str, str]) -> "WarmProcess":
        """Fork a process that does what `python -m manyheads.cli.main WORDS` would, in a session of its own.

        Args:
            stdin, output: descriptors of its standard input, and of its standard output and error; duplicated.
            env: its whole environment.

        Raises:
            ServerLostError: there is no server any more.
        """
        with tempfile.TemporaryFile() as request:  # an environment may be longer than a message
            request.write(json.dumps({"words": list(words), "env": env}).encode())
            request.flush()
            answer = self._ask({"ask": "start"}, [request.fileno(), stdin, output])
        return WarmProcess(self, answer["pid"])

    def exit_code(self, pid: int) -> int | None:
        """Of a process that `start` has made; below 0 where a signal ended it, None while it runs."""
        try:
            return self._ask({"ask": "poll", "pid": pid})["code"]
        except ServerLostError:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return -signal.SIGKILL  # how it ended nobody knows
            return None

    def _ask(self, question: dict[str, Any], descriptors: Sequence[int] = ()) -> dict[str, Any]:
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
        """End the server, which has nothing to save; what it has forked goes on."""
        self._socket.close()
        self._process.kill()
        self._process.wait()


class WarmProcess:
    """A forked process, with the methods of `subprocess.Popen` that its supervisor uses."""

    def __init__(self, server: Warm, pid: int) -> None:
        self.server, self.pid = server, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self.server.exit_code(self.pid)
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
