"""Categories and numbers that are read with the text: their units, what learns from them, and each verb."""

import csv
import json
import random
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import manyheads
from manyheads import TextData
from manyheads.cli.main import main
from manyheads.config import Cutting, Long, Terms
from manyheads.data import column
from manyheads.data.formats.fields import FIELD, join_cells
from manyheads.data.ids.terms import UNIT, split_units
from manyheads.data.rows import Rows
from manyheads.data.sources import read_splits
from manyheads.data.tokenizer import add_field_mark, kept_ids
from manyheads.data.tokens import encode
from manyheads.distributed import faults
from manyheads.errors import UserError
from manyheads.evaluation import results
from manyheads.linear.model import terms_of
from manyheads.plugins.columns.learning import FIGURE, gain_of_columns, with_units
from manyheads.plugins.columns.row_units import clean, rows_with_units, unit_of
from manyheads.plugins.columns.units import (
    BUCKETS,
    learn_buckets,
    learn_column,
    unit_reader,
    units_of,
)
from manyheads.runs.files import read_json
from tests.conftest import SPECIAL, WORDS, word_tokenizer

TINY = [
    *("model.d_model=16", "model.n_layers=1", "model.n_heads=2", "model.d_k=8", "model.d_v=8", "model.d_ff=16"),
    *("hardware=cpu", "hardware.precision=fp32", "tokenizer.vocab_size=200", "batch.rows=16", "optim.average=0"),
]
NAMES = ["text", "priority", "amount", "label"]
COLUMNS = {"priority": ["high", "low"], "amount": [8.0, 20.0]}
KEPT = {"columns": {"texts": 1, "known": COLUMNS}}
PRINTED = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), max_size=12)


# Units


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6) | st.integers(-9, 9), min_size=1, max_size=60))
def test_numbers_are_in_buckets_by_quantiles(numbers) -> None:
    known, values = learn_column([str(one) for one in numbers]), np.array(numbers, dtype=float)
    expected = np.unique(values)
    if len(expected) > BUCKETS:
        expected = np.unique(np.quantile(values, np.arange(1, BUCKETS) / BUCKETS, method="inverted_cdf"))
    expected = expected[expected < values.max()]
    assert known == expected.tolist()
    if not known:  # all are the same number
        return
    units = units_of("amount", known)
    assert len({*units}) == len(units) == len(expected) + 2
    for one, at in zip(numbers, np.searchsorted(expected, values), strict=True):
        assert unit_of("amount", known, str(one)) == units[1 + at]


def test_buckets_have_about_as_many_rows_each() -> None:
    drawn = np.random.default_rng(0).lognormal(size=4000)
    known = learn_column([str(one) for one in drawn])
    _, counts = np.unique([unit_of("amount", known, str(one)) for one in drawn], return_counts=True)
    assert counts.tolist() == [500] * BUCKETS


def test_categories_are_those_of_two_rows_and_all_else_has_a_unit() -> None:
    known = learn_column(["b", "a", "b", "a", "c", "", "3"])
    assert known == ["a", "b"]
    assert [unit_of("kind", known, cell) for cell in ("a", "c", "new", "")] == [
        "kind: a",
        "kind is another",
        "kind is another",
        "kind is missing",
    ]
    assert units_of("kind", known) == ["kind is missing", "kind is another", "kind: a", "kind: b"]
    assert learn_column(["12_1", "12_1", "12_2", "12_2"]) == ["12_1", "12_2"]  # float("12_1") is 121
    numbers = learn_column(["1", "2", *["3"] * 20, "", "unknown"])
    assert numbers == [1.0, 2.0]
    for cell in ("unknown", "", "inf", "1e999"):
        assert unit_of("age", numbers, cell) == "age is missing"
    expected = ["age is missing", "age: -inf to 1.0", "age: 1.0 to 2.0", "age: 2.0 to inf"]
    assert [unit_of("age", numbers, cell) for cell in ("", "-4", "1.5", "99")] == units_of("age", numbers) == expected
    assert unit_of("same", learn_column(["7", "7.0"]), "8") == "same is another"


def test_numbers_with_a_comma_are_no_numbers_and_the_log_says_it() -> None:
    texts = [join_cells(["a", number, name]) for number, name in [("12,50", "x, y"), ("1.234,5", "x, y"), ("", "1,")]]
    splits: Any = SimpleNamespace(train=SimpleNamespace(texts=texts), notes=[])
    learn_buckets(SimpleNamespace(columns=["amount", "name"], text="text", text_names=False), splits)
    assert splits.notes == [
        "data.columns: amount has 0 categories (a number with a comma is a category: write 12.5), and is missing in 1 "
        "of 3 rows; name has 1 categories, and is missing in 0 of 3 rows"
    ]


def test_a_row_is_read_as_its_units_before_its_text() -> None:
    read = unit_reader(KEPT)
    assert read is not None
    units = f"{UNIT}priority: high{UNIT}{UNIT}amount: 8.0 to 20.0{UNIT}"
    assert read([join_cells(["the parcel came late", "high", 12.5])]) == [f"{units}the parcel came late"]
    assert split_units(f"{units}the parcel") == ("the parcel", ["priority: high", "amount: 8.0 to 20.0"])
    assert read([join_cells(["", " high ", "12.50"])]) == [units]  # its columns alone
    assert read([""]) == [""]
    assert unit_reader({}) is None
    two = unit_reader({"columns": {"texts": 2, "known": COLUMNS}})
    assert two is not None
    assert two([join_cells(["title", "body", "low", None])]) == [
        f"{UNIT}priority: low{UNIT}{UNIT}amount is missing{UNIT}title {FIELD} body"
    ]
    with pytest.raises(UserError, match="the text 'a parcel' comes without priority, amount, which the model reads"):
        read(["a parcel"])


@pytest.mark.parametrize("known", [{}, COLUMNS])
def test_names_of_columns_are_read_before_their_texts(known) -> None:
    read = unit_reader({"columns": {"texts": 2, "known": known, "names": ["title:", "body:"]}})
    assert read is not None
    cells, units = ["low", None][: len(known)], ["priority: low", "amount is missing"][: len(known)]
    (once,) = read([join_cells(["plan", "see you", *cells])])
    assert split_units(once) == (f"title: plan {FIELD} body: see you", units)
    assert read([once]) == [once]
    (without,) = read([join_cells(["", "see you", *cells])])
    assert split_units(without)[0].split() == ["title:", FIELD, "body:", "see", "you"]
    assert read([without]) == [without]
    with pytest.raises(UserError, match="the text 'plan' comes without"):
        read(["plan"])


@pytest.mark.parametrize(
    ("cell", "read"),
    [("1.0", "1"), ("-2.", "-2"), ("2.10", "2.10"), ("a\u3000 b", "a b"), (".", "."), ("True", "true")],
)
def test_cells_are_compared_in_one_spelling(cell, read) -> None:
    assert clean(cell) == read


@given(PRINTED.map(lambda text: f"a{text}"), PRINTED, st.floats(allow_nan=False) | st.none())
def test_what_was_read_is_read_alike_again_and_nobody_types_a_unit(text, priority, amount) -> None:
    typed = f"{UNIT}priority: high{UNIT}{text}"
    for one in (text, typed):
        (once,) = rows_with_units(KEPT, [join_cells([one, priority, amount])])
        assert rows_with_units(KEPT, [once]) == [once]
        rest, units = split_units(once)
        assert len(units) == 2
        assert UNIT not in rest


@pytest.mark.parametrize(
    "broken",
    [
        "x",
        {"texts": 1},
        {"texts": 1, "known": {"a": 3}},
        {"texts": 1, "known": {"a": [1.0, "b"]}},
        {"texts": 2, "known": {}, "names": ["a:"]},
        {"texts": 1, "known": {}, "names": [3]},
    ],
)
def test_what_a_stranger_wrote_is_refused(broken) -> None:
    with pytest.raises(UserError, match=r"kept\.columns is not what a training has written"):
        unit_reader({"columns": broken})


def test_buckets_are_learnt_from_training_rows_alone() -> None:
    data = SimpleNamespace(text_names=False, columns=["amount"], text="text")
    train = Rows([join_cells(["a", at]) for at in range(20)], None, [0] * 20, "rows.csv", [*range(20)])
    other = Rows([join_cells(["a", 1e6])], None, [0], "rows.csv", [20])
    splits: SimpleNamespace = SimpleNamespace(train=train, validation=other, test=other, notes=[])
    assert learn_buckets(data, splits)["columns"]["known"]["amount"][-1] < 20
    assert splits.notes == ["data.columns: amount has 8 buckets of numbers, and is missing in 0 of 20 rows"]


@pytest.mark.parametrize("kind", [*Terms])
def test_units_are_terms_of_their_own(kind) -> None:
    units = f"{UNIT}kind: very high{UNIT}{UNIT}amount: 8.0 to 20.0{UNIT}"
    own = [f"{UNIT}kind: very high", f"{UNIT}amount: 8.0 to 20.0"]
    assert sorted(terms_of(f"{units}a good film", kind=kind)) == sorted([*terms_of("a good film", kind=kind), *own])
    with_pair, without = ([*terms_of(text, "a bad film", kind)] for text in (f"{units}a film", "a film"))
    assert {*without} < {*with_pair}
    assert {*with_pair} - {*without} == {
        *(f"first {one}" for one in own),
        "2 units alone in first",
        "0 units alone in second",
    }


def test_a_unit_is_one_token_that_begins_as_the_last_of_its_words() -> None:
    known = {"is": ["very good"]}
    splits: Any = SimpleNamespace(kept={"columns": {"texts": 1, "known": known}})
    made = with_units(None, splits, word_tokenizer())
    (text,) = rows_with_units(splits.kept, [join_cells(["a film", "very good"])])
    ids = made.encode(text).ids
    n = len(SPECIAL + WORDS)
    assert ids == [2, n + 2, n_of("a"), n_of("film"), 3]
    kept = kept_ids(made, word_tokenizer())
    assert kept is not None
    assert kept[n + 2] == n_of("good")
    assert made.encode("is: very good").ids == word_tokenizer().encode("is: very good").ids


@pytest.mark.parametrize("long", [Long.cut, Long.both])
def test_units_are_kept_of_texts_that_are_too_long(long) -> None:
    known, made = {name: ["x"] for name in "abcde"}, word_tokenizer()
    add_field_mark(made)
    splits: Any = SimpleNamespace(kept={"columns": {"texts": 1, "known": known}})
    made, n = with_units(None, splits, made), len(SPECIAL + WORDS) + 1
    units = "".join(f"{UNIT}{name}: x{UNIT}" for name in known)
    words = " ".join(WORDS)
    for text, n_marks in ((f"{units}{words}", 2), (f"{units}{words} {FIELD} {words}", 3)):
        ids = encode(made, [text], None, None, 13, Cutting(long)).ids_N.tolist()
        assert len(ids) == 13
        assert sum(id >= n for id in ids) == len(known)
        assert sum(id in map(n_of, WORDS) for id in ids) == 13 - n_marks - len(known)


def n_of(word: str) -> int:
    return (SPECIAL + WORDS).index(word)


# A run


def some_rows(n: int, seed: int = 0) -> list[dict[str, str]]:
    """Rows whose label is in their columns alone."""
    drawn, found = random.Random(seed), []
    for at in range(n):
        priority, amount = drawn.choice(["high", "low", ""]), drawn.choice(["", round(drawn.uniform(0, 99), 2)])
        label = "check" if amount and float(amount) > 50 else ("rush" if priority == "high" else "wait")
        text = " ".join(drawn.choice(WORDS) for _ in range(drawn.choice([2, 8])))
        found.append({"text": f"{text} {at}", "priority": priority, "amount": str(amount), "label": label})
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    with (home / "orders.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, NAMES)
        table.writeheader()
        table.writerows(some_rows(300))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYHEADS_CACHE", str(home / "cache"))
        patch.setattr(results, "write_page", lambda path, _: path.touch())
        words = [f"data.path={home / 'orders.csv'}", "data.columns=[priority,amount]", "optim.lr=0.01"]
        assert main(["train", *words, *TINY, "trainer.max_epochs=6", f"output={home / 'run'}"]) == 0
    return home


@pytest.fixture
def asked(home, monkeypatch):
    monkeypatch.setenv("MANYHEADS_CACHE", str(home / "cache"))
    monkeypatch.setattr(results, "write_page", lambda path, _: path.touch())
    monkeypatch.chdir(home)
    return home


def test_a_run_learns_from_its_columns_and_says_what_they_add(asked) -> None:
    config, found = read_json(asked / "run/model/config.json"), read_json(asked / "run/summary.json")
    assert config["columns"]["text"] == NAMES[:3]
    known = config["kept"]["columns"]["known"]
    assert known["priority"] == ["high", "low"]
    assert len(known["amount"]) == BUCKETS - 1
    assert found["test"]["accuracy"]["value"] > 0.8
    assert found["members"]["test"]["network"]["accuracy"]["value"] > 0.8
    assert found["members"]["test"]["linear model"]["accuracy"]["value"] > 0.8
    assert found["measured"][FIGURE]["low"] > 0.1
    assert "priority has 2 categories, and is missing in" in (asked / "run/run.log").read_text()


def test_each_verb_takes_the_columns(asked, capsys) -> None:
    assert main(["evaluate", "run=run"]) == 0
    own = read_json(asked / "run/evaluate/orders-test/metrics.json")
    assert own["accuracy"] == read_json(asked / "run/summary.json")["test"]["accuracy"]
    assert main(["evaluate", "run=run", "data.path=orders.csv"]) == 0
    assert main(["predict", "run=run", "input=orders.csv", "output=out.csv"]) == 0
    with (asked / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert sum(row["input_label"] == row["label"] for row in rows) > 250
    capsys.readouterr()
    assert main(["predict", "run=run", "text=a good film\tlow\t98"]) == 0
    assert json.loads(capsys.readouterr().out)["label"] == "check"
    (asked / "short.csv").write_text("text,priority\na film,high\n")
    assert main(["predict", "run=run", "input=short.csv"]) == 2
    assert "short.csv has no column 'amount', which the model reads" in capsys.readouterr().err
    assert main(["evaluate", "run=run", "data.path=orders.csv", "data.columns=[amount]"]) == 2
    assert "data.columns=[amount] does nothing here" in capsys.readouterr().err


def test_python_takes_mappings_and_the_same_rows_in_any_form(asked) -> None:
    classifier = manyheads.load("run")
    rows = [{name: row[name] for name in NAMES[:3]} for row in some_rows(9)]
    as_numbers = [row | {"amount": float(row["amount"]) if row["amount"] else None} for row in rows]
    assert classifier.predict(rows) == classifier.predict(as_numbers)
    with pytest.raises(UserError, match=r"texts\[0\] has text, amount, but the model takes the columns"):
        classifier.predict([{"text": "a", "amount": 3}])
    with pytest.raises(UserError, match="comes without priority, amount, which the model reads"):
        classifier.predict(["a good film"])
    run = manyheads.compose("train", ["data.columns=[priority,amount]", *TINY])
    data = TextData.from_rows(some_rows(60), run=run)
    assert data.splits is not None
    assert data.splits.kept["columns"]["texts"] == 1


@pytest.mark.verb("look")
def test_a_run_reads_names_before_its_texts(asked, capsys) -> None:
    """As if the file had them in its cells, and so does what is given to predict."""
    named = [row | {name: f"{name}: {row[name]}" for name in NAMES[:2]} for row in some_rows(60)]
    for file, rows in (("named.csv", named), ("plain.csv", some_rows(60))):
        with (asked / file).open("w", newline="") as opened:
            table = csv.DictWriter(opened, NAMES)
            table.writeheader()
            table.writerows(rows)
    words = ["data.text=[text,priority]", "data.validation_split=train", *TINY, "trainer.max_steps=3"]
    assert main(["train", "data.path=named.csv", *words, "output=by-hand"]) == 0
    assert main(["train", "data.path=plain.csv", "data.text_names=true", *words, "output=by-name"]) == 0
    ours, theirs = manyheads.load("by-name"), manyheads.load("by-hand")
    row = {"text": "a good film", "priority": "low"}
    (answer,) = ours.predict([row])
    assert answer == theirs.predict([{name: f"{name}: {cell}" for name, cell in row.items()}])[0]
    capsys.readouterr()
    assert main(["predict", "run=by-name", "text=a good film\tlow", "hardware.accelerator=cpu"]) == 0
    assert json.loads(capsys.readouterr().out)["label"] == answer.label
    assert main(["evaluate", "run=by-name", "data.path=plain.csv", "data.text_names=true"]) == 2
    assert "data.text_names=true does nothing here, where it is kept with the model" in capsys.readouterr().err


@pytest.mark.verb("look")
def test_look_shows_the_units(asked, capsys) -> None:
    assert main(["look", "run=run", "text=a good film\thigh\t3"]) == 0
    assert "priority: high" in next((asked / "run/look").glob("*.html")).read_text()


def test_a_stopped_run_is_resumed_to_the_bit(asked, monkeypatch) -> None:
    command = ["train", "data.path=orders.csv", "data.columns=[priority,amount]", *TINY]
    command += ["trainer.max_steps=6", "checkpoint.every=2"]
    assert main([*command, "output=whole"]) == 0
    monkeypatch.setenv(faults.VARIABLE, "step:4:fail")
    faults.reset_counts()
    assert main([*command, "output=broken"]) == 1
    monkeypatch.delenv(faults.VARIABLE)
    faults.reset_counts()
    assert main(["train", "resume=broken"]) == 0
    one, other = ((asked / name / "model/model.safetensors").read_bytes() for name in ("whole", "broken"))
    assert one == other


def test_tokens_in_the_cache_are_of_one_reading(asked, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(column, "KEPT", 0)  # as in a large file
    found = []
    for cache, names in (("one", "false"), ("one", "true"), ("two", "true")):
        words = ["data.path=orders.csv", "data.text=[text,priority]", f"data.text_names={names}"]
        run = manyheads.compose("train", [*words, f"data.cache={tmp_path / cache}", *TINY])
        found.append(TextData.from_run(run).tokens["train"].ids_N)
    assert not torch.equal(found[0], found[1])
    assert torch.equal(found[1], found[2])


def test_the_logits_of_a_row_are_the_same_alone_and_with_others(asked) -> None:
    classifier = manyheads.load("run", precision="fp32")
    texts = [join_cells([row[name] for name in NAMES[:3]]) for row in some_rows(20, seed=1)]
    together = classifier.logits(texts)
    alone = torch.cat([classifier.logits([text]) for text in texts])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["data.columns=[nothing]"], "has no column 'nothing' (data.columns): its columns are "),
        (["data.columns=[nothing]"], "label; name one of these"),
        (["data.columns=[amount,amount]"], "'amount' is empty, or is named twice in the settings data"),
        (["data.columns=[text]"], "'text' is empty, or is named twice in the settings data"),
        (["data.columns=[label]"], "'label' is empty, or is named twice in the settings data"),
        (["data.columns=[amount]", "data.long=windows"], "do not go together"),
        (["data.text_names=true"], "data.text_names=true names the columns that data.text joins, but there is one"),
        (
            ["data.text=[text,priority]", "data.text_names=true", "data.long=windows"],
            "data.text_names=true and data.long=windows do not go together",
        ),
        (
            ["data.columns=[amount,priority]", "data.max_length=7"],
            "has no room for data.columns=[amount, priority]: use at least 8",
        ),
    ],
)
def test_mistakes_are_said_before_training(asked, capsys, words, said) -> None:
    assert main(["train", "data.path=orders.csv", *words, *TINY, "output=none"]) == 2
    assert said in capsys.readouterr().err
    assert not (asked / "none").exists()


@pytest.mark.verb("compare", "export")
def test_what_cannot_read_the_columns_is_refused(asked, capsys) -> None:
    words = ["train", "data.path=orders.csv", *TINY, "trainer.max_steps=1", "output=alone"]
    assert main(words) == 0
    assert main(["compare", "runs=[run,alone]", "hardware.accelerator=cpu"]) == 2
    said = capsys.readouterr().err
    assert "alone reads one column, but " in said
    assert "run reads text, priority, amount: models of the same columns are compared" in said
    assert main([*words[:-1], "data.columns=[amount,priority]", "output=swapped"]) == 0
    assert main(["compare", "runs=[run,swapped]", "hardware.accelerator=cpu"]) == 2
    assert "swapped reads text, amount, priority" in capsys.readouterr().err
    assert main(["export", "run=run", "format=transformers", "output=out"]) == 2
    assert "reads columns by their names" in capsys.readouterr().err
    pytest.importorskip("manyheads.plugins.transfer")
    taught = [*words[:-1], "data.columns=[amount,priority]", "data.unlabelled=orders.csv"]
    for teacher, reads in (("alone", "one column"), ("run", "text, priority, amount")):
        assert main([*taught, f"teacher={teacher}", "output=taught"]) == 2
        assert f"{teacher} reads {reads}, but the run text, amount, priority" in capsys.readouterr().err


@pytest.mark.verb("probe")
def test_probes_change_the_text_and_leave_the_columns(asked, monkeypatch) -> None:
    judged = pytest.importorskip("manyheads.plugins.judge.probe")
    cases_of, seen = judged.cases_of, []
    monkeypatch.setattr(judged, "cases_of", lambda *given: seen.append(cases_of(*given)) or seen[-1])
    (asked / "tests.yaml").write_text("- {name: more, change: {append: ' indeed'}}\n- {name: loud, change: upper}\n")
    assert main(["probe", "run=run", "data.path=orders.csv", "tests=tests.yaml", "output=probed"]) == 0
    for of_test, change in zip(seen, (lambda text: f"{text} indeed", str.upper), strict=True):
        assert len(of_test) > 100
        for case in of_test:
            (text, *columns), (changed, *same) = case.texts[0].split(f" {FIELD}"), case.changed.split(f" {FIELD}")
            assert len(columns) == 2
            assert (changed, same) == (change(text), columns)


@pytest.mark.verb("audit")
def test_an_audit_refuses_names_that_it_would_not_read(asked, capsys) -> None:
    assert main(["audit", "data.path=orders.csv", "data.text=[text,priority]", "data.text_names=true"]) == 2
    assert "data.text_names=true is a setting of train, not of audit" in capsys.readouterr().err


def test_a_name_in_spaces_is_read_once() -> None:
    data = SimpleNamespace(text_names=True, columns=[], text=[" title", "body"])
    kept = learn_buckets(data, SimpleNamespace(train=Rows([], None, [], "rows", []), notes=[]))
    (once,) = rows_with_units(kept, [join_cells(["a plan", "see you"])])
    assert [once] == rows_with_units(kept, [once]) == [f"title: a plan {FIELD} body: see you"]


@pytest.mark.verb("probe")
@pytest.mark.parametrize("known", [{}, COLUMNS])
def test_a_probe_leaves_the_names_of_texts_as_they_are(known) -> None:
    tests = pytest.importorskip("manyheads.plugins.judge.probe_tests")
    config = pytest.importorskip("manyheads.plugins.judge.config").ProbeConfig(run="run")
    read = unit_reader({"columns": {"texts": 2, "known": known, "names": ["title:", "body:"]}})
    further, units = ["high", "12.5"][: len(known)], f"{UNIT}priority: high{UNIT}{UNIT}amount: 8.0 to 20.0{UNIT}"
    rows = Rows([join_cells(["a plan", "see you", *further])], None, [0], "rows", [1])
    (case,) = tests.cases_of(tests.BehaviourTest("loud", "upper"), rows, config, read)
    read_then = f"title: A PLAN {FIELD} body: SEE YOU"
    assert read(case.after) == [f"{units}{read_then}" if known else read_then]


@pytest.mark.verb("serve")
def test_a_served_run_reads_the_columns(asked) -> None:
    """A worker of `serve` begins, and answers as the model does."""
    config = pytest.importorskip("manyheads.plugins.serving.config").ServeConfig(run="run")
    served = pytest.importorskip("manyheads.plugins.serving.worker").open_served(config)
    (found,) = served.answers([join_cells(["a parcel", "high", 12.5])], None)
    (own,) = manyheads.load("run").predict([{"text": "a parcel", "priority": "high", "amount": 12.5}])
    assert found.prediction == own


@pytest.mark.verb("next")
def test_next_reads_the_columns_of_what_it_chooses_from(asked) -> None:
    with (asked / "more.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, NAMES[:3], extrasaction="ignore")
        table.writeheader()
        table.writerows(row | {"text": f"new {row['text']}"} for row in some_rows(20, seed=2))
    words = ["next", "run=run", "data.path=more.csv", "n=4", "output=next.csv", "hardware=cpu"]
    assert main(words) == 0
    with (asked / "next.csv").open(newline="") as file:
        assert list(csv.DictReader(file).fieldnames or [])[:4] == NAMES


@pytest.mark.slow
@pytest.mark.verb("export")
def test_an_exported_graph_answers_rows_by_its_own_script(asked) -> None:
    pytest.importorskip("onnxscript")
    assert main(["export", "run=run", "format=onnx", "output=graph"]) == 0
    assert main(["export", "run=run", "format=onnx", "output=graph", "overwrite=true"]) == 0
    command = [sys.executable, "predict.py", "--file", "../orders.csv", "../theirs.csv"]
    subprocess.run(command, cwd=asked / "graph", check=True)
    assert main(["predict", "run=run", "input=orders.csv", "output=ours.csv", "hardware.precision=fp32"]) == 0
    ours, theirs = ([*csv.DictReader((asked / name).open(newline=""))] for name in ("ours.csv", "theirs.csv"))
    for one, other in zip(ours, theirs, strict=True):
        assert (one["label"], one["amount"]) == (other["label"], other["amount"])
        assert float(one["p_rush"]) == pytest.approx(float(other["p_rush"]), abs=1e-5)
    broken = subprocess.run(
        [sys.executable, "predict.py", "a film"], cwd=asked / "graph", capture_output=True, text=True
    )
    assert "comes without priority, amount, which the model reads" in broken.stderr


def test_the_figures_of_the_docs(tmp_path, monkeypatch) -> None:
    """The page's command on 1,500 rows whose label is said by text, priority and amount."""
    page = (Path(__file__).parents[3] / "docs" / "data.md").read_text(encoding="utf-8")
    drawn, rows = random.Random(0), []
    what = ["the parcel", "the box", "a cup", "my order", "one chair", "the lamp"]
    how = ["never came", "is torn", "is broken", "came late", "has a scratch"]
    for at in range(1500):
        priority = drawn.choice(["high", "low", "normal", ""])
        amount = round(drawn.lognormvariate(3.3, 1), 2) if drawn.random() > 0.1 else ""
        text = f"{drawn.choice(what)} {drawn.choice(how)}, order {at}"
        sure = (amount != "" and amount > 40) + (priority == "high") + ("never" in text or "broken" in text)
        rows.append((text, priority, amount, "refund" if sure + drawn.random() > 1.6 else "voucher"))
    with (tmp_path / "returns.csv").open("w", newline="") as file:
        csv.writer(file).writerows([NAMES, *rows])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    (words,) = re.findall(r"(?m)^    manyheads train (data.path=returns.csv .*)$", page)
    run = manyheads.compose("train", words.replace("'", "").split())
    splits = read_splits(run.data, run.seed)
    splits.kept = learn_buckets(run.data, splits)
    assert splits.notes[-1] in page
    figure = gain_of_columns(SimpleNamespace(run=run, splits=splits))[FIGURE]
    assert f"{FIGURE}: {figure.words}" in page


def test_what_columns_add_is_measured_with_the_class_weights_of_the_run(asked) -> None:
    """As the accuracy of the linear model of this run, less that of a run without columns."""
    drawn, rows = random.Random(3), []
    for at in range(400):
        label = drawn.choice(["refund", "refund", "refund", "voucher"])
        word = "money" if (label == "refund") == (drawn.random() < 0.7) else "coupon"
        told = label if drawn.random() > 0.8 else drawn.choice(["refund", "voucher"])
        rows.append((f"{word} {at}", told, drawn.randrange(50), label))
    with open("odd.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([NAMES, *rows])
    columns = ["data.columns=[priority,amount]"]
    weights = ["optim.class_weights={refund: 1, voucher: 9}"]
    accuracy, gain = {}, {}
    for name, words in {"both": columns + weights, "texts": weights, "even": columns}.items():
        more = [*words, *TINY, "trainer.max_steps=2"]
        assert main(["train", "data.path=odd.csv", f"output=odd-{name}", *more]) == 0
        found = read_json(Path(f"odd-{name}/summary.json"))
        accuracy[name] = found["baselines"]["linear model"]["accuracy"]["value"]
        gain[name] = found["measured"].get(FIGURE, {}).get("value")
    assert gain["both"] == pytest.approx(accuracy["both"] - accuracy["texts"])
    assert gain["both"] != pytest.approx(gain["even"])  # so that the weights are needed
