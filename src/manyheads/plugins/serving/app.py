"""The application: POST /predict and /look, GET /health, /metadata, /metrics, /openapi.json and the page at /.

`Gate` (gate.py) is around it; requests are answered by the workers (pool.py).
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib.resources import files
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
from manyheads.data.formats.fields import join_given
from manyheads.errors import UserError
from manyheads.plugin import VERSION, Part
from manyheads.plugins.serving.config import ServeConfig
from manyheads.plugins.serving.gate import Gate, refusal
from manyheads.plugins.serving.pool import TooManyError, WorkerPool

MOST_LOOKS = 8  # pages that are made or wait
PAGE = {"/": "index.html", "/page.css": "page.css", "/page.js": "page.js"}
MEDIA_TYPES = {"index.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # buckets of the histogram
UNREADABLE = (
    "the body cannot be read as JSON: it is not UTF-8, nested too deeply, or has a number of thousands of digits"
)
MIXED = "pair goes with text, and pairs with texts: give those that belong together"
UNSAID = ("body", "str", "int", "float", "bool")  # in the place of a mistake: the types that `text` and cells may have
EXAMPLE = json.dumps({"text": "worth every minute"})
Cells = dict[str, str | int | float | bool | None]  # of a row, by the names of columns
Probability = Annotated[float, Field(ge=0, le=1)]


class PredictRequest(BaseModel):
    """One text, or many; of a model of pairs with the second texts."""

    model_config = ConfigDict(extra="forbid", strict=True)
    text: str | Cells | None = Field(None, description="one text; of several columns, these by name")
    pair: str | None = Field(None, description="its second text, for a model of pairs")
    texts: list[str | Cells] | None = Field(None, description="many texts, in place of text")
    pairs: list[str] | None = Field(None, description="their second texts, one for each")
    top_k: int = Field(0, ge=0, description="most probable classes whose probabilities are given; 0: all")
    thresholds: Probability | dict[str, Probability] | None = Field(
        None, description="probability from which a label is given, of all or by name, for a model of several labels"
    )
    members: bool = Field(False, description="also the probabilities of network and linear model, each asked alone")


def look_request(views: Mapping[str, Part]) -> type[BaseModel]:
    """What /look takes: a text, the name of a view, and the options of all views that are registered."""
    fields: dict[str, Any] = {
        "text": (str | Cells, Field(description="the text; of several columns, these by name")),
        "pair": (str | None, Field(None, description="its second text, for a model of pairs")),
        "view": (Literal[tuple(views)], Field(next(iter(views)), description="which view of it")),
    }
    for part in views.values():
        descriptions = part.facts.get("help", {})
        for name, default in (part.options or {}).items():
            fields[name] = (type(default), Field(default, description=descriptions.get(name)))
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


def make_app(config: ServeConfig, pool: WorkerPool, token: str) -> Gate:
    """The application and its gate, for workers that are up."""
    registry = CollectorRegistry()
    watch_processes(registry, pool)
    requests = Counter("manyheads_requests", "requests", ["path", "status"], registry=registry)
    seconds = Histogram(
        "manyheads_request_seconds", "seconds of a request", ["path"], buckets=SECONDS, registry=registry
    )
    texts = Counter("manyheads_texts", "texts that were answered", registry=registry)
    app = FastAPI(
        title=f"manyheads: {pool.about['name']}",
        version=VERSION,
        description="A text classifier. Mistakes are answered by a sentence in `detail`.",
        docs_url=None,  # these pages load their script from elsewhere: the schema is at /openapi.json
        redoc_url=None,
        redirect_slashes=False,  # to http, though a proxy before this server may speak TLS
    )
    fields = {"/predict": PredictRequest.model_fields}
    views: Mapping[str, Part] = {}
    add_predict(app, config, pool, texts)
    if config.page:
        views = plugin.parts("view")
        add_page(app)
    if views:
        looked = look_request(views)
        fields["/look"] = looked.model_fields
        add_look(app, config, pool, texts, views, looked)
    add_status(app, pool, registry)
    add_sentences(app, fields)
    return Gate(app, config, token, policy=content_security_policy(views), requests=requests, seconds=seconds)


def watch_processes(registry: CollectorRegistry, pool: WorkerPool) -> None:
    """Figures of this process and of the workers, which are read when somebody asks for the metrics."""
    ProcessCollector(registry=registry)
    disable_created_metrics()
    for name, what, read in (
        ("manyheads_waiting_texts", "texts that wait", lambda: pool.n_waiting),
        ("manyheads_workers_ready", "processes that answer", lambda: pool.ready),
        ("manyheads_worker_restarts", "processes that were started again", lambda: pool.restarts),
        ("manyheads_batches", "batches handed to the processes", lambda: pool.batches),
    ):
        Gauge(name, what, registry=registry).set_function(read)


def content_security_policy(views: Mapping[str, Part]) -> str:
    """Nothing is loaded from elsewhere; the one style and script of each view's page are allowed by their digests."""
    styles, scripts = ["'self'"], ["'self'"]
    for part in views.values():
        if "digests" in part.facts:
            style, script = plugin.resolve(part.facts["digests"])()
            styles.append(f"'{style}'")
            scripts.append(f"'{script}'")
    return (
        f"default-src 'none'; script-src {' '.join(scripts)}; style-src {' '.join(styles)}; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


async def answer(
    request: dict[str, Any], config: ServeConfig, pool: WorkerPool, answered: Counter, media_type: str
) -> Response:
    """Check the texts of a request against the limits, and have a worker answer it."""
    try:
        request["texts"] = join_given(request["texts"], pool.about.get("columns", ()))
    except UserError as mistake:
        return refusal(422, str(mistake))
    for name in ("texts", "pairs"):
        texts = request[name] or ()
        try:
            "".join(texts).encode()
        except UnicodeEncodeError:
            return refusal(422, f"{name} has half of a surrogate pair, which is no letter: send whole ones")
        longest = max(map(len, texts), default=0)
        if longest > config.max_characters:
            return refusal(
                422, f"{name} has one of {longest:,} characters, but max_characters={config.max_characters}: cut it"
            )
    n_texts = len(request["texts"])
    if n_texts > config.max_texts:
        return refusal(422, f"there are {n_texts:,} texts, but max_texts={config.max_texts}: send fewer at a time")
    try:
        status, body = await pool.ask(request)
    except TooManyError:
        return refusal(429, f"max_queue={config.max_queue} texts wait already: ask again in a second")
    if status != 200:
        return refusal(status, body.decode())
    answered.inc(n_texts)
    return Response(body, media_type=media_type)


def add_predict(app: FastAPI, config: ServeConfig, pool: WorkerPool, answered: Counter) -> None:
    @app.post("/predict", response_model=PredictResponse)
    async def predict(asked: PredictRequest) -> Response:
        """Classes and probabilities, with all their digits, as manyheads.load(...).predict gives them."""
        if (asked.text is None) == (asked.texts is None):
            return refusal(422, "give either text or texts")
        if asked.texts is None:
            if asked.pairs is not None:
                return refusal(422, MIXED)
            texts, pairs = [asked.text], None if asked.pair is None else [asked.pair]
        else:
            if asked.pair is not None:
                return refusal(422, MIXED)
            texts, pairs = asked.texts, asked.pairs
        options = asked.model_dump(include={"top_k", "thresholds", "members"})
        request = {"kind": "predict", "texts": texts, "pairs": pairs, **options}
        return await answer(request, config, pool, answered, "application/json")


def add_page(app: FastAPI) -> None:
    """The page at / with its style and script, as they are in the package."""
    folder = files("manyheads.plugins.serving") / "page"
    for path, name in PAGE.items():
        response = Response((folder / name).read_bytes(), media_type=f"{MEDIA_TYPES[name]}; charset=utf-8")
        app.add_api_route(path, always(response), methods=["GET"], include_in_schema=False)


def always(response: Response) -> Callable[[], Awaitable[Response]]:
    """A handler that gives the same response each time."""

    async def handler() -> Response:
        return response

    return handler


def add_look(
    app: FastAPI,
    config: ServeConfig,
    pool: WorkerPool,
    answered: Counter,
    views: Mapping[str, Part],
    looked: type[BaseModel],
) -> None:
    looking = 0

    @app.post("/look", response_class=Response)
    async def look(asked: looked) -> Response:  # pyright: ignore[reportInvalidTypeForm] - FastAPI reads it when called
        """One view of a text, such as where heads look, as a page of HTML."""
        nonlocal looking
        if looking >= MOST_LOOKS:
            return refusal(429, f"{MOST_LOOKS} pages are being made already: ask again in a second")
        looking += 1
        try:
            pairs = None if asked.pair is None else [asked.pair]
            options = asked.model_dump(include={*(views[asked.view].options or {})})
            request = {"kind": "look", "view": asked.view, "options": options, "texts": [asked.text], "pairs": pairs}
            return await answer(request, config, pool, answered, "text/plain")
        finally:
            looking -= 1


def add_status(app: FastAPI, pool: WorkerPool, registry: CollectorRegistry) -> None:
    @app.get("/health")
    async def health() -> Response:
        """Whether any process can answer."""
        if not pool.ready:
            return refusal(503, "no worker is up: another is being started")
        return JSONResponse({"status": "ok", "workers": pool.ready})

    @app.get("/metadata")
    async def metadata() -> dict[str, Any]:
        """What the model is: labels, limits, and how it computes."""
        return pool.about

    @app.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Figures, as Prometheus reads them."""
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4; charset=utf-8")


def add_sentences(app: FastAPI, fields: Mapping[str, Iterable[str]]) -> None:
    """Answer every mistake by one sentence; `fields` are those of the body of each path."""

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Any, error: RequestValidationError) -> Response:
        deepest = max(error.errors(), key=lambda one: len(one["loc"]))  # the one that says most
        return refusal(422, sentence_of(deepest, fields[request.url.path]))

    @app.exception_handler(HTTPException)
    async def refused(request: Any, error: HTTPException) -> Response:
        path, headers = format_value(request.url.path), error.headers or {}
        sentence = str(error.detail)
        if error.status_code == 400:
            sentence = UNREADABLE
        elif error.status_code == 404:
            sentence = (
                f"there is no page {path}: /openapi.json lists those that there are, and POST /predict answers texts"
            )
        elif error.status_code == 405:
            allowed = headers.get("Allow", "GET")
            sentence = f"{request.method} {path} is not answered: ask it by {allowed}"
            if allowed == "POST":
                sentence += f", with a body such as {EXAMPLE}"
        response = refusal(error.status_code, sentence)
        response.headers.update(headers)  # of 405 the methods that are allowed
        return response

    @app.exception_handler(Exception)
    async def failed(request: Any, error: Exception) -> Response:
        return refusal(500, "the server failed at this request: its log says how")


def sentence_of(error: dict[str, Any], fields: Iterable[str]) -> str:
    """What pydantic found, as one sentence."""
    named = []
    for one in error["loc"]:
        if one not in UNSAID and not str(one).startswith("dict[str,") and "constrained-float" not in str(one):
            named.append(str(one))
    place = ".".join(named)
    if error["type"] == "json_invalid":
        return f"the body is not JSON: send an object such as {EXAMPLE}"
    if error["type"] == "extra_forbidden":
        return f"{format_value(place)} is not known here: choose {one_of([*fields])}"
    message = error["msg"]
    return f"{place or 'the body'}: {message[:1].lower()}{message[1:]}"
