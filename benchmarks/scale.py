"""Time and memory of 100 thousand, 1 million and 10 million rows of 210 bytes, and of `datasets.map`: scale.json.

    python benchmarks/scale.py [--rows 100000 1000000] [--kinds csv parquet]
                               [--who ours again ranks dry train datasets] [--folder FOLDER] [--limit SECONDS]

Rows are generated, as one csv or as 64 shards of parquet. `read` is reading, audit and splitting; `learn` the
tokenizer, `tokenise` all texts to ids on disk, `plan` the steps of an epoch, `batches` 2,000 of them, `linear` the
linear model. `ours` is all of it; `read`, `tokenise` and `linear` are its parts, one after another, and `again` the
second start, which finds what these left. `ranks` are two processes that start together, `ranks read` and
`ranks again` the same in parts. What takes longer than `--limit` is killed, and resumes when it is requested again; the
seconds are added. `dry` is `manyheads train dry=true` without a cache, and `train` a run of 50 steps of a tiny network,
which finds that cache, with its linear model, evaluation and report. `datasets` is what a script of that library does
with the same tokenizer.
Peaks are of the whole tree of processes: resident memory as `ps` counts it, in which pages of mapped files that two
processes share count twice, and the proportional set, in which they count once.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from contestants.tables import fill_document, markdown
from machine import machine

RESULTS = Path(__file__).with_suffix(".json")
DOCUMENT = Path(__file__).parents[1] / "docs" / "large-data.md"
LETTERS, CLASSES, SHARDS = "etaoinshrdlucmfwyp", ("alpha", "beta", "gamma", "delta"), 64
BYTES = 210  # of a row
POLL = 0.2  # seconds
BATCHES = 2000
EVERY = ("read", "learn", "tokenise", "plan", "batches")
STAGES = {"ours": (*EVERY, "linear"), "read": EVERY[:2], "tokenise": EVERY, "linear": ("read", "linear")}
STAGES |= {"again": EVERY, "ranks": EVERY, "ranks read": EVERY[:1], "ranks again": EVERY}
FRESH = ("ours", "read", "ranks", "ranks read", "dry")  # begin without a cache
TINY = ("model.d_model=16", "model.n_layers=1", "model.n_heads=1", "model.d_ff=16", "trainer.max_steps=50")


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    asked.add_argument("--kinds", nargs="+", default=["csv", "parquet"])
    asked.add_argument("--who", nargs="+", default=["ours", "again", "ranks", "dry", "train", "datasets"])
    asked.add_argument("--folder", default="")
    asked.add_argument("--limit", type=float, default=1e9)
    asked.add_argument("--child", nargs=3)
    typed = asked.parse_args()
    if typed.child:
        who, data, scratch = typed.child
        child = {"datasets": with_datasets, "dry": as_typed, "train": as_typed}.get(who, ours)
        return child(Path(data), Path(scratch), who)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results |= {
        "machine": machine(),
        "versions": {name: version(name) for name in ("pyarrow", "tokenizers", "datasets")},
    }
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(typed.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for n_rows in typed.rows:
            for kind in typed.kinds:
                data = generated(folder, n_rows, kind)
                found = results.setdefault(f"{n_rows:,} rows, {kind}", {})
                for who in typed.who:
                    own = {"ranks read": "-read", "dry": "-typed", "train": "-typed"}.get(who, "")
                    scratch = folder / f"scratch-{n_rows}-{kind}{own}"
                    found[who] = measured(who, data, scratch, n_rows * BYTES / 1e6, typed.limit, found.get(who, {}))
                    print(n_rows, kind, who, json.dumps(found[who]), flush=True)
                    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    fill_document(DOCUMENT, {"scale": table(results)})


def table(results: dict[str, Any]) -> str:
    """A column for each set of rows, a line for each stage; what was not measured is -."""
    names = [name for name in results if " rows, " in name]
    names.sort(key=lambda name: (int(name.split()[0].replace(",", "")), name))
    sets = {name: results[name] for name in names}

    def seconds(who: list[str], *stages: str) -> list[str]:
        cells = []
        for found in sets.values():
            one = next((found[name] for name in who if name in found and f"{stages[-1]} s" in found[name]), None)
            took = None if one is None or "killed" in one else sum(one[f"{stage} s"] for stage in stages)
            cells.append("-" if took is None else f"{took:,.1f} s")
        return cells

    def peaks(who: list[str], at: str) -> list[str]:
        found = [max((one[name][at] for name in who if name in one), default=None) for one in sets.values()]
        return ["-" if one is None else f"{one / 1000:.2f} GB" for one in found]

    parts, again = ["ours", "read", "tokenise", "linear"], ["again"]
    rates = [next((f"{one[who]['read MB/s']:.0f} MB/s" for who in parts if who in one), "-") for one in sets.values()]
    lines = [
        ["reading, audit and splitting", *seconds(parts, "read")],
        ["", *rates],
        ["learn the tokenizer", *seconds(parts, "learn")],
        ["tokenise", *seconds(["ours", "tokenise"], "tokenise")],
        ["`datasets`: load and map, two processes", *seconds(["datasets"], "load", "map")],
        ["second start: rows, splits, tokens", *seconds(again, "read", "tokenise")],
        ["plan an epoch", *seconds(again, "plan")],
        ["linear model", *seconds(["ours", "linear"], "linear")],
        ["peak, one process", *peaks([*parts, *again], "peak resident MB")],
        ["peak of `dry=true`", *peaks(["dry"], "peak resident MB")],
        ["peak of a training", *peaks(["train"], "peak resident MB")],
        ["peak, two processes", *peaks(["ranks", "ranks read", "ranks again"], "peak resident MB")],
        ["the same, shared pages counted once", *peaks(["ranks", "ranks read", "ranks again"], "peak proportional MB")],
    ]
    return markdown(["", *sets], [line for line in lines if {*line[1:]} != {"-"}])  # without what nobody measured


def generated(folder: Path, n_rows: int, kind: str) -> Path:
    """The file, or the folder of shards; the same rows in both."""
    data = folder / f"rows-{n_rows}{'.csv' if kind == 'csv' else ''}"
    if data.exists():
        return data
    draw = random.Random(0)
    words = ["".join(draw.choices(LETTERS, k=draw.randint(2, 9))) for _ in range(30_000)]
    phrases = [" ".join(draw.choices(words, k=10)) for _ in range(200_000)]
    part = folder / "part"
    subprocess.run(["rm", "-rf", str(part)], check=True)  # of a run that was stopped
    if kind == "csv":
        with part.open("w") as file:
            file.write("text,label\n")
            for at in range(n_rows):
                file.write("{},{}\n".format(*a_row(draw, phrases, at)))
        return part.rename(data)
    import pyarrow
    import pyarrow.parquet

    part.mkdir()
    bounds = [n_rows * shard // SHARDS for shard in range(SHARDS + 1)]
    for shard, (start, stop) in enumerate(pairwise(bounds)):
        texts, labels = zip(*(a_row(draw, phrases, at) for at in range(start, stop)), strict=True)
        table = pyarrow.table({"text": [text.strip('"') for text in texts], "label": labels})
        pyarrow.parquet.write_table(table, part / f"train-{shard:05d}-of-{SHARDS:05d}.parquet")
    return part.rename(data)


def a_row(draw: random.Random, phrases: list[str], at: int) -> tuple[str, str]:
    """A text, every third one quoted with a comma inside, and its label: `BYTES` bytes in all, about."""
    label = CLASSES[draw.randrange(4)]
    text = f"{label} {' '.join(draw.choices(phrases, k=4))}"
    text = f"{text[: BYTES - 8 - len(label)]} {at % 1000}"
    return (f'"{text}, so"' if at % 3 == 0 else text), label


def measured(
    who: str, data: Path, scratch: Path, megabytes: float, limit: float, before: dict[str, Any]
) -> dict[str, Any]:
    """Seconds by stage, and the peaks of memory, in MB; `before`: those of a start that was killed and is resumed."""
    if who in (*FRESH, "datasets"):
        subprocess.run(["rm", "-rf", str(scratch if who != "datasets" else scratch / "hf")], check=True)
    scratch.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, __file__, "--child", who, str(data), str(scratch)]
    peaks, stage, begun = {}, ["start"], perf_counter()
    n_processes = 2 if who.startswith("ranks") else 1
    pipe = {"stdout": subprocess.PIPE, "text": True, "start_new_session": True}
    children = [subprocess.Popen(words, **pipe) for _ in range(n_processes)]
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            rss, pss = (sum(one) / 1024 for one in zip(*(memory(child.pid) for child in children), strict=True))
            most = peaks.get(stage[0], (0.0, 0.0))
            peaks[stage[0]] = (max(most[0], rss), max(most[1], pss))
            if perf_counter() - begun > limit:
                for child in children:
                    os.killpg(child.pid, signal.SIGKILL)
            sleep(POLL)

    thread = threading.Thread(target=watch)
    thread.start()
    seconds: dict[str, float] = {}
    begun_stage = begun
    assert children[0].stdout is not None
    for line in children[0].stdout:
        name, _, took = line.strip().partition(" ")
        if took:
            seconds[name] = float(took)
        else:
            stage[0], begun_stage = name, perf_counter()
    codes = [child.wait() for child in children]
    over.set()
    thread.join()
    killed = perf_counter() - begun > limit
    assert killed or not any(codes), f"{who} ended with {codes}"
    if killed:
        seconds[stage[0]] = perf_counter() - begun_stage
    for name, took in before.get("killed", {}).items():
        seconds[name] = seconds.get(name, 0.0) + took
        peaks[name] = tuple(map(max, peaks.get(name, (0, 0)), before["peak MB"][name]))
    found: dict[str, Any] = {f"{name} s": round(took, 2) for name, took in seconds.items()}
    for name in ("read", "tokenise", "map"):
        if name in seconds:
            found[f"{name} MB/s"] = round(megabytes / max(seconds[name], 0.01), 1)
    if killed:
        found["killed"] = {stage[0]: seconds[stage[0]]}
    found["peak MB"] = {name: [round(one) for one in of_stage] for name, of_stage in peaks.items()}
    found["peak resident MB"], found["peak proportional MB"] = (
        round(max(of_stage[at] for of_stage in peaks.values())) for at in (0, 1)
    )
    return found


def memory(pid: int) -> tuple[int, int]:
    """Resident and proportional KiB of a process and all below it."""
    rss = pss = 0
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            rss += int(line.split()[1]) if line.startswith("Rss:") else 0
            pss += int(line.split()[1]) if line.startswith("Pss:") else 0
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has ended
        return rss, pss
    below = [memory(int(child)) for child in children]
    return rss + sum(one for one, _ in below), pss + sum(one for _, one in below)


class Stage:
    """Tells the parent what begins, and how long it took."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        print(self.name, flush=True)
        self.started = perf_counter()

    def __exit__(self, *_: object) -> None:
        print(self.name, perf_counter() - self.started, flush=True)


def ours(data: Path, scratch: Path, who: str) -> None:
    """What a run does before and between its steps."""
    from manyheads.config import DataConfig, RunConfig
    from manyheads.data.sources import read_splits

    run, stages = RunConfig(data=DataConfig(path=str(data), cache=str(scratch))), STAGES[who]
    with Stage("read"):
        splits = read_splits(run.data, run.seed)
    if len(stages) == 1:
        return
    with Stage("import"):
        from manyheads.data.datamodule import TextData
        from manyheads.data.prepare_tokens import prepare_tokens, tokenizer_rows
        from manyheads.data.token_cache import cached_tokenizer
        from manyheads.linear.fit import fit_linear
    if "learn" in stages:
        with Stage("learn"):
            cached_tokenizer(tokenizer_rows(splits), run.tokenizer, scratch)
    if "tokenise" in stages:
        with Stage("tokenise"):
            _, tokens = prepare_tokens(splits, run)
        batches = TextData(tokens, run.batch, run.seed)
        with Stage("plan"):
            batches.n_steps(1)
        with Stage("batches"):
            for _ in zip(range(BATCHES), batches.train_dataloader(), strict=False):
                pass
    if "linear" in stages:
        with Stage("linear"):
            fit_linear(splits.train, len(splits.labels), None, splits.validation)


def as_typed(data: Path, scratch: Path, who: str) -> None:
    """The verb `train`, dry or for a few steps."""
    from contextlib import redirect_stdout

    from manyheads.cli.main import main as manyheads

    typed = ["train", f"data.path={data}", f"data.cache={scratch / 'cache'}", f"output={scratch / 'run'}"]
    typed += ["hardware.accelerator=cpu", *TINY, *["dry=true"] * (who == "dry")]
    with Stage(who), redirect_stdout(sys.stderr):  # the parent reads what is printed
        code = manyheads(typed)
    sys.exit(code)


def with_datasets(data: Path, scratch: Path, who: str) -> None:
    """The same texts by the same tokenizer, as a script of `datasets` has them."""
    import datasets
    from tokenizers import Tokenizer

    datasets.disable_progress_bars()
    (file,) = scratch.glob("tokenizer-*.json")
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.enable_truncation(512)

    def tokenized(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        return {"ids": [one.ids for one in tokenizer.encode_batch_fast(batch["text"])]}

    kind = "csv" if data.suffix == ".csv" else "parquet"
    files = str(data) if kind == "csv" else [str(one) for one in sorted(data.iterdir())]
    with Stage("load"):
        rows = datasets.load_dataset(kind, data_files=files, cache_dir=str(scratch / "hf"), split="train")
    with Stage("map"):
        rows.map(tokenized, batched=True, num_proc=2, remove_columns=rows.column_names)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
