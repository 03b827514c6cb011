"""Few rows by every way: all answer the same test rows, and records of accuracy.json are not made again."""

import sys
from pathlib import Path

import few_rows
import numpy as np
import pytest
from contestants.tables import MARKER
from ways import few, figures, others, recipes, rows, store, work
from ways.recipes import Task

from manyheads.data.rows import Rows, Splits

N = 3000


def record(right: np.ndarray, way: str = "tfidf", **more) -> dict:
    today = {"protocol": recipes.PROTOCOL, "words": recipes.WORDS.get(way, []), "wall_seconds": 1.0}
    return {**today, "test": {"accuracy": float(right.mean())}, "n": len(right), "right": figures.packed(right), **more}


def test_a_thousand_rows_of_a_test_file_are_answered_the_same_each_time():
    assert rows.tested(500, 1000) == list(range(500))
    some = rows.tested(N, 1000)
    assert some == rows.tested(N, 1000) == sorted(set(some))
    assert len(some) == 1000
    assert some[-1] > 2000, "not the first ones: files may be sorted"


def test_answers_of_the_accuracy_table_are_cut_to_the_same_rows():
    right = np.random.default_rng(0).random(N) < 0.7
    title = Task("imdb", "10", "scratch", 1).title
    old = {title: record(right, "scratch"), Task("goemotions", "full", "scratch", 0).title: record(right, "scratch")}
    found = few.known(old, {})
    assert list(found) == [title]
    cut = figures.unpacked(found[title]["right"], (found[title]["n"],))
    assert (cut == right[rows.tested(N, 1000)]).all()
    assert found[title]["test"]["accuracy"] == pytest.approx(cut.mean(), abs=1e-5)
    assert not store.missing(Task.titled(title), found)
    assert few.known({title: record(right, "scratch", words=["linear=false"])}, {}) == {}


def test_a_record_of_its_own_comes_before_one_of_the_accuracy_table():
    title = Task("sst2", "10", "tfidf", 0).title
    some, other = np.arange(4) < 2, np.arange(4) < 3
    assert few.known({title: record(some)}, {title: record(other)})[title]["test"]["accuracy"] == 0.75


def test_what_makes_no_sense_is_not_run():
    planned = few.tasks(few.SINGLE, few.SIZES, few.WAYS, 3)
    assert len(planned) == len(set(planned))
    kinds = {(one.name, one.size, one.way) for one in planned}
    assert not {("trec6", "10", "pairs"), ("indonlu_smsa", "10", "model2vec"), ("sst2", "full", "setfit")} & kinds
    assert {("sick", "10", "pairs"), ("indonlu_smsa", "200", "scratch"), ("sst2", "200", "setfit")} <= kinds
    assert max(one.seed for one in planned if (one.size, one.way) == ("full", "model2vec")) == 0
    assert "goemotions" not in {one.name for one in planned}


def test_few_test_rows_lie_next_to_the_training_rows(tmp_path):
    published = tmp_path / "sst2"
    published.mkdir()
    for name, n in (("train", 40), ("validation", 6), ("test", 20)):
        rows.write(published / f"{name}.csv", [{"text": f"{name} {at}", "label": "ab"[at % 2]} for at in range(n)])
    folder = rows.data_of(Task("sst2", "10", "tfidf", 0), tmp_path, tmp_path / "few", test_rows=5)
    assert [row["text"] for row in rows.read(folder / "test.csv")] == [f"test {at}" for at in rows.tested(20, 5)]
    assert (len(rows.read(folder / "train.csv")), (folder / "validation.csv").exists()) == (20, False)
    folder = rows.data_of(Task("sst2", "full", "tfidf", 0), tmp_path, tmp_path / "all", test_rows=5)
    names = ("train", "validation", "test")
    assert [len(rows.read(folder / f"{name}.csv")) for name in names] == [40, 6, 5]


def test_a_quick_way_answers_in_this_process_and_a_failure_is_a_record(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYHEADS_DATA", str(tmp_path))
    monkeypatch.setattr(work, "source", lambda script: {"commit": "abc", "dirty": False})
    published = tmp_path / "sst2"
    published.mkdir()
    train = [{"text": f"{word} {at}", "label": word} for word in ("good", "bad") for at in range(12)]
    rows.write(published / "train.csv", train)
    rows.write(published / "test.csv", [{"text": "so good", "label": "good"}, {"text": "bad bad", "label": "bad"}])
    how = work.How(Path(few_rows.__file__), tmp_path / "homes")
    found = work.run_here(Task("sst2", "10", "tfidf", 0), how, few.TEST_ROWS)
    assert (found["test"]["accuracy"], found["n"], found["commit"]) == (1.0, 2, "abc")
    assert "threads" in found
    assert work.run_here(Task("trec6", "10", "tfidf", 0), how)["failed"].startswith("FileNotFoundError")
    assert not list((tmp_path / "homes").glob("*"))


class Letters:
    """Stands for static vectors: how often a text has an a, and its length."""

    def encode(self, texts: list[str]) -> np.ndarray:
        return np.array([[text.count("a"), len(text)] for text in texts], dtype=float)


def test_vectors_of_a_pair_say_how_its_texts_differ():
    assert others.features(Letters(), Rows(["aa"], None, [0], "", [0])).tolist() == [[2, 2]]
    pair = others.features(Letters(), Rows(["aa"], ["baab"], [0], "", [0]))
    assert pair.tolist() == [[2, 2, 2, 4, 0, 2, 4, 8]]


def test_static_vectors_choose_c_on_validation_and_answer_after_all_rows(monkeypatch):
    monkeypatch.setattr(others, "static_vectors", Letters)
    texts = ["a" * (at % 4) + "b" * 3 for at in range(60)]
    some = Rows(texts, None, [int("aa" in text) for text in texts], "", [*range(60)])
    splits = Splits(some, some, some.pick([0, 2, 3]), ["no", "yes"], [])
    validation, test, chosen = others.by_static_vectors(splits, some)
    assert (validation, test) == (some.labels, [0, 1, 1])
    assert chosen["tried"] >= 3


def lines_of(table: str, name: str) -> str:
    return next(line for line in table.splitlines() if line.startswith(f"| {name}"))


def test_the_tables_compare_draw_by_draw_with_the_best_of_the_others():
    half, most = np.arange(100) % 2 == 0, np.arange(100) < 90
    few_of = {"tfidf": [half] * 3, "setfit": [most] * 3, "scratch": [half] * 3, "minilm": [half] * 3}
    measured = {
        Task("sst2", "10", way, seed).title: record(right, way)
        for way, draws in few_of.items()
        for seed, right in enumerate(draws)
    }
    made = few.all_tables(measured)
    assert "| 0.500 ± 0.000 | - |" in lines_of(made["few-10"], "sst2")
    assert "**0.900**" in lines_of(made["few-10"], "sst2")
    assert lines_of(made["few-means"], "SetFit").startswith("| SetFit | +40.0 (1) | - |")
    of_ours = lines_of(made["few-leads"], "sst2, 10 a class")
    assert "+0.0 (+0.0 to +0.0) TF-IDF" in of_ours, "without weights it is compared with those without weights"
    assert "* SetFit" in of_ours
    assert lines_of(made["few-verdicts"], "10 a class").startswith("| 10 a class | 1 level | below on sst2 | -")
    assert "from MiniLM, 10 a class: 21" in made["few-unfinished"]


def test_the_documents_hold_the_tables_of_the_files():
    """They are filled by `few_rows.py table`; nothing is typed by hand."""
    tables = few.all_tables(few.known(store.load(few_rows.ACCURACY), store.load(few_rows.RESULTS)))
    for document in few_rows.DOCUMENTS:
        for marker in MARKER.finditer(document.read_text()):
            if marker[2] in tables:
                assert marker[0] == f"<!-- table: {marker[2]} -->\n{tables[marker[2]]}\n<!-- end -->", document


def test_an_unknown_name_is_one_sentence(capsys):
    with pytest.raises(SystemExit):
        few_rows.parse(["--ways", "bert"])
    assert "bert is not among" in capsys.readouterr().err


def test_the_plan_runs_nothing(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(few_rows, "RESULTS", tmp_path / "none.json")
    monkeypatch.setattr(sys, "argv", ["few_rows.py", "trec6", "--ways", "setfit", "--sizes", "10", "--plan"])
    few_rows.main()
    said = capsys.readouterr().out.splitlines()
    assert said == ["3 of 3 runs to go", *(f"trec6 10 setfit seed={seed}" for seed in range(3))]
