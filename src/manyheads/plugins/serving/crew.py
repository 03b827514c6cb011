"""The queue of questions, and the processes that answer them: each takes what waits as soon as it is free.

A question that was taken is answered, whatever becomes of the process: where that dies, or gives no answer in time,
another is started and asked the same, by itself from then on. What ends several processes is given up.
"""

import asyncio
import json
import os
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from manyheads.config.fields import to_plain
from manyheads.distributed.ranks import n_cores
from manyheads.plugins.serving.config import ServeConfig

MOST_TRIES = 3  # processes that a question may end
LETTERS = 4  # of a token, about: it is counted before texts are read
# Threads that wait sleep. They share the cores with the server and its clients, where those that spin wait for a thread
# that cannot run: 2 threads on 2 cores that are busy answered 1 text a second instead of 66 (4 layers of 256).
QUIETLY = {"OMP_WAIT_POLICY": "passive"}
LARGEST = 2**28  # bytes of an answer
PROGRAM = ("-P", "-m", "manyheads.plugins.serving.worker")
GRACE = 2.0  # seconds in which a process may leave by itself
PATIENCE = 5.0  # most seconds between two starts of a process that does not come up
Answer = tuple[int, bytes]


class TooManyError(Exception):
    """More texts wait than may."""


@dataclass(eq=False, slots=True)
class Asked:
    """A question; `tokens` is how many it has, about."""

    question: dict[str, Any]
    answer: "asyncio.Future[Answer]"
    arrived: float
    tokens: int
    tries: int = 0

    @property
    def alone(self) -> bool:
        return self.tries > 0 or self.question["kind"] != "predict"


@dataclass(eq=False, slots=True)
class Crew:
    """The processes; `about` is what the first of them said of the model. Leaving the block ends them."""

    config: ServeConfig
    about: dict[str, Any] = field(default_factory=dict)
    mistake: str = ""
    ready: int = 0  # processes that answer
    restarts: int = 0
    batches: int = 0
    n_waiting: int = 0  # texts
    closing: bool = False
    _waiting: deque[Asked] = field(default_factory=deque)
    _idle: list[asyncio.Future[None]] = field(default_factory=list)  # of processes that wait for a question
    _under_way: int = 0  # batches
    _last: int = 1  # questions of the newest batch
    _first: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def __aenter__(self) -> "Crew":
        self._tasks = [asyncio.create_task(self._employ()) for _ in range(self.config.workers)]
        await self._first.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def ask(self, question: dict[str, Any]) -> Answer:
        """Status and body of the answer; `TooManyError` where too many wait."""
        texts = [*question["texts"], *(question["pairs"] or ())]
        if self.n_waiting and self.n_waiting + len(question["texts"]) > self.config.max_queue:
            raise TooManyError
        loop = asyncio.get_running_loop()
        asked = Asked(question, loop.create_future(), loop.time(), sum(2 + len(text) // LETTERS for text in texts))
        self._waiting.append(asked)
        self.n_waiting += len(asked.question["texts"])
        self._wake(1)
        return await asked.answer

    def _wake(self, n: int) -> None:
        """So many processes, of those that wait: the newest first, whose caches still hold the weights."""
        for _ in range(min(n, len(self._idle))):
            self._idle.pop().set_result(None)

    async def _employ(self) -> None:
        """One process after another, for as long as the server runs."""
        pause = 0.1
        while not self.closing:
            process = None
            try:
                process, plain = await _started(self.config)
                await _send(process, plain)
                status, body = await _answer(process)
                if status != 200:
                    self.mistake = self.mistake or body.decode()
                self.about = self.about or (json.loads(body) if status == 200 else {})
                self._first.set()
                if status == 200:
                    pause, self.ready = 0.1, self.ready + 1
                    try:
                        await self._work(process)
                    finally:
                        self.ready -= 1
            except (EOFError, OSError) as error:
                how = "gave no answer in hardware.timeout seconds" if isinstance(error, TimeoutError) else "ended"
                how = f"cannot be started ({error})" if process is None else how
                print(f"a worker {how}: another is started", file=sys.stderr, flush=True)
                if not self.about and self.restarts + 1 >= MOST_TRIES:
                    self.mistake = "workers end before they have opened the model: what they said stands above"
                    self._first.set()
            finally:
                if process is not None:
                    await _ended(process)
            self.restarts += 1
            await asyncio.sleep(pause)
            pause = min(2 * pause, PATIENCE)

    async def _work(self, process: asyncio.subprocess.Process) -> None:
        """Hand on what waits, and the answers back, until the process ends."""
        ended = asyncio.ensure_future(process.wait())
        while True:
            batch: list[Asked] = []
            while not batch:
                batch = await self._gather(ended)
            try:
                async with asyncio.timeout(self.config.hardware.timeout):
                    await _send(process, [one.question for one in batch])
                    for asked in batch:
                        answer = await _answer(process)
                        if not asked.answer.done():
                            asked.answer.set_result(answer)
            finally:
                self._under_way -= 1
                self._again([one for one in batch if not one.answer.done()])

    async def _gather(self, ended: "asyncio.Future[int]") -> list[Asked]:
        """The questions that are answered next: those that wait, up to about `batch.tokens` tokens; the first may have
        more. Where batches are made, they wait for each other, though no longer than `wait`, and not at all where
        nobody else seems to ask: none waited, none is under way, and the batch before was of one question; none where
        another process was quicker. Where texts are read one by one, each process that is free takes its share."""
        loop, alone = asyncio.get_running_loop(), not self._waiting
        while not self._waiting:
            arrival = loop.create_future()
            self._idle.append(arrival)
            try:
                await asyncio.wait((arrival, ended), return_when=asyncio.FIRST_COMPLETED)
            finally:
                if arrival in self._idle:
                    self._idle.remove(arrival)
                elif ended.done():  # woken as it ended: another is
                    self._wake(1)
            if ended.done():
                raise EOFError
        first, alone = self._waiting[0], alone and not self._under_way and self._last == 1
        until = first.arrived + self.config.wait / 1000
        is_full = alone or first.alone or sum(one.tokens for one in self._waiting) >= self.config.batch.tokens
        if not self.config.exact and not is_full and loop.time() < until:
            await asyncio.sleep(until - loop.time())
            if not self._waiting:
                return []
        free = max(1, self.ready - self._under_way) if self.config.exact else 1
        most, batch = -(-len(self._waiting) // free), [self._waiting.popleft()]
        tokens = batch[0].tokens
        while len(batch) < most and not batch[0].alone and not self._waiting[0].alone:
            tokens += self._waiting[0].tokens
            if tokens > self.config.batch.tokens:
                break
            batch.append(self._waiting.popleft())
        self.n_waiting -= sum(len(one.question["texts"]) for one in batch)
        self.batches, self._under_way, self._last = self.batches + 1, self._under_way + 1, len(batch)
        return batch

    def _again(self, unanswered: list[Asked]) -> None:
        """Put back what a process that ended was asked, in front of all others."""
        for asked in reversed(unanswered):
            asked.tries += 1
            if asked.tries >= MOST_TRIES:
                asked.answer.set_result((500, b"several workers ended at this question: it is given up"))
            else:
                self._waiting.appendleft(asked)
                self.n_waiting += len(asked.question["texts"])
        self._wake(len(unanswered))


async def _started(config: ServeConfig) -> tuple[asyncio.subprocess.Process, dict[str, Any]]:
    """A process, and the settings that it is to be sent."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    # one core is left to the server and its clients
    share = int(told) if told.isdigit() else (n_cores() - 1) // config.workers
    threads = config.hardware.threads or max(1, share)
    process = await asyncio.create_subprocess_exec(
        sys.executable, *PROGRAM, stdin=-1, stdout=-1, start_new_session=True, limit=LARGEST,
        env={**QUIETLY, **os.environ, "OMP_NUM_THREADS": str(threads)},
    )  # fmt: skip
    plain = to_plain(config)
    plain["hardware"]["threads"] = threads
    return process, plain


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Let it leave by itself, if it still can, and kill it otherwise."""
    assert process.stdin is not None
    process.stdin.close()
    with suppress(TimeoutError, asyncio.CancelledError):
        await asyncio.wait_for(process.wait(), GRACE)
    if process.returncode is None:
        process.kill()
        await process.wait()


async def _send(process: asyncio.subprocess.Process, content: Any) -> None:
    assert process.stdin is not None
    message = json.dumps(content).encode()
    process.stdin.write(len(message).to_bytes(4, "big") + message)
    await process.stdin.drain()


async def _answer(process: asyncio.subprocess.Process) -> Answer:
    assert process.stdout is not None
    size = int.from_bytes(await process.stdout.readexactly(4), "big")
    message = await process.stdout.readexactly(size)
    return int(message[:3]), message[3:]
