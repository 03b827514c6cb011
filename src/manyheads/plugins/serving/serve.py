"""The verb `serve`: finds mistakes before anything heavy is imported, then starts the server (server.py)."""

import asyncio
import os
import signal
import socket
from dataclasses import replace
from importlib.util import find_spec
from ipaddress import ip_address

import manyheads.plugin as plugin
from manyheads.config.sentences import install_extra
from manyheads.errors import UserError
from manyheads.inference.download import is_hub_name
from manyheads.inference.format import open_folder
from manyheads.inference.predict import check_members
from manyheads.plugins.serving.config import ServeConfig

TOKEN = "MANYHEADS_TOKEN"  # noqa: S105 - the name of the variable
SHORTEST = 16  # characters of a token
NEEDED = ("fastapi", "uvicorn", "httptools", "prometheus_client")


def serve(config: ServeConfig) -> None:
    """Serve until a signal comes.

    Raises:
        UserError: a package is not installed, or the run, the host, the port or the token is wrong.
        KeyboardInterrupt: Ctrl-C, once what was accepted is answered.
    """
    if any(find_spec(name) is None for name in NEEDED):
        raise UserError(f"serve needs packages that are not installed: {install_extra('serve')}")
    opened = open_folder(config.run, "classify", graph=True)
    opened.labels()
    check_members(config.members, opened)
    plugin.asked("answer_rule", config, opened)
    if is_hub_name(config.run):  # at the commit of today: a worker that is started later opens the same
        config = replace(config, run=f"{config.run.partition('@')[0]}@{opened.path.name}")
    token = read_token(config.host)
    with listen(config) as listener:
        from manyheads.plugins.serving.server import serve_until_signal

        if asyncio.run(serve_until_signal(config, listener, token)) == signal.SIGINT:
            raise KeyboardInterrupt


def read_token(host: str) -> str:
    """The token that clients must send; empty where none is set, as only this machine can reach the server."""
    token = os.environ.get(TOKEN, "").strip()
    if token and (len(token) < SHORTEST or not token.isascii()):
        raise UserError(f"${TOKEN} is short or not plain ASCII: give {SHORTEST} characters or more, drawn at random")
    is_local = all(ip_address(address).is_loopback for address in addresses_of(host))
    if not token and not is_local:
        raise UserError(
            f"host={host} can be reached by others, who must have a token: set ${TOKEN} to {SHORTEST} characters or "
            "more, or leave host=127.0.0.1"
        )
    return token


def addresses_of(host: str) -> list[str]:
    """The addresses of a host, without the zone of IPv6."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UserError(f"host={host} is not a name or an address of this machine: {error.strerror}") from error
    return [str(address[0]).partition("%")[0] for *_, address in found]


def listen(config: ServeConfig) -> socket.socket:
    """The socket, bound before the server is imported, so that a port that is taken is said at once."""
    family = socket.AF_INET6 if ":" in addresses_of(config.host)[0] else socket.AF_INET
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


def refuse_record(config: ServeConfig) -> None:
    """What `--json` gets."""
    raise UserError("--json does nothing in serve, which answers until it is ended: remove it")
