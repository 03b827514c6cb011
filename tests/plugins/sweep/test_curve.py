"""A learning curve: the same judged rows, a fit whose interval holds the truth, and going on after a kill."""

import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext

import numpy as np
import pytest

from manyheads.cli import main as cli
from manyheads.evaluation.intervals import share_interval
from manyheads.plugins.sweep import curve as module
from manyheads.plugins.sweep import scheduler
from manyheads.plugins.sweep.config import CurveConfig
from manyheads.plugins.sweep.curve_report import curve_tables, fit_line
from manyheads.plugins.sweep.outcomes import Outcome, RunState

FAST = [
    *("hardware=cpu", "seeds=1", "shares=[0.25,0.5,1]"),
    *("trainer.max_epochs=1", "model.n_layers=1", "model.d_model=16", "model.d_ff=16"),
]


@pytest.fixture
def words(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    for name in [name for name in os.environ if name.startswith(("SLURM_", "RANK", "WORLD_SIZE"))]:
        monkeypatch.delenv(name)
    draw = random.Random(0)
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        rows = [
            (f"it {draw.choice((['purrs', 'meows'], ['barks', 'digs'])[n % 2])} {n}", "ab"[n % 2]) for n in range(100)
        ]
        csv.writer(file).writerows([("text", "label"), *rows])
    return lambda name: ["curve", f"data.path={tmp_path}/rows.csv", f"output={tmp_path}/{name}", *FAST]


@pytest.fixture
def forked(trainings, monkeypatch):
    """Searches share the server of all tests: it imports torch once."""
    monkeypatch.setattr(scheduler, "Warm", lambda: nullcontext(trainings))


@pytest.mark.drawn
def test_a_curve_is_drawn_and_goes_on(words, forked, tmp_path, capsys):
    folder = tmp_path / "curve"
    assert cli.main(words("curve")) == 0
    said, found = capsys.readouterr().out, json.loads((folder / "curve.json").read_text())
    assert found["rows"] == [20, 40, 80]
    assert (found["split"], found["rows_judged"], found["metric"]) == ("test", 10, "accuracy")
    summaries = [json.loads((folder / f"trials/00{at}-seed-0/summary.json").read_text()) for at in (1, 2, 3)]
    for name in ("validation", "test"):
        assert len({one["digests"][name] for one in summaries}) == 1
    for model, line in found["models"].items():
        members = [one["members"]["test"].get(model, one["test"])["accuracy"]["value"] for one in summaries]
        assert [of["value"] for of in line["figures"]] == pytest.approx(members)
        assert model in said
        a, b, c = line["law"]
        assert line["twice"]["value"] == pytest.approx(1 - a - b * 160**-c)
    assert "Accuracy with more rows" in (folder / "report.html").read_text()
    (table,) = curve_tables(found)
    assert [row[0] for row in table.rows] == [20, 40, 80, "160, by the fit", "any number, by the fit"]
    assert [one.value for one in table.rows[-2][1:]] == [line["twice"]["value"] for line in found["models"].values()]
    for (n, value), (a, b, c) in ((table.lines[m][-1], line["law"]) for m, line in found["models"].items()):
        assert (n, value) == pytest.approx((160, 1 - a - b * n**-c))
    before = (folder / "curve.json").read_bytes()
    journal = (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "journal.jsonl").write_bytes(b"".join(journal[:-1]) + journal[-1][:20])  # torn by a kill
    assert cli.main(words("curve")) == 0
    assert (folder / "curve.json").read_bytes() == before
    assert "trial 3 of 3" in capsys.readouterr().err
    assert cli.main([*words("curve"), "shares=[0.5,1]"]) == 2
    assert "with shares=[0.25, 0.5, 1.0], not shares=[0.5, 1.0]" in capsys.readouterr().err


@pytest.mark.slow
def test_a_kill_changes_no_figure(words, tmp_path):
    assert cli.main(words("whole")) == 0
    command = [sys.executable, "-m", "manyheads", *words("killed")]
    search = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 300
    while not (tmp_path / "killed/trials/002-seed-0/config.yaml").is_file():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.05)
    search.send_signal(signal.SIGKILL)
    search.wait()
    assert not (tmp_path / "killed/curve.json").exists()
    while cli.main(words("killed")) and time.monotonic() < until:  # until the run that was left has saved
        time.sleep(1)
    whole, killed = ((tmp_path / name / "curve.json").read_bytes() for name in ("whole", "killed"))
    assert whole == killed


@pytest.mark.slow  # tests/plugins/sweep/tune/test_tune.py refuses other content of the same files
def test_other_test_rows_are_another_curve(words, forked, tmp_path, capsys):
    """Their figures are neither those of before, nor may runs of both be in one table: of a curve that is whole, or
    was stopped before its second run."""
    folder = tmp_path / "data"
    folder.mkdir()
    for split, n in (("train", 40), ("validation", 12), ("test", 12)):
        rows = "".join(f"it {('purrs', 'barks')[at % 2]} {split} {at},{'ab'[at % 2]}\n" for at in range(n))
        (folder / f"{split}.csv").write_text(f"text,label\n{rows}")
    typed, search = [*words("curve"), f"data.path={folder}", "shares=[0.5,1]"], tmp_path / "curve"
    assert cli.main(typed) == 0
    first = json.loads((search / "curve.json").read_text())["models"]["linear model"]["figures"]
    test = folder / "test.csv"
    test.write_text(test.read_text().replace(",a\n", ",c\n").replace(",b\n", ",a\n").replace(",c\n", ",b\n"))
    for is_whole in (True, False):
        if not is_whole:
            journal = search / "journal.jsonl"
            journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:2]))
            shutil.rmtree(search / "trials/002-seed-0")
        before = {path: path.read_bytes() for path in search.glob("*.*")}
        capsys.readouterr()
        assert cli.main(typed) == 2
        assert "holds other data (test): name another folder by output=FOLDER" in capsys.readouterr().err
        assert cli.main([*typed, "test=false"]) == 2
        assert {path: path.read_bytes() for path in search.glob("*.*")} == before
    assert cli.main([*typed, f"output={tmp_path}/other"]) == 0
    figures = json.loads((tmp_path / "other/curve.json").read_text())["models"]["linear model"]["figures"]
    assert [one["value"] for one in figures] == pytest.approx([1 - one["value"] for one in first])


@pytest.mark.parametrize(
    ("state", "remedy"), [("failed", "use other settings, and another folder"), ("broken", "repeat the command")]
)
def test_a_run_that_is_not_made_again_is_not_said_to_be(words, monkeypatch, capsys, state, remedy):
    class Ended:
        """A search whose runs all end so."""

        def __init__(self, config, journal, splits):
            self.journal = journal

        def run(self):
            for trial in self.journal.trials:
                self.journal.add(Outcome(*trial, RunState[state], why="training diverged at step 3"))

    monkeypatch.setattr(module, "Search", Ended)
    assert cli.main(words("curve")) == 2
    assert f": {remedy}" in capsys.readouterr().err


def test_all_runs_of_a_curve_begin_as_all_rows_decide(words, monkeypatch, model_folder, tmp_path):
    """80 rows are more than 4 x 5 of two classes, the 20 of the smallest share are not."""
    weights, runs = shutil.copytree(model_folder, tmp_path / "sentences"), []
    (weights / "model" / "modules.json").write_text("[]")
    monkeypatch.setattr(scheduler, "TrainingProcess", lambda run, *_: runs.append(run))
    monkeypatch.setattr(scheduler, "TrialRun", lambda *_: None)
    monkeypatch.setattr(scheduler, "Warm", nullcontext)
    shapes = [word for word in words("curve") if not word.startswith("model.")]
    assert cli.main([*shapes, f"init_from={weights}", "optim.few=5"]) == 2, "none of them came to a figure"
    assert [(run.data.train_share, run.optim.contrast) for run in runs] == [(0.25, 0), (0.5, 0), (1.0, 0)]


@pytest.mark.slow
def test_the_interval_holds_the_truth():
    """Of 100 curves of planted laws: what twice the rows bring, and the figures of all sizes."""
    draw, rows, held, held_sizes = np.random.default_rng(1), [100, 200, 500, 1000], 0, 0
    truth = [0.08 + 2.0 * n**-0.5 for n in (*rows, 2000)]
    for _ in range(100):
        figures = []
        for error in truth[:-1]:
            chance = draw.normal(0, 0.01, 3)
            figures.append([share_interval(int(draw.binomial(1000, 1 - error + one)), 1000) for one in chance])
        line = fit_line(rows, figures, falls=False)
        assert line.twice is not None
        held += line.twice.low <= 1 - truth[-1] <= line.twice.high
        held_sizes += sum(of.low <= 1 - error <= of.high for of, error in zip(line.figures, truth, strict=False))
    assert held >= 0.93 * 100
    assert held_sizes >= 0.93 * 400


def test_at_the_ceiling_a_mean_is_as_sure_as_its_rows():
    whole = share_interval(60, 60)
    (found, _) = fit_line([10, 20], [[whole], [whole]], falls=False).figures
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(whole.low, abs=0.005)


def test_two_sizes_have_no_fit_and_a_loss_is_an_error():
    figures = [[share_interval(n, 100)] for n in (40, 30)]
    assert fit_line([10, 20], figures, falls=True).law is None
    line = fit_line([10, 20, 40], [*figures, [share_interval(25, 100)]], falls=True)
    assert line.law is not None
    assert line.twice is not None
    assert line.twice.value == pytest.approx(line.law[0] + line.law[1] * 80 ** -line.law[2])
    assert 0 <= line.twice.value < 0.25


@pytest.mark.parametrize("shares", [[1.0], [0.5, 0.5], [1.0, 0.5]])
def test_shares_that_make_no_curve_are_refused(shares):
    with pytest.raises(ValueError, match="two shares or more, each larger than the one before"):
        CurveConfig(shares=shares)


def test_a_share_that_is_none_is_refused_with_the_default():
    with pytest.raises(
        ValueError, match=r"^shares=\[0\.0, 2\.0\] is out of range.*the default is \[0\.1, 0\.2, 0\.5, "
    ):
        CurveConfig(shares=[0.0, 2.0])


def test_a_limit_of_no_error_in_all_draws_is_no_certain_one():
    """Errors that fall faster and faster leave the power law no error, whatever is drawn."""
    figures = [[share_interval(round(20_000 * (1 - error)), 20_000)] for error in (0.7, 0.65, 0.58, 0.467)]
    line = fit_line([100, 200, 400, 800], figures, falls=False)
    assert line.limit is not None
    assert line.twice is not None
    assert (line.limit.value, line.limit.low, line.limit.high) == (1.0, line.twice.low, 1.0)
