"""Time and memory of `manyheads evaluate` on 400 thousand and 1 million rows of 210 bytes: judging.json.

    python benchmarks/judging.py [--rows 400000 1000000] [--kinds csv parquet] [--folder FOLDER]

Rows are made as those of scale.py, of four classes; the model is a tiny one, trained for a moment, and the linear model
of its run answers, too. Each evaluation is a process of its own; `most_mb` is its most resident memory. `kinds` are
those of the file of predictions.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from machine import machine
from scale import generated

RESULTS = Path(__file__).with_suffix(".json")
MODEL = ["model.n_layers=1", "model.d_model=32", "model.n_heads=2", "model.d_k=16", "model.d_v=16", "model.d_ff=64"]


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--rows", type=int, nargs="+", default=[400_000, 1_000_000])
    asked.add_argument("--kinds", nargs="+", default=["csv", "parquet"])
    asked.add_argument("--folder", type=Path)
    typed = asked.parse_args()
    folder = typed.folder or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    run = folder / "run"
    if not (run / "model").exists():
        some = generated(folder, 5_000, "csv")
        manyheads("train", f"data.path={some}", f"output={run}", "linear=false", "trainer.max_epochs=1", *MODEL)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results["machine"] = machine()
    for n_rows in typed.rows:
        data = generated(folder, n_rows, "csv")
        for kind in typed.kinds:
            output = folder / f"judged-{n_rows}-{kind}"
            subprocess.run(["rm", "-rf", str(output)], check=True)
            begun = perf_counter()
            peak = manyheads("evaluate", f"run={run}", f"data.path={data}", f"output={output}", f"predictions={kind}")
            results[f"{n_rows} {kind}"] = {"seconds": round(perf_counter() - begun, 1), "most_mb": round(peak, 1)}
            print(n_rows, kind, results[f"{n_rows} {kind}"], flush=True)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def manyheads(*words: str) -> float:
    """Its most resident memory, in MB."""
    child = subprocess.Popen([sys.executable, "-m", "manyheads", *words], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    assert status == 0, f"manyheads {' '.join(words)} ended with {status}"
    return used.ru_maxrss / 1024


if __name__ == "__main__":
    main()
