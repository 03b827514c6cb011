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
from contestants import tables as tables_module
from machine import machine
from scipy.stats import norm, sem, ttest_1samp
from sklearn.metrics import f1_score
from ways import cheap, figures, judging, ours, pages, recipes, rows, store, work
from ways.recipes import Task

from manyheads.data.rows import Rows, Splits

NUMBERS = np.random.default_rng(0)


def test_packed_bits_come_back():
    bits = NUMBERS.random((3, 37)) < 0.3
    assert (figures.unpacked(figures.packed(bits), bits.shape) == bits).all()


def test_the_interval_of_one_run_is_that_of_a_share():
    right = NUMBERS.random((1, 4000)) < 0.8
    found, value = figures.accuracy(right), right.mean()
    half = norm.ppf(0.975) * np.sqrt(value * (1 - value) / right.size)
    assert (found.low, found.high) == pytest.approx((value - half, value + half), abs=1e-5)
    assert found.value == pytest.approx(value)


def test_the_draws_of_a_difference_are_paired_by_students_t():
    """Three draws of one training set that lose 1.8, 1.8 and 2.2 points have lost, however far they lie apart."""
    n = 100_000
    other = np.array([np.arange(n) < share * n for share in (0.30, 0.60, 0.45)])
    ours = np.array([np.arange(n) < share * n for share in (0.282, 0.582, 0.428)])
    found = figures.advantage(ours, other)
    expected = ttest_1samp([-0.018, -0.018, -0.022], 0.0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.0003)
    assert pages.verdict(found) == "below"


def test_rows_of_a_difference_are_paired():
    """Runs that agree leave the error of the rows: two ways that err on the same rows differ by the others alone."""
    right = np.repeat(NUMBERS.random((1, 2000)) < 0.5, 3, axis=0)
    better = right | (np.arange(2000) < 40)
    found = figures.advantage(better, right[:1])
    rows_apart = (better.astype(float) - right)[0]
    low, high = norm.interval(0.95, rows_apart.mean(), sem(rows_apart))
    assert (found.low, found.high) == pytest.approx((low, high))


@pytest.mark.parametrize(
    ("of_runs", "of_rows", "n_runs"),
    [
        pytest.param(*effects, n_runs, marks=[pytest.mark.slow] * (at % 2 != n_runs % 2))
        for at, effects in enumerate([(0.0, 1.0), (1.0, 0.1), (0.3, 1.0), (1.0, 1.0)])
        for n_runs in (2, 3)
    ],
)
def test_the_interval_holds_the_truth_as_often_as_it_says(n_runs, of_runs, of_rows):
    """Runs and rows with a normal effect each, the one's in units of the other's error: 95 %, or a little more."""
    random, n, held, times = np.random.default_rng(0), 50, 0, 2000
    for _ in range(times):
        run_S, row_n = random.normal(0, of_runs, n_runs), random.normal(0, of_rows * np.sqrt(n / 1.0), n)
        value_Sn = run_S[:, None] * np.sqrt(n_runs) + row_n + random.normal(0, 0.1, (n_runs, n))
        found = figures.mean_of(value_Sn)
        held += found.low <= 0 <= found.high
    assert 0.935 <= held / times <= 0.995


def test_f1_of_labels_is_scikit_learns():
    truth, answers = NUMBERS.random((200, 4)) < 0.3, [NUMBERS.random((200, 4)) < 0.3 for _ in range(2)]
    found = figures.f1_of_labels(truth, answers)
    for kind in ("micro", "macro"):
        values = [f1_score(truth, one, average=kind) for one in answers]
        figure = found[f"{kind}_f1"]
        assert figure.value == pytest.approx(np.mean(values))
        assert figure.low < figure.value < figure.high
        none = figures.f1_of_labels(truth, answers, answers)[f"{kind}_f1"]
        assert (none.value, none.low, none.high) == (0, 0, 0)


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


def test_cheap_models_and_scratch_come_first_and_imdb_last():
    planned = recipes.tasks(recipes.SETS, recipes.SIZES, recipes.WAYS, recipes.SEEDS)
    assert len(planned) == len(set(planned))
    order = [(one.name == "imdb", one.way == "minilm", one.seed) for one in planned]
    assert order == sorted(order)


def test_one_recipe_for_all_sets():
    """From MiniLM is training from scratch with one more word."""
    planned = recipes.tasks(recipes.SETS, recipes.SIZES, recipes.WAYS, recipes.SEEDS)
    words = {(one.way, *recipes.words_of(one)) for one in planned if one.way in recipes.OURS}
    assert words == {("scratch",), ("minilm", "init_from={minilm}")}
    assert rows.data_words(Path("x")) == ["data.path=x", "data.split_seed=0"]


@pytest.mark.parametrize(
    ("peak", "best", "tried"),
    [(2.0, 2.0, 3), (5.0, 5.0, 6), (9.0, 6.0, 6), (-9.0, 0.0, 4)],
    ids=["inside", "beyond the edge", "beyond the ladder", "below it"],
)
def test_a_grid_grows_where_the_choice_lies_on_its_edge(peak, best, tried):
    ladder = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert cheap.climb(lambda at: -abs(at[0] - peak), (ladder,), (2.0,)) == ((best,), tried)


def test_of_equals_the_middle_is_chosen():
    ladder = [0.0, 1.0, 2.0, 3.0]
    assert cheap.climb(lambda at: 0.5, (ladder, ladder), (1.0, 2.0)) == ((1.0, 2.0), 9)
    assert cheap.climb(lambda at: float(at[0] >= 2.0), (ladder,), (1.0,))[0] == (2.0,), "3 is as good and farther"


def test_the_strength_of_tfidf_is_chosen_on_validation_rows():
    """One seldom word decides, which a strong penalty does not let speak."""
    labels = [int(at < 3) for at in range(60)]
    texts = [f"many words that all the texts hold {'rare' if label else 'word'}" for label in labels]
    some = Rows(texts, None, labels, "train.csv", [*range(60)])
    splits = Splits(some, some, some, ["a", "b"], [])
    fit, chosen = cheap.choose("tfidf", splits, seed=0)
    assert fit(some, some) == labels
    scores = {c: np.mean(np.equal(cheap.words(some, some, strength=c), labels)) for c in cheap.STRENGTHS}
    assert scores[chosen["strength"]] == max(scores.values()) > scores[cheap.STRENGTHS[0]]
    assert cheap.choose("majority", splits, 0)[0](some, some) == [0] * 60


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
    ten = rows.draw(published, 10, seed=0)
    assert [sum(row["label"] == name for row in ten) for name in "AB"] == [10, 5]
    assert len({row["text"] for row in ten}) == 15
    assert {row["text"] for row in ten} <= {row["text"] for row in rows.draw(published, 20, seed=0)}
    assert ten != rows.draw(published, 10, seed=1)


def test_few_rows_lie_beside_the_test_file(data, tmp_path):
    task = Task("trec6", "10", "tfidf", 0)
    folder = rows.data_of(task, data, tmp_path / "scratch")
    splits, everything = rows.splits_of(folder)
    assert (len(splits.train), len(splits.validation), len(everything)) == (14, 1, 15)
    assert splits.test is not None
    assert len(splits.test) == 6
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
    how = work.How(script, tmp_path, jobs=2, minutes=0.05)
    work.run_all(planned, how, lambda task, one: found.update({task.name: one}))
    made_by = {"protocol": recipes.PROTOCOL, "words": [], "commit": "none", "dirty": False}
    assert found["snips"] == {**made_by, "failed": "it ended with 3"}
    assert found["sick"] == {**made_by, "failed": "ValueError: no rows"}
    assert found["sst2"] == {**made_by, "failed": "not done after 0.05 minutes"}
    assert found["trec6"].pop("versions").keys() == set(work.PACKAGES)
    where = {"threads": 1, "side_by_side": 2, **machine()}
    assert found["trec6"] == {**made_by, "test": {"accuracy": 0.5}, **where}
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
    how = work.How(Path(accuracy.__file__), tmp_path / "homes", jobs=2, minutes=1)
    work.run_all(planned, how, lambda task, one: found.update({task.name: one}))
    assert found["trec6"]["test"]["accuracy"] == 0.5
    assert figures.unpacked(found["trec6"]["right"], (6,)).tolist() == [True, False] * 3
    assert "snips" in found["snips"]["failed"]


def test_a_second_start_runs_what_is_missing_failed_or_of_another_protocol(tmp_path):
    file, lock, task = tmp_path / "accuracy.json", tmp_path / "lock", Task("sst2", "full", "minilm", 0)
    today = {"protocol": recipes.PROTOCOL, "words": recipes.words_of(task)}
    held = {}
    for found, is_missing in (
        ({**today, "failed": "no memory"}, True),
        ({**today, "words": ["init_from={minilm}", "optim.lr=1"], "test": {}}, True),
        ({**today, "protocol": recipes.PROTOCOL - 1, "test": {}}, True),
        ({**today, "test": {}}, False),
    ):
        store.record(file, lock, task.title, found)
        held = store.load(file)
        assert held == {task.title: found}
        assert store.missing(task, held) is is_missing
    assert store.missing(Task("sst2", "full", "minilm", 1), held)


def test_files_of_several_machines_are_merged(tmp_path):
    here, there, lock = tmp_path / "here.json", tmp_path / "there.json", tmp_path / "lock"
    today = {"protocol": recipes.PROTOCOL, "words": []}
    titles = [Task("sst2", "full", "scratch", seed).title for seed in range(3)]
    store.write(here, {titles[0]: {**today, "test": 1}, titles[1]: {**today, "failed": "stopped"}})
    others = {titles[0]: {**today, "test": 2}, titles[1]: {**today, "test": 2}, titles[2]: {**today, "test": 2}}
    store.write(there, {**others, Task("trec6", "full", "scratch", 0).title: {"test": 0}})
    assert store.merge(here, lock, [there]) == (2, 1)
    assert [store.load(here)[title]["test"] for title in titles] == [1, 2, 2]
    assert len(store.load(here)) == 3, "a record of another protocol is not taken over"


def test_a_run_begun_by_another_recipe_is_forgotten(tmp_path):
    (tmp_path / "run").mkdir()
    work.same_recipe(tmp_path, {"words": [], "commit": "a"})
    assert (tmp_path / "run").exists()
    work.same_recipe(tmp_path, {"words": [], "commit": "b"})
    assert not (tmp_path / "run").exists()


def test_a_record_names_the_commit_and_whether_the_code_differs_from_it(tmp_path):
    def git(*words: str) -> None:
        name = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", "-C", str(tmp_path), *name, *words], check=True, capture_output=True)

    script = tmp_path / "benchmarks" / "script.py"
    script.parent.mkdir()
    script.write_text("")
    (script.parent / "figures.json").write_text("")
    git("init")
    git("add", ".")
    git("commit", "-m", "all")
    assert len(work.source(script)["commit"]) == 12
    (script.parent / "figures.json").write_text("{}")
    assert not work.source(script)["dirty"], "what a measurement writes is no code"
    script.write_text("1")
    assert work.source(script)["dirty"]


def test_our_figures_come_from_the_command_line(data, tmp_path, monkeypatch):
    """Trained without the test split, which `evaluate` reads once; answers are read from its table."""
    said = []

    def command(words: list[str], log: Path) -> None:
        said.append(words)
        place = Path(next(word.partition("=")[2] for word in words if word.startswith("output=")))
        place.mkdir(parents=True, exist_ok=True)
        if words[0] == "train":
            summary = {"parameters": 9, "steps": 3, "precision": "bf16", "seconds": 20.0, "wall_seconds": 30.0}
            summary |= {"linear": 0.25, "best": {"epoch": 1}, "real_tokens_per_s": 1.0}
            summary |= {"validation": {"accuracy": {"value": 0.75, "low": 0.5, "high": 1.0}}}
            (place / "summary.json").write_text(json.dumps(summary))
        else:
            rows.write(place / "predictions.csv", [{"label": "A", "prediction": name} for name in "AB"])
            members = {name: {"accuracy": {"value": 0.5, "low": 0.1, "high": 0.9}} for name in pages.MEMBERS}
            (place / "metrics.json").write_text(json.dumps({"members": members}))

    monkeypatch.setattr(ours, "command", command)
    found = ours.train_and_judge(Task("trec6", "10", "scratch", 2), data / "trec6", tmp_path / "one")
    assert found["wall_seconds"] == 30
    assert found["given"] == [("A", "A"), ("A", "B")]
    assert found["validation"] == {"accuracy": 0.75}
    assert found["members"]["both"] == {"accuracy": 0.5}
    assert found["typed"].startswith(
        "train data.path={data} data.split_seed=0 seed=2 test=false resume=auto ; evaluate"
    )
    train, evaluate = said
    run = f"output={tmp_path / 'one' / 'run'}"
    given = ["train", f"data.path={data / 'trec6'}", "data.split_seed=0", "seed=2", "test=false", "resume=auto", run]
    assert train == given
    assert {"split=test", f"run={tmp_path / 'one' / 'run'}"} < set(evaluate)


def measured_of(rights: dict[str, list[list[bool]]], size: str = "full") -> dict:
    made = {}
    for way, seeds in rights.items():
        for seed, right in enumerate(seeds):
            task = Task("sst2", size, way, seed)
            made[task.title] = {
                **{"test": {"accuracy": float(np.mean(right)), "macro_f1": 0.5}, "n": len(right), "wall_seconds": 90},
                **{"right": figures.packed(np.array(right)), "validation": {"accuracy": 0.7}, "threads": 1},
                **{"side_by_side": 1, "protocol": recipes.PROTOCOL, "words": recipes.words_of(task)},
                **{"processor": "Z80", "cores": 1, "commit": "abc", "dirty": False},
            }
    return made


def line_of(table: str, name: str = "sst2") -> str:
    return next(line for line in table.splitlines() if line.startswith(f"| {name} "))


HALF, MOST = [True, False] * 50, [True] * 90 + [False] * 10


def test_the_tables_say_what_was_measured():
    made = pages.all_tables(measured_of({"majority": [HALF], "tfidf": [HALF], "minilm": [MOST, MOST, HALF]}))
    assert line_of(made["accuracy-full"]) == "| sst2 | 0.500 | 0.500 | - | - | - | **0.767** ± 0.231 |"
    assert line_of(made["accuracy-full"], "imdb") == "| imdb | - | - | - | - | - | - |"
    assert "| sst2 | most frequent class | - | +26.7 (" in made["advantage-full"]
    assert made["machines"].splitlines()[-1] == "| abc | Z80, 1 cores | 1 | 1 | 3 |"
    assert "| sst2 | 6,920 | 19 | - | - | +26.7 | - | - | - |" in made["by-rows"]
    assert "| sst2 | not measured (0.815) | 0.767 (0.885), missed |" in made["aims"]
    assert "| sst2, from MiniLM | 3 | 0.767 (" in made["runs"]
    all_of_them = len(recipes.tasks(recipes.SETS, recipes.SIZES, recipes.WAYS, recipes.SEEDS))
    assert made["unfinished"].startswith(f"{all_of_them - 5} of {all_of_them} runs are missing, in ")


def test_what_each_member_answers_alone_is_shown():
    measured = measured_of({"scratch": [HALF, MOST]})
    for at, one in enumerate(measured.values()):
        one["members"] = {"both": {"accuracy": 0.8}, "network": {"accuracy": 0.5 + 0.1 * at}}
    assert line_of(pages.all_tables(measured)["members"]) == "| sst2 | 0.550 | - | 0.800 | - | - | - |"


def test_tables_of_nothing_say_how_much_is_missing():
    made = pages.all_tables({})
    assert line_of(made["accuracy-10"]) == "| sst2 | - | - | - | - | - | - |"
    assert "runs are missing" in made["unfinished"]


@pytest.mark.parametrize(
    "changed", [{"protocol": recipes.PROTOCOL - 1}, {"protocol": None}, {"words": ["linear=false"]}]
)
def test_a_record_of_another_protocol_is_in_no_table(changed):
    measured = measured_of({"tfidf": [HALF], "scratch": [MOST, MOST, HALF]})
    other = {title: {**one, **changed} for title, one in measured.items()}
    assert pages.all_tables(other) == pages.all_tables({})


def test_few_rows_are_compared_draw_by_draw():
    """What one draw lacks is not made up by another; the run of another draw says nothing."""
    some = measured_of({"tfidf": [MOST, HALF, HALF], "scratch": [MOST, HALF, HALF]}, "10")
    assert "+0.0 (+0.0 to +0.0)" in line_of(pages.all_tables(some)["advantage-10"])
    del some[Task("sst2", "10", "tfidf", 0).title], some[Task("sst2", "10", "scratch", 1).title]
    assert line_of(pages.all_tables(some)["advantage-10"]).count("| -") == 2


def test_the_documents_hold_the_tables_of_the_file():
    """README, choosing.md and results/accuracy.md are filled by `accuracy.py table`; nothing is typed by hand."""
    tables = pages.all_tables(store.load(accuracy.RESULTS))
    for document in accuracy.DOCUMENTS:
        for marker in tables_module.MARKER.finditer(document.read_text()):
            if marker[2] in tables:
                assert marker[0] == f"<!-- table: {marker[2]} -->\n{tables[marker[2]]}\n<!-- end -->", document


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
