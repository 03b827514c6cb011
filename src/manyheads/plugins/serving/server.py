"""The server: one process speaks HTTP, and starts the workers that hold the model (pool.py).

SIGTERM, or Ctrl-C, ends it in good order: what was accepted is answered, what comes is refused with 503. A second
signal ends it at once.
"""

import asyncio
import os
import signal
import socket
import sys
from contextlib import nullcontext, suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from manyheads.errors import UserError
from manyheads.plugins.serving.app import make_app
from manyheads.plugins.serving.config import ServeConfig
from manyheads.plugins.serving.pool import WorkerPool
from manyheads.terminal import one_line

HEAD_SECONDS = 10.0  # within which the head of a request must arrive
MOST_HEAD = 2**16  # bytes of it
POLL_SECONDS = 0.05  # between two looks at how many requests are left to answer


async def serve_until_signal(config: ServeConfig, listener: socket.socket, token: str) -> int:
    """Serve until a signal comes; returns its number. A UserError where no worker can open the model."""
    received: list[int] = []  # signals
    loop = asyncio.get_running_loop()
    over = asyncio.Event()

    def on_signal(number: int) -> None:
        if received:
            os._exit(128 + number)
        received.append(number)
        over.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    async with WorkerPool(config) as pool:
        if pool.mistake:
            raise UserError(pool.mistake)
        gate = make_app(config, pool, token)
        server = make_server(gate)
        serving = asyncio.create_task(server.serve([listener]))
        for line in pool.about["rules"]:
            print(one_line(line), file=sys.stderr)
        name, port = listener.getsockname()[:2]
        shown = f"[{name}]" if ":" in name else name
        print(f"{one_line(pool.about['name'])}: http://{shown}:{port}/ (Ctrl-C ends it)", flush=True)
        await over.wait()
        gate.closing = True
        with suppress(TimeoutError):
            async with asyncio.timeout(config.hardware.timeout):
                while gate.active:
                    await asyncio.sleep(POLL_SECONDS)
        if gate.active:
            end = f"{gate.active} requests are not answered in hardware.timeout={config.hardware.timeout} seconds"
            server.force_exit = True
        else:
            end = "all accepted requests are answered"
        server.should_exit = True
        await serving
    print(f"ended: {end}", file=sys.stderr, flush=True)
    return received[0]


class ImpatientProtocol(HttpToolsProtocol):  # pyright: ignore[reportUntypedBaseClass]
    """A connection that is closed where no whole head of a request arrives within `HEAD_SECONDS`, or one of more than
    `MOST_HEAD` bytes: the parser sets itself no limit, and copies what it has with each piece that arrives."""

    kept: int = 0  # bytes that arrived since the last head or part of a body
    seen: Any = None  # the request at the last look, or an object of its own where one was in progress
    next_look: Any = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.seen = object()
        self.look()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.next_look is not None:
            self.next_look.cancel()  # which would keep the connection and its request in memory until then

    def data_received(self, data: bytes) -> None:
        self.kept += len(data)
        super().data_received(data)
        if self.kept > MOST_HEAD and not self.transport.is_closing():
            self.send_400_response(f"The head of the request is larger than {MOST_HEAD} bytes.")

    def on_headers_complete(self) -> None:
        self.kept = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self.kept = 0
        super().on_body(body)

    def look(self) -> None:
        """Close the connection if it was idle at the last look, and no request has arrived since."""
        if self.transport.is_closing():
            return
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self.seen is self.cycle:
            self.transport.close()
            return
        self.seen = self.cycle if idle else object()
        self.next_look = self.loop.call_later(HEAD_SECONDS, self.look)


class Server(uvicorn.Server):
    """uvicorn, which leaves signals to `serve_until_signal`."""

    def capture_signals(self) -> Any:
        return nullcontext()


def make_server(app: Any) -> Server:
    """The server of an ASGI application."""
    return Server(
        uvicorn.Config(
            app,
            http=ImpatientProtocol,
            ws="none",
            lifespan="off",
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=5,
        )
    )
