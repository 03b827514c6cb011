"""Speed beside peers: what is counted, what a token costs, what a second start measures, what the tables say."""

import json
import os
from dataclasses import asdict
from multiprocessing import Pipe
from operator import not_
from pathlib import Path

import peers
import pytest
import torch
from contestants import tables
from contestants.ring import Contestant, environment
from contestants.settings import SETTINGS, SHAPES, Shape, Text, Way, flops_per_token, mean_length_met, shape_of, text_of
from contestants.torch_encoder import TorchClassifier, padded
from contestants.turns import Turns
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from manyheads.data.batches import Planned, gather
from manyheads.data.tokens import Tokens


def counted(shape: Shape, n_texts: int, length: int) -> int:
    """Operations of torch's own encoder, forward and backward, one by one; the classifier's left out."""
    network = TorchClassifier(shape, Text("", length), n_classes=3)
    ids_BL, keep_BL = torch.zeros(n_texts, length, dtype=torch.int64), torch.ones(n_texts, length, dtype=torch.bool)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        network(ids_BL, keep_BL).sum().backward()
    return counter.get_total_flops() - 3 * 2 * n_texts * shape.d_model * 3


def test_what_a_token_costs_is_what_torch_counts():
    shape = Shape(d_model=16, n_layers=3, n_heads=2, d_ff=24)
    assert counted(shape, n_texts=2, length=7) == flops_per_token(shape, 7) * 2 * 7
    lengths = [3, 9, 4]
    total = sum(counted(shape, n_texts=1, length=length) for length in lengths)
    assert total == pytest.approx(flops_per_token(shape, mean_length_met(lengths)) * sum(lengths))


def test_every_setting_has_a_text_a_shape_and_both_sides():
    for setting, names in SETTINGS.items():
        assert shape_of(setting) in SHAPES.values()
        assert text_of(setting).max_length in (128, 256, 512)
        assert set("acef") <= set(names)


def test_a_turn_counts_whole_steps_after_the_first():
    driver, own = Pipe()
    for seconds in (1e-9, 1e-9, 1e-9):
        driver.send(seconds)
    turns = Turns(own)
    for tokens in (1000, 10, 20, 30, 40):
        turns.step(tokens, 2 * tokens, 3)
    for counts in ((30, 60, 6, 2), (70, 140, 6, 2)):
        said = driver.recv()
        assert tuple(said[name] for name in ("tokens", "cells", "rows", "steps")) == counts
        assert 0 <= said["seconds"] < 1


def test_a_contestant_that_fails_gets_no_more_turns(tmp_path, capfd):
    with Contestant("a", "short-256", tmp_path, part=not_) as contestant:  # which takes other words: a TypeError
        contestant.warm_up()
        assert contestant.turn() is None
    assert contestant.failed
    assert "contestant a has failed" in capfd.readouterr().out


def test_rows_side_by_side_are_those_of_the_batch():
    tokens = Tokens(torch.arange(1, 10, dtype=torch.int32), torch.tensor([0, 4, 5, 9]), None, torch.tensor([0, 1, 0]))
    ids_BL, keep_BL = padded(gather(tokens, Planned(torch.tensor([1, 2]), 1.0)))
    assert ids_BL.tolist() == [[5, 0, 0, 0], [6, 7, 8, 9]]
    assert keep_BL.tolist() == [[True, False, False, False], [True] * 4]


class Still:
    """A contestant that is never slower and never faster."""

    threads = 2
    turns = 0

    def __init__(self, name: str, setting: str, folder: Path) -> None:
        self.name = name

    def warm_up(self) -> None: ...

    def turn(self) -> dict:
        Still.turns += 1
        if self.name == "peak":
            return {"fp32": 0.1, "bf16": 0.4}
        tokens = {"a": 100, "c": 200, "e": 500, "f": 400, "g": 300}[self.name] * 2
        return {"tokens": tokens, "cells": 2 * tokens, "rows": 9, "steps": 3, "seconds": 2.0, "peak_memory_mib": 1500}

    def __enter__(self) -> "Still":
        return self

    def __exit__(self, *error: object) -> None: ...


SEARCHED = [
    {"tokens_per_s": speed, **asdict(Way(rows=rows, by_length=True, bf16=True, attention=kind))}
    for speed, rows, kind in ((7000, 64, "eager"), (6500, 128, "sdpa"), (6000, 32, "sdpa"))
]


@pytest.fixture
def results(tmp_path, monkeypatch):
    """peers.json of contestants whose speeds are known."""
    monkeypatch.setattr(peers, "find_spec", lambda name: name)
    monkeypatch.setattr(peers, "version", lambda name: "1.0")
    monkeypatch.setenv("MANYHEADS_DATA", str(tmp_path))
    monkeypatch.setattr(peers, "RESULTS", tmp_path / "peers.json")
    monkeypatch.setattr(peers, "Contestant", Still)
    monkeypatch.setattr(peers, "searched", lambda setting, folder, seconds: SEARCHED)
    monkeypatch.setattr("manyheads.inference.precision.cpu_multiplies_bf16", lambda: True)  # the peak of these figures
    monkeypatch.setattr("contestants.texts.prepare", lambda text, data, folder: [10, 30])
    Still.turns = 0
    return tmp_path / "peers.json"


def test_a_second_start_measures_what_is_missing(results):
    of_a_round = len("acefg") + 1
    peers.measure(["short-128"], again=False)
    assert Still.turns == peers.ROUNDS * of_a_round
    kept = json.loads(results.read_text())
    del kept["settings"]["short-128"]["rounds"][2:]
    results.write_text(json.dumps(kept))
    peers.measure(["short-128"], again=False)
    assert Still.turns == (peers.ROUNDS + 3) * of_a_round
    peers.measure(["short-128"], again=True)
    assert Still.turns == (2 * peers.ROUNDS + 3) * of_a_round
    assert len(json.loads(results.read_text())["settings"]["short-128"]["rounds"]) == peers.ROUNDS


def test_figures_of_another_protocol_are_neither_shown_nor_kept(results):
    peers.measure(["short-128"], again=False)
    kept = json.loads(results.read_text())
    kept["settings"]["short-128"]["protocol"] -= 1
    results.write_text(json.dumps(kept))
    assert list(tables.speed_tables(kept)) == ["overview"]
    peers.measure(["short-128"], again=False)
    assert Still.turns == 2 * peers.ROUNDS * (len("acefg") + 1)


def test_the_time_of_all_settings_is_bounded(results, monkeypatch):
    """Where it is up, a few rounds are enough."""
    monkeypatch.setattr(peers, "MINUTES", 0.0)
    peers.measure(["short-128"], again=False)
    assert len(json.loads(results.read_text())["settings"]["short-128"]["rounds"]) == peers.LEAST_ROUNDS


def test_the_tables_say_what_was_measured(results, tmp_path):
    peers.measure(["short-128"], again=False)
    made = tables.speed_tables(json.loads(results.read_text()))
    assert made["overview"].splitlines()[2] == (
        "| short-128 | 400 (400-400) | 4.00 (4.00-4.00) | 2.00 (2.00-2.00) | 0% (0%-0%) | 0.800 (0.800-0.800) |"
    )
    assert "| (c) Hugging Face Trainer, best settings | 200 (200-200) | 10 | 2.00 (2.00-2.00)" in made["short-128"]
    assert "| 50% |" in made["short-128"]
    assert made["short-128"].endswith(
        "(c) is the fastest of 3 settings, 32 to 128 rows and eager and sdpa attention: 64 rows, eager, bf16, "
        "grouped by length: 7,000 real tokens/s in a trial of seconds; "
        "then 128 rows, sdpa, bf16, grouped by length: 6,500, 32 rows, sdpa, bf16, grouped by length: 6,000."
    )
    document = tmp_path / "performance.md"
    document.write_text(
        "Before\n<!-- table: short-128 -->\nold\n<!-- end -->\n<!-- table: accuracy -->\nkept\n<!-- end -->\n"
    )
    assert tables.fill_document(document, made) == ["short-128"]
    assert document.read_text() == (
        f"Before\n<!-- table: short-128 -->\n{made['short-128']}\n<!-- end -->\n"
        "<!-- table: accuracy -->\nkept\n<!-- end -->\n"
    )


def test_the_document_holds_the_overview_of_the_file():
    made = tables.speed_tables(json.loads(peers.RESULTS.read_text()))
    assert f"<!-- table: overview -->\n{made['overview']}\n<!-- end -->" in peers.DOCUMENT.read_text()


def test_ratios_are_taken_within_a_round():
    """A machine that halves its speed between rounds changes no ratio."""
    rounds = [{"f": {"tokens": 40, "seconds": s}, "a": {"tokens": 10, "seconds": s}} for s in (1, 2, 4)]
    assert tables.ratio(rounds, "f", "a") == "4.00 (4.00-4.00)"
    assert tables.speeds(rounds, "f") == "20 (10-40)"


@pytest.mark.parametrize(
    ("words", "said"),
    [(["short-1"], "short-1 is not a setting: choose from short-256, "), (["again", "no"], "no is not a setting")],
)
def test_a_wrong_setting_is_one_sentence(results, monkeypatch, words, said):
    monkeypatch.setattr("sys.argv", ["peers.py", *words])
    with pytest.raises(SystemExit) as ended:
        peers.main()
    assert str(ended.value).startswith(said)


def test_variables_are_those_of_a_contestant_alone(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    before = dict(os.environ)
    with environment({"OMP_NUM_THREADS": None, "GOMP_SPINCOUNT": "9"}):
        assert "OMP_NUM_THREADS" not in os.environ
        assert os.environ["GOMP_SPINCOUNT"] == "9"
    assert dict(os.environ) == before
