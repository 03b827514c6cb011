"""Labels with levels: read as paths or by a file of parents, learnt, judged level by level, and answered where sure."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from manyheads import TextData, compose
from manyheads.cli.main import main
from manyheads.data.batches import Planned, gather
from manyheads.data.sources import read_rows
from manyheads.errors import UserError
from manyheads.evaluation import results
from manyheads.plugins.hierarchy.answers import hierarchical
from manyheads.plugins.hierarchy.learning import likely_below, node_losses
from manyheads.plugins.hierarchy.tree import Tree, finder, kept_lines, label_lines
from manyheads.runs.files import read_json

SOUNDS = {
    "animals/cats/siamese": "meow blue",
    "animals/cats/tabby": "meow stripes",
    "animals/dogs": "bark",
    "plants/rose": "thorn",
}
TINY = [
    *("model.d_model=16", "model.n_layers=1", "model.n_heads=2", "model.d_k=8", "model.d_v=8", "model.d_ff=16"),
    *("hardware=cpu", "hardware.precision=fp32", "tokenizer.vocab_size=200", "batch.rows=16", "optim.average=0"),
]
CLASSES = sorted(SOUNDS)


def paths(sign: str = "/", parents: str = "") -> SimpleNamespace:
    return SimpleNamespace(hierarchy="" if parents else sign, parents=parents, streaming=False)


def write(path: Path, rows: list[tuple], header: tuple = ("text", "label")) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def films(n: int = 12) -> list[tuple]:
    """Rows of each class, and of the node above two of them."""
    rows = [(f"number {at} says {sound}", label) for at in range(n) for label, sound in SOUNDS.items()]
    return rows + [(f"evening {at} says meow", "animals/cats") for at in range(n)]


@pytest.fixture
def quick(tmp_path, monkeypatch):
    """No picture is drawn, and no cache of others is read."""
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(results, "write_page", lambda path, _: path.touch())


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A run on paths, of which some rows have a node as their label."""
    home = tmp_path_factory.mktemp("home")
    write(home / "rows.csv", films())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYHEADS_CACHE", str(home / "cache"))
        patch.setattr(results, "write_page", lambda path, _: path.touch())
        command = ["train", f"data.path={home / 'rows.csv'}", "data.hierarchy=/", *TINY, f"output={home / 'run'}"]
        assert main([*command, "optim.lr=0.01", "trainer.max_epochs=8"]) == 0
    return home


# Reading


def test_labels_are_paths():
    names = ["a / b", "a/b/c", "a/b/d", "/e/", "a/f"]
    assert label_lines(paths(), names)[1:4] == [["a", "a/b", "a/b/c"], ["a", "a/b", "a/b/d"], ["e"]]
    below = finder(paths())(names, multi=False)
    assert below == {"a": ["a/b/c", "a/b/d", "a/f"], "a/b": ["a/b/c", "a/b/d"], "a / b": ["a/b/c", "a/b/d"]}
    assert finder(paths("")) is None
    assert kept_lines(paths("."), SimpleNamespace(labels=["comp.os", "misc"])) == {"hierarchy": [["comp"], []]}


def test_parents_are_a_file(tmp_path):
    file = str(
        write(tmp_path / "up.csv", [("tabby", "Cats"), ("cats", "animals"), ("dogs", "animals")], ("label", "parent"))
    )
    names = ["cats", "dogs", "rose", "tabby"]
    assert label_lines(paths(parents=file), names) == [
        ["animals", "cats"], ["animals", "dogs"], ["rose"], ["animals", "cats", "tabby"],
    ]  # fmt: skip
    assert finder(paths(parents=file))(names, multi=False) == {"animals": ["dogs", "tabby"], "cats": ["tabby"]}


@pytest.mark.parametrize(
    ("rows", "header", "said"),
    [
        ([("a", "b"), ("b", "a")], ("label", "parent"), "'a' is above itself"),
        ([("a", "b"), ("a", "c")], ("label", "parent"), "row 3: the parent of 'a' is 'c', but above 'b'"),
        ([("a", "b")], ("label", "above"), "has the columns label, above"),
        ([("x", "b")], ("label", "parent"), "has no parent of any of the labels, which are a"),
    ],
)
def test_a_file_that_is_no_tree_is_refused(tmp_path, rows, header, said):
    file = str(write(tmp_path / "up.csv", rows, header))
    with pytest.raises(UserError, match=said):
        label_lines(paths(parents=file), ["a"])


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "up.docx").write_bytes(b"PK")
    with pytest.raises(UserError, match=r"data\.parents=.*up\.docx is not a kind of file"):
        label_lines(paths(parents=str(tmp_path / "up.docx")), ["a"])


def test_one_path_is_written_in_one_way():
    with pytest.raises(UserError, match="'a/b' and 'a / b' are one path"):
        label_lines(paths(), ["a/b", "a / b"])


def test_a_sign_that_no_label_has_is_refused():
    with pytest.raises(
        UserError, match=r"^data.hierarchy=> is between no levels of the labels, which are a/b, c: name"
    ):
        label_lines(paths(">"), ["a/b", "c"])


def test_rows_of_nodes_are_learnt_from_alone(tmp_path, quick):
    """They are in no split, and in train none whose text is judged; the classes are those at the ends of paths."""
    file = write(tmp_path / "rows.csv", films())
    words = [f"data.path={file}", "data.hierarchy=/", *TINY]
    plain = read_rows(compose("train", words), with_test=True)
    again = plain.validation.texts[0]
    write(tmp_path / "rows.csv", [*films(), (again, "animals/cats")])
    data = TextData.from_run(compose("train", words))
    splits = data.splits
    assert splits.labels == CLASSES
    assert {splits.labels[id] for id in splits.own_train.labels} == {*CLASSES}
    n_own, n_apart = len(splits.own_train), 13
    further = splits.train.texts[n_own:]
    assert set(further) <= {f"evening {at} says meow" for at in range(12)}
    judged = {*splits.validation.texts, *splits.test.texts}
    assert not {*further} & judged
    assert len(further) == 12 if again in judged else n_apart
    assert len(splits.own_train) + len(splits.validation) + len(splits.test) == 4 * 12
    cats = np.array([name.startswith("animals/cats/") for name in CLASSES])
    batch = gather(data.tokens["train"], Planned(torch.tensor([0, n_own]), 1.0))
    assert np.array_equal(batch.probabilities_BC[1].numpy() > 0, cats)
    assert batch.probabilities_BC[0].sum() == 1
    assert batch.any_of_B.tolist() == [False, True]
    assert cats[splits.train.labels[n_own:]].all()
    assert any("of 13 rows of rows.csv whose label is above classes are learnt from" in note for note in splits.notes)


def test_levels_that_differ_by_case_only_are_said(tmp_path, quick):
    words = [f"data.path={tmp_path / 'rows.csv'}", "data.hierarchy=/", *TINY]
    said = "data.hierarchy=/: rows.csv has levels that differ by case only, Animals, animals: write them alike if they"
    for more, is_said in (("Animals/cows", True), ("animals/cows", False)):
        write(tmp_path / "rows.csv", [*films(), *((f"number {at} says moo", more) for at in range(12))])
        assert any(said in note for note in TextData.from_run(compose("train", words)).splits.notes) is is_said


def test_rows_of_a_judged_file_with_a_node_are_left_out(tmp_path, quick):
    write(tmp_path / "train.csv", films())
    write(tmp_path / "test.csv", [("meow", "animals"), ("bark bark", "animals/dogs"), ("thorns", "plants/rose")])
    splits = read_rows(compose("train", [f"data.path={tmp_path}", "data.hierarchy=/"]), with_test=True)
    assert splits.test.texts[:] == ["bark bark", "thorns"]
    assert any("test.csv: 1 of 3 rows have a label that stands for several classes" in note for note in splits.notes)
    write(tmp_path / "test.csv", [("meow", "animals")])
    with pytest.raises(UserError, match="has no row with one of the classes"):
        read_rows(compose("train", [f"data.path={tmp_path}", "data.hierarchy=/"]), with_test=True)


def test_rows_in_memory(quick):
    run = compose("train", ["data.hierarchy=/", *TINY])
    splits = TextData.from_rows(films(), run=run).splits
    assert splits.labels == CLASSES
    assert len(splits.train) == len(splits.own_train) + 12


def test_rows_of_one_group_stay_out_of_train(tmp_path, quick):
    """A node's row whose author is in validation or test is not learnt from."""
    rows = [(text, label, f"author {at % 20}") for at, (text, label) in enumerate(films(20))]
    write(tmp_path / "rows.csv", rows, ("text", "label", "author"))
    words = [f"data.path={tmp_path / 'rows.csv'}", "data.hierarchy=/", "data.group=author", *TINY]
    splits = TextData.from_run(compose("train", words)).splits
    author = {text: name for text, _, name in rows}
    judged = {author[text] for part in (splits.validation, splits.test) for text in part.texts}
    further = splits.train.texts[len(splits.own_train) :]
    assert further
    assert not judged & {author[text] for text in further}


def test_a_class_below_is_the_likeliest_unless_others_are_as_likely():
    """By the words of rows with a class; by none all are as likely."""
    words = {"siamese": "blue eyes", "tabby": "dark stripes", "rose": "a thorn"}
    given = [(f"{word} on day {at}", label) for at in range(20) for label, word in words.items()]
    splits = TextData.from_rows(given).splits
    rows = splits.train.pick(np.arange(40) % len(splits.train))
    rows.texts = ["dark stripes"] * 20 + ["nothing"] * 20
    rows.probabilities = np.tile(np.float32([0, 0.5, 0.5]), (40, 1))  # of rose, siamese, tabby
    assert splits.labels == ["rose", "siamese", "tabby"]
    found = likely_below(splits, rows)
    assert found[:20].tolist() == [2] * 20
    assert {*found[20:].tolist()} == {1, 2}
    one = splits.train.pick(np.flatnonzero(np.array(splits.train.labels) == 0))  # a linear model needs two classes
    rows.probabilities = np.tile(np.float32([0.5, 0, 0.5]), (40, 1))
    assert {*likely_below(replace(splits, train=one), rows).tolist()} == {0, 2}


# Learning


def test_a_node_is_learnt_by_the_sum_of_its_classes():
    """Against the formula in NumPy, in double precision; zeros of a teacher, which are those of no node, too."""
    drawn = torch.Generator().manual_seed(0)
    logits_BC = torch.randn(5, 5, generator=drawn, dtype=torch.float64)
    rows = [[1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0.2] * 5, [0, 1, 1, 0, 1], [0.9, 0.1, 0, 0, 0]]
    is_node_B = torch.tensor([True, False, False, True, False])
    wanted_BC = torch.tensor(rows, dtype=torch.float64)
    wanted_BC = wanted_BC / wanted_BC.sum(1, keepdim=True)
    x = logits_BC.numpy()
    p = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    expected = [
        -np.log(p[0, :2].sum()), -np.log(p[1, 2]), -np.log(p[2]).mean(), -np.log(p[3, 1] + p[3, 2] + p[3, 4]),
        -0.9 * np.log(p[4, 0]) - 0.1 * np.log(p[4, 1]),
    ]  # fmt: skip
    found_B = node_losses(logits_BC, wanted_BC, is_node_B, smoothing=0.0)
    assert np.allclose(found_B.numpy(), expected, atol=1e-12)
    smoothed_B = node_losses(logits_BC, wanted_BC, is_node_B, smoothing=0.1)
    assert np.allclose(smoothed_B.numpy(), 0.9 * np.array(expected) - 0.1 * np.log(p).mean(1), atol=1e-12)
    ids_B = torch.tensor([2, 0, 1, 1, 3])
    assert torch.equal(
        node_losses(logits_BC, ids_B, smoothing=0.1),
        torch.nn.functional.cross_entropy(logits_BC, ids_B, label_smoothing=0.1, reduction="none"),
    )


def test_gradients_are_finite_where_a_class_is_sure():
    logits_BC = torch.tensor([[80.0, -80.0, 0.0]], requires_grad=True)
    node_losses(logits_BC, torch.tensor([[0.0, 0.5, 0.5]]), torch.tensor([True]), smoothing=0.1).sum().backward()
    assert logits_BC.grad.isfinite().all()


# Answers and figures

TREES = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=4), min_size=2, max_size=7)


@st.composite
def trees(draw) -> tuple[Tree, list[list[str]], np.ndarray]:
    """A tree, the nodes above each class, and probabilities of its classes for some rows."""
    above = draw(TREES)
    labels = [f"class {at}" for at in range(len(above))]
    random = np.random.default_rng(draw(st.integers(0, 99)))
    return Tree(labels, above), above, random.dirichlet(np.full(len(above), 0.4), size=6)


@given(drawn=trees(), sure=st.floats(0.05, 0.95))
def test_no_answer_is_a_child_outside_its_parent(drawn, sure):
    """Its probability is the sum over its classes, which are also below its parent; with less to be sure of, the answer
    is the same or lies below."""
    tree, _, p_nC = drawn
    node_n, probability_n = tree.deepest(p_nC, sure)
    lower_n, _ = tree.deepest(p_nC, sure / 2)
    for of_row, node, probability, lower in zip(p_nC, node_n, probability_n, lower_n, strict=True):
        if node < 0:
            continue
        below = (tree.node_CD == node).any(1)
        assert probability == pytest.approx(of_row[below].sum())
        assert probability >= sure
        line = tree.lines[node]
        assert tree.lines[lower][: len(line)] == line
        if len(line) > 1:
            (parent,) = [at for at, one in enumerate(tree.lines) if one == line[:-1]]
            assert (tree.node_CD[below] == parent).any(1).all()


@given(drawn=trees())
def test_the_likeliest_class_is_answered_without_a_bound(drawn):
    tree, _, p_nC = drawn
    node_n, probability_n = tree.deepest(p_nC, 0.0)
    assert [tree.lines[node][-1] for node in node_n] == [f"class {at}" for at in p_nC.argmax(1)]
    assert np.array_equal(probability_n, p_nC.max(1))


@given(drawn=trees(), seed=st.integers(0, 99))
def test_hierarchical_figures_are_those_of_sets_of_nodes(drawn, seed):
    """Against sets of ways from the top, without the levels that all share."""
    tree, above, _ = drawn
    ways = [(*line, f"class {at}") for at, line in enumerate(above)]
    n_shared = 0
    while all(len(way) > n_shared + 1 for way in ways) and len({way[: n_shared + 1] for way in ways}) == 1:
        n_shared += 1
    nodes = [{way[:end] for end in range(n_shared + 1, len(way) + 1)} for way in ways]
    labels_n, answers_n = np.random.default_rng(seed).integers(len(ways), size=(2, 12))
    both = sum(len(nodes[a] & nodes[b]) for a, b in zip(labels_n, answers_n, strict=True))
    precision, recall = both / sum(len(nodes[a]) for a in answers_n), both / sum(len(nodes[a]) for a in labels_n)
    found = hierarchical(tree, labels_n, answers_n)
    assert found["precision"].value == pytest.approx(precision)
    assert found["recall"].value == pytest.approx(recall)
    assert found["f1"].value == pytest.approx(2 * precision * recall / (precision + recall) if both else 0)
    assert all(0 <= one.low <= one.value <= one.high <= 1 for one in found.values())


def test_an_interval_of_hierarchical_f1_covers():
    """Of 300 samples of 60 rows about 95 % of the intervals hold the figure of many rows."""
    tree = Tree(["a/x", "a/y", "b/z"], [["a"], ["a"], ["b"]])
    random = np.random.default_rng(0)

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        labels_n = random.integers(3, size=n)
        return labels_n, np.where(random.random(n) < 0.7, labels_n, random.integers(3, size=n))

    true = hierarchical(tree, *draw(200_000))["f1"].value
    intervals = [hierarchical(tree, *draw(60))["f1"] for _ in range(300)]
    assert 0.91 <= np.mean([one.low <= true <= one.high for one in intervals]) <= 0.99


@pytest.mark.parametrize("above", [[["a"]], "ab", [["a"], "b"], [["a"], [1]], {"a": []}])
def test_a_broken_tree_of_a_folder_is_refused(above):
    with pytest.raises(UserError, match=r"kept\.hierarchy in config\.json is not a list"):
        Tree(["x", "y"], above)


# What is typed


def test_a_run_holds_its_tree_and_its_figures(home):
    kept = read_json(home / "run" / "model" / "config.json")["kept"]
    assert kept == {"hierarchy": [["animals", "animals/cats"], ["animals", "animals/cats"], ["animals"], ["plants"]]}
    measured = read_json(home / "run" / "summary.json")["measured"]
    assert {*measured} == {"hierarchical F1", *(f"accuracy at level {at}" for at in (1, 2, 3))}
    assert measured["accuracy at level 3"] == read_json(home / "run" / "summary.json")["test"]["accuracy"]


def test_evaluate_judges_each_level(home, quick, tmp_path):
    where = tmp_path / "judged"
    assert main(["evaluate", f"run={home / 'run'}", "hierarchy.sure=0.6", f"output={where}"]) == 0
    metrics = read_json(where / "metrics.json")
    with (where / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for at, level in enumerate(metrics["hierarchy"]["levels"], start=1):
        right = [row["label"].split("/")[:at] == row["prediction"].split("/")[:at] for row in rows]
        assert level["accuracy"]["value"] == pytest.approx(np.mean(right))
    assert metrics["hierarchy"]["levels"][-1]["accuracy"] == metrics["accuracy"]
    shares = [one["answered"]["value"] for one in metrics["levels"]]
    assert [one["level"] for one in metrics["levels"]] == [3, 2, 1, 0]
    assert sum(shares) == pytest.approx(1)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_predict_answers_the_deepest_level_that_is_sure(home, quick, tmp_path, kind):
    write(tmp_path / "new.csv", [(f"number {at} says meow blue", "") for at in range(3)] + [("", "")])
    output = tmp_path / f"out.{kind}"
    command = ["predict", f"run={home / 'run'}", f"input={tmp_path / 'new.csv'}", f"output={output}"]
    assert main([*command, "hierarchy.sure=0.7", "data.on_bad_row=drop"]) == 0
    if kind == "csv":
        with output.open(newline="") as file:
            rows = [
                {**row, "levels": row["levels"].split("|") if row["levels"] else []} for row in csv.DictReader(file)
            ]
    elif kind == "jsonl":
        rows = [json.loads(line) for line in output.read_text().splitlines()]
    else:
        pyarrow = pytest.importorskip("pyarrow.parquet")
        rows = pyarrow.read_table(output).to_pylist()
    assert not rows[-1]["levels"]
    assert not rows[-1]["label"]
    for row in rows[:-1]:
        if not row["label"]:
            continue
        parts = row["label"].split("/")
        assert row["levels"] == ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
        of = row.get("probabilities") or {name: row[f"p_{name}"] for name in CLASSES}
        below = sum(float(p) for name, p in of.items() if f"{name}/".startswith(f"{row['label']}/"))
        assert float(row["confidence"]) == pytest.approx(below, abs=1e-5)
        assert float(row["confidence"]) >= 0.7
    assert any(row["label"] for row in rows)


def test_other_rows_are_judged_on_classes(home, quick, tmp_path):
    write(tmp_path / "new.csv", [("says bark", "animals/dogs"), ("says meow", "animals/cats")])
    command = ["evaluate", f"run={home / 'run'}", f"data.path={tmp_path / 'new.csv'}", f"output={tmp_path / 'out'}"]
    assert main(command) == 2
    assert main([*command, "data.on_bad_row=drop"]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["data.parents=up.csv"], "data.hierarchy=/ reads levels from the labels"),
        (["data.votes=labels"], "data.hierarchy=/ is for rows of one label, but data.votes gives several"),
        (["optim.focal_gamma=2"], "optim.focal_gamma=2.0 knows single classes, but 12 rows"),
        (["data.label=labels"], "data.hierarchy=/ is for rows of one class"),
        (
            ["data.source=hub", "data.hub=imdb", "data.path=", "data.streaming=true"],
            "data.streaming=true keeps a sample",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path, quick, capsys, words, said):
    rows = [(text, label, label) for text, label in films()]
    if words == ["data.label=labels"]:
        rows[0] = (rows[0][0], rows[0][1], "plants/rose|animals/dogs")
    write(tmp_path / "rows.csv", rows, ("text", "label", "labels"))
    path = [] if "data.path=" in words else [f"data.path={tmp_path / 'rows.csv'}"]
    words = [word for word in words if word != "data.path="]
    assert main(["train", *path, "data.hierarchy=/", *TINY, *words, f"output={tmp_path / 'run'}"]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "Traceback" not in told
    assert not (tmp_path / "run").exists()


def test_a_model_without_levels_refuses_to_choose_one(ship_model, tmp_path, capsys):
    run = ship_model(tmp_path / "model")
    assert main(["predict", f"run={run}", "text=good", "hierarchy.sure=0.5"]) == 2
    assert "hierarchy.sure=0.5 chooses a level" in capsys.readouterr().err
    write(tmp_path / "rows.csv", [("good", "good"), ("bad", "bad")])
    assert main(["evaluate", f"run={run}", f"data.path={tmp_path / 'rows.csv'}", "data.hierarchy=/"]) == 2
    assert "data.hierarchy=/ does nothing here" in capsys.readouterr().err


def test_folds_are_judged_level_by_level(tmp_path, quick):
    """Rows of nodes are learnt from in each fold, and judged in none."""
    write(tmp_path / "rows.csv", films(6))
    words = [f"data.path={tmp_path / 'rows.csv'}", "data.hierarchy=/", "data.folds=2", *TINY, "trainer.max_steps=2"]
    assert main(["train", *words, f"output={tmp_path / 'run'}"]) == 0
    metrics = read_json(tmp_path / "run" / "metrics.json")
    assert metrics["n_rows"] == 4 * 6
    assert len(metrics["hierarchy"]["levels"]) == 3
    assert read_json(tmp_path / "run" / "fold-1" / "summary.json")["rows"]["train"] > 6


def test_the_most_frequent_class_is_that_of_rows_with_a_class(tmp_path, quick):
    """In the summary of a run as in its evaluation; rows of nodes do not count as the classes drawn for them."""
    more = [(f"night {at} says bark", "animals/dogs") for at in range(6)]
    more += [(f"noon {at} says meow", "animals/cats") for at in range(40)]
    write(tmp_path / "rows.csv", [*films(6), *more])
    run = tmp_path / "run"
    words = [f"data.path={tmp_path / 'rows.csv'}", "data.hierarchy=/", *TINY, "trainer.max_steps=2", f"output={run}"]
    assert main(["train", *words]) == 0
    summary = read_json(run / "summary.json")
    counts = summary["label_counts"]
    assert max(counts, key=counts.get) == "animals/dogs"
    assert main(["evaluate", f"run={run}", f"output={tmp_path / 'judged'}"]) == 0
    judged = read_json(tmp_path / "judged" / "metrics.json")["baselines"]["most frequent class"]
    assert summary["baselines"]["most frequent class"]["accuracy"] == judged["accuracy"]
