"""The requests over HTTP: POST /predict and /look, GET /health, /metadata, /metrics, /openapi.json and the page at /.

Everything passes the `Gate` first: who may ask, how much may be sent, what is counted. No answer lets another site read
it (there is no CORS), and a name that is not this server's own is refused, so that no foreign page reaches it by a name
that it has pointed here (DNS rebinding).
"""

import asyncio
import hmac
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import suppress
from functools import partial
from importlib.resources import files
from ipaddress import ip_address
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from pydantic import BaseModel, ConfigDict, Field, create_model
from starlette.exceptions import HTTPException

import manyheads.plugin as plugin
from manyheads.config.sentences import format_value, one_of
from manyheads.plugin import VERSION, Part
from manyheads.plugins.serving.config import ServeConfig
from manyheads.plugins.serving.crew import Crew, TooManyError

BODY_SECONDS = 10.0  # in which a body must have come
OPEN = ("/", "/page.css", "/page.js", "/health")  # need no token: they say nothing of the model
MOST_LOOKS = 8  # pages that are made or wait
TYPES = {"index.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
WITH = {401: {"www-authenticate": "Bearer"}, 429: {"retry-after": "1"}, 503: {"retry-after": "5"}}
WITH |= {status: {"connection": "close"} for status in (408, 413)}  # what is left of the body is not read
SENTENCES = {
    400: "the body cannot be read as JSON: it is not UTF-8, nested too deeply, or has a number of thousands of digits",
}
EXAMPLE = json.dumps({"text": "worth every minute"})
Message = MutableMapping[str, Any]
Channel = Callable[..., Awaitable[Any]]  # what receives messages, or sends one
Probability = Annotated[float, Field(ge=0, le=1)]


class PredictRequest(BaseModel):
    """One text, or many; of a model of pairs with the second texts."""

    model_config = ConfigDict(extra="forbid", strict=True)
    text: str | None = Field(None, description="one text")
    pair: str | None = Field(None, description="its second text, for a model of pairs")
    texts: list[str] | None = Field(None, description="many texts, in place of text")
    pairs: list[str] | None = Field(None, description="their second texts, one for each")
    top_k: int = Field(0, ge=0, description="most probable classes whose probabilities are given; 0: all")
    thresholds: Probability | dict[str, Probability] | None = Field(
        None, description="probability from which a label is given, of all or by name, for a model of several labels"
    )
    members: bool = Field(False, description="also the probabilities of network and linear model, each asked alone")


def look_request(views: Mapping[str, Part]) -> type[BaseModel]:
    """What /look takes: one text, which view of it, and what may be chosen of the views."""
    fields: dict[str, Any] = {
        "text": (str, Field(description="the text")),
        "pair": (str | None, Field(None, description="its second text, for a model of pairs")),
        "view": (Literal[tuple(views)], Field(next(iter(views)), description="which view of it")),
    }
    for part in views.values():
        for name, default in (part.options or {}).items():
            fields[name] = (type(default), Field(default, description=part.facts.get("help", {}).get(name)))
    forbid = ConfigDict(extra="forbid", strict=True)
    return create_model("LookRequest", __config__=forbid, __doc__="One text, and what is shown of it.", **fields)


class PredictedText(BaseModel):
    """`label`, or `labels` where a text has any number of them; null where the text is not answered. Answer rules add
    fields of their own, such as `set`."""

    model_config = ConfigDict(extra="allow")
    label: str | None = None
    labels: list[str] | None = None
    probabilities: dict[str, float]
    members: dict[str, dict[str, float]] | None = None


class PredictResponse(BaseModel):
    predictions: list[PredictedText]


def make_metrics(registry: CollectorRegistry, crew: Crew) -> tuple[Counter, Histogram, Counter]:
    """Requests, their seconds, and texts; the state of the processes is read when it is asked for."""
    where: Any = {"registry": registry}
    ProcessCollector(registry=registry)
    disable_created_metrics()
    for name, what, read in (
        ("manyheads_waiting_texts", "texts that wait", lambda: crew.n_waiting),
        ("manyheads_workers_ready", "processes that answer", lambda: crew.ready),
        ("manyheads_worker_restarts", "processes that were started again", lambda: crew.restarts),
        ("manyheads_batches", "batches handed to the processes", lambda: crew.batches),
    ):
        Gauge(name, what, **where).set_function(read)
    return (
        Counter("manyheads_requests", "requests", ["path", "status"], **where),
        Histogram("manyheads_request_seconds", "seconds of a request", ["path"], buckets=SECONDS, **where),
        Counter("manyheads_texts", "texts that were answered", **where),
    )


class RefusedError(Exception):
    """A request that is not answered: status and the one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Gate:
    """Before the application: names, token, sizes, and after it the headers and figures."""

    def __init__(self, app: Any, config: ServeConfig, token: str, measured: tuple[Counter, Histogram, Counter]) -> None:
        self.app, self.config, self.token = app, config, token.encode()
        self.requests, self.seconds, _ = measured
        self.names = {"localhost", config.host.lower(), *(name.lower() for name in config.names)}
        self.active = 0  # requests that were accepted and are not answered
        self.closing = False
        self.policy = ""

    async def __call__(self, scope: Message, receive: Channel, send: Channel) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 500
        headers = {name.decode("latin-1"): value for name, value in scope["headers"]}
        known = next((one.path for one in self.app.routes if one.path == scope["path"]), "other")

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                more = HEADERS | {"content-security-policy": self.policy}
                more |= {"connection": "close"} if self.closing else {}
                message["headers"] = [*message["headers"], *((k.encode(), v.encode()) for k, v in more.items())]
            await send(message)

        accepted = False
        try:
            self._admit(scope, headers)
            body = await self._body(headers, receive)
            if self.closing and scope["path"] != "/metrics":
                raise RefusedError(503, "the server is shutting down: ask another one, or again later")
            self.active, accepted = self.active + 1, True
            await self.app(scope, _once(body, receive), sent)
        except RefusedError as refused:
            await _say(refused.status, str(refused))(scope, receive, sent)
        finally:
            self.active -= accepted
            self.requests.labels(known, status).inc()
            self.seconds.labels(known).observe(time.perf_counter() - begun)

    def _admit(self, scope: Message, headers: dict[str, bytes]) -> None:
        host = headers.get("host", b"").decode("latin-1").lower()
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        with suppress(ValueError):
            name = "localhost" if ip_address(name) else name  # an address is nobody's to point elsewhere
        if name not in self.names:
            raise RefusedError(
                421, "this server does not go by the name in the Host header: start it with names=[NAME]"
            )
        if self.token and scope["path"] not in OPEN:
            given = headers.get("authorization", b"").partition(b" ")
            if given[0].lower() != b"bearer" or not hmac.compare_digest(given[2].strip(), self.token):
                raise RefusedError(401, "a token is needed: send the header Authorization: Bearer TOKEN")
        if scope["method"] == "POST" and headers.get("content-type", b"").partition(b";")[0].strip().lower() != (
            b"application/json"
        ):
            raise RefusedError(415, "the body is not said to be JSON: send the header Content-Type: application/json")

    async def _body(self, headers: dict[str, bytes], receive: Channel) -> bytes:
        """All of the body, which must be small enough and come in time."""
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


def _once(body: bytes, receive: Channel) -> Channel:
    """The body in one message, then what else the client does."""
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return left.pop() if left else await receive()

    return received


def _say(status: int, sentence: str) -> Response:
    return JSONResponse({"detail": sentence}, status, headers=WITH.get(status))


def make_app(config: ServeConfig, crew: Crew, token: str) -> Gate:
    """The application and its gate, for processes that are up."""
    registry = CollectorRegistry()
    measured = make_metrics(registry, crew)
    app = FastAPI(
        title=f"manyheads: {crew.about['name']}",
        version=VERSION,
        description="A text classifier. Mistakes are answered by a sentence in `detail`.",
        docs_url=None,  # these pages load their script from elsewhere: the schema is at /openapi.json
        redoc_url=None,
        redirect_slashes=False,  # to http, though a proxy before this server may speak TLS
    )
    gate = Gate(app, config, token, measured)
    views = plugin.parts("view") if config.page else {}
    allowed = [plugin.resolve(part.facts["digests"])() for part in views.values() if "digests" in part.facts]
    styles, scripts = (" ".join(["'self'", *(f"'{one[at]}'" for one in allowed)]) for at in (0, 1))  # of their pages
    gate.policy = (
        f"default-src 'none'; script-src {scripts}; style-src {styles}; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    looked = look_request(views) if views else None
    _add_routes(app, config, crew, measured[2], views, looked)

    @app.exception_handler(RequestValidationError)
    async def wrong(request: Any, error: RequestValidationError) -> Response:
        known = (looked if looked and request.url.path == "/look" else PredictRequest).model_fields
        return _say(422, _sentence(max(error.errors(), key=lambda one: len(one["loc"])), known))  # that says most

    @app.exception_handler(HTTPException)
    async def refused(request: Any, error: HTTPException) -> Response:
        asked, allowed = format_value(request.url.path), (error.headers or {}).get("Allow", "GET")
        body = f", with a body such as {EXAMPLE}" if allowed == "POST" else ""
        sentences = SENTENCES | {
            404: f"there is no page {asked}: /openapi.json lists those that there are, and POST /predict answers texts",
            405: f"{request.method} {asked} is not answered: ask it by {allowed}{body}",
        }
        said = _say(error.status_code, sentences.get(error.status_code, str(error.detail)))
        said.headers.update(error.headers or {})  # of 405 the methods that are allowed
        return said

    @app.exception_handler(Exception)
    async def failed(request: Any, error: Exception) -> Response:
        return _say(500, "the server failed at this request: its log says how")

    @app.get("/health")
    async def health() -> Response:
        """Whether any process can answer."""
        if not crew.ready:
            return _say(503, "no worker is up: another is being started")
        return JSONResponse({"status": "ok", "workers": crew.ready})

    @app.get("/metadata")
    async def metadata() -> dict[str, Any]:
        """What the model is: labels, limits, and how it computes."""
        return crew.about

    @app.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Figures, as Prometheus reads them."""
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4; charset=utf-8")

    return gate


def _add_routes(
    app: FastAPI,
    config: ServeConfig,
    crew: Crew,
    texts_answered: Counter,
    views: Mapping[str, Part],
    looked: type[BaseModel] | None,
) -> None:
    """POST /predict and, with the page, the page itself and /look, where there is a view."""

    async def answer(request: dict[str, Any], media_type: str = "application/json") -> Response:
        for name in ("texts", "pairs"):
            texts = request[name] or ()
            if any("\ud800" <= letter <= "\udfff" for text in texts for letter in text):
                return _say(422, f"{name} has half of a surrogate pair, which is no letter: send whole ones")
            longest = max(map(len, texts), default=0)
            if longest > config.max_characters:
                return _say(
                    422, f"{name} has one of {longest:,} characters, but max_characters={config.max_characters}: cut it"
                )
        n_texts = len(request["texts"])
        if n_texts > config.max_texts:
            return _say(422, f"there are {n_texts:,} texts, but max_texts={config.max_texts}: send fewer at a time")
        try:
            status, body = await crew.ask(request)
        except TooManyError:
            return _say(429, f"max_queue={config.max_queue} texts wait already: ask again in a second")
        if status != 200:
            return _say(status, body.decode())
        texts_answered.inc(n_texts)
        return Response(body, media_type=media_type)

    @app.post("/predict", response_model=PredictResponse)
    async def predict(asked: PredictRequest) -> Response:
        """Classes and probabilities, with all their digits, as manyheads.load(...).predict gives them."""
        if asked.text is not None and asked.texts is None:
            if asked.pairs is not None:
                return _say(422, "pair goes with text, and pairs with texts: give those that belong together")
            texts, pairs = [asked.text], None if asked.pair is None else [asked.pair]
        elif asked.texts is not None and asked.text is None:
            if asked.pair is not None:
                return _say(422, "pair goes with text, and pairs with texts: give those that belong together")
            texts, pairs = asked.texts, asked.pairs
        else:
            return _say(422, "give either text or texts")
        given = asked.model_dump(include={"top_k", "thresholds", "members"})
        return await answer({"kind": "predict", "texts": texts, "pairs": pairs, **given})

    if not config.page:
        return
    for name, kind in TYPES.items():
        content = files("manyheads.plugins.serving").joinpath("page", name).read_bytes()
        path = "/" if name == "index.html" else f"/{name}"
        page = Response(content, media_type=f"{kind}; charset=utf-8")
        app.add_api_route(path, partial(_same, page), methods=["GET"], include_in_schema=False)
    if looked is None:
        return
    looking = 0

    async def look(asked: Any) -> Response:
        """One view of a text, such as where heads look, as a page of HTML."""
        nonlocal looking
        if looking >= MOST_LOOKS:
            return _say(429, f"{MOST_LOOKS} pages are being made already: ask again in a second")
        looking += 1
        try:
            pairs = None if asked.pair is None else [asked.pair]
            options = asked.model_dump(include={*(views[asked.view].options or {})})
            request = {"kind": "look", "view": asked.view, "options": options, "texts": [asked.text], "pairs": pairs}
            return await answer(request, "text/plain")
        finally:
            looking -= 1

    look.__annotations__["asked"] = looked  # FastAPI reads the type of the body there
    app.post("/look", response_class=Response)(look)


async def _same(page: Response) -> Response:
    return page


def _sentence(error: dict[str, Any], known: Iterable[str]) -> str:
    """What pydantic found, as one sentence; it also names the types that `thresholds` may have."""
    place = ".".join(str(one) for one in error["loc"] if one != "body" and "constrained-float" not in str(one))
    if error["type"] == "json_invalid":
        return f"the body is not JSON: send an object such as {EXAMPLE}"
    if error["type"] == "extra_forbidden":
        return f"{format_value(place)} is not known here: choose {one_of([*known])}"
    said = error["msg"]
    return f"{place or 'the body'}: {said[:1].lower()}{said[1:]}"
