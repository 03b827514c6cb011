"""The same seed gives the same numbers, whatever else differs; and no two draws share a seed by accident.

There are no loader workers, so none of their number matters: batches are gathered in the process that trains.
Weights alone, one process: `tests/core/test_runs.py`; models and texts in any batch:
`tests/core/inference/test_classifier.py`.
"""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from manyheads.training.state import seed_rank

WORDS = ["data.path=rows.csv", "debug=fast", "hardware=cpu", "model.dropout=0.1", "trainer.max_epochs=2",
         "batch.rows=8", "seed=5"]  # fmt: skip
SAME = ("model/model.safetensors", "model/config.json", "model/labels.json", "model/tokenizer.json", "model/README.md",
        "metrics.csv")  # fmt: skip
MULTIPLIER = 1_000_003  # of plan_epoch: the seed of an epoch's order is seed * MULTIPLIER + epoch


def run(folder: Path, *words: str, **environment: str) -> dict[str, bytes]:
    """Train, evaluate and predict in processes of their own; the bytes of everything that holds a number."""
    return train(folder, *words, **environment) | judge(folder, **environment)


def train(folder: Path, *words: str, **environment: str) -> dict[str, bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "rows.csv").open("w", newline="") as file:
        rows = [(f"number {n} {('purrs', 'barks')[n % 2]} {'so ' * (n % 5)}", ("cat", "dog")[n % 2]) for n in range(40)]
        csv.writer(file).writerows([("text", "label"), *rows])
    call(folder, ["train", *WORDS, "output=run", *words], environment)
    return {name: (folder / "run" / name).read_bytes() for name in SAME}


def judge(folder: Path, **environment: str) -> dict[str, bytes]:
    call(folder, ["evaluate", "run=run"], environment)
    call(folder, ["predict", "run=run", "input=rows.csv", "output=answers.jsonl"], environment)
    judged = folder / "run" / "evaluate" / "rows-test"
    files = (folder / "answers.jsonl", judged / "metrics.json", judged / "predictions.csv")
    return {path.name: path.read_bytes() for path in files}


def call(folder: Path, words: list[str], environment: dict[str, str]) -> None:
    variables = os.environ | {"MANYHEADS_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"} | environment
    command = [sys.executable, "-W", "ignore", "-m", "manyheads", *words]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def first(tmp_path_factory) -> dict[str, bytes]:
    return run(tmp_path_factory.mktemp("first"), PYTHONHASHSEED="0")


OTHERS = {
    "other hashes, another folder": ([], {"PYTHONHASHSEED": "12345"}),
    "another language and clock": ([], {"LC_ALL": "C", "TZ": "Asia/Kathmandu", "PYTHONHASHSEED": "1"}),
    "other saves and figures": (["checkpoint.every=1", "checkpoint.keep=5", "hardware.timeout=99"], {}),
}


@pytest.mark.slow
def test_other_hashes_in_another_folder_train_the_same_bits(tmp_path):
    one = train(tmp_path / "one", PYTHONHASHSEED="0")
    other = train(tmp_path / "elsewhere" / "deep", PYTHONHASHSEED="12345")
    assert {name: content == one[name] for name, content in other.items()} == dict.fromkeys(one, True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", OTHERS)
def test_the_same_seed_gives_the_same_bits(kind, first, tmp_path):
    words, environment = OTHERS[kind]
    other = run(tmp_path / "elsewhere" / "deep", *words, **environment)
    assert {name: content == first[name] for name, content in other.items()} == dict.fromkeys(first, True)


@pytest.mark.slow
def test_a_warm_cache_changes_nothing(first, tmp_path):
    run(tmp_path)
    for path in (tmp_path / "answers.jsonl", tmp_path / "run"):
        path.rename(path.with_name(f"old-{path.name}"))
    assert run(tmp_path) == first


@pytest.mark.slow
def test_another_seed_gives_others(first, tmp_path):
    other = run(tmp_path, "seed=6")
    assert {name for name in first if first[name] != other[name]} >= {
        SAME[0],
        "metrics.csv",
        "answers.jsonl",
    }


def test_batches_are_gathered_in_the_process_that_trains():
    source = Path(__file__).parents[2] / "src" / "manyheads"
    assert not [file for file in source.rglob("*.py") if "num_workers" in file.read_text(encoding="utf-8")]


def test_orders_of_epochs_share_no_seed_among_neighbouring_seeds():
    """torch's generator on the CPU takes 32 bits of a seed. Two seeds at most 4294 apart meet in no epoch below 45,589.

    Seeds that are further apart may, by accident: two runs would then draw one order of rows, and differ in all else.
    """
    assert torch.equal(*(torch.randperm(9, generator=torch.Generator().manual_seed(one)) for one in (7, 7 + 2**32)))
    nearest = min(min(gap, 2**32 - gap) for gap in (MULTIPLIER * apart % 2**32 for apart in range(1, 4295)))
    assert nearest >= 45_589
    met = MULTIPLIER * 4295 % 2**32
    assert met == 45_589, "the first that do"


@given(st.integers(0, 4294), st.integers(0, 4294), st.integers(0, 45_588), st.integers(0, 45_588))
def test_no_two_epochs_have_one_seed(seed: int, other: int, epoch: int, later: int) -> None:
    same = (seed, epoch) == (other, later)
    assert ((MULTIPLIER * seed + epoch - MULTIPLIER * other - later) % 2**32 == 0) == same


def test_no_two_ranks_draw_the_same():
    states = set()
    with torch.random.fork_rng(devices=[]):
        for seed in (0, 1, 2**32 - 1):
            for rank in range(16):
                for step in (0, 1, 1000):
                    seed_rank(seed, rank, step)
                    states.add(torch.get_rng_state().numpy().tobytes())
    assert len(states) == 3 * 16 * 3
