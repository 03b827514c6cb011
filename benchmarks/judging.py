"""Time and memory of the verbs that judge, on 100 thousand, 1 million and 10 million rows of 210 bytes: judging.json.

    python benchmarks/judging.py [--rows 100000 1000000] [--verbs predict evaluate ...] [--folder FOLDER]

Rows are those of scale.py, of four classes, in a csv; `predict` reads them from a parquet file, is killed once, at
about half of the rows, and resumes. The network is a tiny one that reads 16 tokens, trained for a moment, so that
figures are those of the rows, not of the network. `compare` has a csv of answers next to the run, of which a tenth is
drawn; `folds` trains three folds for 50 steps each and judges all rows. Each verb is a process of its own; `most_mib`
is its most resident memory.
"""

import argparse
import csv
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from contestants.tables import fill_document, markdown
from machine import machine
from scale import CLASSES, generated

RESULTS = Path(__file__).with_suffix(".json")
DOCUMENT = Path(__file__).parents[1] / "docs" / "large-data.md"
MODEL = ["model.n_layers=1", "model.d_model=16", "model.n_heads=2", "model.d_k=8", "model.d_v=8", "model.d_ff=32"]
MODEL += ["linear=false", "data.max_length=16"]
VERBS = {
    "predict": ["predict", "run={run}", "input={folder}/rows-{n}.parquet"],
    "evaluate": ["evaluate", "run={run}", "data.path={data}", "predictions=parquet"],
    "slices": ["evaluate", "run={run}", "data.path={data}", "slices=[length,label,script,confidence,worst]"],
    "compare": ["compare", "runs=[{run},{folder}/answers-{n}.csv]", "data.path={data}"],
    "calibrate": ["calibrate", "run={run}", "data.path={data}"],
    "audit": ["audit", "data.path={data}"],
    "probe": ["probe", "run={run}", "data.path={data}"],
    "folds": ["train", "data.path={data}", "data.folds=3", "trainer.max_steps=50", *MODEL],
}
HALF = 0.5  # of the rows that predict was at when it was killed


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    asked.add_argument("--verbs", nargs="+", default=list(VERBS), choices=VERBS)
    asked.add_argument("--folder", type=Path)
    typed = asked.parse_args()
    folder = typed.folder or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "run" / "model").exists():
        some = generated(folder, 3_000, "csv")
        manyheads("train", f"data.path={some}", f"output={folder}/run", "trainer.max_epochs=1", *MODEL)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results["machine"] = machine()
    for n_rows in typed.rows:
        data = generated(folder, n_rows, "csv")
        for verb in typed.verbs:
            results[f"{verb}, {n_rows:,} rows"] = measured(verb, n_rows, data, folder)
            print(verb, n_rows, results[f"{verb}, {n_rows:,} rows"], flush=True)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    fill_document(DOCUMENT, {"judging": table(results)})


def table(results: dict[str, Any]) -> str:
    """A line for each verb, a column for each number of rows."""
    sizes = sorted(
        {one.split(", ")[1] for one in results if ", " in one}, key=lambda one: int(one[:-5].replace(",", ""))
    )
    lines = []
    for verb in VERBS:
        found = [results.get(f"{verb}, {size}") for size in sizes]
        lines.append([verb, *(f"{one['most_mib']:,.0f} MiB, {one['seconds']:,.0f} s" if one else "-" for one in found)])
    return markdown(["", *sizes], lines)


def measured(verb: str, n_rows: int, data: Path, folder: Path) -> dict[str, Any]:
    """Seconds, and MiB of memory; the files that it reads are made before."""
    if verb == "compare":
        answer(data, folder / f"answers-{n_rows}.csv")
    if verb == "predict":
        to_parquet(data, folder / f"rows-{n_rows}.parquet")
    output = folder / f"{verb}-{n_rows}{'.parquet' if verb == 'predict' else ''}"
    left = folder.glob(f".{output.name}.part*")  # by a predict that was stopped, which this one would resume
    subprocess.run(["rm", "-rf", str(output), *map(str, left)], check=True)
    words = [one.format(run=folder / "run", folder=folder, n=n_rows, data=data) for one in VERBS[verb]]
    begun = perf_counter()
    before = half(output, n_rows, *words, f"output={output}") if verb == "predict" else 0.0
    peak = manyheads(*words, f"output={output}")
    found = {"seconds": round(perf_counter() - begun, 1), "most_mib": round(max(peak, before), 1)}
    if verb == "predict":
        check(data, output)
    return found


def half(output: Path, n_rows: int, *words: str) -> float:
    """Start predict and kill it at about a half; its most resident memory until then, in MiB."""
    child = subprocess.Popen([sys.executable, "-m", "manyheads", *words], stdout=subprocess.DEVNULL)
    record = output.with_name(f".{output.name}.part.json")
    while child.poll() is None and not (record.exists() and json.loads(record.read_text())["rows"] >= HALF * n_rows):
        sleep(0.2)
    assert child.poll() is None, "predict ended before it was killed"
    child.send_signal(signal.SIGKILL)
    return os.wait4(child.pid, 0)[2].ru_maxrss / 1024


def check(data: Path, output: Path) -> None:
    """That the answers are one for each row, in their order."""
    import pyarrow.csv
    import pyarrow.parquet

    answers = pyarrow.parquet.ParquetFile(output).iter_batches(columns=["text"])
    theirs = (text for part in answers for text in part.column(0).to_pylist())
    rows = (text for part in pyarrow.csv.open_csv(data) for text in part.column(0).to_pylist())
    assert all(one == other for one, other in zip(rows, theirs, strict=True)), "answers are of other rows"


def answer(data: Path, path: Path) -> None:
    """The texts of a csv with their labels, a tenth of them drawn."""
    draw = random.Random(1)
    with data.open(newline="") as rows, path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["text", "prediction"])
        table.writerows(
            [row["text"], row["label"] if draw.random() < 0.9 else draw.choice(CLASSES)] for row in csv.DictReader(rows)
        )


def to_parquet(data: Path, path: Path) -> None:
    """A csv as one parquet file."""
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    with pyarrow.csv.open_csv(data) as rows, pyarrow.parquet.ParquetWriter(path, rows.schema) as file:
        for part in rows:
            file.write_batch(part, row_group_size=100_000)


def manyheads(*words: str) -> float:
    """Its most resident memory, in MiB."""
    child = subprocess.Popen([sys.executable, "-m", "manyheads", *words], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    assert status == 0, f"manyheads {' '.join(words)} ended with {status}"
    return used.ru_maxrss / 1024


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
