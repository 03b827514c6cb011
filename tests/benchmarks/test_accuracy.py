"""The table of ways: rows are the same for all, figures agree with scipy and scikit-learn, a second start goes on."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import accuracy
import numpy as np
import pytest
from machine import machine
from scipy.stats import norm
from sklearn.metrics import f1_score
from ways import cheap, figures, judging, ours, pages, recipes, rows, store, work
from ways.recipes import Task

from manyheads.data.rows import Rows

NUMBERS = np.random.default_rng(0)


def test_packed_bits_come_back():
    bits = NUMBERS.random((3, 37)) < 0.3
    assert (figures.unpacked(figures.packed(bits), bits.shape) == bits).all()


def test_the_interval_of_one_seed_is_that_of_a_share():
    """Of many rows the bootstrap is the normal interval of a proportion."""
    right = NUMBERS.random((1, 4000)) < 0.8
    found, value = figures.accuracy(right), right.mean()
    half = norm.ppf(0.975) * np.sqrt(value * (1 - value) / right.size)
    assert (found.low, found.high) == pytest.approx((value - half, value + half), abs=0.002)
    assert found.value == pytest.approx(value)


def test_the_difference_is_paired():
    """Two ways that err on the same rows differ by what they differ in alone; apart, their intervals are far wider."""
    right = NUMBERS.random((1, 2000)) < 0.5
    better = right | (np.arange(2000) < 40)
    gain = figures.advantage(better, right)
    difference = better.astype(float) - right
    half = norm.ppf(0.975) * difference.std() / np.sqrt(2000)
    assert gain.value == pytest.approx(difference.mean())
    assert (gain.low, gain.high) == pytest.approx((gain.value - half, gain.value + half), abs=0.001)


def test_f1_of_labels_is_scikit_learns():
    truth, answers = NUMBERS.random((200, 4)) < 0.3, [NUMBERS.random((200, 4)) < 0.3 for _ in range(2)]
    found = figures.f1_of_labels(truth, answers)
    for kind in ("micro", "macro"):
        values = [f1_score(truth, one, average=kind) for one in answers]
        figure = found[f"{kind}_f1"]
        assert figure.value == pytest.approx(np.mean(values))
        assert figure.low < figure.value < figure.high


def test_answers_of_many_labels_are_judged_by_name():
    found = judging.of_labels(["a|b", "", "c"], ["b", "", "c|a"])
    assert found["labels"] == ["a", "b", "c"]
    assert figures.unpacked(found["answers"], (3, 3)).tolist() == [[0, 1, 0], [0, 0, 0], [1, 0, 1]]
    assert found["test"]["micro_f1"] == pytest.approx(2 * 2 / 6, abs=1e-5)


def test_a_label_has_the_threshold_that_is_best_for_it():
    chance = np.array([[0.9, 0.2], [0.7, 0.1], [0.6, 0.3], [0.1, 0.05]])
    truth = np.array([[True, True], [True, False], [False, True], [False, False]])
    high, low = cheap.thresholds(chance, truth)
    assert 0.6 < high <= 0.7
    assert 0.1 < low <= 0.2


def test_words_of_a_pair_are_told_by_their_side():
    terms = set(cheap.shared_and_lone("A dog runs", "a dog sits."))
    assert {"both a", "both a dog", "first runs", "second sits", "second sits .", "1 alone in first"} <= terms


def test_one_seed_of_everything_comes_first_and_imdb_last():
    planned = recipes.tasks(recipes.SETS, recipes.SIZES, recipes.WAYS, recipes.SEEDS)
    assert len(planned) == len(set(planned))
    assert [one.seed for one in planned] == sorted(one.seed for one in planned)
    first = [one for one in planned if one.seed == 0]
    of_imdb = [one.name == "imdb" for one in first]
    assert of_imdb == sorted(of_imdb)
    full = [recipes.BY_COST.index(one.way) for one in first if one.size == "full" and one.name != "imdb"]
    assert full == sorted(full)


def test_what_makes_no_sense_is_not_run():
    planned = {(one.name, one.way) for one in recipes.tasks(recipes.SETS, recipes.SIZES, recipes.WAYS, 3)}
    assert ("indonlu_smsa", "minilm") not in planned
    assert ("goemotions", "tfidf") not in planned
    assert ("trec6", "pairs") not in planned
    assert max(one.seed for one in recipes.tasks(["imdb"], ["full"], ["scratch"], 3)) == 1


@pytest.fixture
def data(tmp_path, monkeypatch) -> Path:
    """Published rows: 30 of one class, 5 of another, a repeat among them."""
    folder = tmp_path / "data" / "trec6"
    folder.mkdir(parents=True)
    train = [{"text": f"few words {n % 29}", "label": "A"} for n in range(30)]
    train += [{"text": f"other things {n}", "label": "B"} for n in range(5)]
    rows.write(folder / "train.csv", train)
    rows.write(folder / "test.csv", [{"text": f"words {n}", "label": "AB"[n % 2]} for n in range(6)])
    monkeypatch.setenv("MANYHEADS_DATA", str(folder.parent))
    return folder.parent


def test_rows_of_each_class_are_drawn_once_by_their_seed(data):
    published = rows.read(data / "trec6" / "train.csv")
    ten, others = rows.draw(published, 10, seed=0)
    assert [sum(row["label"] == name for row in ten) for name in "AB"] == [10, 5]
    assert len({row["text"] for row in ten}) == 15
    assert len(ten) + len(others) == 35
    assert {row["text"] for row in ten} <= {row["text"] for row in rows.draw(published, 20, seed=0)[0]}
    assert ten != rows.draw(published, 10, seed=1)[0]


def test_few_rows_lie_beside_the_texts_of_the_others(data, tmp_path):
    task = Task("trec6", "10", "tfidf", 0)
    folder = rows.data_of(task, data, tmp_path / "scratch")
    splits, everything = rows.splits_of(task, folder)
    assert (len(splits.train), len(splits.validation), len(everything)) == (12, 3, 15)
    assert splits.test is not None
    assert len(splits.test) == 6
    assert list(rows.read(folder / rows.UNLABELLED)[0]) == ["text"]
    assert rows.data_of(Task("trec6", "full", "tfidf", 0), data, tmp_path) == data / "trec6"


STAND_IN = """
import json, os, pathlib, sys, time
_, name, size, way, seed, home = sys.argv[1:]
home = pathlib.Path(home)
if name == "snips":
    sys.exit(3)
if name == "sst2":
    (home / "pid").write_text(str(os.getpid()))
    time.sleep(60)
found = {"failed": "ValueError: no rows"} if name == "sick" else {"test": {"accuracy": 0.5}}
(home / "result.json").write_text(json.dumps(found))
"""


def test_a_task_that_fails_does_not_stop_the_others(tmp_path):
    script, found = tmp_path / "script.py", {}
    script.write_text(STAND_IN)
    planned = [Task(name, "full", "scratch", 0) for name in ("snips", "sick", "sst2", "trec6")]
    work.run_all(planned, script, tmp_path, 2, 0.05, lambda task, one: found.update({task.name: one}))
    assert found["snips"] == {"failed": "it ended with 3"}
    assert found["sick"] == {"failed": "ValueError: no rows"}
    assert found["sst2"] == {"failed": "not done after 0.05 minutes"}
    where = {"threads": 1, "side_by_side": 2, **machine()}
    assert found["trec6"] == {"words": ["linear=true"], "test": {"accuracy": 0.5}, **where}
    assert not (tmp_path / "trec6-full-scratch-seed0").exists()
    assert (tmp_path / "snips-full-scratch-seed0").exists()


def test_a_child_ends_when_its_parent_is_killed(tmp_path):
    """Standard input closes, and the whole group of the child ends by SIGTERM."""
    code = "import threading, time, ways.work as w; threading.Thread(target=w.follow_parent).start(); time.sleep(60)"
    here = str(Path(accuracy.__file__).parent)
    child = subprocess.Popen([sys.executable, "-c", code], cwd=here, stdin=subprocess.PIPE, start_new_session=True)
    assert child.stdin
    child.stdin.close()
    assert child.wait(20) == -signal.SIGTERM


@pytest.mark.slow
def test_cheap_tasks_in_processes_of_their_own(data, tmp_path):
    found = {}
    planned = [Task("trec6", "full", "majority", 0), Task("snips", "full", "majority", 0)]
    script = Path(accuracy.__file__)
    work.run_all(planned, script, tmp_path / "homes", 2, 1, lambda task, one: found.update({task.name: one}))
    assert found["trec6"]["test"]["accuracy"] == 0.5
    assert figures.unpacked(found["trec6"]["right"], (6,)).tolist() == [True, False] * 3
    assert "snips" in found["snips"]["failed"]


def test_a_second_start_runs_what_is_missing_failed_or_of_another_recipe(tmp_path, monkeypatch):
    file, lock, task = tmp_path / "accuracy.json", tmp_path / "lock", Task("sst2", "full", "minilm", 0)
    for found, is_missing in (
        ({"failed": "no memory"}, True),
        ({"words": ["init_from={minilm}", "optim.lr=1"], "test": {}}, True),
        ({"words": recipes.words_of(task), "test": {}}, False),
    ):
        store.record(file, lock, task.title, found, {"versions": {}})
        held = json.loads(file.read_text())
        assert held == {"versions": {}, "measured": {task.title: found}}
        assert store.missing(task, held["measured"]) is is_missing
    assert store.missing(Task("sst2", "full", "minilm", 1), held["measured"])


def test_a_run_begun_by_another_recipe_is_forgotten(tmp_path):
    (tmp_path / "run").mkdir()
    work.same_recipe(tmp_path, ["a=1"])
    assert (tmp_path / "run").exists()
    work.same_recipe(tmp_path, ["a=2"])
    assert not (tmp_path / "run").exists()


def test_our_figures_come_from_the_command_line(data, tmp_path, monkeypatch):
    """A pretraining that ended in a start of its own counts; answers are read from the table of `evaluate`."""
    said, begun = [], []

    def command(words: list[str], log: Path) -> None:
        said.append(words)
        place = Path(next(word.partition("=")[2] for word in words if word.startswith("output=")))
        if words[0] == "train":
            figure = {"value": 0.75, "low": 0.5, "high": 1.0}
            summary = {
                "parameters": 9,
                "steps": 3,
                "precision": "bf16",
                "seconds": 20.0,
                "wall_seconds": 30.0,
                "linear": 0.25,
                "best": {"epoch": 1},
            }
            summary |= {"real_tokens_per_s": 1.0, "validation": {"accuracy": figure}}
            begun.append((place / "pretrain" / "summary.json").exists())
            for folder in (place, place / "pretrain"):
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "summary.json").write_text(json.dumps(summary))
        else:
            place.mkdir()
            rows.write(place / "predictions.csv", [{"label": "A", "prediction": name} for name in "AB"])

    monkeypatch.setattr(ours, "command", command)
    task = Task("trec6", "10", "pretrained", 2)
    found = ours.train_and_judge(task, data / "trec6", tmp_path / "one")
    assert found["wall_seconds"] == 50
    assert found["given"] == [("A", "A"), ("A", "B")]
    assert found["validation"] == {"accuracy": 0.75}
    ours.train_and_judge(Task("trec6", "100", "pretrained", 0), data / "trec6", tmp_path / "two")
    assert begun == [False, True], "the pretraining of the first serves the second: its texts are the same"
    train, evaluate = said[:2]
    assert {"test=false", "resume=auto", "seed=2", "data.split_seed=0", "data.validation_share=0.2"} <= set(train)
    assert f"pretrain.also=[{data / 'trec6' / rows.UNLABELLED}]" in train
    assert evaluate[0] == "evaluate"
    assert "split=test" in evaluate


def measured_of(rights: dict[str, list[list[bool]]]) -> dict:
    made = {}
    for way, seeds in rights.items():
        for seed, right in enumerate(seeds):
            test = {"accuracy": float(np.mean(right)), "macro_f1": 0.5}
            made[Task("sst2", "full", way, seed).title] = {
                **{"test": test, "n": len(right), "right": figures.packed(np.array(right)), "wall_seconds": 90},
                **{"validation": {"accuracy": 0.7}, "threads": 1, "side_by_side": 1, "words": []},
                **{"processor": "Z80", "cores": 1},
            }
    return made


def test_the_tables_say_what_was_measured():
    half, most = [True, False] * 50, [True] * 90 + [False] * 10
    made = pages.all_tables(measured_of({"majority": [half], "tfidf": [half], "minilm": [most, most, half]}))
    assert made["accuracy-full"].splitlines()[2] == "| sst2 | 0.500 | 0.500 | **0.767** ± 0.231 |"
    line = made["advantage-full"].splitlines()[2]
    assert line.startswith("| sst2 | most frequent class | - | - | ")
    assert "+26.7 (" in line
    assert made["machines"].splitlines()[-1] == "| Z80, 1 cores | 1 | 1 | 3 |"
    assert "| sst2 | 6,920 | 19 | - | - | +26.7 | - | - | - |" in made["by-rows"]
    assert "| sst2 | not measured (0.815) | not measured (0.815) | 0.767 (0.885), missed |" in made["aims"]
    assert "| sst2, from MiniLM | 3 | 0.767 (" in made["runs"]
    assert "from MiniLM (" in made["unfinished"]


@pytest.mark.skipif("MANYHEADS_DATA" not in os.environ, reason="MANYHEADS_DATA, a folder of datasets, is not set")
def test_rows_and_words_of_a_set_are_those_of_its_file():
    found = {}
    for name in recipes.ABOUT:
        of_set = rows.read(recipes.data_folder() / name / "train.csv")
        words = [sum(len(row.get(key, "").split()) for key in ("text", "text_pair")) for row in of_set]
        found[name] = len(of_set), int(np.median(words))
    assert found == recipes.ABOUT


@pytest.mark.parametrize(
    ("words", "said"),
    [(["sst9"], "sst9 is not among"), (["--ways", "tf"], "tf is not among"), (["--sizes", "7"], "7 is not among")],
)
def test_an_unknown_name_is_one_sentence(words, said, capsys):
    with pytest.raises(SystemExit):
        accuracy.parse(words)
    assert said in capsys.readouterr().err


def test_the_plan_runs_nothing(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(accuracy, "RESULTS", tmp_path / "none.json")
    monkeypatch.setattr(sys, "argv", ["accuracy.py", "trec6", "--ways", "majority", "--sizes", "full", "--plan"])
    accuracy.main()
    assert capsys.readouterr().out.splitlines() == ["1 of 1 runs to go", "trec6 full majority seed=0"]


def test_fasttext_reads_the_rows_of_a_sorted_file_in_another_order(monkeypatch):
    """It learns them as they come: of a file sorted by class it would answer the last class."""
    seen = []

    def train_supervised(file: str, **_) -> SimpleNamespace:
        seen.append(Path(file).read_text().splitlines())
        return SimpleNamespace(predict=lambda texts: ([["__label__1"] for _ in texts], None))

    monkeypatch.setitem(sys.modules, "fasttext", SimpleNamespace(train_supervised=train_supervised))
    labels = [0] * 20 + [1] * 20
    train = Rows([f"text {at}" for at in range(40)], None, labels, "train.csv", [*range(40)])
    for seed in (0, 1):
        assert cheap.fasttext(train, train.pick([0, 39]), rate=0.1, epochs=5, seed=seed) == [1, 1]
    in_order = [f"__label__{label} text {at}" for at, label in enumerate(labels)]
    assert sorted(seen[0]) == sorted(seen[1]) == sorted(in_order)
    assert seen[0] != seen[1]
    assert seen[0] != in_order
