"""Whether the code here is slower than that of another commit: ratios of seconds, here by there, in against.json.

    python benchmarks/against.py COMMIT [ROUNDS]

Each command is a process of its own. The two sides take turns, and which goes first alternates; nothing else should
run. `training` is 40 steps of the demo data by model=tiny, `prediction` answers 4,000 short texts, `first step` is a
training of one step, and `search` is a `tune` of eight runs of one layer, four steps each: the seconds are those a user
waits, imports included.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from machine import machine

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).with_suffix(".json")
SHORT = ["hardware=cpu", "trainer.limit_val_batches=0", "test=false", "linear=false"]
COMMANDS = {
    "--help": ["--help"],
    "train --help": ["train", "--help"],
    "a mistake": ["train", "model.n_haeds=4"],
    "first step": ["train", *SHORT, "trainer.max_steps=1", "output=first-{round}"],
    "training": ["train", *SHORT, "trainer.max_steps=40", "output=training-{round}"],
    "search": [
        *("tune", "hardware=cpu", "trainer.max_steps=4", "data.rows=200", "output=search-{round}"),
        *("model.n_layers=1", "model.d_model=16", "model.d_ff=16", "model.n_heads=1", "tokenizer.vocab_size=64"),
        "optim.lr=1e-4,2e-4,5e-4,1e-3,2e-3,5e-3,1e-2,2e-2",
    ],
    "prediction": ["predict", "run=run", "input=texts.txt", "output=answers-{round}.jsonl", "hardware=cpu"],
}


def seconds(tree: Path, home: Path, words: list[str], allowed: tuple[int, ...] = (0,)) -> float:
    """Of `manyheads words` by the code in `tree`."""
    variables = os.environ | {"PYTHONPATH": str(tree / "src"), "MANYHEADS_CACHE": str(home / "cache")}
    began = perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "manyheads", *words], cwd=home, env=variables, capture_output=True, text=True
    )
    taken = perf_counter() - began
    if done.returncode not in allowed:
        sys.exit(f"{' '.join(words)} ended with {done.returncode} in {tree}:\n{done.stderr[-2000:]}")
    return taken


def main() -> None:
    commit, n_rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 7
    taken: dict[str, dict[str, list[float]]] = {name: {"there": [], "here": []} for name in COMMANDS}
    with tempfile.TemporaryDirectory() as temporary:
        other = Path(temporary) / "other"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", other, commit], cwd=ROOT, check=True)
        try:
            sides = {"there": other, "here": ROOT}
            homes = {side: Path(temporary) / side for side in sides}
            for side, home in homes.items():
                home.mkdir()
                lines = (f"a short text about matter {at}" for at in range(4000))
                (home / "texts.txt").write_text("\n".join(lines) + "\n")
                seconds(sides[side], home, ["train", *SHORT, "trainer.max_steps=2", "output=run"])  # and the cache
            for at in range(n_rounds):
                for name, words in COMMANDS.items():
                    for side in ("there", "here") if at % 2 else ("here", "there"):
                        typed = [word.format(round=at) for word in words]
                        allowed = (2,) if name == "a mistake" else (0,)
                        taken[name][side].append(seconds(sides[side], homes[side], typed, allowed))
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", other], cwd=ROOT, check=True)
    found = {
        name: {
            "there": round(statistics.median(of["there"]), 3),
            "here": round(statistics.median(of["here"]), 3),
            "ratio": round(statistics.median(b / a for a, b in zip(of["there"], of["here"], strict=True)), 3),
        }
        for name, of in taken.items()
    }
    RESULTS.write_text(
        json.dumps({"machine": machine(), "commit": commit, "rounds": n_rounds, **found}, indent=1) + "\n"
    )
    for name, of in found.items():
        print(f"{name:<14} {of['there']:>8.3f} s there {of['here']:>8.3f} s here, ratio {of['ratio']:.3f}")


if __name__ == "__main__":
    main()
