"""A small comparison on forty rows, and a record made by hand."""

import csv

import pytest

from manyheads.plugins.sweep.results_file import Comparison, RowResults, RunFigures

SMALL = (
    "model.n_layers=1", "model.n_heads=2", "model.d_model=16", "model.d_k=8", "model.d_v=8", "model.d_ff=32",
    "tokenizer.vocab_size=200", "data.max_length=16", "batch.rows=8", "trainer.max_steps=4", "seeds=2",
    "hardware=cpu", "hardware.precision=fp32",
)  # fmt: skip


@pytest.fixture
def words(tmp_path, monkeypatch):
    """Settings of a comparison of two placements on forty rows; its results file is `tmp_path / "results.json"`."""
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        rows = [(f"number {n} {('purrs', 'barks')[n % 2]}", ("cat", "dog")[n % 2]) for n in range(80)]
        csv.writer(file).writerows([("text", "label"), *rows])
    output = f"output={tmp_path / 'results.json'}"
    return [*SMALL, "vary=model.placement", "values=[pre,post]", f"sets=[{tmp_path / 'rows.csv'}]", output]


def figures(right, *, steps=10, seconds=2.0, stopped=False, diverged=False):
    n_right = right.count("1")
    return RunFigures(
        accuracy=n_right / len(right),
        loss=0.5,
        steps=steps,
        tokens=1000,
        seconds=seconds,
        tokens_per_s=1000 / seconds,
        stopped=stopped,
        diverged=diverged,
        right=right,
    )


def measured(name, row, runs, *, d_ff=64, difference=0.0, n_parameters=1000):
    width = {"d_model": 32, "d_ff": d_ff}
    return RowResults(name, row, "digest", {"model.score": row}, width, difference, n_parameters, 50_000.0, runs)


@pytest.fixture
def make_figures():
    return figures


@pytest.fixture
def record():
    """Two rows of one set with two seeds, ten validation rows each."""
    return Comparison(
        vary="model.score",
        equal="parameters",
        tolerance=0.01,
        seconds=30.0,
        sets=["cats"],
        rows=["dot", "cosine"],
        seeds=[0, 1],
        n_rows={"cats": 10},
        machine={"processor": "a chip", "cores": 2, "threads": 1, "device": "cpu", "torch": "2.13"},
        measured=[
            measured("cats", "dot", {"0": figures("1111100000"), "1": figures("1111110000", seconds=4.0)}),
            measured(
                "cats",
                "cosine",
                {"0": figures("1111111100"), "1": figures("1111111110")},
                d_ff=62,
                difference=-0.002,
                n_parameters=998,
            ),
        ],
    )
