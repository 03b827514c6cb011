"""The pool of workers: a queue of requests, and the processes that answer them.

Each worker takes what waits as soon as it is free. A request that was accepted is answered, whatever becomes of the
worker: where that dies, or gives no answer in time, another is started and given the same request, from then on by
itself. A request at which several workers end is given up.

Each worker opens the model and fits the answer rules by itself. A rule is fitted code of any plugin, not data that one
process could hand to another; and this process never imports torch, so that it starts at once and needs little memory.
All fit on the same rows, so they answer alike. The cost is that a worker that replaces another is up later.
"""

import asyncio
import json
import math
import os
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from manyheads.config.conversion import to_plain
from manyheads.distributed.machine import n_cores
from manyheads.plugins.serving.config import ServeConfig

MOST_TRIES = 3  # workers that may end at one request
CHARACTERS = 4  # of a token, about: tokens are estimated before a worker reads the texts
# Threads that wait sleep. They share the cores with the server and its clients, where those that spin wait for a thread
# that cannot run: 2 threads on 2 cores that are busy answered 1 text a second instead of 66 (4 layers of 256).
SLEEPING_THREADS = {"OMP_WAIT_POLICY": "passive"}
MOST_ANSWER = 2**28  # bytes of an answer
PROGRAM = ("-P", "-m", "manyheads.plugins.serving.worker")
EXIT_SECONDS = 2.0  # within which a worker may exit by itself
MOST_PAUSE = 5.0  # seconds between two starts of a worker that does not come up
RawReply = tuple[int, bytes]


class TooManyError(Exception):
    """More texts wait than may."""


@dataclass(eq=False, slots=True)
class Pending:
    """A request that waits for its answer.

    Attributes:
        arrived: the time of the event loop.
        tokens: an estimate of how many its texts have.
        tries: workers that ended at it.
    """

    request: dict[str, Any]
    answer: "asyncio.Future[RawReply]"
    arrived: float
    tokens: int
    tries: int = 0

    @property
    def is_alone(self) -> bool:
        """Whether it is answered by itself: a page of a view, or a request at which a worker ended."""
        return self.tries > 0 or self.request["kind"] != "predict"


@dataclass(eq=False, slots=True)
class WorkerPool:
    """The workers: a context manager, which starts them and ends them.

    Attributes:
        about: what the first worker said of the model, see `worker.about`.
        mistake: the sentence of a user's mistake for which no worker comes up.
        ready: workers that answer.
        restarts: workers that were started after another ended.
        batches: lists of requests that were handed to workers.
        n_waiting: texts that wait.
    """

    config: ServeConfig
    about: dict[str, Any] = field(default_factory=dict)
    mistake: str = ""
    ready: int = 0
    restarts: int = 0
    batches: int = 0
    n_waiting: int = 0
    closing: bool = False
    _waiting: deque[Pending] = field(default_factory=deque)
    _idle: list[asyncio.Future[None]] = field(default_factory=list)  # of workers that wait for a request
    _in_progress: int = 0  # batches
    _last_size: int = 1  # requests of the newest batch
    _first: asyncio.Event = field(default_factory=asyncio.Event)  # a worker is up, or none will be
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def __aenter__(self) -> "WorkerPool":
        self._tasks = [asyncio.create_task(self._keep_worker()) for _ in range(self.config.workers)]
        await self._first.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def ask(self, request: dict[str, Any]) -> RawReply:
        """Status and body of the answer.

        Raises:
            TooManyError: too many texts wait.
        """
        n_texts = len(request["texts"])
        if self.n_waiting and self.n_waiting + n_texts > self.config.max_queue:
            raise TooManyError
        tokens = 0
        for text in [*request["texts"], *(request["pairs"] or ())]:
            tokens += 2 + len(text) // CHARACTERS  # 2 marks
        loop = asyncio.get_running_loop()
        asked = Pending(request, loop.create_future(), loop.time(), tokens)
        self._waiting.append(asked)
        self.n_waiting += n_texts
        self._wake(1)
        return await asked.answer

    def _wake(self, n: int) -> None:
        """Wake `n` of the workers that wait: the last to wait first, whose caches still hold the weights."""
        for _ in range(min(n, len(self._idle))):
            self._idle.pop().set_result(None)

    async def _keep_worker(self) -> None:
        """Run one worker after another, for as long as the server runs."""
        pause = 0.1
        while not self.closing:
            process = None
            try:
                process, plain = await _start(self.config)
                await _send(process, plain)
                status, body = await _read_reply(process)
                if status == 200:
                    self.about = self.about or json.loads(body)
                    self._first.set()
                    pause, self.ready = 0.1, self.ready + 1
                    try:
                        await self._feed(process)
                    finally:
                        self.ready -= 1
                else:
                    self.mistake = self.mistake or body.decode()
                    self._first.set()
            except (EOFError, OSError) as error:
                if process is None:
                    how = f"cannot be started ({error})"
                elif isinstance(error, TimeoutError):
                    how = "gave no answer in hardware.timeout seconds"
                else:
                    how = "ended"
                print(f"a worker {how}: another is started", file=sys.stderr, flush=True)
                if not self.about and self.restarts + 1 >= MOST_TRIES:
                    self.mistake = "workers end before they have opened the model: see their messages above"
                    self._first.set()
            finally:
                if process is not None:
                    await _stop(process)
            self.restarts += 1
            await asyncio.sleep(pause)
            pause = min(2 * pause, MOST_PAUSE)

    async def _feed(self, process: asyncio.subprocess.Process) -> None:
        """Give a worker what waits, and its answers to those who asked, until it ends."""
        ended = asyncio.ensure_future(process.wait())
        while True:
            batch: list[Pending] = []
            while not batch:
                batch = await self._next_batch(ended)
            try:
                async with asyncio.timeout(self.config.hardware.timeout):
                    await _send(process, [one.request for one in batch])
                    for asked in batch:
                        answer = await _read_reply(process)
                        if not asked.answer.done():
                            asked.answer.set_result(answer)
            finally:
                self._in_progress -= 1
                self._requeue([one for one in batch if not one.answer.done()])

    async def _next_batch(self, ended: "asyncio.Future[int]") -> list[Pending]:
        """The requests that a worker answers next: those that wait, up to about `batch.tokens` tokens; the first may
        have more. Empty: another worker was quicker.

        With `exact`, texts are read one by one, and each worker that is free takes its share. Without, requests wait
        for each other to make a batch, though no longer than `wait`, and not at all where nobody else seems to ask:
        none waited, none is in progress, and the batch before was of one request.
        """
        loop, nobody_waited = asyncio.get_running_loop(), not self._waiting
        while not self._waiting:
            arrival = loop.create_future()
            self._idle.append(arrival)
            try:
                await asyncio.wait((arrival, ended), return_when=asyncio.FIRST_COMPLETED)
            finally:
                if arrival in self._idle:
                    self._idle.remove(arrival)
                elif ended.done():  # woken as it ended: wake another in its place
                    self._wake(1)
            if ended.done():
                raise EOFError
        if self.config.exact:
            n_free = max(1, self.ready - self._in_progress)
            most = math.ceil(len(self._waiting) / n_free)
        else:
            first = self._waiting[0]
            until = first.arrived + self.config.wait / 1000
            is_only_one = nobody_waited and not self._in_progress and self._last_size == 1
            is_full = sum(one.tokens for one in self._waiting) >= self.config.batch.tokens
            if not (is_only_one or is_full or first.is_alone) and loop.time() < until:
                await asyncio.sleep(until - loop.time())
                if not self._waiting:
                    return []
            most = len(self._waiting)
        batch = [self._waiting.popleft()]
        tokens = batch[0].tokens
        while len(batch) < most and not batch[0].is_alone and not self._waiting[0].is_alone:
            tokens += self._waiting[0].tokens
            if tokens > self.config.batch.tokens:
                break
            batch.append(self._waiting.popleft())
        self.n_waiting -= sum(len(one.request["texts"]) for one in batch)
        self.batches += 1
        self._in_progress += 1
        self._last_size = len(batch)
        return batch

    def _requeue(self, unanswered: list[Pending]) -> None:
        """Put the requests of a worker that ended back, in front of all others."""
        for asked in reversed(unanswered):
            asked.tries += 1
            if asked.tries >= MOST_TRIES:
                asked.answer.set_result((500, b"several workers ended at this request: it is given up"))
            else:
                self._waiting.appendleft(asked)
                self.n_waiting += len(asked.request["texts"])
        self._wake(len(unanswered))


async def _start(config: ServeConfig) -> tuple[asyncio.subprocess.Process, dict[str, Any]]:
    """A worker, and the settings that are to be its first message."""
    typed = os.environ.get("OMP_NUM_THREADS", "")
    if config.hardware.threads:
        threads = config.hardware.threads
    elif typed.isdigit():
        threads = max(1, int(typed))
    else:  # one core is left to the server and its clients
        threads = max(1, (n_cores() - 1) // config.workers)
    process = await asyncio.create_subprocess_exec(
        sys.executable, *PROGRAM, stdin=-1, stdout=-1, start_new_session=True, limit=MOST_ANSWER,
        env={**SLEEPING_THREADS, **os.environ, "OMP_NUM_THREADS": str(threads)},
    )  # fmt: skip
    plain = to_plain(config)
    plain["hardware"]["threads"] = threads
    return process, plain


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Let it exit by itself, if it still can, and kill it otherwise."""
    assert process.stdin is not None
    process.stdin.close()
    with suppress(TimeoutError, asyncio.CancelledError):
        await asyncio.wait_for(process.wait(), EXIT_SECONDS)
    if process.returncode is None:
        process.kill()
        await process.wait()


async def _send(process: asyncio.subprocess.Process, content: Any) -> None:
    assert process.stdin is not None
    message = json.dumps(content).encode()
    process.stdin.write(len(message).to_bytes(4, "big") + message)
    await process.stdin.drain()


async def _read_reply(process: asyncio.subprocess.Process) -> RawReply:
    assert process.stdout is not None
    size = int.from_bytes(await process.stdout.readexactly(4), "big")
    message = await process.stdout.readexactly(size)
    return int(message[:3]), message[3:]
