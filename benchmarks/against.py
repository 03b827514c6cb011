"""Whether the code here is slower than that of another commit: ratios, here by there, in against.json.

    python benchmarks/against.py COMMIT [ROUNDS]
    MANYHEADS_DATA=<folder of NAME/train.csv> python benchmarks/against.py COMMIT steps [ROUNDS] [SETTING ...]

Each command is a process of its own. The two sides take turns, and which goes first alternates; nothing else should
run. `training` is 40 steps of the demo data by model=tiny, `prediction` answers 4,000 short texts, `first step` is a
training of one step, and `search` is a `tune` of eight runs of one layer, four steps each: the seconds are those a user
waits, imports included.

`steps` compares real tokens/s of training instead, as peers.py measures them in its SETTINGs: contestant (f), which is
`manyheads train` without its start-up, by the code of either side, on the same token ids. It takes three minutes. The
figures of each processor are kept.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from contestants.elsewhere import take_part_in
from contestants.process import PEAK
from contestants.ring import Contestant
from contestants.settings import SETTINGS, flops_per_token, mean_length_met, shape_of, text_of
from contestants.tables import per_second
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


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """A folder with the code of `commit`."""
    with tempfile.TemporaryDirectory() as temporary:
        other = Path(temporary) / "other"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", other, commit], cwd=ROOT, check=True)
        try:
            yield other
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", other], cwd=ROOT, check=True)


def compare_commands(other: Path, n_rounds: int) -> dict[str, Any]:
    """Seconds of each command."""
    taken: dict[str, dict[str, list[float]]] = {name: {"there": [], "here": []} for name in COMMANDS}
    sides = {"there": other, "here": ROOT}
    with tempfile.TemporaryDirectory() as temporary:
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
    found = {}
    for name, of in taken.items():
        there, here = statistics.median(of["there"]), statistics.median(of["here"])
        ratio = statistics.median(b / a for a, b in zip(of["there"], of["here"], strict=True))
        found[name] = {"there": round(there, 3), "here": round(here, 3), "ratio": round(ratio, 3)}
        print(f"{name:<14} {there:>8.3f} s there {here:>8.3f} s here, ratio {ratio:.3f}", flush=True)
    return found


def compare_steps(other: Path, n_rounds: int, setting: str) -> dict[str, Any]:
    """Real tokens/s in one setting, and the share of the measured peak in bf16 that the code here reaches."""
    from contestants.texts import prepare

    data = os.environ.get("MANYHEADS_DATA")
    if not data:
        sys.exit("MANYHEADS_DATA is not set: it names the folder that holds NAME/train.csv")
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        folder = Path(scratch)
        lengths = prepare(text_of(setting), Path(data), folder)
        ring = {"there": ("f", other), "here": ("f", ROOT), PEAK: (PEAK, ROOT)}
        contestants = {
            side: stack.enter_context(Contestant(name, setting, folder, partial(take_part_in, tree)))
            for side, (name, tree) in ring.items()
        }
        for one in contestants.values():
            one.warm_up()
        rounds = []
        for at in range(n_rounds):
            order = list(contestants) if at % 2 else list(contestants)[::-1]
            rounds.append({side: contestants[side].turn() for side in order})
    if any(turn is None for turns in rounds for turn in turns.values()):
        sys.exit(f"{setting}: a side has failed")
    ratios = [per_second(turns["here"]) / per_second(turns["there"]) for turns in rounds]
    flops = flops_per_token(shape_of(setting), mean_length_met(lengths))
    shares = [per_second(turns["here"]) * flops / (turns[PEAK]["bf16"] * 1e12) for turns in rounds]
    found = {side: round(statistics.median(per_second(turns[side]) for turns in rounds)) for side in ("there", "here")}
    found |= {
        "ratio": [round(one, 3) for one in (statistics.median(ratios), min(ratios), max(ratios))],
        "share_of_peak": [round(one, 3) for one in (statistics.median(shares), min(shares), max(shares))],
    }
    print(f"{setting}: {json.dumps(found)}", flush=True)
    return found


def main() -> None:
    commit, *words = sys.argv[1:]
    n_rounds = next((int(word) for word in words if word.isdecimal()), 7)
    settings = [word for word in words if word in SETTINGS] or ["short-256", "long256-256"]
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    with checkout(commit) as other:
        if "steps" in words:
            found = {setting: compare_steps(other, n_rounds, setting) for setting in settings}
            of_processor = {"machine": machine(), "commit": commit, "rounds": n_rounds, **found}
            results.setdefault("steps", {})[of_processor["machine"]["processor"]] = of_processor
        else:
            found = compare_commands(other, n_rounds)
            kept = {"steps": results["steps"]} if "steps" in results else {}
            results = {"machine": machine(), "commit": commit, "rounds": n_rounds, **found, **kept}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
