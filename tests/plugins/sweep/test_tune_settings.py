"""What may be searched: the sentence of each mistake, and numbers drawn between two ends."""

import random
import re

import pytest
from scipy import stats

from manyheads import plugin
from manyheads.cli.compose import compose
from manyheads.cli.main import main
from manyheads.config.sentences import one_of
from manyheads.plugins.sweep.axes import make_axis
from manyheads.plugins.sweep.config import Method
from manyheads.plugins.sweep.tune import plan_settings
from tests.registry import SWEEPS

MISTAKES = [
    ("model.n_haeds=1,2", "model.n_haeds=1,2 is not a setting: did you mean model.n_heads?"),
    ("search={optim.ls:[1,2]}", "optim.ls is not a setting: did you mean optim.lr?"),
    (
        "optim.lr=low..high",
        "optim.lr=low..high has an end that optim.lr cannot have: optim.lr=low has the wrong type: it must be a "
        "number; the default is 0.001",
    ),
    (
        "model.score=a..b",
        "model.score=a..b is a range, but model.score is not a number: list its values, such as "
        "model.score=VALUE,VALUE",
    ),
    ("model.dropout=0.3..0.1", "model.dropout=0.3..0.1 ends where it begins or below: write model.dropout=0.1..0.3"),
    (
        f"trainer.max_steps=1..{10**20}",
        f"trainer.max_steps=1..{10**20} ends above 9,007,199,254,740,992, up to which "
        "whole numbers can be drawn: choose a lower end",
    ),
    (
        "model.dropout=log:0..0.1",
        "model.dropout=log:0..0.1 begins at 0, but factors have no zero: begin above it, or remove log:",
    ),
    (
        "optim.lr=0..1",
        "optim.lr=0..1 has an end that optim.lr cannot have: optim.lr=0.0 is out of range: it must be above 0.0; the "
        "default is 0.001",
    ),
    (
        "search={optim.lr:[]}",
        "search gives optim.lr 0 values: two at least can be searched, such as optim.lr=VALUE,VALUE",
    ),
    ("optim.lr=1e-3,1e-3", "optim.lr is given 0.001 twice: name each value once"),
    (
        "model.score=dot,dots",
        f"model.score=dots is not a choice: choose {one_of(plugin.names('score'))}",
    ),
    (
        "model.dropout=0,0.1 trials=3",
        "trials=3 are more than the 2 settings there are (2): remove trials, or search more values",
    ),
    (
        "model.dropout=0,0.1 method=grid trials=1",
        "trials=1 would cut short method=grid, which tries all 2 settings (2): remove trials, or use method=random",
    ),
    (
        "model.dropout=0..0.1 method=grid",
        "model.dropout=0..0.1 is a range, of which method=grid cannot try every number: list values, such as "
        "model.dropout=0,0.1, or use method=random",
    ),
    (
        "seed=1,2",
        "seed cannot be searched, as all runs share data, hardware and limits: seeds=5 runs each setting with five",
    ),
    (
        "data.rows=1,2",
        "data.rows cannot be searched, as all runs share data, hardware and limits: choose one of model, optim, batch "
        "or tokenizer",
    ),
    (
        "optim.lr=interval(1,2)",
        "optim.lr=interval(1,2) names no values one by one: list them, such as optim.lr=1,2,3, or give a range, such "
        "as optim.lr=1..3",
    ),
    ("optim.lr=1,2 optim.lr=3", "optim.lr is typed twice, with one value and with several: remove one of them"),
    ("optim.lr=1,2 optim.lr=3,4", "optim.lr=3,4: optim.lr is searched already: type all its values once"),
    ("optim.lr=1,2 trainer.max_time=00:00:01:00", "trainer.max_time=00:00:01:00 is decided elsewhere: set minutes"),
    (
        "optim.lr=1,2 jobs=2 hardware.devices=2",
        "jobs=2 with hardware.devices=2 would put several runs on the same devices: leave one of them at 1",
    ),
]


@pytest.mark.parametrize(("line", "sentence"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_is_one_sentence(line, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["tune", *line.split()]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"{sentence}\n")
    assert list(tmp_path.iterdir()) == []


@SWEEPS
def test_several_values_need_no_flag(capsys):
    assert main(["tune", "-m", "optim.lr=1,2"]) == 2
    said = "-m does nothing in tune, which runs one training after another itself: remove it\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("words", ["tune model.d_k=4,8", "curve", "ablate model.d_k=4,8"])
@pytest.mark.parametrize("output", ["file/found", "link/found"])
def test_an_output_that_cannot_be_written_is_refused_before_any_training(words, output, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    assert main([*words.split(), "data.path=rows.csv", f"output={output}"]) == 2  # no row is read
    said = f"output={output}\\S*: (file is a file|link is a link to nowhere, which does not exist): name another "
    assert re.match(said, capsys.readouterr().err)
    assert {one.name for one in tmp_path.iterdir()} == {"file", "link"}


def test_numbers_are_drawn_as_the_range_says():
    draw = random.Random(1)

    def drawn(name: str, values: str, n: int) -> list:
        axis = make_axis(name, values)
        return [axis.draw(draw) for _ in range(n)]

    rates = drawn("optim.lr", "log:1e-4..1e-1", 1000)
    assert stats.kstest(rates, stats.loguniform(1e-4, 1e-1).cdf).pvalue > 0.001
    shares = drawn("model.dropout", "0.1..0.5", 1000)
    assert stats.kstest(shares, stats.uniform(0.1, 0.4).cdf).pvalue > 0.001
    layers = drawn("model.n_layers", "1..4", 1000)
    assert stats.chisquare([layers.count(n) for n in (1, 2, 3, 4)]).pvalue > 0.001
    assert set(layers) == {1, 2, 3, 4}
    widths = drawn("model.d_ff", "log:1..8", 800)
    assert set(widths) == set(range(1, 9))
    assert widths.count(1) > 3 * widths.count(7)


def test_a_finite_space_is_drawn_without_repeats_and_auto_picks_the_grid():
    space = ["model.dropout=0,0.1,0.2", "model.n_layers=1..4"]
    grid = compose("tune", space)
    assert (grid.chosen, grid.n_trials) == (Method.grid, 12)
    drawn = compose("tune", [*space, "trials=5"])
    assert drawn.chosen is Method.random
    everything = compose("tune", [*space, "method=random", "trials=12"])
    key = lambda one: (one["model.dropout"], one["model.n_layers"])  # noqa: E731
    assert sorted(plan_settings(everything), key=key) == plan_settings(grid)
    assert plan_settings(drawn) == plan_settings(everything)[:5]


def test_one_typed_value_takes_a_setting_out_of_what_an_experiment_searches(tmp_path):
    (tmp_path / "experiment").mkdir()
    text = "# @package _global_\nsearch: {optim.lr: 'log:1e-4..1e-2', model.dropout: [0, 0.1]}\n"
    (tmp_path / "experiment" / "mine.yaml").write_text(text)
    here = {"config_dir": str(tmp_path)}
    whole = compose("tune", ["experiment=mine", "model.n_layers=1,2"], **here)
    assert whole.search == {"optim.lr": "log:1e-4..1e-2", "model.dropout": [0, 0.1], "model.n_layers": [1, 2]}
    less = compose("tune", ["experiment=mine", "optim.lr=1e-3"], **here)
    assert (less.search, less.optim.lr) == ({"model.dropout": [0, 0.1]}, 1e-3)


def test_a_trial_never_reads_the_test_split_and_all_seeds_share_the_carved_rows():
    config = compose("tune", ["optim.lr=1e-3,1e-2", "seed=4", "seeds=2"])
    first, second = (config.run({"optim.lr": 0.01}, seed, "x") for seed in (4, 5))
    assert (first.test, second.test, first.optim.lr) == (False, False, 0.01)
    assert (first.seed, second.seed) == (4, 5)
    assert (first.data.split_seed, second.data.split_seed) == (None, 4), "the first seed is that of the split already"


def test_lists_of_numbers_are_searched():
    assert [list(one) for one in make_axis("model.windows", [[], [2], [2, 0]]).values] == [[], [2], [2, 0]]
    with pytest.raises(ValueError, match=r"model\.windows"):
        make_axis("model.windows", [[], [-3]])
