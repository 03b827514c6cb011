"""Training and answering while other processes want the cores, by how OpenMP's threads wait: in load.json.

    pip install -e '.[bench]'
    MANYHEADS_DATA=<folder of NAME/{train,test}.csv> python benchmarks/load.py [ROUNDS]

A thread that waits for work spins, by default, on a core that another process could use. Compared are that default,
threads that sleep (`OMP_WAIT_POLICY=passive`), which `manyheads` asks for if it finds the cores busy when it starts,
and threads that spin for a moment (`GOMP_SPINCOUNT`). Each contestant is a process of its own with the threads it would
have by itself; they take turns of some seconds, next to none, one or two processes that only count. `train d256` and
`train d128` are manyheads' own loop (short texts, 4 layers of d_model 256 and 2 of 128), `many texts` and `one text`
answer in a loop, `serve` is a server with 8 clients. A ratio is to the default in the same round with as many busy
processes.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from contestants.process import take_part
from contestants.ring import Contestant, environment
from contestants.settings import TEXTS
from contestants.turns import next_turn
from machine import machine

RESULTS = Path(__file__).with_suffix(".json")
POLICIES = {
    "default": {"GOMP_SPINCOUNT": "300000"},  # libgomp's own, said here as serve asks for sleeping threads
    "passive": {"OMP_WAIT_POLICY": "passive"},
    "short spin": {"GOMP_SPINCOUNT": "10000"},
}
BUSY, SECONDS, CLIENTS = (0, 1, 2), 3.0, 8
TRAINED = {"train d256": "short-256", "train d128": "short-128"}
ANSWERED = {"many texts": 256, "one text": 1}  # texts of a call


def answer(name: str, setting: str, folder: Path, driver: Connection) -> None:
    """The process of a contestant that answers the texts of folder/texts.json, turn by turn."""
    from manyheads import load

    predictor, texts = load(folder), json.loads((folder / "texts.json").read_text())
    driver.send(0)
    n, at = int(setting), 0
    predictor.predict(texts[:n])
    while True:
        seconds, done, begun = next_turn(driver), 0, perf_counter()
        while (taken := perf_counter() - begun) < seconds:
            predictor.predict(texts[at : at + n])
            at = (at + n) % (len(texts) - n)
            done += n
        driver.send({"rows": done, "seconds": taken})


@contextmanager
def busy(n: int) -> Iterator[None]:
    """`n` processes that only count."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main() -> None:
    from contestants.texts import prepare
    from serving import made, our_server, turn

    data = os.environ.get("MANYHEADS_DATA")
    if not data:
        sys.exit("MANYHEADS_DATA is not set: it names the folder that holds ag_news_10k/{train,test}.csv")
    n_rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    rates: dict[str, dict[int, dict[str, list[float]]]] = {}
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        folder, run = Path(scratch) / "tokens", Path(scratch) / "run"
        folder.mkdir()
        prepare(TEXTS["short"], Path(data), folder)
        run, texts = made(Path(data) / "ag_news_10k", run)
        (run / "texts.json").write_text(json.dumps(texts[:2000]))
        contestants: dict[str, dict[str, Contestant]] = {}
        ports: dict[str, int] = {}
        for policy, variables in POLICIES.items():
            with environment(variables):
                for name, setting in TRAINED.items():
                    one = Contestant("f", setting, folder, take_part)
                    contestants.setdefault(name, {})[policy] = stack.enter_context(one)
                for name, n in ANSWERED.items():
                    one = Contestant(name, str(n), run, answer)
                    contestants.setdefault(name, {})[policy] = stack.enter_context(one)
                ports[policy] = our_server(run, (), stack)[0]
        for of in contestants.values():
            for one in of.values():
                one.warm_up()
        for at in range(n_rounds):
            policies = list(POLICIES) if at % 2 else list(reversed(POLICIES))
            for n_busy in BUSY:
                with busy(n_busy):
                    for name in (*contestants, "serve"):
                        for policy in policies:
                            if name == "serve":
                                rate = asyncio.run(turn(ports[policy], texts, CLIENTS, SECONDS))[0]
                            else:
                                found = contestants[name][policy].turn(SECONDS)
                                rate = found["rows"] / found["seconds"]
                            rates.setdefault(name, {}).setdefault(n_busy, {}).setdefault(policy, []).append(rate)
    results: dict[str, Any] = {"machine": machine(), "rounds": n_rounds, "seconds of a turn": SECONDS}
    for name, by_busy in rates.items():
        for n_busy, of in by_busy.items():
            found = {"texts/s, default": round(median(of["default"]), 1)}
            for policy in POLICIES:
                if policy != "default":
                    ratios = [a / b for a, b in zip(of[policy], of["default"], strict=True)]
                    found[f"{policy} / default"] = f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
            results[f"{name}, {n_busy} busy"] = found
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
