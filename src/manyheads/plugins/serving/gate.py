"""What every request passes before the application: who may ask, how much may be sent, what is counted.

No answer lets another site read it (there is no CORS). A host name that is not this server's own is refused, so that no
foreign page reaches it by a name that it has pointed here (DNS rebinding).
"""

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

from fastapi import Response
from fastapi.responses import JSONResponse
from prometheus_client import Counter, Histogram

from manyheads.plugins.serving.config import ServeConfig

BODY_SECONDS = 10.0  # within which a body must arrive
OPEN = ("/", "/page.css", "/page.js", "/health")  # need no token: they say nothing of the model
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
HEADERS_OF_STATUS = {
    401: {"www-authenticate": "Bearer"},
    408: {"connection": "close"},  # what is left of the body is not read
    413: {"connection": "close"},
    429: {"retry-after": "1"},
    503: {"retry-after": "5"},
}
Message = MutableMapping[str, Any]  # of ASGI
Channel = Callable[..., Awaitable[Any]]  # of ASGI: receives messages, or sends one


class RefusedError(Exception):
    """A request that is not answered: the status, and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def refusal(status: int, sentence: str) -> Response:
    """The response to a request that is not answered."""
    return JSONResponse({"detail": sentence}, status, headers=HEADERS_OF_STATUS.get(status))


class Gate:
    """An ASGI application around another one.

    Attributes:
        active: requests that were accepted and are not answered yet.
        closing: whether the server is shutting down: further requests are refused.
        policy: the content security policy of every answer.
    """

    def __init__(
        self, app: Any, config: ServeConfig, token: str, *, policy: str, requests: Counter, seconds: Histogram
    ) -> None:
        self.app, self.config, self.token, self.policy = app, config, token.encode(), policy
        self.requests, self.seconds = requests, seconds
        self.names = {"localhost", config.host.lower(), *(name.lower() for name in config.names)}
        self.active = 0
        self.closing = False

    async def __call__(self, scope: Message, receive: Channel, send: Channel) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500
        headers = {name.decode("latin-1"): value for name, value in scope["headers"]}
        path = "other"  # what is counted under: only paths that exist, of which there are few
        if any(route.path == scope["path"] for route in self.app.routes):
            path = scope["path"]

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                added = HEADERS | {"content-security-policy": self.policy}
                if self.closing:
                    added["connection"] = "close"
                message["headers"] = [*message["headers"], *((k.encode(), v.encode()) for k, v in added.items())]
            await send(message)

        accepted = False
        try:
            self._check_sender(scope, headers)
            body = await self._read_body(headers, receive)
            if self.closing and scope["path"] != "/metrics":
                raise RefusedError(503, "the server is shutting down: ask another one, or again later")
            self.active, accepted = self.active + 1, True
            await self.app(scope, _replay(body, receive), send_with_headers)
        except RefusedError as refused:
            await refusal(refused.status, str(refused))(scope, receive, send_with_headers)
        finally:
            self.active -= accepted
            self.requests.labels(path, status).inc()
            self.seconds.labels(path).observe(time.perf_counter() - started)

    def _check_sender(self, scope: Message, headers: dict[str, bytes]) -> None:
        """Host name, token and kind of the body."""
        host = headers.get("host", b"").decode("latin-1").lower()
        name = host.partition(":")[0]
        if host.startswith("["):  # an address of IPv6, which holds colons
            name = host[1:].partition("]")[0]
        with suppress(ValueError):  # which ip_address raises for a name
            ip_address(name)
            name = "localhost"  # an address belongs to nobody who could point it elsewhere
        if name not in self.names:
            raise RefusedError(
                421, "this server does not go by the name in the Host header: start it with names=[NAME]"
            )
        if self.token and scope["path"] not in OPEN:
            scheme, _, given = headers.get("authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self.token):
                raise RefusedError(401, "a token is needed: send the header Authorization: Bearer TOKEN")
        if scope["method"] == "POST":
            kind = headers.get("content-type", b"").partition(b";")[0].strip().lower()
            if kind != b"application/json":
                raise RefusedError(
                    415, "the body is not said to be JSON: send the header Content-Type: application/json"
                )

    async def _read_body(self, headers: dict[str, bytes], receive: Channel) -> bytes:
        """The whole body, which must be small enough and arrive in time."""
        most = self.config.max_body
        too_large = RefusedError(
            413, f"the body is larger than max_body={most} bytes: send fewer or shorter texts at a time"
        )
        if int(headers.get("content-length", b"0") or 0) > most:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RefusedError(400, "the client left before its request was whole")
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > most:
                        raise too_large
        except TimeoutError:
            raise RefusedError(408, f"the body did not come within {BODY_SECONDS:g} seconds: send it again") from None
        return bytes(body)


def _replay(body: bytes, receive: Channel) -> Channel:
    """A channel that gives the body, which was read already, in one message, then what else the client sends."""
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        if left:
            return left.pop()
        return await receive()

    return next_message
