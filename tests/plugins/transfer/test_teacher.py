"""A student learns from what a trained run, or a file, answers to texts without labels."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import manyheads
from manyheads import TextData, compose
from manyheads.cli.main import main
from manyheads.cli.verbs import VERBS, settings_of
from manyheads.data.batches import Planned, gather
from manyheads.data.sources import read_rows
from manyheads.data.table import RawTable
from manyheads.distributed import faults
from manyheads.evaluation import results
from manyheads.linear.blend import weighted
from manyheads.plugins.transfer.teacher import read_probabilities, taught_rows
from manyheads.runs.files import read_json
from manyheads.training.objectives import class_weights, label_losses

WORDS = {"dull": "bad", "slow": "bad", "bright": "good", "quick": "good"}
TINY = [
    *("model.d_model=16", "model.n_layers=1", "model.n_heads=2", "model.d_k=8", "model.d_v=8", "model.d_ff=16"),
    *("hardware=cpu", "hardware.precision=fp32", "tokenizer.vocab_size=200", "batch.rows=16", "optim.average=0"),
]


def write(path: Path, header: list[str], rows: list[tuple]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Labelled rows, texts without labels, of which two are also among the former, and a trained teacher."""
    home = tmp_path_factory.mktemp("home")
    rows = [(f"the {noun} of day {day} was {word}", label) for day in range(5) for noun in ("film", "song", "walk")
            for word, label in WORDS.items()]  # fmt: skip
    write(home / "rows.csv", ["text", "label"], rows)
    new = [
        (f"the {noun} of night {day} was {word}",) for day in range(5) for noun in ("talk", "game") for word in WORDS
    ]
    write(home / "other.csv", ["text", "label"], [(f"number {at}", "ab"[at % 2]) for at in range(20)])
    write(home / "more.csv", ["text"], [*new, (rows[0][0],), (rows[1][0],)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYHEADS_CACHE", str(home / "cache"))
        patch.setattr(results, "write_page", lambda path, _: path.touch())
        command = ["train", f"data.path={home / 'rows.csv'}", "data.split_seed=0", *TINY, f"output={home / 'teacher'}"]
        assert main([*command, "optim.lr=0.01", "trainer.max_epochs=8"]) == 0
    return home


@pytest.fixture
def typed(home, monkeypatch):
    """The words of a student, whose run draws no pictures and shares the cache."""
    monkeypatch.setenv("MANYHEADS_CACHE", str(home / "cache"))
    monkeypatch.setattr(results, "write_page", lambda path, _: path.touch())
    student = [f"data.path={home / 'rows.csv'}", "data.split_seed=0", *TINY, "trainer.max_epochs=2"]
    return [*student, f"teacher={home / 'teacher'}", f"data.unlabelled={home / 'more.csv'}"]


def table(**columns) -> RawTable:
    n = len(next(iter(columns.values())))
    return RawTable([*columns], columns.__getitem__, range(2, n + 2), "llm.csv")


def test_a_student_learns_what_the_teacher_answers(home, typed):
    """Train is its own rows, then the texts that are in no split that is judged, with the teacher's probabilities."""
    data = TextData.from_run(compose("train", typed))
    splits, tokens = data.splits, data.tokens["train"]
    judged = {*splits.validation.texts, *splits.test.texts}
    with (home / "more.csv").open(newline="") as file:
        texts = [text for (text,) in csv.reader(file)][1:]
    kept = [text for text in texts if text not in judged]
    n_own = len(splits.own_train)
    assert splits.train.texts[n_own:] == kept
    teacher = manyheads.load(home / "teacher")
    expected_nC = [[answer.probabilities[name] for name in splits.labels] for answer in teacher.predict(kept)]
    found_nC = tokens.probabilities_nC.numpy()
    assert np.allclose(found_nC[n_own:], expected_nC, atol=1e-6)
    assert np.array_equal(found_nC[:n_own], np.eye(2)[np.array(splits.own_train.labels)])
    assert np.array_equal(tokens.labels.numpy(), found_nC.argmax(1))
    batch = gather(tokens, Planned(torch.tensor([n_own + 3, 0]), 1.0))
    assert np.array_equal(batch.probabilities_BC.numpy(), found_nC[[n_own + 3, 0]])
    assert any("of 42 texts of more.csv are learnt from" in note for note in splits.notes)
    assert splits.digests()["train"] == TextData.from_run(compose("train", typed[:-2])).splits.digests()["train"]


def test_texts_one_a_line_have_no_name_to_match(home, typed, tmp_path):
    """In the data the text is called otherwise."""
    (tmp_path / "lines.txt").write_text("the talk was dull\n\nthe game was quick\n", encoding="utf-8")
    (tmp_path / "rows.csv").write_text((home / "rows.csv").read_text().replace("text,", "review,", 1))
    words = [f"data.path={tmp_path / 'rows.csv'}", "data.text=review", *typed[1:-1]]
    data = TextData.from_run(compose("train", [*words, f"data.unlabelled={tmp_path / 'lines.txt'}"]))
    assert data.splits.train.texts[-2:] == ["the talk was dull", "the game was quick"]


@pytest.mark.parametrize("multi", [False, True])
def test_the_loss_of_probabilities_is_cross_entropy(multi):
    """Against the formula in NumPy; of labels as probabilities it is that of labels, to the bit."""
    drawn = torch.Generator().manual_seed(0)
    logits_BC, wanted_BC = torch.randn(5, 3, generator=drawn), torch.rand(5, 3, generator=drawn)
    if not multi:
        wanted_BC = wanted_BC / wanted_BC.sum(1, keepdim=True)
    x, p = logits_BC.double().numpy(), wanted_BC.double().numpy()
    if multi:
        q = 0.9 * p + 0.1 / 3
        expected = -(q * np.log(1 / (1 + np.exp(-x))) + (1 - q) * np.log(1 / (1 + np.exp(x))))
    else:
        q = 0.9 * p + 0.1 / 3
        expected = -(q * (x - np.log(np.exp(x).sum(1, keepdims=True)))).sum(1)
    assert np.allclose(label_losses(logits_BC, wanted_BC, 0.1, multi).numpy(), expected, atol=1e-5)
    ids_B = torch.tensor([0, 2, 1, 1, 0])
    marks_BC = torch.eye(3)[ids_B]
    known = marks_BC.to(torch.uint8) if multi else ids_B
    same = label_losses(logits_BC, marks_BC, 0.0, multi)
    assert torch.allclose(same, label_losses(logits_BC, known, 0.0, multi), atol=1e-7)


def test_a_run_as_it_is_typed(home, typed, tmp_path, capsys):
    """Trained, judged on each split, asked; and what is finished is not trained again."""
    command = ["train", *typed, f"output={tmp_path / 'student'}"]
    assert main(command) == 0
    summary = read_json(tmp_path / "student" / "summary.json")
    assert summary["rows"]["train"] > 48
    for split in ("train", "test"):
        assert main(["evaluate", f"run={tmp_path / 'student'}", f"split={split}", "hardware=cpu"]) == 0
    assert main(["predict", f"run={tmp_path / 'student'}", "text=the film was dull", "hardware=cpu"]) == 0
    capsys.readouterr()
    assert main([*command, "resume=auto"]) == 0
    assert "is finished" in capsys.readouterr().out
    assert main([*command[:-3], f"output={tmp_path / 'student'}", "resume=auto"]) == 2, "other rows"


def test_a_stopped_student_is_resumed_to_the_bit(typed, tmp_path, monkeypatch):
    words = [*typed, "resume=auto", "linear=false", "test=false", "model.dropout=0.1"]
    assert main(["train", *words, f"output={tmp_path / 'whole'}"]) == 0
    monkeypatch.setenv(faults.VARIABLE, "step:3:term")
    faults.reset_counts()
    assert main(["train", *words, f"output={tmp_path / 'stopped'}"]) == 143
    monkeypatch.delenv(faults.VARIABLE)
    assert main(["train", *words, f"output={tmp_path / 'stopped'}"]) == 0
    one, other = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "stopped"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_what_the_teacher_has_seen_of_each_split_is_said(typed):
    """The student holds out other rows than the teacher did."""
    typed[1] = "data.split_seed=1"
    splits = read_rows(compose("train", typed), with_test=True)
    taught_rows(compose("train", typed), splits)
    for role in ("validation", "test"):
        assert any(re.match(rf"{role}: \d+ of 6 texts .* what the teacher learnt from", note) for note in splits.notes)


def test_what_predict_writes_is_a_teacher(home, typed, tmp_path):
    """The columns p_bad and p_good of `predict output=answers.csv`."""
    answers = tmp_path / "answers.csv"
    asked = ["predict", f"run={home / 'teacher'}", f"input={home / 'more.csv'}", f"output={answers}", "hardware=cpu"]
    assert main([*asked, "hardware.precision=fp32"]) == 0
    by_run = TextData.from_run(compose("train", [*typed, "hardware.precision=fp32"]))
    by_file = TextData.from_run(compose("train", [*typed[:-2], f"teacher={answers}"]))
    assert by_file.splits.train.texts == by_run.splits.train.texts
    one, other = (data.tokens["train"].probabilities_nC for data in (by_run, by_file))
    assert torch.allclose(one, other, atol=0.02), "the run answered in bf16"


def test_columns_of_probabilities_and_of_votes():
    """In the order of the classes, whatever that of the columns; votes are divided by their sum."""
    found_nC, faults = read_probabilities(
        table(text="abc", p_b=["0.75", "3", "1e-3"], a=[0.25, "1", "0.001"]), ["a", "b"], multi=False
    )
    assert faults == {}
    assert found_nC.dtype == np.float32
    assert np.allclose(found_nC, [[0.25, 0.75], [0.25, 0.75], [0.5, 0.5]])
    marks_nC, _ = read_probabilities(table(a=["1", "0.2"], b=["0.9", "0"]), ["a", "b"], multi=True)
    assert np.allclose(marks_nC, [[1, 0.9], [0.2, 0]])


def test_a_class_that_is_called_as_another_column():
    """What predict writes has the texts under `text`, whatever the classes are called."""
    found_nC, faults = read_probabilities(
        table(text=["x"], label=["image"], p_image=["0.9"], p_text=["0.1"]), ["image", "text"], multi=False
    )
    assert faults == {}
    assert np.allclose(found_nC, [[0.9, 0.1]])


@pytest.mark.parametrize("multi", [False, True])
def test_weights_of_classes_count_by_the_probabilities(multi):
    """As if each row were there once for every label it may have, as often as that is likely, with its weight."""
    drawn = torch.Generator().manual_seed(0)
    logits_BC, p_BC = torch.randn(6, 3, generator=drawn), torch.rand(6, 3, generator=drawn)
    weights_C = torch.tensor([0.2, 1.0, 5.0])
    if not multi:
        p_BC /= p_BC.sum(1, keepdim=True)
    p_BC[0] = torch.tensor([0.0, 0.0, 1.0])
    wanted_BC, factors = weighted(p_BC, weights_C, multi=multi)
    found = label_losses(logits_BC, wanted_BC, 0.1, multi) * factors
    if multi:
        has, lacks = (label_losses(logits_BC, torch.full_like(p_BC, one), 0.1, True) for one in (1.0, 0.0))
        expected = p_BC * weights_C * has + (1 - p_BC) * lacks
    else:
        each_BC = torch.stack([label_losses(logits_BC, torch.full((6,), at), 0.1) for at in range(3)], 1)
        expected = (p_BC * weights_C * each_BC).sum(1)
    assert torch.allclose(found, expected, atol=1e-5)


def test_weights_of_classes_balance_what_is_learnt(typed):
    """Balanced: each class has the same share of the mean loss, by its probabilities and not by the likeliest alone."""
    tokens = TextData.from_run(compose("train", typed)).tokens["train"]
    weights_C = class_weights("balanced", tokens.probabilities_nC, ["bad", "good"]).double()
    shares_C = tokens.probabilities_nC.double().mean(0) * weights_C
    assert torch.allclose(shares_C, torch.full((2,), 0.5, dtype=torch.float64), atol=1e-6)


def test_the_test_split_is_left_out_although_the_run_does_not_read_it(home, typed):
    """The run may be judged on it later."""
    whole = TextData.from_run(compose("train", typed)).splits
    (home / "some.csv").write_text("text\na new text\n" + "\n".join(whole.test.texts) + "\n")
    words = [*typed[:-1], f"data.unlabelled={home / 'some.csv'}", "test=false"]
    run = compose("train", words)
    splits = read_rows(run, with_test=False)
    rows = taught_rows(run, splits)
    assert [*rows.texts] == ["a new text"]
    assert f"as {len(set(whole.test.texts))} are also in validation or test" in splits.notes[-1]


@pytest.mark.parametrize(
    ("cell", "multi", "why"),
    [
        ("", False, "'' in the column 'a' is no probability"),
        (None, False, "is no probability"),
        ("nan", False, "'nan' in the column"),
        ("-0.1", False, "'-0.1' in the column"),
        ("inf", False, "'inf' in the column"),
        ("2", True, "'2' in the column"),
        ("0", False, "the probability of each class is 0"),
    ],
)
def test_cells_that_are_no_probability(cell, multi, why):
    _, faults = read_probabilities(table(a=["1", cell], b=["0", "0"]), ["a", "b"], multi=multi)
    assert [*faults] == [1]
    assert why in faults[1]


def test_a_class_without_a_column():
    with pytest.raises(ValueError, match=r"^llm\.csv has no column of probabilities for b: it needs one"):
        read_probabilities(table(text=["x"], a=["1"]), ["a", "b"], multi=False)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["teacher="], r"data\.unlabelled=.*more\.csv has no labels to learn from: name a run .* by teacher="),
        (["data.unlabelled="], r"teacher=.*teacher answers texts, but none are given: add data\.unlabelled=<file>"),
        (["data.unlabelled={home}/no.csv"], r"data\.unlabelled=.*no\.csv does not exist"),
        (["teacher={home}/none"], r"teacher=.*none is not a run folder"),
        (["teacher={home}/rows.csv"], r"is a file of texts and answers, so that nothing answers data\.unlabelled="),
        (["teacher={home}/rows.csv", "data.unlabelled="], r"rows\.csv has no column of probabilities for bad, good"),
        (["optim.focal_gamma=2"], r"optim\.focal_gamma=2\.0 knows labels alone, but teacher="),
        (
            ["data.path={home}/other.csv"],
            r"teacher=.* knows bad, good, but the labels of the data are a, b: name a run",
        ),
    ],
)
def test_mistakes(words, sentence, home, typed, tmp_path, capsys):
    given = [word.replace("{home}", str(home)) for word in words]
    names = {word.partition("=")[0] for word in given}
    kept = [word for word in typed if word.partition("=")[0] not in names]
    given = [word for word in given if not word.endswith("=")]
    assert main(["train", *kept, *given, f"output={tmp_path / 'run'}"]) == 2
    said = capsys.readouterr().err
    assert re.search(sentence, said), said
    assert not (tmp_path / "run").exists()


def test_labels_of_any_number(home, tmp_path, monkeypatch):
    """Each label has a probability of its own; those of a half and more count as given."""
    monkeypatch.setenv("MANYHEADS_CACHE", str(home / "cache"))
    rows = [(f"number {n}", ("a|b", "a", "", "b")[n % 4]) for n in range(40)]
    write(tmp_path / "rows.csv", ["text", "labels"], rows)
    answers = [(f"further {n}", 0.9, n / 10) for n in range(10)]
    write(tmp_path / "answers.csv", ["text", "a", "b"], answers)
    words = [f"data.path={tmp_path / 'rows.csv'}", f"teacher={tmp_path / 'answers.csv'}", *TINY]
    data = TextData.from_run(compose("train", words))
    tokens, n_own = data.tokens["train"], len(data.splits.own_train)
    assert np.allclose(tokens.probabilities_nC[n_own:], [row[1:] for row in answers])
    assert tokens.labels[n_own:].tolist() == [[1, int(n >= 5)] for n in range(10)]
    assert torch.equal(tokens.probabilities_nC[:n_own], tokens.labels[:n_own].float())


def test_verbs_without_a_teacher_have_no_setting_for_its_texts(capsys):
    without = [verb for verb in VERBS if "data.unlabelled" not in settings_of(verb)]
    assert {*VERBS} - {*without} == {"train"}
    for verb in without:
        assert main([verb, "data.unlabelled=x.csv"]) == 2
        sentence = capsys.readouterr().err
        assert sentence.startswith("data.unlabelled=x.csv ")
        assert "teacher=" not in sentence
