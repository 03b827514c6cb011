"""Cross-validation: what is written of all rows equals what scikit-learn makes of the file; a kill changes no bit."""

import csv
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy import stats
from sklearn import metrics

from manyheads.cli import main as cli
from manyheads.cli.compose import compose
from manyheads.distributed import faults
from manyheads.evaluation.folds import over_folds
from manyheads.evaluation.intervals import fold_interval, seed_interval, share_interval
from manyheads.runs.config_file import save_run
from manyheads.runs.summary import Interval

FAST = ["debug=fast", "hardware=cpu", "data.rows=0", "trainer.max_epochs=2", "model.d_model=16", "model.d_ff=16"]
WORDS = {"cat": ["purrs", "meows", "sleeps"], "dog": ["barks", "digs", "sleeps"], "cow": ["moos", "chews", "sleeps"]}


def write(path: Path, *, multi: bool = False, n: int = 60) -> None:
    draw, names = random.Random(0), [*WORDS]
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["text", "labels" if multi else "label", "author"])
        for at in range(n):
            of = draw.sample(names, draw.randint(0, 2)) if multi else [names[at % 3]]
            words = [draw.choice(WORDS[name]) for name in of] or ["nothing"]
            table.writerow([f"it {' and '.join(words)} {at}", "|".join(of), f"author {at % 12}"])


def table_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return [*csv.DictReader(file)]


def figures_of(folder: Path) -> dict:
    return json.loads((folder / "metrics.json").read_text())


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    for name in [name for name in os.environ if name.startswith(("SLURM_", "RANK", "WORLD_SIZE"))]:
        monkeypatch.delenv(name)
    return tmp_path


def words(place: Path, name: str, *more: str) -> list[str]:
    return ["train", f"data.path={place}/rows.csv", f"output={place}/{name}", "data.folds=3", *FAST, *more]


def test_figures_are_those_of_the_file(place, capsys):
    write(place / "rows.csv")
    assert cli.main(words(place, "cv", "data.group=author", "refit=true")) == 0
    said = capsys.readouterr().out
    rows, found = table_of(place / "cv/predictions.csv"), figures_of(place / "cv")
    assert [row["text"] for row in rows] == [row["text"] for row in table_of(place / "rows.csv")]
    labels, answers = ([row[name] for row in rows] for name in ("label", "prediction"))
    assert found["accuracy"]["value"] == pytest.approx(metrics.accuracy_score(labels, answers))
    assert found["macro_f1"]["value"] == pytest.approx(metrics.f1_score(labels, answers, average="macro"))
    probabilities = np.array([[float(row[f"p_{name}"]) for name in sorted(WORDS)] for row in rows])
    probabilities /= probabilities.sum(1, keepdims=True)  # of six decimals
    assert found["loss"]["value"] == pytest.approx(metrics.log_loss(labels, probabilities), abs=1e-4)

    folds = [json.loads((place / f"cv/fold-{fold}/summary.json").read_text()) for fold in (1, 2, 3)]
    assert [one["rows"]["test"] for one in folds] == [of["rows"] for of in found["folds"]["each"]] == [20] * 3
    values = [one["test"]["accuracy"]["value"] for one in folds]
    assert np.mean(values) == pytest.approx(found["accuracy"]["value"])  # folds are of one size
    own = next(iter(found["folds"]["mean"].values()))["accuracy"]
    half = stats.t(2).ppf(0.975) * np.sqrt((1 / 3 + 1 / 2) * np.var(values, ddof=1))
    ends = [max(0, np.mean(values) - half), min(1, np.mean(values) + half)]
    assert [own["low"], own["high"]] == pytest.approx(ends)

    assert "Fold by fold" in said
    page = (place / "cv/report.html").read_text().partition("<h2>Fold by fold</h2>")[2].partition("</section>")[0]
    for value, low, high in ((own["value"], *ends), *(one["test"]["accuracy"].values() for one in folds)):
        assert f'{value:.3f}<br><span class="between">{low:.3f} to {high:.3f}' in page
    assert (place / "cv/all-rows/model/model.safetensors").is_file()
    assert not [*place.glob("cv/fold-*/model")]
    whole = json.loads((place / "cv/all-rows/summary.json").read_text())
    assert sum(whole["rows"].values()) == 60


def test_the_spread_of_folds_is_widened():
    values = [0.8, 0.85, 0.9, 0.75, 0.8]
    found = fold_interval(values, 0.25)
    usual = stats.t.interval(0.95, 4, loc=np.mean(values), scale=stats.sem(values))
    assert found.high - found.low == pytest.approx((usual[1] - usual[0]) * np.sqrt((1 / 5 + 1 / 4) * 5))
    assert fold_interval([0.99, 1.0, 0.9], 0.5).high == 1.0
    assert fold_interval([1.5, 1.9, 1.1], 0.5, limits=(0.0, np.inf)).high > 1.9
    assert fold_interval([0.1, 0.9, 0.1], 0.5, limits=(0.0, np.inf)).low == 0.0, "no loss is negative"
    low, high = stats.t.interval(0.95, 2, loc=0.1, scale=0.2 * np.sqrt(1 / 3 + 0.5))
    found = fold_interval([-0.1, 0.1, 0.3], 0.5, limits=(-np.inf, np.inf))
    assert (found.low, found.high) == pytest.approx((low, high)), "of a correlation, which may be negative"


@pytest.mark.parametrize(
    ("p", "n", "n_folds"), [(0.97, 60, 3), (0.98, 150, 5), (0.99, 150, 3), (0.8, 150, 3), (0.98, 200, 20)]
)
def test_the_mean_over_folds_holds_as_often_as_it_says(p, n, n_folds):
    """Also where all folds agree by chance, or are at the ceiling."""
    random, held = np.random.default_rng(0), []
    for right in random.binomial(n // n_folds, p, (1000, n_folds)):
        known = [share_interval(int(one), n // n_folds) for one in right]
        found = fold_interval(known, 1 / (n_folds - 1))
        assert found.value == pytest.approx(right.sum() / n)
        assert 0 <= found.low < found.high <= 1
        held.append(found.low <= p <= found.high)
    assert np.mean(held) >= 0.95
    alike = fold_interval([1.0] * n_folds, 1 / (n_folds - 1))
    assert alike.low < 0.9 < alike.high == 1.0, "of unknown rows, of which there may be few"


def test_runs_of_several_seeds_that_are_alike_are_as_sure_as_their_rows():
    one, other = share_interval(29, 30), share_interval(30, 30)
    assert seed_interval([other] * 3) == other, "their spread says nothing"
    rounded = share_interval(19, 20)  # of three of which the mean is another float
    assert seed_interval([rounded] * 3).low == rounded.low
    assert seed_interval([1.0, other]).low == share_interval(1, 1).low, "one of unknown rows"
    assert fold_interval([0.95] * 3, 0.5).low < 0.9
    found = seed_interval([one, other, other])
    low, _ = stats.t.interval(0.95, 2, loc=found.value, scale=stats.sem([one.value, 1, 1]))
    assert (found.low, found.high) == (pytest.approx(low), 1.0)
    low, high = stats.t.interval(0.95, 2, loc=0.04, scale=stats.sem([-0.02, 0.05, 0.09]))
    found = seed_interval([-0.02, 0.05, 0.09], limits=(-np.inf, np.inf))
    assert low < 0
    assert (found.low, found.high) == pytest.approx((low, high))


def test_rows_that_chose_an_epoch_were_learnt_from_only_where_they_were_carved_out():
    """With data.train_share=0.5 each fold learns from 10 of 20 rows; its 6 validation rows are a split of their own."""
    figures = [{"accuracy": Interval(value, value, value)} for value in (0.5, 0.6, 0.7)]
    for train, validation, ratio in ((10, 6, 1.0), (16, 4, 0.5), (20, 20, 0.5)):
        rows = {"train": train, "validation": validation, "test": 10}
        summaries = [SimpleNamespace(rows=rows, test=one, members={"test": {"network": one}}) for one in figures]
        found = over_folds(summaries, ["network"], multi=False).content["mean"]["network"]["accuracy"]
        half = stats.t(2).ppf(0.975) * np.sqrt(1 / 3 + ratio) * 0.1
        assert (found["low"], found["high"]) == pytest.approx((0.6 - half, min(1.0, 0.6 + half)))


def test_a_brier_score_has_no_end_at_one():
    """That of many labels is a sum over them."""
    figures = [{"accuracy": share_interval(5, 10), "brier": Interval(value, 1.1, 1.9)} for value in (1.4, 1.5, 1.6)]
    summaries = [
        SimpleNamespace(rows={"train": 16, "validation": 4, "test": 10}, test=one, members={"test": {"network": one}})
        for one in figures
    ]
    found = over_folds(summaries, ["network"], multi=True).content["mean"]["network"]
    half = stats.t(2).ppf(0.975) * np.sqrt(1 / 3 + 1 / 2) * 0.1
    assert (found["brier"]["low"], found["brier"]["high"]) == pytest.approx((1.5 - half, 1.5 + half))


def test_labels_that_each_fold_gives_are_kept(place):
    write(place / "rows.csv", multi=True)
    assert cli.main(words(place, "cv", "predictions=parquet")) == 0
    import pyarrow.parquet as pq

    rows, found = (
        pq.read_table(place / "cv/predictions.parquet").to_pylist(),
        figures_of(place / "cv"),
    )
    marks, given = (
        np.array([[name in row[key] for name in WORDS] for row in rows]) for key in ("labels", "prediction")
    )
    assert found["micro_f1"]["value"] == pytest.approx(metrics.f1_score(marks, given, average="micro"))
    right = [json.loads((place / f"cv/fold-{fold}/summary.json").read_text()) for fold in (1, 2, 3)]
    for name in ("accuracy", "loss"):  # of the very probabilities that the models of the folds gave
        of_folds = sum(one["test"][name]["value"] * one["rows"]["test"] for one in right) / 60
        assert found[name]["value"] == pytest.approx(of_folds), name
    likely = np.array([[row[f"p_{name}"] for name in WORDS] for row in rows])
    np.testing.assert_allclose(((likely - marks) ** 2).sum(1).mean(), found["brier"]["value"], atol=1e-5)


@pytest.mark.slow
def test_a_kill_changes_no_bit(place):
    write(place / "rows.csv")

    def run(name: str, fault: str = "") -> int:
        env = {**os.environ, "OMP_NUM_THREADS": "1"} | ({faults.VARIABLE: fault} if fault else {})
        command = [sys.executable, "-m", "manyheads", *words(place, name, "resume=auto")]
        return subprocess.run(command, env=env, check=False, capture_output=True).returncode

    assert run("whole") == 0
    assert run("killed", "step:9:kill") == -9  # in the second fold
    assert (place / "killed/fold-1/summary.json").is_file()
    assert not (place / "killed/fold-2/summary.json").is_file()
    assert run("killed") == 0
    for name in ("predictions.csv", "metrics.json"):
        assert (place / "whole" / name).read_bytes() == (place / "killed" / name).read_bytes(), name
    for fold in (1, 2, 3):
        one, other = (load_file(place / name / f"fold-{fold}/model/model.safetensors") for name in ("whole", "killed"))
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[key], other[key]) for key in one)


def test_other_settings_do_not_go_on(place, capsys):
    write(place / "rows.csv")
    (place / "cv").mkdir()
    (place / "cv/notes.txt").write_text("mine")
    assert cli.main(words(place, "cv", "resume=auto")) == 2
    assert "holds no run with folds to resume" in capsys.readouterr().err
    (place / "cv/notes.txt").unlink()
    save_run(compose("train", words(place, "cv")[1:]), place / "cv/config.yaml")
    assert cli.main(words(place, "cv", "resume=auto", "data.folds=4")) == 2
    assert f"data.folds=4, but the run in {place}/cv has data.folds=3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["refit=true"], "refit=true does nothing without folds: add data.folds=5, or remove it"),
        (["data.fold=1"], "data.fold=1 does nothing without folds: add data.folds=5, or remove it"),
    ],
)
def test_what_folds_do_not_do_is_said(typed, said, capsys):
    assert cli.main(["train", *typed]) == 2
    assert capsys.readouterr().err == f"{said}\n"
