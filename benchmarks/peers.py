"""Training speed on a CPU, compared with what people use: the tables of docs/results/performance.md.

    pip install -e '.[bench]'
    MANYHEADS_DATA=<folder of NAME/train.csv> python benchmarks/peers.py [again] [SETTING ...]
    python benchmarks/peers.py table

A SETTING is texts-d_model, such as short-256; all of them take half an hour on two cores, with nothing else running.
What we measure is pinned (contestants/settings.py); the shipped default is trained, too. Of each setting the Trainer's
fastest settings are searched first. Every contestant is a process of its own with all threads, which trains for some
seconds while the others sleep: a round lets each of them train once and measures the machine's matrix product, five
rounds are a measurement; where the time is up, fewer. Start-up and the first seconds are left out. Figures go to
peers.json after each round; a second start measures only what is missing, `again` forgets what is there, and `table`
puts the tables into the document and measures nothing.
"""

import json
import os
import sys
import tempfile
from contextlib import ExitStack
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

from contestants.process import PEAK
from contestants.ring import Contestant, searched, take
from contestants.settings import PROTOCOL, SETTINGS, flops_per_token, mean_length_met, shape_of, text_of
from contestants.tables import fill_document, per_second, speed_tables, tried
from machine import machine

HERE = Path(__file__).parent
RESULTS = HERE / "peers.json"
DOCUMENT = HERE.parent / "docs" / "results" / "performance.md"
ROUNDS, LEAST_ROUNDS = 5, 3
MINUTES, SEARCH_SECONDS = 30.0, 75.0  # of all settings, and of the search for one; each setting has its share of both
PACKAGES = ("torch", "transformers", "accelerate", "datasets", "lightning", "tokenizers", "manyheads")
IN_FP32 = "abh"  # the others compute in bf16 where the processor does


def main() -> None:
    words = sys.argv[1:]
    if words != ["table"]:
        measure([word for word in words if word != "again"] or list(SETTINGS), again="again" in words)
    tables = speed_tables(json.loads(RESULTS.read_text()))
    print("\n\n".join(f"{name}\n{table}" for name, table in tables.items()))
    fill_document(DOCUMENT, tables)


def measure(settings: list[str], *, again: bool) -> None:
    """The rounds that peers.json lacks."""
    data = checked(settings)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"settings": {}}
    results.update(machine=machine(), versions={name: version(name) for name in PACKAGES})
    kept = {name: one for name, one in results["settings"].items() if one.get("protocol") == PROTOCOL and not again}
    found = {setting: kept.get(setting, {"protocol": PROTOCOL}) for setting in settings}
    lacking = [setting for setting in settings if missing(found[setting])]
    started = perf_counter()
    for at, setting in enumerate(lacking):
        results["settings"][setting] = found[setting]
        until = started + 60 * MINUTES * (at + 1) / len(SETTINGS)
        measure_setting(setting, data, found[setting], results, until)


def missing(figures: dict[str, Any]) -> int:
    """Rounds."""
    return ROUNDS - len(figures.get("rounds", []))


def checked(settings: list[str]) -> Path:
    """The folder of the data; whatever is missing is said before anything is measured."""
    data = os.environ.get("MANYHEADS_DATA")
    if not data:
        sys.exit("MANYHEADS_DATA is not set: it names the folder that holds NAME/train.csv")
    if absent := [name for name in ("transformers", "accelerate") if find_spec(name) is None]:
        sys.exit(f"{' and '.join(absent)} not found: pip install -e '.[bench]'")
    if unknown := [name for name in settings if name not in SETTINGS]:
        sys.exit(f"{unknown[0]} is not a setting: choose from {', '.join(SETTINGS)}")
    return Path(data)


def measure_setting(setting: str, data: Path, figures: dict[str, Any], results: dict[str, Any], until: float) -> None:
    """Add rounds to `figures` until there are enough, or a few and the time is up; `results`, which holds them, is
    written after each."""
    from contestants.texts import prepare

    from manyheads.inference.precision import cpu_multiplies_bf16

    names = SETTINGS[setting]
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        lengths = prepare(text_of(setting), data, Path(scratch))
        met = mean_length_met(lengths)
        figures.update(
            tokens_per_text=round(sum(lengths) / len(lengths), 2),
            mean_length_met=round(met, 2),
            flops_per_token=round(flops_per_token(shape_of(setting), met)),
            precision={name: "bf16" if cpu_multiplies_bf16() and name not in IN_FP32 else "fp32" for name in names},
        )
        if not figures.get("searched"):
            figures["searched"] = searched(setting, Path(scratch), SEARCH_SECONDS)
            print(f"{setting}: {tried(figures['searched'])}", flush=True)
        fastest = take(figures["searched"], Path(scratch))
        figures["precision"]["c"] = "bf16" if fastest["bf16"] else "fp32"
        ring = {name: stack.enter_context(Contestant(name, setting, Path(scratch))) for name in [PEAK, *names]}
        for one in ring.values():
            one.warm_up()
        figures["threads"] = {name: one.threads for name, one in ring.items()}
        while missing(figures) and (perf_counter() < until or len(figures.get("rounds", [])) < LEAST_ROUNDS):
            turns = {name: turn for name, one in ring.items() if (turn := one.turn())}
            figures.setdefault("rounds", []).append(turns)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
            shown = (f"{name} {per_second(turns[name]):,.0f}" for name in names if name in turns)
            print(f"{setting}, round {len(figures['rounds'])}: {', '.join(shown)} tokens/s", flush=True)


if __name__ == "__main__":
    main()
