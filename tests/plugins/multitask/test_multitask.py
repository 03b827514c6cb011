"""Several label columns: how they are read, learnt, judged and answered, each by itself."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

import manyheads
from manyheads import TextData, compose
from manyheads.cli.main import main
from manyheads.cli.verbs import VERBS
from manyheads.data.sources import read_rows, read_split
from manyheads.distributed import faults
from manyheads.errors import UserError
from manyheads.evaluation import results
from manyheads.linear import blend
from manyheads.plugins.multitask.columns import LabelColumn, check_labels, columns_of, rows_of
from manyheads.plugins.multitask.config import kept_columns
from manyheads.plugins.multitask.learning import ColumnFigures, column_losses
from manyheads.plugins.multitask.model import column_folder
from manyheads.runs.files import read_json

PAGE = (Path(__file__).parents[3] / "docs" / "labels.md").read_text(encoding="utf-8")
TINY = [
    *("model.d_model=16", "model.n_layers=1", "model.n_heads=2", "model.d_k=8", "model.d_v=8", "model.d_ff=16"),
    *("hardware=cpu", "hardware.precision=fp32", "tokenizer.vocab_size=200", "batch.rows=16", "optim.average=0"),
    *("optim.lr=0.01", "trainer.max_epochs=4"),
]
CPU = "hardware.accelerator=cpu"
TOPICS, URGENCY, TAGS = {"billing": "invoice", "delivery": "parcel"}, {"high": "now", "low": "later"}, ("angry", "vip")
COLUMNS = [
    LabelColumn("topic", ["a", "b", "c"], slice(0, 3), False),
    LabelColumn("tags", ["x", "y"], slice(3, 5), True),
]


def write(path: Path, header: list[str], rows: list[tuple]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def tickets(n: int = 90) -> list[tuple]:
    """Rows whose words say their topic, urgency and tags; of every fifth and every seventh one is not known."""
    rows = []
    for at in range(n):
        topic, urgency = [*TOPICS][at % 2], [*URGENCY][at // 2 % 2]
        tags = [tag for bit, tag in enumerate(TAGS) if at >> bit + 2 & 1]
        text = f"{TOPICS[topic]} {at} {URGENCY[urgency]} {' '.join(tags)}"
        rows.append((text, topic if at % 5 else "", urgency if at % 7 else "", "|".join(tags)))
    return rows


HEADER = ["text", "topic", "urgency", "tags"]
ROWS = [("one", "1.0", "a"), ("two", "2.0", "b")]
WORDS = ["data.labels=[topic,urgency,tags]", "data.label_sets=[tags]"]


@pytest.fixture
def quick(tmp_path, monkeypatch):
    """No picture is drawn, and no cache of others is read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(results, "write_page", lambda path, _: path.touch())
    return tmp_path


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A run of three columns."""
    home = tmp_path_factory.mktemp("home")
    write(home / "tickets.csv", HEADER, tickets())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYHEADS_CACHE", str(home / "cache"))
        assert main(["train", f"data.path={home / 'tickets.csv'}", *WORDS, *TINY, f"output={home / 'run'}"]) == 0
    return home


# Reading


def read(words: list[str], path: Path):
    run = compose("train", [f"data.path={path}", *words, "data.validation_split=train"])
    splits = read_rows(run, with_test=True)
    check_labels(run, splits)
    return splits, columns_of(splits.labels, kept_columns(run.data))


@given(
    cells=st.lists(
        st.tuples(st.sampled_from(["", "1", "1.0", "2"]), st.sets(st.sampled_from(["p", "q r", "s"]))),
        min_size=12,
        max_size=30,
    )
)
def test_each_column_has_the_labels_of_its_cells(tmp_path_factory, cells):
    """Whatever is missing; names that are numbers lose their fraction, as those of one column do."""
    place = tmp_path_factory.mktemp("rows")
    cells = [("1", {"p"}), ("2", {"q r"}), *cells]
    rows = [(f"text {at}", number, "|".join(sorted(names))) for at, (number, names) in enumerate(cells)]
    for part in ("train", "test"):
        write(place / f"{part}.csv", ["text", "n", "m"], rows)
    splits, columns = read(["data.labels=[n,m]", "data.label_sets=[m]"], place)
    assert [column.name for column in columns] == ["n", "m"]
    for column, of_row in zip(columns, zip(*cells, strict=True), strict=True):
        n = f"{sum(map(bool, of_row)):,}"
        kept = f"with a label: train {n}, validation {n}, test {n}"
        assert any(note.startswith(f"{column.name}: ") and note.endswith(kept) for note in splits.notes)
    for rows_of_split in (splits.train, splits.test):
        own, at_n = rows_of(columns[0], rows_of_split)
        found = dict(zip(at_n.tolist(), [columns[0].labels[id] for id in own.labels], strict=True))
        assert found == {at: cell[:1] for at, (cell, _) in enumerate(cells) if cell}
        own, at_n = rows_of(columns[1], rows_of_split)
        assert at_n.tolist() == [*range(len(cells))]
        assert [{columns[1].labels[id] for id in ids} for ids in own.sets] == [names for _, names in cells]


def test_lists_nulls_and_declared_classes(tmp_path):
    """A list, a null and -1 of a dataset's classes, as jsonl and the Hub have them."""
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        text=datasets.Value("string"), label=datasets.ClassLabel(names=["z", "y"]), tags=[datasets.Value("string")]
    )
    rows = {
        "text": [f"text {at}" for at in range(12)],
        "label": [-1, *[0, 1] * 5, 0],
        "tags": [["p"] * 2, [], ["q", "p"], *[["q"]] * 9],
    }
    data = datasets.Dataset.from_dict(rows, features=features)
    words = ["data.labels=[label,tags]", "data.label_sets=[tags]", "data.validation_split=train"]
    splits = TextData.from_rows(data, validation=data, run=compose("train", [*words, *TINY])).splits
    assert splits.labels == ["label: z", "label: y", "tags: p", "tags: q"]
    assert [*splits.train.sets][:4] == [(2,), (0,), (1, 2, 3), (0, 3)]


def test_a_number_is_that_of_the_model_whatever_else_a_file_has(tmp_path):
    """A file with whole numbers alone, of which train has halves, too; and the other way round."""
    words = ["data.labels=[stars,kind]", f"data.path={write(tmp_path / 'new.csv', ['text', 'stars', 'kind'], ROWS)}"]
    for stars in ("1.0", "1"):
        labels = [f"stars: {stars}", "stars: 1.5", "stars: 2", "kind: a", "kind: b"]
        rows = read_split(compose("train", words).data, "test", labels, multi=True)
        assert [*rows.sets] == [(0, 3), (2, 4)]


def test_no_number_is_an_empty_cell(tmp_path):
    """NaN, as pandas writes it, in a column of one class a row and in one of several labels."""
    rows = [{"text": f"text {at}", "one": "ab"[at % 2], "m": ["c"]} for at in range(12)]
    rows += [{"text": f"more {at}", "one": float("nan"), "m": float("nan")} for at in range(4)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    splits, _ = read(["data.labels=[one,m]", "data.label_sets=[m]"], tmp_path / "rows.jsonl")
    sets = [*splits.train.sets, *splits.test.sets]
    assert sorted(sets) == [()] * 4 + [(0, 2)] * 6 + [(1, 2)] * 6


def test_a_row_may_have_one_column_alone(tmp_path):
    """As where two files were joined, each labelled for one thing."""
    rows = [(f"text {at}", "ab"[at % 2], "") for at in range(12)] + [
        (f"more {at}", "", "cd"[at % 2]) for at in range(12)
    ]
    splits, columns = read(["data.labels=[one,two]"], write(tmp_path / "rows.csv", ["text", "one", "two"], rows))
    assert splits.multi
    n_rows = [sum(len(rows_of(column, part)[0]) for part in (splits.train, splits.test)) for column in columns]
    assert n_rows == [12, 12]


@pytest.mark.parametrize(
    ("words", "cells", "said"),
    [
        (["data.labels=[a,c]"], [], r"rows.csv has no column 'c' \(data.labels\): its columns are text, a, b"),
        (["data.text=b", "data.labels=[a,b]"], [], "names the column of the text, b"),
        (["data.labels=[a,'b  c']"], [], "'b  c' has several spaces, .*: rename the column"),
        (["data.labels=[a,b]"], [("one", "", "")], "row 32: there is no label in any of the columns a, b"),
        (["data.labels=[a,b]"], None, "has one class only, 'x', in the column 'b'"),
    ],
)
def test_rows_that_cannot_be_learnt_are_refused(tmp_path, words, cells, said):
    rows = [(f"text {at}", str(at % 2), "x" if cells is None or at % 2 else "y") for at in range(30)]
    with pytest.raises(UserError, match=said):
        read(words, write(tmp_path / "rows.csv", ["text", "a", "b"], [*rows, *(cells or [])]))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["data.labels=[topic]"], "data.labels=[topic] names one column: write data.label=topic"),
        (["data.labels=[topic,topic]"], "or one twice: name each once"),
        (["data.labels=[topic,mean]"], "'mean' would mean something else"),
        (["data.labels=[topic,tags]", "data.label_sets=[urgency]"], "which data.labels=[topic, tags] lacks"),
        (
            ["data.label_sets=[tags]"],
            "data.label_sets=[tags] is for several columns of labels: name them, as data.labels=[",
        ),
        ([*WORDS, "data.label_weights={topic: 0}"], "gives 'topic' the weight 0: it must be a positive number"),
        ([*WORDS, "data.label_weights={topics: 2}"], "names the column 'topics', which data.labels="),
        (["data.label_weights={topic: 2}"], "data.label_weights={'topic': 2} is for several columns of labels"),
        ([*WORDS, "data.streaming=true"], "cannot join what data.streaming=true reads: remove one of them"),
        ([*WORDS, "data.folds=3"], "data.folds=3 does nothing with task=multitask"),
        ([*WORDS, "data.hierarchy=/"], "data.hierarchy=/ does nothing with task=multitask"),
        ([*WORDS, "data.votes=v"], "data.votes=v does nothing with task=multitask"),
        ([*WORDS, "optim.class_weights=balanced"], "optim.class_weights=balanced does nothing with task=multitask"),
        ([*WORDS, "data.label=topic"], "data.label=topic does nothing with task=multitask"),
        ([*WORDS, "require=[topic.accurcy>0.8]"], "did you mean topic.accuracy?"),
        (["data.labels=[topic,a b]", "require=[a b.accurcy.low>0.8]"], "did you mean a b.accuracy?"),
        ([*WORDS, "require=[topic.micro_f1>0.8]"], "names no figure that is measured here"),
        ([*WORDS, "task=seq2seq"], "does nothing with task=seq2seq"),
    ],
)
def test_what_does_not_go_together_is_refused(quick, capsys, words, said):
    for word, owner in (("data.hierarchy=/", "hierarchy"), ("task=seq2seq", "language")):
        if word in words:
            pytest.importorskip(f"manyheads.plugins.{owner}")
    write(quick / "tickets.csv", HEADER, tickets())
    assert main(["train", "data.path=tickets.csv", *words, *TINY, "output=run"]) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert len(printed.strip().splitlines()) == 1
    assert not Path("run").exists()


# Learning


def test_losses_are_those_of_each_column_in_numpy():
    drawn = np.random.default_rng(0)
    logits_BC, marks_BC = drawn.normal(size=(6, 5)), np.zeros((6, 5), dtype=np.uint8)
    marks_BC[range(5), [0, 1, 2, 0, 1]] = 1  # the last row lacks the topic
    marks_BC[:, 3:] = drawn.integers(2, size=(6, 2))
    p_BC, q_BC = np.exp(logits_BC[:, :3]), 1 / (1 + np.exp(-logits_BC[:, 3:]))
    p_BC /= p_BC.sum(1, keepdims=True)
    wanted_B = -np.log((p_BC * marks_BC[:, :3]).sum(1), where=marks_BC[:, :3].any(1), out=np.zeros(6))
    wanted_B -= np.log(np.where(marks_BC[:, 3:], q_BC, 1 - q_BC)).sum(1)
    found_B = column_losses(COLUMNS, torch.from_numpy(logits_BC), torch.from_numpy(marks_BC))
    assert np.allclose(found_B, wanted_B, atol=1e-12)


def test_weights_multiply_the_gradient_of_their_column():
    marks_BC = torch.tensor([[1, 0, 0, 1, 0], [0, 0, 0, 0, 1], [0, 1, 0, 1, 1]], dtype=torch.uint8)
    plain = torch.randn(3, 5, dtype=torch.float64).requires_grad_()
    weighted = plain.detach().clone().requires_grad_()
    column_losses(COLUMNS, plain, marks_BC, smoothing=0.1).sum().backward()
    column_losses(COLUMNS, weighted, marks_BC, smoothing=0.1, weights={"tags": 2.5}).sum().backward()
    factor_C = torch.tensor([1, 1, 1, 2.5, 2.5])
    assert torch.allclose(weighted.grad, plain.grad * factor_C, atol=1e-12)


def test_a_run_learns_by_weights(quick, capsys):
    """The first training loss is as many times as large; the plan names the weights."""
    write(quick / "tickets.csv", HEADER, tickets())
    words = ["data.path=tickets.csv", *WORDS, *TINY, "linear=false", "test=false", "trainer.max_steps=1"]
    weights = ["data.label_weights={topic: 3, urgency: 3, tags: 3}", "logger.every=1"]
    assert main(["train", *words, *weights, "dry=true", "output=dry"]) == 0
    assert "urgency (2, weight 3)" in " ".join(capsys.readouterr().out.split())
    losses = []
    for name, more in (("plain", ["logger.every=1"]), ("weighted", weights)):
        assert main(["train", *words, *more, f"output={name}"]) == 0
        with (quick / name / "metrics.csv").open(encoding="utf-8") as file:
            losses += [float(row["loss"]) for row in csv.DictReader(file) if row["loss"]]
    assert losses[1] == pytest.approx(3 * losses[0])


def test_what_a_row_lacks_moves_no_weight():
    """To the bit, also where its logits are large."""
    logits_BC = (torch.randn(4, 5) * 50).requires_grad_()
    marks_BC = torch.tensor([[0, 0, 0, 1, 0]] * 4, dtype=torch.uint8)
    column_losses(COLUMNS, logits_BC, marks_BC, smoothing=0.1).sum().backward()
    assert torch.equal(logits_BC.grad[:, :3], torch.zeros(4, 3))
    assert logits_BC.grad[:, 3:].ne(0).all()


def test_figures_of_an_epoch_count_rows_that_have_the_column():
    figures, drawn = ColumnFigures(COLUMNS), np.random.default_rng(0)
    logits_nC, marks_nC = drawn.normal(size=(40, 5)), np.zeros((40, 5), dtype=np.uint8)
    labels_n = drawn.integers(4, size=40)  # 3: it lacks the topic
    marks_nC[labels_n < 3, labels_n[labels_n < 3]] = 1
    marks_nC[:, 3:] = logits_nC[:, 3:] > 0
    for part in (slice(0, 25), slice(25, 40)):
        figures.update(torch.from_numpy(logits_nC[part]), torch.from_numpy(marks_nC[part]))
    found = figures.compute()
    has_n = labels_n < 3
    assert float(found["topic.accuracy"]) == pytest.approx((logits_nC[has_n, :3].argmax(1) == labels_n[has_n]).mean())
    assert float(found["tags.micro_f1"]) > 0.95, "its thresholds are smoothed"
    assert float(found["mean"]) == pytest.approx(float(found["topic.accuracy"] + found["tags.micro_f1"]) / 2)
    figures.reset()
    assert not any(state.any() for one in figures.of_columns for state in one.metric_state.values())


def test_equal_columns_have_equal_figures(quick):
    rows = [(text, topic, topic) for text, topic, *_ in tickets()]
    write(quick / "rows.csv", ["text", "one", "two"], rows)
    words = ["data.path=rows.csv", "data.labels=[one,two]", "data.on_bad_row=drop", *TINY, "output=run"]
    assert main(["train", *words]) == 0
    test = read_json(quick / "run" / "summary.json")["test"]
    assert test["one.accuracy"] == test["two.accuracy"] == test["mean"]
    assert test["mean"]["value"] > 0.8


def test_a_stopped_run_is_resumed_to_the_bit(quick, monkeypatch):
    write(quick / "tickets.csv", HEADER, tickets())
    words = ["data.path=tickets.csv", *WORDS, *TINY, "resume=auto", "model.dropout=0.1", "trainer.max_epochs=2"]
    words += ["test=false", "linear=false"]
    assert main(["train", *words, "output=whole"]) == 0
    monkeypatch.setenv(faults.VARIABLE, "step:7:term")  # in the second epoch
    faults.reset_counts()
    assert main(["train", *words, "output=stopped"]) == 143
    monkeypatch.delenv(faults.VARIABLE)
    assert main(["train", *words, "output=stopped"]) == 0
    for name in ("model.safetensors", "topic/model.safetensors", "tags/linear.safetensors"):
        one, other = (load_file(Path(folder) / "model" / name) for folder in ("whole", "stopped"))
        assert all(torch.equal(one[key], other[key]) for key in one)
    one, other = (read_json(Path(folder) / "summary.json") for folder in ("whole", "stopped"))
    assert (one["validation"], one["train"], one["best"]) == (other["validation"], other["train"], other["best"])


def test_heads_that_answer_alone_are_divided_by_their_temperature(quick, monkeypatch):
    """In the network of all columns as in the classifier of one."""
    write(quick / "tickets.csv", HEADER, tickets())
    heads = {"model/model.safetensors": [], "model/topic/model.safetensors": []}
    for temperature in (1.0, 4.0):
        found = 0.0, temperature, 1.0
        monkeypatch.setattr(blend, "best_share", lambda *_, found=found: found)
        words = ["data.path=tickets.csv", *WORDS, *TINY, "trainer.max_epochs=1", "test=false"]
        assert main(["train", *words, f"output={temperature}"]) == 0
        for name, head in heads.items():
            weights = load_file(Path(str(temperature)) / name)
            head.append(torch.cat([weights["head.weight"].flatten(), weights["head.bias"]]))
    for raw, divided in heads.values():
        torch.testing.assert_close(divided, raw / 4)


# What is typed


def test_a_run_has_the_figures_of_each_column(home):
    summary = read_json(home / "run" / "summary.json")
    assert summary["best"]["metric"] == "mean"
    for split in ("validation", "test"):
        figures = summary[split]
        mains = [figures[name]["value"] for name in ("topic.accuracy", "urgency.accuracy", "tags.micro_f1")]
        assert figures["mean"]["value"] == pytest.approx(np.mean(mains))
        assert figures["mean"]["low"] <= figures["mean"]["value"] <= figures["mean"]["high"]
    assert min(mains) > 0.8
    assert {*summary["baselines"]} == {"linear model", "most frequent class"}
    assert {"mean", "topic.accuracy", "tags.micro_f1"} <= summary["leads"]["most frequent class"].keys()
    page = (home / "run" / "report.html").read_text(encoding="utf-8")
    for chapter in ("topic: Confusion", "urgency: Confusion", "tags: Labels", "topic: accuracy by confidence"):
        assert chapter in page
    assert "the mean over columns on test the model" in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len({*ids})
    kept = read_json(home / "run" / "model" / "config.json")["kept"]
    assert kept == {"labels": {"topic": False, "urgency": False, "tags": True}}


def test_evaluate_judges_each_column(home, quick, capsys):
    assert main(["evaluate", f"run={home / 'run'}", CPU, "output=own"]) == 0
    metrics, summary = read_json(Path("own/metrics.json")), read_json(home / "run" / "summary.json")
    assert {name: metrics[name] for name in summary["test"]} == summary["test"]
    with open("own/predictions.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    right = [row["topic"] == row["topic prediction"] for row in rows if row["topic"]]
    assert metrics["topic.accuracy"]["value"] == pytest.approx(np.mean(right))
    assert metrics["columns"]["topic"]["n_rows"] == len(right) < len(rows) == metrics["n_rows"]
    for row in rows:
        assert sum(float(row[f"p_topic: {name}"]) for name in TOPICS) == pytest.approx(1, abs=1e-5)
    write(quick / "new.csv", HEADER, [(f"new {text}", *cells) for text, *cells in tickets(30)])
    command = ["evaluate", f"run={home / 'run'}", CPU, "data.path=new.csv", "output=new"]
    assert main([*command, "require=[topic.accuracy.low>0.5,tags.micro_f1>0.5]"]) == 0
    assert "the most frequent" not in capsys.readouterr().out.split("warning", 1)[1]
    assert read_json(Path("new/metrics.json"))["columns"]["tags"]["n_rows"] == 30
    assert main([*command[:-1], "output=newer", "require=[urgency.accuracy>1]"]) == 3


def test_the_model_of_a_column_knows_its_most_frequent_class(home, quick, capsys):
    """That of the training rows, where most of the new rows have another."""
    run = compose("train", [f"data.path={home / 'tickets.csv'}", *WORDS])
    splits = read_rows(run, with_test=True)
    column = columns_of(splits.labels, kept_columns(run.data))[1]
    counts = np.bincount(rows_of(column, splits.train)[0].labels)
    usual, other = [*URGENCY][counts.argmax()], [*URGENCY][counts.argmin()]
    assert counts[0] != counts[1]
    write(quick / "new.csv", HEADER, [(f"new {at}", "", usual if at < 3 else other, "") for at in range(10)])
    assert main(["evaluate", f"run={home / 'run/model/urgency'}", CPU, "data.path=new.csv", "output=new"]) == 0
    assert read_json(Path("new/metrics.json"))["baselines"]["most frequent class"]["accuracy"]["value"] == 0.3
    assert "the training rows are not known" not in capsys.readouterr().out


def test_report_has_the_tables_of_each_column(home, quick, capsys):
    """Of an evaluation of enough rows, of which each bin of the table has some."""
    pytest.importorskip("manyheads.plugins.papers")
    write(quick / "new.csv", HEADER, tickets(300))
    assert main(["evaluate", f"run={home / 'run'}", CPU, "data.path=new.csv", "output=new"]) == 0
    scores = read_json(Path("new/metrics.json"))["columns"]
    for name in ("topic", "urgency"):
        assert main(["report", "run=new", f"of={name}.reliability", "output=table.csv"]) == 0
        with open("table.csv", newline="", encoding="utf-8") as file:
            counted = [int(row["rows"]) for row in csv.DictReader(file)]
        assert sum(counted) == scores[name]["n_rows"]
    assert main(["report", "run=new", "of=reliability"]) == 2
    assert "choose figures, topic.reliability or urgency.reliability" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "cells", "said"),
    [
        (
            ["require=[urgent.accuracy>1]"],
            "low",
            "names no figure that is measured here: did you mean urgency.accuracy?",
        ),
        (
            ["data.labels=[topic,tags]"],
            "low",
            "data.labels=[topic, tags] does nothing here, where it is kept with the model: remove it",
        ),
        ([], "soon", "new.csv has labels the model does not know"),
        ([], "", "no row of new.csv has a label in the column 'urgency'"),
    ],
)
def test_mistakes_of_an_evaluation_are_refused(home, quick, capsys, words, cells, said):
    write(quick / "new.csv", HEADER, [("a parcel", "delivery", cells, "")])
    assert main(["evaluate", f"run={home / 'run'}", CPU, "data.path=new.csv", "output=new", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_predict_answers_each_column(home, quick, kind):
    write(quick / "new.csv", ["text", "topic"], [("parcel now vip", "x"), ("", "y"), ("invoice later", "z")])
    assert main(["predict", f"run={home / 'run'}", CPU, "input=new.csv", f"output=out.{kind}"]) == 0
    if kind == "csv":
        with open("out.csv", newline="", encoding="utf-8") as file:
            rows = [{name: cell or None for name, cell in row.items()} for row in csv.DictReader(file)]
        for row in rows:
            row["tags"] = None if row["tags"] is None else json.loads(row["tags"])
        likely = [float(row["p_topic: delivery"] or 0) for row in rows]
    else:
        if kind == "jsonl":
            rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
            likely = [row["probabilities"]["topic: delivery"] or 0 for row in rows]
        else:
            rows = pytest.importorskip("pyarrow.parquet").read_table("out.parquet").to_pylist()
            likely = [row["p_topic: delivery"] or 0 for row in rows]
    assert [row["topic"] for row in rows] == ["delivery", None, "billing"]
    assert [row["urgency"] for row in rows] == ["high", None, "low"]
    assert [row["tags"] for row in rows] == [["vip"], None, []]
    assert [row["input_topic"] for row in rows] == ["x", "y", "z"]
    assert likely[0] > 0.5 > likely[2]
    again = ["predict", f"run={home / 'run'}", CPU, "input=new.csv", f"output=out.{kind}", "overwrite=true"]
    assert main(again) == 0, "they are known as answers of predict"


def test_a_column_is_a_classifier_of_its_own(home, quick):
    """It answers as the column does, in each verb of classifiers."""
    texts = [text for text, *_ in tickets(20)]
    model = manyheads.load(home / "run", precision="fp32")
    found = model.predict(texts)
    for column in ("topic", "tags"):
        alone = manyheads.load(home / "run" / "model" / column, precision="fp32")
        for one, own in zip(found, alone.predict(texts), strict=True):
            assert one.answers[column] == (own.label if column == "topic" else own.labels)
            for name, probability in own.probabilities.items():
                assert one.probabilities[f"{column}: {name}"] == pytest.approx(probability, abs=1e-5)
    write(quick / "new.csv", ["text", "topic"], [(text, topic or "billing") for text, topic, *_ in tickets(20)])
    assert main(["evaluate", f"run={home / 'run' / 'model' / 'topic'}", CPU, "data.path=new.csv", "output=one"]) == 0


@pytest.mark.parametrize(
    "words",
    [
        ["calibrate"], ["look", "text=parcel"], ["export", "format=torch"], ["predict", "text=parcel", "top_k=1"],
        ["predict", "text=parcel", "members=linear"], ["push", "repo=a/b", "dry=true"], ["serve"],
        ["evaluate", "slices=length", "output=x"],
        ["predict", "text=parcel", "outliers.false_alarms=0.1"], ["predict", "text=parcel", "abstain.risk=0.1"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_verbs_of_classifiers_name_a_remedy(home, quick, capsys, words):
    verb, *rest = words
    if verb not in VERBS:
        pytest.skip(f"no plugin adds the verb {verb}")
    if any(word.startswith(("outliers", "abstain", "slices")) for word in rest):
        pytest.importorskip("manyheads.plugins.judge")
    assert main([verb, f"run={home / 'run'}", *rest]) == 2
    printed = capsys.readouterr().err
    assert len(printed.strip().splitlines()) == 1
    if verb in ("calibrate", "look", "export", "push", "serve"):
        assert printed.endswith(f": name one of those, such as run={home / 'run' / 'model' / 'tags'}\n")


@pytest.mark.verb("calibrate")
def test_verbs_on_a_column_know_what_the_run_learnt_from(home, quick, capsys):
    """A row that lacks the column was learnt from by its text, too."""
    write(quick / "more.csv", ["text", "topic"], [(text, topic or "billing") for text, topic, *_ in tickets()])
    column, other = home / "run" / "model" / "topic", quick / "other"
    other.symlink_to(column)  # as compare refuses a model that is named twice
    assert main(["evaluate", f"run={column}", CPU, "data.path=more.csv", "output=judged"]) == 0
    assert " of 90 texts of more.csv are also in what the model learnt from" in capsys.readouterr().out
    for words in (
        ["calibrate", f"run={column}", "data.path=more.csv"],
        ["compare", f"runs=[{column},{other}]", "data.path=more.csv"],
        ["predict", f"run={column}", CPU, "text=parcel", "abstain.risk=0.5", "labelled=more.csv"],
    ):
        assert main(words) == 2
        assert " of more.csv" in capsys.readouterr().err
    assert main(["predict", f"run={column}", CPU, "text=parcel", "outliers.false_alarms=0.5"]) == 0
    assert "outlier" in json.loads(capsys.readouterr().out)


@pytest.mark.verb("next")
def test_next_of_a_column_knows_the_rows_of_the_run(home, quick, capsys):
    new = [(f"quite {text}", *cells) for text, *cells in tickets(30)]
    write(quick / "more.csv", HEADER, [*tickets(40), *new])
    words = ["data.path=more.csv", "n=10", CPU, "output=next.csv"]
    assert main(["next", f"run={home / 'run'}", *words]) == 2
    assert "name one of those, such as run=" in capsys.readouterr().err
    assert main(["next", f"run={home / 'run' / 'model' / 'urgency'}", *words]) == 0
    assert "set aside of 70 texts: 40 in the data of the run" in capsys.readouterr().out
    with open("next.csv", newline="", encoding="utf-8") as file:
        chosen = [row["text"] for row in csv.DictReader(file)]
    assert len(chosen) == 10
    assert {*chosen} < {text for text, *_ in new}


def test_a_folder_that_does_not_fit_is_refused(home, quick, capsys):
    import shutil

    shutil.copytree(home / "run" / "model", quick / "model")
    command = ["predict", "run=model", "text=parcel", CPU]
    labels = quick / "model" / "topic" / "labels.json"
    labels.write_text('["delivery", "billing"]')
    assert main(command) == 2
    shutil.rmtree(quick / "model" / "topic")
    assert main(command) == 2
    config = quick / "model" / "config.json"
    config.write_text(config.read_text().replace('"urgency": false', '"urgency": "no"'))
    assert main(command) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 3


def test_each_column_has_a_folder():
    """Also where a column is called as the folder of another would be."""
    names = ["column-2", "my topic", "c.d", "ok"]
    columns = [LabelColumn(name, ["a", "b"], slice(0, 2), False) for name in names]
    folders = [column_folder(column, number) for number, column in enumerate(columns, 1)]
    assert folders == ["column-1", "column-2", "column-3", "ok"]


def test_rows_in_python(quick):
    rows = [{"text": text, "topic": topic or None, "urgency": urgency} for text, topic, urgency, _ in tickets()]
    run = compose("train", ["data.labels=[topic,urgency]", "data.on_bad_row=drop", *TINY, "output=run"])
    summary = manyheads.train(run, data=TextData.from_rows(rows, run=run))
    assert summary.test["topic.accuracy"].value > 0.7
    assert {*manyheads.load("run").predict(["a parcel now"])[0].answers} == {"topic", "urgency"}


def test_the_example_of_the_page(quick):
    write(quick / "helpdesk.csv", HEADER, tickets())
    lines = [line for line in re.findall(r"(?m)^    manyheads (.*)$", PAGE) if "helpdesk" in line]
    assert [line.split()[0] for line in lines] == ["train", "predict", "look"]
    train, predict, _ = (re.findall(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""", line) for line in lines)
    assert main([*(word.replace("'", "") for word in train), *TINY]) == 0
    assert main([word.replace('"', "") for word in predict]) == 0
