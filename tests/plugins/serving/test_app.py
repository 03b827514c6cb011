"""What the gate and the application refuse, and with which sentence; the processes are a stand-in that waits."""

import asyncio
import json

import pytest

import manyheads.plugin as plugin
from manyheads.plugin import Part
from manyheads.plugins.serving.app import make_app
from manyheads.plugins.serving.config import ServeConfig
from manyheads.plugins.serving.gate import HEADERS
from manyheads.plugins.serving.pool import WorkerPool

httpx = pytest.importorskip("httpx")
ABOUT = {"name": "run", "labels": ["bad", "good"]}


class Silent(WorkerPool):
    """Takes questions as the real one does, and answers none until it is told to."""

    async def __aenter__(self):
        self.about, self.ready = dict(ABOUT), 1
        return self

    async def __aexit__(self, *_):
        for asked in self._waiting:
            asked.answer.cancel()

    def answer(self):
        while self._waiting:
            asked = self._waiting.popleft()
            self.n_waiting -= len(asked.request["texts"])
            asked.answer.set_result((200, json.dumps(asked.request).encode()))


def client_of(gate, host="127.0.0.1:8000"):
    return httpx.AsyncClient(transport=httpx.ASGITransport(gate), base_url=f"http://{host}")


def run(check, token="", **settings):
    """`check(client, pool, gate)` with an application of these settings."""
    config = ServeConfig(run="x", **settings)

    async def all_of_it():
        async with Silent(config) as pool:
            gate = make_app(config, pool, token)
            async with client_of(gate) as client:
                return await check(client, pool, gate)

    return asyncio.run(all_of_it())


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b"{", 422, "the body is not JSON: send an object"),
        (b"[]", 422, "the body: input should be"),
        (b"[" * 1000, 400, "nested too deeply"),
        (b'{"text": "\xff"}', 400, "it is not UTF-8"),
        (b"{}", 422, "give either text or texts"),
        (b'{"text": "a", "texts": ["b"]}', 422, "give either text or texts"),
        (b'{"text": 3}', 422, "text: input should be a valid string"),
        (b'{"text": {"a": 3, "b": null}}', 422, "texts[0] has a, b, but the model takes one text"),
        (b'{"text": {"a": ["b"]}}', 422, "text.a: input should be a valid"),
        (b'{"text": {"a": "b"}}', 422, "texts[0] has a, but the model takes one text"),
        (b'{"texts": ["a", null]}', 422, "texts.1: input should be a valid string"),
        (b'{"text": "a", "pairs": ["b"]}', 422, "pair goes with text, and pairs with texts"),
        (b'{"text": "a", "epochs": 3}', 422, "epochs is not known here: choose text, pair, texts, pairs, top_k"),
        (b'{"text": "a", "top_k": -1}', 422, "top_k: input should be greater than or equal to 0"),
        (b'{"text": "a", "top_k": true}', 422, "top_k: input should be a valid integer"),
        (b'{"text": "a", "members": "no"}', 422, "members: input should be a valid boolean"),
        (b'{"text": "a", "thresholds": 2}', 422, "thresholds: input should be less than or equal to 1"),
        (b'{"text": "a", "thresholds": true}', 422, "thresholds: input should be a valid number"),
        (b'{"text": "a", "thresholds": {"b": 7}}', 422, "thresholds.b: input should be less than or equal to 1"),
        (b'{"text": "a", "thresholds": NaN}', 422, "thresholds: input should be less than or equal to 1"),
        (b'{"text": "\\ud800"}', 422, "half of a surrogate pair"),
        (b'{"text": "aaaaaaaaaaaaaaaaaaaaa"}', 422, "one of 21 characters, but max_characters=20"),
        (b'{"texts": ["a", "b", "c", "d"]}', 422, "there are 4 texts, but max_texts=3"),
        (b'{"text": "' + b"a" * 2000 + b'"}', 413, "larger than max_body=1024 bytes"),
    ],
)
def test_a_mistake_is_answered_by_one_sentence(body, status, sentence):
    async def check(client, pool, gate):
        found = await client.post("/predict", content=body, headers={"Content-Type": "application/json"})
        assert found.status_code == status, found.text
        assert sentence in found.json()["detail"], found.text
        assert HEADERS.items() <= dict(found.headers).items()
        assert "access-control-allow-origin" not in found.headers
        assert not pool.n_waiting

    run(check, max_characters=20, max_texts=3, max_body=1024)


@pytest.mark.parametrize(
    ("method", "path", "status", "sentence"),
    [
        ("GET", "/predict", 405, 'GET /predict is not answered: ask it by POST, with a body such as {"text": "'),
        (
            "GET",
            "/predict?epochs=3",
            405,
            'GET /predict is not answered: ask it by POST, with a body such as {"text": "',
        ),
        ("POST", "/health", 405, "POST /health is not answered: ask it by GET"),
        (
            "POST",
            "/predict/",
            404,
            "there is no page /predict/: /openapi.json lists those that there are, and POST /pr",
        ),
    ],
)
def test_what_is_asked_otherwise_is_told_how(method, path, status, sentence):
    async def check(client, pool, gate):
        found = await client.request(method, path, headers={"Content-Type": "application/json"})
        assert found.status_code == status
        assert found.json()["detail"].startswith(sentence)

    run(check)


def test_a_body_without_length_is_cut_off_as_soon_as_it_is_too_large():
    sent = []

    async def endless():
        while True:
            sent.append(1)
            yield b" " * 512

    async def check(client, pool, gate):
        found = await client.post("/predict", content=endless(), headers={"Content-Type": "application/json"})
        assert found.status_code == 413
        assert len(sent) <= 4

    run(check, max_body=1024)


def test_a_full_queue_refuses_and_what_was_accepted_is_answered_while_the_server_closes():
    async def check(client, pool, gate):
        asked = [asyncio.create_task(client.post("/predict", json={"texts": ["a", "b"]})) for _ in range(2)]
        while pool.n_waiting < 4:
            await asyncio.sleep(0.001)
        full = await client.post("/predict", json={"text": "c"})
        assert (full.status_code, full.headers["retry-after"]) == (429, "1")
        assert "max_queue=4 texts wait already" in full.json()["detail"]
        gate.closing = True
        refused = await client.post("/predict", json={"text": "c"})
        assert (refused.status_code, refused.headers["connection"]) == (503, "close")
        assert gate.active == 2
        pool.answer()
        assert [(await one).status_code for one in asked] == [200, 200]
        assert gate.active == 0

    run(check, max_queue=4)


def test_no_worker_is_up():
    async def check(client, pool, gate):
        assert (await client.get("/health")).json() == {"status": "ok", "workers": 1}
        pool.ready = 0
        assert (await client.get("/health")).status_code == 503

    run(check)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8000", 200),
        ("localhost", 200),
        ("[::1]:8000", 200),
        ("10.1.2.3", 200),
        ("Model.Example:80", 200),
        ("evil.example:8000", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
    ],
)
def test_another_name_is_refused(host, status):
    async def check(client, pool, gate):
        found = await client.get("/metadata", headers={"Host": host})
        assert found.status_code == status
        if status != 200:
            assert "names=[NAME]" in found.json()["detail"]

    run(check, names=["model.example"])


def test_a_form_of_another_site_is_no_question():
    async def check(client, pool, gate):
        for kind in ("application/x-www-form-urlencoded", "text/plain", ""):
            found = await client.post("/predict", content=b'{"text": "a"}', headers={"Content-Type": kind})
            assert found.status_code == 415, kind
        asked = await client.options("/predict", headers={"Origin": "http://evil.example"})
        assert (asked.status_code, asked.headers["allow"]) == (405, "POST")
        assert (await client.post("/predict/", json={"text": "a"})).status_code == 404  # and not sent on to http
        assert "access-control-allow-origin" not in asked.headers

    run(check)


def test_with_a_token_nothing_of_the_model_is_said_without_it():
    token = "0123456789abcdef"

    async def check(client, pool, gate):
        for path in ("/metadata", "/metrics", "/openapi.json", "/docs", "/nothing"):
            for given in ({}, {"Authorization": "Bearer 0123456789abcdeF"}, {"Authorization": f"Basic {token}"}):
                found = await client.get(path, headers=given)
                assert found.status_code == 401, path
                assert found.headers["www-authenticate"] == "Bearer"
        assert (await client.post("/predict", json={"text": "a"})).status_code == 401
        assert (await client.get("/metadata", headers={"Authorization": f"Bearer {token}"})).json() == ABOUT
        for path in ("/", "/page.js", "/page.css", "/health"):
            found = await client.get(path)
            assert found.status_code == 200
            assert "good" not in found.text

    run(check, token=token)


def test_openapi_names_what_there_is_and_nothing_comes_from_elsewhere():
    async def check(client, pool, gate):
        schema = (await client.get("/openapi.json")).json()
        views = ["/look"] * bool(plugin.names("view"))
        assert {*schema["paths"]} == {"/predict", *views, "/health", "/metadata", "/metrics"}
        for path in ("/docs", "/redoc"):
            assert (await client.get(path)).status_code == 404
        page = await client.get("/")
        assert "//" not in page.text.replace("<!doctype html>", "")
        assert "default-src 'none'" in page.headers["content-security-policy"]

    run(check)


def test_looking_takes_what_the_views_that_are_registered_let_one_choose(monkeypatch):
    mine = {"mine": Part("view", "mine", print, {"n": 3, "loud": False}, {"help": {"n": "how many"}})}
    for views in (mine, {}):
        monkeypatch.setattr(plugin, "parts", lambda kind, views=views: views)

        async def check(client, pool, gate, views=views):
            asked = await client.post("/look", json={"text": "a", "n": "x"})
            schemas = (await client.get("/openapi.json")).json()["components"]["schemas"]
            assert (asked.status_code, "LookRequest" in schemas) == ((422, True) if views else (404, False))
            if views:
                assert {*schemas["LookRequest"]["properties"]} == {"text", "pair", "view", "n", "loud"}
                assert schemas["LookRequest"]["properties"]["n"]["description"] == "how many"
                asked = await client.post("/look", json={"text": "a", "view": "yours"})
                assert asked.json() == {"detail": "view: input should be 'mine'"}
                asked = await client.post("/look", json={"text": "a", "layers": "1"})
                assert asked.json()["detail"].startswith("layers is not known here: choose text, pair, view, n or loud")

        run(check)


def test_without_the_page_nobody_can_look():
    async def check(client, pool, gate):
        assert (await client.get("/")).status_code == 404
        assert (await client.post("/look", json={"text": "a"})).status_code == 404

    run(check, page=False)


def test_metrics_count_what_happened():
    async def check(client, pool, gate):
        asked = asyncio.create_task(client.post("/predict", json={"texts": ["a", "b"]}))
        while not pool.n_waiting:
            await asyncio.sleep(0.001)
        await client.get("/nothing")
        said = (await client.get("/metrics")).text
        assert "manyheads_waiting_texts 2.0" in said
        assert 'manyheads_requests_total{path="other",status="404"} 1.0' in said
        pool.answer()
        await asked
        said = (await client.get("/metrics")).text
        assert "manyheads_texts_total 2.0" in said
        assert 'manyheads_requests_total{path="/predict",status="200"} 1.0' in said
        assert 'manyheads_request_seconds_count{path="/predict"} 1.0' in said

    run(check)
