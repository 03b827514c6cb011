"""The verb `serve`: what is wrong is said before anything heavy is imported, then one process speaks HTTP and starts
those that hold the model (crew.py).

SIGTERM, or Ctrl-C, ends it in good order: what was accepted is answered, what comes is refused with 503. A second
signal ends it at once.
"""

import asyncio
import os
import signal
import socket
import sys
from contextlib import nullcontext, suppress
from dataclasses import replace
from importlib.util import find_spec
from ipaddress import ip_address
from typing import Any

import manyheads.plugin as plugin
from manyheads.config.sentences import install_extra
from manyheads.errors import UserError
from manyheads.inference.download import is_hub_name
from manyheads.inference.format import open_folder
from manyheads.inference.predict import check_members
from manyheads.plugins.serving.config import ServeConfig
from manyheads.terminal import one_line

TOKEN = "MANYHEADS_TOKEN"  # noqa: S105 - the name of the variable
SHORTEST = 16  # characters of a token
NEEDED = ("fastapi", "uvicorn", "httptools", "prometheus_client")
HEAD_SECONDS = 10.0  # in which the head of a request must have come
MOST_HEAD = 2**16  # bytes of it
LOOK = 0.05  # seconds between two looks at what is left to answer


def serve(config: ServeConfig) -> None:
    """Serve until a signal comes.

    Raises:
        UserError: one sentence; a package that is not there, the run, the host, the port or the token.
        KeyboardInterrupt: Ctrl-C, once what was accepted is answered.
    """
    if any(find_spec(name) is None for name in NEEDED):
        raise UserError(f"serve needs packages that are not installed: {install_extra('serve')}")
    opened = open_folder(config.run, "classify", graph=True)
    opened.labels()
    check_members(config.members, opened)
    plugin.asked("answer_rule", config, opened)
    if is_hub_name(config.run):  # at the commit that is there now: a process that is started later opens the same
        config = replace(config, run=f"{config.run.partition('@')[0]}@{opened.path.name}")
    token = _token(config.host)
    with _listening(config) as listener:
        if asyncio.run(_serve(config, listener, token)) == signal.SIGINT:
            raise KeyboardInterrupt


def _token(host: str) -> str:
    token = os.environ.get(TOKEN, "").strip()
    if token and (len(token) < SHORTEST or not token.isascii()):
        raise UserError(f"${TOKEN} is short or not plain ASCII: give {SHORTEST} characters or more, drawn at random")
    if not token and not all(ip_address(one).is_loopback for one in _addresses(host)):
        raise UserError(
            f"host={host} can be reached by others, who must have a token: set ${TOKEN} to {SHORTEST} characters or "
            "more, or leave host=127.0.0.1"
        )
    return token


def _addresses(host: str) -> list[str]:
    try:
        return [str(one[4][0]).partition("%")[0] for one in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except OSError as error:
        raise UserError(f"host={host} is not a name or an address of this machine: {error.strerror}") from error


def _listening(config: ServeConfig) -> socket.socket:
    """The socket, bound before torch is imported, so that a port that is taken is said at once."""
    family = socket.AF_INET6 if ":" in _addresses(config.host)[0] else socket.AF_INET
    try:
        listener = socket.create_server((config.host, config.port), family=family, backlog=2048)
    except OSError as error:
        raise UserError(
            f"host={config.host} port={config.port} cannot be listened at: {os.strerror(error.errno or 0)}; choose "
            "another port, such as port=8001, or port=0 for a free one"
        ) from error
    # head and body of an answer are two packets: else the second waits some 40 ms until the first is acknowledged
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


async def _serve(config: ServeConfig, listener: socket.socket, token: str) -> int:
    """Serve; the signal that ended it."""
    from manyheads.plugins.serving.app import make_app
    from manyheads.plugins.serving.crew import Crew

    received: list[int] = []  # signals
    loop = asyncio.get_running_loop()
    over = asyncio.Event()

    def note(number: int) -> None:
        if received:
            os._exit(128 + number)
        received.append(number)
        over.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, note, number)
    async with Crew(config) as crew:
        if crew.mistake:
            raise UserError(crew.mistake)
        gate = make_app(config, crew, token)
        server = _server(gate)
        serving = asyncio.create_task(server.serve([listener]))
        for line in crew.about["rules"]:
            print(one_line(line), file=sys.stderr)
        name, port = listener.getsockname()[:2]
        shown = f"[{name}]" if ":" in name else name
        print(f"{one_line(crew.about['name'])}: http://{shown}:{port}/ (Ctrl-C ends it)", flush=True)
        await over.wait()
        gate.closing = True
        with suppress(TimeoutError):
            async with asyncio.timeout(config.hardware.timeout):
                while gate.active:
                    await asyncio.sleep(LOOK)
        said = "all accepted requests are answered"
        if gate.active:
            said = f"{gate.active} requests are not answered in hardware.timeout={config.hardware.timeout} seconds"
            server.force_exit = True
        server.should_exit = True
        await serving
    print(f"ended: {said}", file=sys.stderr, flush=True)
    return received[0]


def _server(app: Any) -> Any:
    """uvicorn, which leaves signals to us and closes connections whose request does not come."""
    import uvicorn
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    protocol: Any = HttpToolsProtocol

    class Patient(protocol):
        """A connection that is closed where it has no whole head of a request for `HEAD_SECONDS`, or one of more than
        `MOST_HEAD` bytes: the parser sets itself no limit, and copies what it has at each piece that comes."""

        kept = 0  # bytes that came since the last head or part of a body

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.seen = object()
            self.look()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
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
            idle = self.cycle is None or self.cycle.response_complete
            if idle and self.seen is self.cycle and not self.transport.is_closing():
                self.transport.close()
            elif not self.transport.is_closing():
                self.seen = self.cycle if idle else object()
                self.next_look = self.loop.call_later(HEAD_SECONDS, self.look)

    class Server(uvicorn.Server):
        def capture_signals(self) -> Any:
            return nullcontext()

    config = uvicorn.Config(
        app,
        http=Patient,
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=5,
    )
    return Server(config)
