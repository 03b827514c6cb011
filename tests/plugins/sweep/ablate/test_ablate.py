"""The verb from end to end: what it writes, where it goes on, what it never reads, that memory stays flat."""

import fcntl
import gc
import hashlib
import json
import re
import subprocess
import sys
import time

import psutil
import pytest

from manyheads.cli.compose import compose
from manyheads.cli.main import main
from manyheads.plugins.sweep import ablate as verb
from manyheads.plugins.sweep import ablation as training
from manyheads.plugins.sweep import results_file


@pytest.fixture
def trained(monkeypatch, make_figures):
    """Names and seeds of the runs that are made, with figures out of nowhere."""
    made = []

    def train_run(run, data, seconds):
        made.append((data.name, run.model.placement.name, run.seed))
        n_rows = len(data.tokens["validation"])
        return make_figures(("10" * n_rows)[len(made) % 2 :][:n_rows])

    monkeypatch.setattr(training, "train_run", train_run)
    monkeypatch.setattr(training, "warm_up", lambda run, data: None)
    return made


ALL = [("rows", "pre", 0), ("rows", "post", 0), ("rows", "pre", 1), ("rows", "post", 1)]


def test_runs_are_trained_judged_and_told(words, tmp_path, capsys):
    assert main(["ablate", *words, "seeds=1"]) == 0
    content = json.loads((tmp_path / "results.json").read_text())
    for one in content["measured"]:
        assert one["runs"]["0"]["steps"] == 4
        assert len(one["runs"]["0"]["right"]) == content["n_rows"]["rows"] == 8
    said = capsys.readouterr()
    assert "run 2 of 2: rows, post, seed 0: accuracy" in said.err
    assert str(tmp_path / "results.json") in said.out


def test_every_row_of_a_seed_before_the_next_and_nothing_twice(words, trained, tmp_path, capsys):
    assert main(["ablate", *words]) == 0
    assert trained == ALL
    said = capsys.readouterr()
    assert "rows: model.placement, equal parameters" in said.out
    assert said.err.count("run ") == 4
    before = json.loads((tmp_path / "results.json").read_text())
    assert main(["ablate", *words]) == 0
    assert trained == ALL
    assert json.loads((tmp_path / "results.json").read_text()) == before
    again = capsys.readouterr()
    assert (again.out, again.err) == (said.out, "")


@pytest.mark.parametrize("killed_at", [1, 3])
def test_a_stop_loses_the_running_one_alone(words, trained, killed_at, monkeypatch, tmp_path):
    recording = training.train_run

    def die(*given, **named):
        if len(trained) == killed_at - 1:
            raise KeyboardInterrupt
        return recording(*given, **named)

    monkeypatch.setattr(training, "train_run", die)
    assert main(["ablate", *words]) == 130
    content = json.loads((tmp_path / "results.json").read_text())
    assert sum(len(one["runs"]) for one in content["measured"]) == killed_at - 1
    monkeypatch.setattr(training, "train_run", recording)
    assert main(["ablate", *words]) == 0
    assert trained == ALL
    assert [path.name for path in tmp_path.iterdir() if "results" in path.name] == ["results.json"]


def test_more_seeds_and_another_value_add_their_runs_alone(words, trained):
    verb.ablate(compose("ablate", words))
    trained.clear()
    record = verb.ablate(compose("ablate", [*words, "seeds=3", "values=[pre,both]"]))
    assert trained == [("rows", "both", 0), ("rows", "both", 1), ("rows", "pre", 2), ("rows", "both", 2)]
    assert len(record.at("rows", "post").runs) == 2, "kept, although no longer asked for"


def test_with_a_changed_setting_runs_are_made_again_and_the_earlier_ones_kept(words, trained, tmp_path, capsys):
    verb.ablate(compose("ablate", words))
    earlier = (tmp_path / "results.json").read_bytes()
    trained.clear()
    verb.ablate(compose("ablate", [*words, "optim.lr=0.002", "seeds=1"]))
    assert trained == ALL[:2]
    said = capsys.readouterr().err
    assert "4 finished runs no longer fit the settings and are made again" in said
    assert "results-1.json" in said
    assert (tmp_path / "results-1.json").read_bytes() == earlier
    verb.ablate(compose("ablate", [*words, "seeds=1"]))
    assert json.loads((tmp_path / "results-2.json").read_text())["measured"][0]["settings"]["optim.lr"] == 0.002


def test_the_test_split_is_never_opened(words, trained, tmp_path):
    folder = tmp_path / "split"
    folder.mkdir()
    for name in ("train", "validation"):
        (folder / f"{name}.csv").write_text((tmp_path / "rows.csv").read_text().replace("number", name))
    (folder / "test.csv").write_bytes(b"\x00 no table at all")
    record = verb.ablate(compose("ablate", [*words, f"sets=[{folder}]", "seeds=1"]))
    assert record.n_rows == {"split": 80}


def test_names_are_looked_up_in_the_data_folder(words, trained, tmp_path, monkeypatch):
    folder = tmp_path / "all" / "cats"
    folder.mkdir(parents=True)
    (folder / "train.csv").write_text((tmp_path / "rows.csv").read_text())
    monkeypatch.setenv("MANYHEADS_DATA", str(tmp_path / "all"))
    record = verb.ablate(compose("ablate", [*words, "sets=[cats]", "seeds=1"]))
    assert record.sets == ["cats"]
    assert record.n_rows["cats"] == 8


def test_without_sets_the_data_of_the_settings_are_read(words, trained, tmp_path):
    own = [word for word in words if not word.startswith("sets=")]
    record = verb.ablate(compose("ablate", [*own, f"data.path={tmp_path / 'rows.csv'}", "seeds=1"]))
    assert record.sets == ["rows"]


def test_each_run_says_what_it_was_made_on_and_the_file_is_json(words, trained, tmp_path, monkeypatch):
    words = [*words, f"output={tmp_path / 'placements'}"]
    verb.ablate(compose("ablate", [*words, "seeds=1"]))
    monkeypatch.setattr(results_file, "version", lambda name: "9.9")
    verb.ablate(compose("ablate", words))
    content = json.loads((tmp_path / "placements.json").read_text())
    for one in content["measured"]:
        assert "torch 9.9" not in one["runs"]["0"]["machine"]
        assert "torch 9.9" in one["runs"]["1"]["machine"]
    assert content["machine"]["torch"] == "9.9"


def test_a_results_file_of_another_comparison_is_refused_and_kept(words, trained, tmp_path, capsys):
    assert main(["ablate", *words, "seeds=1"]) == 0
    before = (tmp_path / "results.json").read_bytes()
    capsys.readouterr()
    assert main(["ablate", *words, "vary=model.d_k", "values=[8,4]"]) == 2
    assert capsys.readouterr().err == (
        f"output={tmp_path / 'results.json'} holds a comparison with vary=model.placement, not vary=model.d_k: "
        "name another file by output=FILE\n"
    )
    assert (tmp_path / "results.json").read_bytes() == before


COMMAND = """
import sys, time
from manyheads.cli.main import main
from manyheads.plugins.sweep import ablation
train = ablation.train_run
def slow(*given, **named):
    time.sleep(1.0)
    return train(*given, **named)
ablation.train_run = slow
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_processes_that_share_a_results_file_make_each_run_once(words, tmp_path):
    """Three, one of which is killed: its run is left to the next start."""
    command = [sys.executable, "-c", COMMAND, "ablate", *words, "seeds=4", "values=[pre,post]"]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    results, until = tmp_path / "results.json", time.monotonic() + 240
    while not results.is_file() or '"accuracy"' not in results.read_text():
        assert time.monotonic() < until
        time.sleep(0.05)
    started[0].kill()
    said = [one.communicate(timeout=240)[1] for one in started]
    assert [one.returncode for one in started[1:]] == [0, 0], said
    made = [re.findall(r"run \d+ of \d+: (\S+ \S+ seed \d)", one) for one in said]
    assert sum(map(len, made)) == len({run for of in made for run in of}), "none twice"
    assert all(made[1:]), "the others had some each"
    assert main(["ablate", *words, "seeds=4", "values=[pre,post]"]) == 0
    content = json.loads((tmp_path / "results.json").read_text())
    assert [sorted(one["runs"]) for one in content["measured"]] == [["0", "1", "2", "3"]] * 2
    assert not [*tmp_path.glob(".results.json*")]


def test_a_run_that_another_process_makes_is_left_to_it(words, trained, tmp_path, monkeypatch, capsys):
    mark = hashlib.blake2b(b"rows post 0", digest_size=8).hexdigest()
    with (tmp_path / f".results.json.{mark}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        record = verb.ablate(compose("ablate", words))
    assert [sorted(one.runs) for one in record.measured] == [["0", "1"], ["1"]]
    assert "1 run(s) are left to other processes with this results file" in capsys.readouterr().err
    assert len(verb.ablate(compose("ablate", words)).measured[1].runs) == 2


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["model.pair=cross"], "model.pair=cross compares two texts, but the data has no second text"),
        (["batch.balance=sqrt", "optim.class_weights=balanced"], "would both make up for rare classes"),
        (
            ["optim.class_weights=balanced", "vary=batch.balance", "values=[none,uniform]"],
            "batch.balance=uniform and optim.class_weights=balanced would both make up for rare classes",
        ),
        (
            ["vary=optim.class_weights", "values=[none,{mouse: 3}]"],
            "optim.class_weights names the class 'mouse', which is not in the data: the classes are cat, dog",
        ),
    ],
)
def test_what_does_not_suit_the_data_is_one_sentence(more, said, words, trained, tmp_path, capsys):
    """Of any row, and before the first is trained."""
    assert main(["ablate", *words, *more]) == 2
    error = capsys.readouterr().err
    assert (error.count("\n"), said in error, trained) == (1, True, []), error
    assert not (tmp_path / "results.json").exists()


@pytest.mark.slow
def test_memory_stays_flat(words):
    process, used = psutil.Process(), []
    for seeds in (4, 12, 20):
        verb.ablate(compose("ablate", [*words, f"seeds={seeds}", "trainer.max_steps=2"]))
        gc.collect()
        used.append(process.memory_info().rss / 2**20)
    assert used[2] - used[1] < 20, f"{used} MiB"
