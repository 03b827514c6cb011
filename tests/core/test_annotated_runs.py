"""Weights of rows and votes of annotators as they are typed, in each verb that a run of them goes through."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import manyheads
import manyheads.plugin as plugin
from manyheads import TextData, compose
from manyheads.cli.main import main
from manyheads.distributed import faults
from manyheads.evaluation import results
from manyheads.training import pipeline
from manyheads.training.build import make_objective

PAGE = (Path(__file__).parents[2] / "docs" / "labels.md").read_text(encoding="utf-8")
TINY = [
    *("model.d_model=16", "model.n_layers=1", "model.n_heads=2", "model.d_k=8", "model.d_v=8", "model.d_ff=16"),
    *("hardware=cpu", "hardware.precision=fp32", "tokenizer.vocab_size=200", "batch.rows=16", "optim.average=0"),
    *("trainer.max_epochs=2", "optim.lr=0.01"),
]
CPU = "hardware.accelerator=cpu"
finds = pytest.mark.skipif("votes" not in plugin.names("finding"), reason="no plugin judges by weights and votes")


def commands(file: str) -> list[list[str]]:
    """The words of the page's commands on a file."""
    lines = re.findall(rf"(?m)^    manyheads (.* data\.path={file}\b.*)$", PAGE)
    return [line.replace("'", "").split() for line in lines]


def write(path: Path, header: list[str], rows: list[tuple]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The files of the page, of more rows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(results, "write_page", lambda path, _: path.touch())
    days, kinds = range(40), ("came quickly", "broke", "has a nice box")
    shop = [(f"the parcel of day {day} {kinds[day % 3]}", ("good", "bad", "good")[day % 3], (1, 1, 0.3)[day % 3])
            for day in days]  # fmt: skip
    write(tmp_path / "shop.csv", ["text", "label", "trust"], shop)
    cells = [
        ("question:3", 0, 3),
        ("complaint:2|question:1", 2, 1),
        ("complaint:3", 3, 0),
        ("question:2|complaint:2", 2, 2),
    ]
    asks = ("where is", "I miss", "never again", "what about")
    tickets = [(f"{asks[day % 4]} parcel {day}", *cells[day % 4]) for day in range(60)]
    write(tmp_path / "tickets.csv", ["text", "votes", "complaint", "question"], tickets)
    return tmp_path


def read(path: str):
    return json.loads(Path(path).read_text(encoding="utf-8"))


@finds
def test_a_run_with_weights(place, capsys):
    (train,) = commands("shop.csv")
    assert main([*train, *TINY]) == 0
    said = "".join(capsys.readouterr())
    assert re.search(r"weighted_accuracy: \d\.\d{4} \(", said)
    summary = read("outputs/shop/summary.json")
    assert {"weighted_accuracy", "weighted_loss"} <= summary["measured"].keys()
    assert main(["evaluate", "run=outputs/shop", CPU]) == 0
    own = read("outputs/shop/evaluate/shop-test/metrics.json")
    assert own["by_weights"]["weighted_accuracy"] == pytest.approx(summary["measured"]["weighted_accuracy"])
    assert "effective rows; with all 4 rows alike" in capsys.readouterr().out
    assert main(["evaluate", "run=outputs/shop", CPU, "data.path=shop.csv", "output=new"]) == 0
    assert "by_weights" not in read("new/metrics.json")
    assert main(["evaluate", "run=outputs/shop", CPU, "data.path=shop.csv", "data.weight=trust", "output=newer"]) == 0
    assert "by_weights" in read("newer/metrics.json")
    with open("newer/predictions.csv", encoding="utf-8") as file:
        assert "trust" in next(csv.reader(file))


@finds
def test_a_run_with_votes(place, capsys):
    train, audit, columns = commands("tickets.csv")
    assert main([*train, *TINY]) == 0
    summary = read("outputs/tickets/summary.json")
    expected = {"votes_log_loss", "votes_kl", "votes_for_answer", "accuracy_untied", "accuracy_or_tied"}
    assert expected <= summary["measured"].keys()
    assert "4 votes a row" not in (log := Path("outputs/tickets/run.log").read_text())
    assert "3.25 votes a row, from whose shares a row is learnt; 15 of 60 rows tie" in log
    assert main(["evaluate", "run=outputs/tickets", CPU]) == 0
    own = read("outputs/tickets/evaluate/tickets-test/metrics.json")
    for name in expected:
        assert own["by_votes"][name] == pytest.approx(summary["measured"][name])
    assert main([*columns, *TINY, "output=columns"]) == 0
    one, other = (load_file(Path(folder) / "model" / "model.safetensors") for folder in ("outputs/tickets", "columns"))
    assert all(torch.equal(one[name], other[name]) for name in one), "the same votes, the same bits"
    config = read("columns/model/config.json")["columns"]
    assert config["label_columns"] == ["complaint", "question"]
    assert "votes" not in config
    if "audit" not in plugin.verbs():
        return
    capsys.readouterr()
    assert main([*audit, "folds=2"]) == 0
    assert read("outputs/tickets-audit/audit.json")["agreement"]["votes"] > 0
    assert "annotators agree by Krippendorff's alpha 0." in capsys.readouterr().out


def test_classes_weigh_alike_in_the_network_and_in_the_linear_model(place, monkeypatch):
    """By their shares of the votes, from which both learn: the classes with the most votes have other ones."""
    tickets = [(f"parcel {day}", "yes:2|no:1") for day in range(30)] + [(f"box {day}", "no:1") for day in range(10)]
    write(place / "train.csv", ["text", "votes"], tickets)
    for name in ("validation", "test"):
        write(
            place / f"{name}.csv",
            ["text", "votes"],
            [(f"{name} {day}", ("yes:1", "no:1")[day % 2]) for day in range(9)],
        )
    found, fit = [], pipeline.cached_linear
    monkeypatch.setattr(pipeline, "cached_linear", lambda *given: found.append(given[-1]) or fit(*given))
    words = [f"data.path={place}", "data.votes=votes", "optim.class_weights=balanced", *TINY]
    assert main(["train", *words, "output=run"]) == 0
    assert found[0] == pytest.approx([1, 1]), "20 votes of 40 rows for each"
    run = compose("train", words)
    data = TextData.from_run(run)
    network = make_objective(run, data.tokens["train"], data.splits.labels).class_weights_C
    assert network.numpy() == pytest.approx(found[0])


@finds
def test_other_files_are_judged_by_their_votes_or_labels(place, capsys):
    assert main(["train", "data.path=tickets.csv", "data.votes=votes", *TINY, "output=run"]) == 0
    judge = ["evaluate", "run=run", CPU]
    assert main([*judge, "data.path=tickets.csv", "output=one"]) == 0
    assert "by_votes" in read("one/metrics.json")
    write(place / "gold.csv", ["text", "label"], [("where is it", "question"), ("never again", "complaint")])
    assert main([*judge, "data.path=gold.csv", "output=two"]) == 0
    assert "by_votes" not in read("two/metrics.json")
    assert main(["predict", "run=run", "input=tickets.csv", "output=answers.csv", CPU]) == 0
    write(place / "more.csv", ["text", "votes"], [("where is it", "question:1|praise:1")])
    capsys.readouterr()
    assert main([*judge, "data.path=more.csv", "output=three"]) == 2
    assert "row 2: it has votes for 'praise'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["data.votes=votes", "data.label=complaint"], "data.label=complaint does nothing with data.votes"),
        (["data.votes=votes", "optim.focal_gamma=2"], "optim.focal_gamma=2.0 knows labels alone"),
        (["data.votes=votes", "data.label_columns=[complaint,question]"], "two places of what annotators say"),
        (["data.votes=nothing"], "has no column 'nothing' (data.votes)"),
        (["data.votes=votes", "data.weight=nil"], "has no column 'nil' (data.weight)"),
        (["data.votes=votes", "data.weight=zero"], "training rows of tickets.csv weigh 0"),
    ],
)
def test_mistakes_are_refused_before_training(place, capsys, words, said):
    rows = list(csv.reader((place / "tickets.csv").open()))
    write(place / "tickets.csv", [*rows[0], "zero"], [(*row, 0) for row in rows[1:]])
    assert main(["train", "data.path=tickets.csv", *words, *TINY, "output=run"]) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert len(printed.strip().splitlines()) == 1
    assert not Path("run").exists()


def test_a_stopped_run_of_weighted_votes_is_resumed_to_the_bit(place, monkeypatch):
    rows = list(csv.reader((place / "tickets.csv").open()))
    write(place / "tickets.csv", [*rows[0], "w"], [(*row, 1 + at % 3) for at, row in enumerate(rows[1:])])
    words = ["data.path=tickets.csv", "data.votes=votes", "data.weight=w", *TINY, "resume=auto", "linear=false"]
    words += ["test=false", "model.dropout=0.1"]
    assert main(["train", *words, "output=whole"]) == 0
    monkeypatch.setenv(faults.VARIABLE, "step:3:term")
    faults.reset_counts()
    assert main(["train", *words, "output=stopped"]) == 143
    monkeypatch.delenv(faults.VARIABLE)
    write(place / "other.csv", [*rows[0], "w"], [(*row, 2) for row in rows[1:]])
    assert main(["train", *words[1:], "data.path=other.csv", "output=stopped"]) == 2, "other weights"
    assert main(["train", *words, "output=stopped"]) == 0
    one, other = (load_file(Path(name) / "model" / "model.safetensors") for name in ("whole", "stopped"))
    assert all(torch.equal(one[name], other[name]) for name in one)


@finds
def test_rows_in_python(place):
    rows = [
        {"text": f"{'good' if at % 3 else 'bad'} {at}", "votes": {"yes": at % 3, "no": 1}, "w": at % 2}
        for at in range(60)
    ]
    run = compose("train", [*TINY, "data.votes=votes", "data.weight=w", "output=rows"])
    data = TextData.from_rows(rows, run=run)
    summary = manyheads.train(run, data=data)
    assert summary is not None
    assert {"votes_kl", "weighted_accuracy"} <= summary.measured.keys()
    tokens = data.tokens["train"]
    assert tokens.weights_n is not None
    assert float(tokens.weights_n.mean()) == pytest.approx(1)
    assert np.array_equal(tokens.labels, np.asarray(data.splits.train.labels))
