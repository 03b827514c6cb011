"""A text for each label is learnt from like a row of it."""

import re
from pathlib import Path

import pytest

from manyheads import TextData, compose
from manyheads.cli.main import main

ROWS = [(f"the film of day {at} was {('dull', 'bright')[at % 2]}", ("bad", "good")[at % 2]) for at in range(40)]


def write(path, header, rows):
    path.write_text("\n".join([header, *(",".join(row) for row in rows)]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def typed(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    return [f"data.path={write(tmp_path / 'rows.csv', 'text,label', ROWS)}", "hardware=cpu", "tokenizer.vocab_size=200"]


def data_with(typed, file):
    return TextData.from_run(compose("train", [*typed, f"data.descriptions={file}"]))


def test_descriptions_are_rows_of_their_labels(typed, tmp_path):
    """The last of train, in their order, several of a label too; what is judged stays the same."""
    texts = [("bad", "a waste of time"), ("good", "a joy to see"), ("bad", "hardly bearable")]
    found = data_with(typed, write(tmp_path / "labels.csv", "label,text", texts)).splits
    plain = TextData.from_run(compose("train", typed)).splits
    assert [*found.train.texts] == [*plain.train.texts, *(text for _, text in texts)]
    assert [found.labels[at] for at in found.train.labels[-3:]] == [label for label, _ in texts]
    assert [*found.validation.texts] == [*plain.validation.texts]
    assert [*found.test.texts] == [*plain.test.texts]
    assert "data.descriptions: 3 texts of labels are learnt from" in found.notes
    assert found.digests()["train"] == plain.digests()["train"] != found.digests()["train and further"]


def test_a_text_that_is_judged_is_not_learnt_from(typed, tmp_path):
    """Labels are spelled as those of the data may be."""
    plain = TextData.from_run(compose("train", typed)).splits
    judged = [*plain.validation.texts[:1], *plain.test.texts[:1]]
    file = write(tmp_path / "labels.csv", "label,text", [("GOOD", text) for text in (*judged, "a joy")])
    found = data_with([*typed, "data.merge_labels=case"], file).splits
    assert [*found.train.texts] == [*plain.train.texts, "a joy"]
    said = "data.descriptions: 1 texts of labels are learnt from, as 2 are also in validation or test; bad has none"
    assert said in found.notes
    assert (
        data_with([*typed, "data.merge_labels=case"], write(file, "label,text", [("good", judged[0])])).splits.own_train
        is None
    )


def test_the_example_of_the_docs(typed, tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "labels.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```text\n(label,text\n.*?)```", page, re.DOTALL)
    (tmp_path / "labels.csv").write_text(example, encoding="utf-8")
    rows = write(tmp_path / "rows.csv", "text,label", [(text, {"bad": "1", "good": "5"}[label])
                                                       for text, label in ROWS])  # fmt: skip
    found = data_with([f"data.path={rows}", *typed[1:]], tmp_path / "labels.csv").splits
    assert found.train.texts[-1] == "A good film: moving, funny and well made."


def test_columns_may_be_called_as_those_of_the_data(typed, tmp_path):
    """Spellings of a label are those of any file; a label without a text is named."""
    rows = write(tmp_path / "stars.csv", "review,stars", [(text, "12"[label == "good"]) for text, label in ROWS])
    file = write(tmp_path / "labels.csv", "stars,review", [("2.0", "a joy to see")])
    found = data_with([f"data.path={rows}", "data.text=review", "data.label=stars", *typed[1:]], file).splits
    assert (found.train.texts[-1], found.labels[found.train.labels[-1]]) == ("a joy to see", "2")
    assert "data.descriptions: 1 texts of labels are learnt from; 1 has none" in found.notes


def test_they_have_no_weights_or_votes(typed, tmp_path):
    """A description weighs as rows do on average, and is surely of its label."""
    file = write(tmp_path / "labels.csv", "label,text", [("bad", "a waste of time")])
    rows = write(tmp_path / "trusted.csv", "text,label,trust", [(*row, "0.5") for row in ROWS])
    found = data_with([f"data.path={rows}", "data.weight=trust", *typed[1:]], file).splits
    assert found.train.weights[-2:].tolist() == [0.5, 0.5]
    rows = write(tmp_path / "votes.csv", "text,votes", [(text, f"bad:{len(label)}|good:1") for text, label in ROWS])
    found = data_with([f"data.path={rows}", "data.votes=votes", *typed[1:]], file).splits
    assert found.train.probabilities[-1].tolist() == [1.0, 0.0]


def test_each_of_any_number_of_labels_has_a_text(typed, tmp_path):
    cells = [("bad",), ("bad|long",), ("long",), ("",)]
    rows = write(tmp_path / "sets.csv", "text,labels", [(text, *cells[at % 4]) for at, (text, _) in enumerate(ROWS)])
    file = write(tmp_path / "labels.csv", "label,text", [("long", "hours without an end")])
    found = data_with([f"data.path={rows}", *typed[1:]], file)
    assert found.splits.train.sets[-1] == (found.splits.labels.index("long"),)
    assert found.tokens["train"].labels[-1].tolist() == [int(name == "long") for name in found.splits.labels]


@pytest.mark.parametrize(
    ("header", "rows", "sentence"),
    [
        ("label,text", [("bad", "dull"), ("fine", "fair")], r"labels\.csv, row 3: 'fine' is no label of the data"),
        ("label,text", [("bad", " ")], r"labels\.csv, row 2: the text is only white space"),
        ("label,meaning", [("bad", "dull")], r"labels\.csv has no column 'text'"),
        ("label,text", [], r"labels\.csv has no row"),
    ],
)
def test_mistakes_name_file_and_row(header, rows, sentence, typed, tmp_path, capsys):
    file = write(tmp_path / "labels.csv", header, rows)
    assert main(["train", *typed, f"data.descriptions={file}", f"output={tmp_path / 'run'}"]) == 2
    said = capsys.readouterr().err
    assert re.search(sentence, said), said
    assert not (tmp_path / "run").exists()


def test_a_missing_file_and_pairs_are_refused(typed, tmp_path, capsys):
    assert main(["train", *typed, f"data.descriptions={tmp_path / 'none.csv'}"]) == 2
    assert "data.descriptions=" in capsys.readouterr().err
    pairs = write(tmp_path / "pairs.csv", "text,text_pair,label", [(text, text, label) for text, label in ROWS])
    file = write(tmp_path / "labels.csv", "label,text", [("bad", "dull")])
    assert main(["train", f"data.path={pairs}", *typed[1:], f"data.descriptions={file}"]) == 2
    assert "the data has pairs of texts" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["evaluate", pytest.param("ablate", marks=pytest.mark.verb("ablate"))])
def test_verbs_that_learn_nothing_from_it_refuse_it(verb, typed, tmp_path, model_folder, capsys):
    file = write(tmp_path / "labels.csv", "label,text", [("bad", "dull")])
    more = {"ablate": ["vary=model.n_heads", "values=[1,2]"]}.get(verb, [f"run={model_folder}"])
    assert main([verb, *typed[:1], *more, f"data.descriptions={file}"]) == 2
    assert "data.descriptions=" in capsys.readouterr().err
