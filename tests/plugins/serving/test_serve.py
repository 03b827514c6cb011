"""The server as it is run: answers under load, a worker that is killed, an end in good order; the page in a browser."""

import asyncio
import gc
import json
import os
import re
import signal
import socket
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest

import manyheads
import manyheads.plugin as plugin
from manyheads.cli.main import main
from manyheads.config import DataConfig
from manyheads.plugins.serving.app import make_app
from manyheads.plugins.serving.config import ServeConfig
from manyheads.plugins.serving.pool import WorkerPool
from manyheads.plugins.serving.serve import listen
from manyheads.plugins.serving.server import make_server
from manyheads.plugins.serving.worker import about, open_served, replies
from tests.registry import SWEEPS

TEXTS = [f"{first} {second} film" for first in ("good", "bad", "not so good", "very awful") for second in ("a", "the")]


@pytest.fixture(scope="module")
def server(serving, model_folder):
    return serving(model_folder, "workers=2", "hardware.threads=1")


@pytest.fixture(scope="module")
def expected(model_folder):
    """What `predict` of one text says, as the server should."""
    classifier = manyheads.load(model_folder)
    return {text: classifier.predict([text])[0].probabilities for text in TEXTS}


def test_many_clients_get_the_bits_of_predict(server, expected):
    def ask(at):
        text = TEXTS[at % len(TEXTS)]
        status, _, said = server.ask({"texts": [text] * (1 + at % 3)})
        return status == 200 and all(row["probabilities"] == expected[text] for row in said["predictions"])

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(96)))
    assert len(server.workers()) == 2


def wait(server, holds, seconds=90):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, server.log.read_text()
        time.sleep(0.005)


def all_up(server):
    wait(server, lambda: server.ask(path="/health", method="GET")[2] == {"status": "ok", "workers": 2})


@pytest.mark.parametrize(
    "numbers", [[signal.SIGKILL], pytest.param([signal.SIGSEGV, signal.SIGKILL], marks=pytest.mark.slow)], ids=len
)
def test_nothing_that_was_accepted_is_lost_where_workers_are_killed(numbers, server, expected):
    def started() -> int:
        return server.log.read_text().count("another is started")

    started_before, batches_before, n_asked = started(), batches(server), 4 * len(numbers)
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(server.ask, {"texts": TEXTS * 40}) for _ in range(n_asked)]
        wait(server, lambda: batches(server) >= batches_before + 2)  # until both workers answer
        for at, number in enumerate(numbers, 1):
            os.kill(server.workers()[0], number)
            wait(server, lambda at=at: started() >= started_before + at)
            all_up(server)
        found = [one.result() for one in asked]
    assert [status for status, _, _ in found] == [200] * n_asked
    for _, _, said in found:
        assert [row["probabilities"] for row in said["predictions"]] == [expected[text] for text in TEXTS * 40]
    assert started() == started_before + len(numbers)


def test_slow_clients_and_those_that_leave_do_no_harm(server):
    opened = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
    for at, one in enumerate(opened):
        one.send(b"POST /predict HTTP/1.1\r\nHost: localhost\r\n" + b"Content-Length: 99\r\n\r\n{" * (at % 2))
    assert server.ask({"text": "good film"})[0] == 200
    for one in opened:
        one.close()
    assert server.ask({"text": "good film"})[0] == 200


@pytest.mark.parametrize(
    "begin", [b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ",
              b"POST /predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: "],
    ids=["head", "trailer"],
)  # fmt: skip
def test_a_head_without_end_is_not_read_on(begin, server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        client.sendall(begin)
        sent = 0
        with suppress(ConnectionError):
            while sent < 2**25:
                sent += client.send(b"a" * 2**16)
        assert sent < 2**24
    assert server.ask({"texts": ["good film " * 9000] * 4})[0] == 200  # a body may be larger


def test_a_connection_that_is_closed_is_forgotten_at_once():
    """Else those of the last ten seconds stay in memory, with what they asked."""
    requests = weakref.WeakSet()

    async def app(scope, receive, send):
        requests.add(receive.__self__)  # uvicorn's request, which its connection holds
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async def ask_and_leave() -> tuple[int, int]:
        server, listener = make_server(app), socket.create_server(("127.0.0.1", 0))
        serving = asyncio.create_task(server.serve([listener]))
        for _ in range(20):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readline()
            writer.close()
        while server.server_state.connections:
            await asyncio.sleep(0.01)
        seen = server.server_state.total_requests
        gc.collect()
        left = len(requests)
        server.should_exit = True
        await serving
        return seen, left

    assert asyncio.run(ask_and_leave()) == (20, 0)


def test_the_page_answers_by_the_keyboard_and_says_what_is_wrong(server, chromium):
    address = f"http://127.0.0.1:{server.port}/"
    for wide in (1280, 390):
        chromium.open(address, wide=wide, high=844, dark=wide == 390)
        chromium.wait("document.title.includes('manyheads') && document.getElementById('facts').textContent.length > 9")
        assert chromium.value("document.activeElement.id") == "text"
        chromium.send("Input.insertText", text="good <b>film</b>")
        chromium.press("Tab", "Enter")  # to the button, and press it
        chromium.wait("!document.getElementById('answer').hidden")
        if "heads" not in plugin.names("view"):
            assert chromium.value("document.getElementById('looks').children.length") == 0
            continue
        chromium.wait(
            "document.getElementById('look-heads')?.contentDocument?.querySelectorAll('#text .token small').length > 3",
            40,
        )
        assert chromium.value("document.querySelectorAll('#members tbody tr').length") == 3
        assert chromium.value("document.documentElement.scrollWidth") <= wide
        assert chromium.value("document.getElementById('look-heads').contentDocument.body.scrollWidth") <= wide
        shown = "document.getElementById('look-heads').contentDocument.body.textContent"
        assert "What does each token add" in chromium.value(shown)
        assert chromium.findings() == []
        chromium.value("document.getElementById('choice-layers').value = '9'")
        chromium.value("document.getElementById('ask').requestSubmit()")
        chromium.wait("document.getElementById('note').textContent.includes('out of range')")
        elsewhere = [one for one in chromium.complaints if not one.startswith(f"asked for {address}")]
        assert [one for one in elsewhere if "asked for" in one and "about:srcdoc" not in one] == []
        assert [one for one in elsewhere if "asked for" not in one and "status of 422" not in one] == []


@contextmanager
def serving_here(config):
    """The address of a server in a thread of this process, which answers as a worker does."""
    served = open_served(config)

    class Here(WorkerPool):
        async def ask(self, request):
            ((status, body),) = replies(served, [request])
            return status, body.encode()

    server = make_server(make_app(config, Here(config, about=about(served), ready=1), ""))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        server.should_exit = True
        thread.join()


@pytest.fixture
def columns(ship_model, tmp_path):
    """A folder of a model of two columns, called as elements of the page are; and the address of its server."""
    folder = ship_model(tmp_path / "model", data=DataConfig(text=["title", "id"], max_length=12))
    with serving_here(ServeConfig(run=str(folder))) as address:
        yield folder, address


def test_the_page_has_a_box_for_each_column(columns, chromium):
    """They are called as the columns are, and a row is asked for by them."""
    names, (folder, address) = ["title", "id"], columns
    chromium.open(address, wide=1280, high=844, dark=False)
    chromium.wait("document.querySelectorAll('#texts textarea').length === 2")
    assert chromium.value("[...document.querySelectorAll('#texts label')].map(one => one.control.id)") == [
        "text", "text-1",
    ]  # fmt: skip
    assert chromium.value("[...document.querySelectorAll('#texts label')].map(one => one.textContent)") == names
    row = dict(zip(names, ("good film", "so awful"), strict=True))
    assert json.dumps({"text": dict.fromkeys(names, "...")}, separators=(",", ":")) in chromium.value(
        "document.getElementById('curl').textContent"
    )
    for at, cell in enumerate(row.values()):
        chromium.value(f"document.querySelectorAll('#texts textarea')[{at}].value = '{cell}'")
    chromium.value("document.getElementById('ask').requestSubmit()")
    chromium.wait("!document.getElementById('answer').hidden")
    (answer,) = manyheads.load(folder).predict([row])
    shares = [f"{100 * share:.1f}%" for share in sorted(answer.probabilities.values(), reverse=True)]
    bars = "document.querySelectorAll('#members tbody tr td:nth-of-type(1) span')"
    assert chromium.value(f"[...{bars}].map(one => one.textContent)") == shares


def batches(server) -> float:
    return float(
        re.search(r"^manyheads_batches(?:_total)? (\S+)$", server.ask(path="/metrics", method="GET")[2], re.M)[1]
    )


def test_an_end_in_good_order(server):
    """The last test of this server."""
    answers, before = [], batches(server)
    thread = threading.Thread(target=lambda: answers.append(server.ask({"texts": TEXTS * 50})))
    thread.start()
    connection = socket.create_connection(("127.0.0.1", server.port))
    while batches(server) == before:
        time.sleep(0.005)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    body = json.dumps({"text": "good"}).encode()
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    connection.send(head.encode() + b"\r\n\r\n" + body)
    assert b"503" in connection.recv(4096).partition(b"\r\n")[0]
    thread.join()
    assert answers[0][0] == 200
    assert len(answers[0][2]["predictions"]) == 400
    assert server.process.wait(30) == 0
    assert "all accepted requests are answered" in server.log.read_text()


STAND_IN = """
import json, sys
sys.stdin.buffer.read(int.from_bytes(sys.stdin.buffer.read(4), "big"))
about = b"200" + json.dumps({"name": "run", "rules": []}).encode()
sys.stdout.buffer.write(len(about).to_bytes(4, "big") + about)
sys.stdout.flush()
sys.stdin.read()
"""
WITH_STAND_IN = f"""
import sys
from manyheads.cli.main import main
from manyheads.plugins.serving import pool
pool.PROGRAM = ("-S", "-c", {STAND_IN!r})
sys.exit(main(sys.argv[1:]))
"""


def test_an_end_that_waits_in_vain_says_so(serving, model_folder):
    """Its worker stands still, so that it need not open the model."""
    server = serving(model_folder, "hardware.timeout=1", program=("-c", WITH_STAND_IN))
    thread = threading.Thread(target=lambda: server.ask({"text": "good"}))
    os.kill(server.workers()[0], signal.SIGSTOP)
    thread.start()
    while "manyheads_batches 1.0" not in server.ask(path="/metrics", method="GET")[2]:
        time.sleep(0.005)
    assert server.end() == 0
    thread.join()
    said = server.log.read_text()
    assert "ended: 1 requests are not answered in hardware.timeout=1 seconds" in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run=nowhere"], "run=.*nowhere is not a run folder"),
        (["host=0.0.0.0"], "host=0.0.0.0 can be reached by others, who must have a token: set \\$MANYHEADS_TOKEN"),
        (["host=no such name"], "host=no such name is not a name or an address of this machine"),
        (["host=192.0.2.1"], "can be reached by others"),
        (["port=70000"], "port=70000 is out of range"),
        pytest.param(["-m", "port=1,2"], "-m does nothing in serve, which runs until it is ended", marks=SWEEPS),
    ],
)
def test_mistakes_before_it_begins(words, sentence, model_folder, capsys, monkeypatch):
    monkeypatch.delenv("MANYHEADS_TOKEN", raising=False)
    run = [] if words[0].startswith("run=") else [f"run={model_folder}"]
    assert main(["serve", *run, *words]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert re.search(sentence, said), said


def test_a_port_that_is_taken_and_a_short_token(model_folder, capsys, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", f"run={model_folder}", f"port={port}"]) == 2
        assert f"port={port} cannot be listened at: Address already in use" in capsys.readouterr().err
    monkeypatch.setenv("MANYHEADS_TOKEN", "short")
    assert main(["serve", f"run={model_folder}", "host=0.0.0.0"]) == 2
    assert "$MANYHEADS_TOKEN is short" in capsys.readouterr().err


def test_no_packet_of_an_answer_waits_for_an_acknowledgement():
    with listen(ServeConfig(run="x", port=0)) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
