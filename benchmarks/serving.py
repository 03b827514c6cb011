"""`manyheads serve` compared with the transformers pipeline in the same FastAPI server, and a soak: serving.json.

    pip install -e '.[serve,bench]'
    MANYHEADS_DATA=<folder of NAME/{train,test}.csv> python benchmarks/serving.py [speed] [soak=SECONDS]

The network is BERT's, 4 layers of d_model 256 and 4 heads, with random weights, as speed does not depend on them; the
pipeline opens what `manyheads export` writes of it, so both compute the same. Test texts of ag_news_10k, one a request,
go over loopback from one process of `CLIENTS` clients, each of which asks again as soon as it is answered; all share
the machine's cores with the server. Contestants take turns; of each turn the first half second is not counted. The
pipeline's server is a plain endpoint, as its users write it, which FastAPI runs in threads.

`soak` sends 80 % of the requests a second that the server was seen to answer, evenly spread, each over a connection of
its own as then, and meanwhile kills workers, sends malformed bodies, opens connections that say nothing and leaves
before answers. Each request that was sent whole must be answered by the bits that the text was answered by at first.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import psutil
import torch
from contestants.ours import our_run
from contestants.settings import SHAPES, Text
from contestants.tables import fill_document, markdown
from machine import machine
from prediction import read, spread

from manyheads.config import Placement, Pooler
from manyheads.inference.folder import save
from manyheads.nn import assemble

RESULTS = Path(__file__).with_suffix(".json")
DOCUMENT = RESULTS.parents[1] / "docs" / "serving.md"
CLIENTS, ROUNDS, SECONDS, SKIPPED = (1, 2, 4, 8, 16, 32, 64), 2, 3.0, 0.5
SHOWN, WITHIN = (1, 8, 64), 50.0  # clients in the table; milliseconds of p99 within which most requests are sought
OURS = {
    "manyheads": (),
    "manyheads, workers=2": ("workers=2",),
    "manyheads, exact=false": ("exact=false",),
}
THEIRS = {"pipeline fp32": "float32", "pipeline bf16": "bfloat16"}
PEER = """
import sys
import torch, uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import pipeline

class Question(BaseModel):
    text: str

app = FastAPI()
classify = pipeline("text-classification", sys.argv[1], dtype=getattr(torch, sys.argv[2]), device="cpu", top_k=None)

@app.post("/predict")
def predict(question: Question):
    return classify(question.text, truncation=True)

uvicorn.run(app, port=int(sys.argv[3]), log_level="warning")
"""


def main() -> None:
    data = os.environ.get("MANYHEADS_DATA")
    if not data:
        sys.exit("MANYHEADS_DATA is not set: it names the folder that holds ag_news_10k/{train,test}.csv")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    packages = ("torch", "transformers", "fastapi", "uvicorn", "manyheads")
    where = {"machine": machine(), "versions": {name: version(name) for name in packages}}
    with tempfile.TemporaryDirectory() as scratch:
        run, texts = made(Path(data) / "ag_news_10k", Path(scratch))
        for word in sys.argv[1:] or ["speed"]:
            name, _, seconds = word.partition("=")
            if name == "soak":
                results[name] = where | asyncio.run(soak(run, texts[:200], float(seconds)))
            else:
                results[name] = where | speed(run, texts)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
            print(json.dumps(results[name], indent=1), flush=True)
    fill_document(DOCUMENT, {"serving": table(results["speed"])})


def made(data: Path, run: Path) -> tuple[Path, list[str]]:
    """The run, with its export in bert/, and the texts."""
    torch.manual_seed(0)
    tokenizer, texts = read(data)
    base = our_run(SHAPES["256"], Text("ag_news_10k", 512))
    model = replace(base.model, placement=Placement.post, pooling="first", pooler=Pooler.tanh)
    classifier = assemble(model, vocab_size=tokenizer.get_vocab_size(), n_classes=4, max_length=512)
    torch.nn.init.normal_(classifier.head.weight)  # answers that differ from text to text
    labels = ["world", "sports", "business", "science"]
    save(run / "model", classifier, model=model, data=base.data, tokenizer=tokenizer, labels=labels)
    words = ["export", f"run={run}", f"output={run / 'bert'}"]
    subprocess.run([sys.executable, "-m", "manyheads", *words], check=True, stdout=subprocess.DEVNULL)
    return run, texts


def started(command: list[str], log: Path, stack: ExitStack) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(command, stdout=log.open("wb"), stderr=subprocess.STDOUT)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return process


def our_server(run: Path, words: tuple[str, ...], stack: ExitStack) -> tuple[int, subprocess.Popen[bytes]]:
    """Its port, and the process."""
    log = run / f"serve-{time.monotonic_ns()}.log"
    process = started([sys.executable, "-m", "manyheads", "serve", f"run={run}", "port=0", *words], log, stack)
    while not (found := re.search(r":(\d+)/ \(", log.read_text())):
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    return int(found[1]), process


def speed(run: Path, texts: list[str]) -> dict[str, Any]:
    """Requests a second and milliseconds, of each number of clients."""
    turns: dict[str, dict[int, list[tuple[float, list[float]]]]] = {}
    with ExitStack() as stack:
        ports = {name: our_server(run, words, stack)[0] for name, words in OURS.items()}
        for at, (name, kind) in enumerate(THEIRS.items()):
            ports[name] = 20100 + at
            words = [sys.executable, "-c", PEER, str(run / "bert"), kind, str(ports[name])]
            started(words, run / f"{kind}.log", stack)
            asyncio.run(up(ports[name]))
        differs = check(asyncio.run(answers_of(ports, texts[:20])))
        for _ in range(ROUNDS):
            for n_clients in CLIENTS:
                for name, port in ports.items():
                    found = asyncio.run(turn(port, texts, n_clients))
                    turns.setdefault(name, {}).setdefault(n_clients, []).append(found)
    found: dict[str, Any] = {"seconds of a turn": SECONDS, "rounds": ROUNDS, "probabilities differ by": differs}
    for name, of in turns.items():
        for n_clients, rounds in of.items():
            taken = sorted(one for _, each in rounds for one in each)
            cuts = quantiles(taken, n=100)
            found.setdefault(name, {})[str(n_clients)] = {
                "requests/s": spread([rate for rate, _ in rounds]),
                "p50 ms": round(cuts[49], 2),
                "p99 ms": round(cuts[98], 2),
            }
    found["ratio of each round"] = {
        f"{ours} / {theirs}, {n} clients": spread(
            [mine / other for (mine, _), (other, _) in zip(turns[ours][n], turns[theirs][n], strict=True)]
        )
        for ours in OURS
        for theirs in THEIRS
        for n in CLIENTS
    }
    return found


def check(answers: dict[str, list[dict[str, float]]]) -> dict[str, float]:
    """Both compute the same network: by how much probabilities differ from those in fp32, at the most. All that a
    pipeline computes in bf16 is rounded to it, its probabilities too, so that it is not held to the bound."""
    exact, most = answers["pipeline fp32"], {}
    for name, found in answers.items():
        pairs = zip(found, exact, strict=True)
        most[name] = round(max(abs(one[label] - other[label]) for one, other in pairs for label in other), 5)
        assert most[name] < 0.02 or name == "pipeline bf16", name
    return most


async def answers_of(ports: dict[str, int], texts: list[str]) -> dict[str, list[dict[str, float]]]:
    found: dict[str, list[dict[str, float]]] = {}
    for name, port in ports.items():
        async with Client(port) as client:
            for text in texts:
                said = json.loads((await client.ask(text))[1])
                row = said["predictions"][0]["probabilities"] if "predictions" in said else {
                    one["label"]: one["score"] for one in (said[0] if isinstance(said[0], list) else said)
                }  # fmt: skip
                found.setdefault(name, []).append(row)
    return found


class Client:
    """One connection that stays open."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> "Client":
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()

    def send(self, text: str) -> None:
        body = json.dumps({"text": text}).encode()
        head = "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
        self.writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)

    async def ask(self, text: str) -> tuple[int, bytes]:
        """Status and body."""
        self.send(text)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        found = re.search(rb"content-length: (\d+)", head)
        assert found is not None
        return int(head[9:12]), await self.reader.readexactly(int(found[1]))


async def up(port: int) -> None:
    for _ in range(600):
        with suppress(OSError):
            async with Client(port) as client:
                await client.ask("up")
                return
        await asyncio.sleep(0.1)
    raise SystemExit("the pipeline's server does not come up")


async def asked_anew(port: int, text: str) -> tuple[int, bytes]:
    """Status and body, over a connection of its own."""
    async with Client(port) as client:
        return await client.ask(text)


async def turn(
    port: int, texts: list[str], n_clients: int, seconds: float = SECONDS, *, anew: bool = False
) -> tuple[float, list[float]]:
    """Requests a second, and the milliseconds of each; `anew`: each over a connection of its own."""
    taken: list[float] = []
    begun = time.perf_counter()
    counted = begun + SKIPPED

    async def client(first: int) -> None:
        async with Client(port) as connection:
            at = first
            while (sent := time.perf_counter()) < begun + seconds:
                text = texts[at % len(texts)]
                status, _ = await (asked_anew(port, text) if anew else connection.ask(text))
                assert status == 200, status
                if (now := time.perf_counter()) > counted:
                    taken.append(1000 * (now - sent))
                at += n_clients

    await asyncio.gather(*(client(first) for first in range(n_clients)))
    return round(len(taken) / (time.perf_counter() - counted), 1), taken


async def soak(run: Path, texts: list[str], seconds: float, workers: int = 2, share: float = 0.8) -> dict[str, Any]:
    """What became of all requests at a share of what the server can answer, and the memory of all processes."""
    with ExitStack() as stack:
        port, process = our_server(run, (f"workers={workers}", "hardware.threads=1"), stack)
        async with Client(port) as client:
            expected = [(await client.ask(text))[1] for text in texts]
        capacity = (await turn(port, texts, 16, 5.0, anew=True))[0]
        rate, begun = share * capacity, time.perf_counter()
        end, counts = begun + seconds, dict.fromkeys(("sent", "answered", "refused", "lost", "other bits"), 0)
        memory: list[tuple[float, float, float, int]] = []
        taken: list[float] = []
        most = 0

        async def one(at: int) -> None:
            sent = time.perf_counter()
            nonlocal most
            counts["sent"] += 1
            most = max(most, counts["sent"] - len(taken) - counts["lost"])
            try:
                status, body = await asked_anew(port, texts[at % len(texts)])
            except (OSError, EOFError):
                counts["lost"] += 1
                return
            taken.append(1000 * (time.perf_counter() - sent))
            counts["answered" if status == 200 else "refused"] += 1
            counts["other bits"] += status == 200 and body != expected[at % len(texts)]

        others = {"kills": 0, "malformed": 0, "slow": 0, "left": 0}
        nuisance = asyncio.create_task(disturb(port, process.pid, end, others))
        asked: set[asyncio.Task[None]] = set()
        at = 0
        while (now := time.perf_counter()) < end:
            while at < (now - begun) * rate:
                asked.add(asyncio.create_task(one(at)))
                asked = {task for task in asked if not task.done()} if at % 500 == 0 else asked
                at += 1
            if now - begun > 10 * len(memory):
                memory.append((round(now - begun), *used(process.pid), counts["sent"] - len(taken) - counts["lost"]))
            await asyncio.sleep(0.002)
        await asyncio.gather(*asked, nuisance)
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
    cuts, quarter = quantiles(taken, n=100), len(memory) // 4 + 1
    ends = [round(median(one[1] for one in part), 1) for part in (memory[:quarter], memory[-quarter:])]
    return {
        "seconds": seconds,
        "workers": workers,
        "requests/s seen": capacity,
        "requests/s sent": round(rate, 1),
        **counts,
        **others,
        "exit code": code,
        "p50 ms": round(cuts[49], 1),
        "p99 ms": round(cuts[98], 1),
        "MiB of the server, first and last quarter": ends,
        "most requests under way at once": most,
        "MiB of server and of workers, and requests under way, by second": memory,
    }


def used(pid: int) -> tuple[float, float]:
    """MiB of the server, and of all workers, of which shared pages count by share."""
    server = psutil.Process(pid)
    of_workers = 0.0
    for child in server.children():
        with suppress(psutil.Error):
            of_workers += child.memory_full_info().pss
    return round(server.memory_info().rss / 2**20, 1), round(of_workers / 2**20, 1)


async def disturb(port: int, pid: int, end: float, counts: dict[str, int]) -> None:
    """A worker is killed every 15 seconds; every half second somebody sends nonsense, says nothing, or leaves."""
    silent: list[Client] = []
    at = 0
    while time.perf_counter() < end - 2:
        await asyncio.sleep(0.5)
        at += 1
        with suppress(OSError, EOFError):
            if at % 30 == 15 and (children := psutil.Process(pid).children()):
                children[at // 30 % len(children)].kill()
                counts["kills"] += 1
            client = await Client(port).__aenter__()
            kind = ("malformed", "slow", "left")[at % 3]
            counts[kind] += 1
            if kind == "malformed":
                client.writer.write(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n{[\xff")
                assert (await client.reader.readline()).split()[1] in (b"415", b"422")
            elif kind == "slow":
                client.writer.write(b"POST /predict HTTP/1.1\r\nHost: lo")
                silent.append(client)
            else:
                client.send("a text whose sender does not wait for the answer")
                await client.writer.drain()
            if kind != "slow":
                await client.__aexit__()
    for client in silent:
        await client.__aexit__()


def table(found: dict[str, Any]) -> str:
    """Requests a second, and milliseconds."""
    lines = []
    for name in (*OURS, *THEIRS):
        most = 0.0  # requests a second, whatever the number of clients
        for one in found[name].values():
            if one["p99 ms"] <= WITHIN:
                most = max(most, one["requests/s"]["median"])
        cells = [f"{most:,.0f}" if most else "-"]
        for n in map(str, SHOWN):
            one = found[name][n]
            rate = "{median:,.0f} ({min:,.0f}-{max:,.0f})".format(**one["requests/s"])
            cells.append(f"{rate}; {one['p50 ms']:,.1f} / {one['p99 ms']:,.1f}")
        lines.append([name, *cells])
    columns = ["requests/s (least-most); p50 / p99 ms", f"most at p99 <= {WITHIN:g} ms"]
    return markdown([*columns, *(f"{n} clients" for n in SHOWN)], lines)


if __name__ == "__main__":
    main()
