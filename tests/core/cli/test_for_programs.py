"""`--json`: one document on standard output; `errors=json`: a mistake as an object."""

import json
import re
import shlex
import shutil
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from manyheads.cli.for_programs import as_document, mistake, plain, take_readers
from manyheads.cli.main import main
from manyheads.cli.verbs import VERBS
from manyheads.errors import UserError


class Colour(Enum):
    red = 1


class Pair(NamedTuple):
    a: int
    b: Path


@dataclass
class Found:
    name: str
    pairs: list[Pair]


def test_a_record_is_plain():
    record = {"x": Found("é", [Pair(1, Path("/a"))]), "y": (Colour.red, float("nan")), 3: np.arange(2), "z": None}
    expected = {"x": {"name": "é", "pairs": [{"a": 1, "b": "/a"}]}, "y": ["red", None], "3": [0, 1], "z": None}
    assert plain(record) == expected
    assert json.loads(as_document(record)) == expected


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (
            ["train", "model.n_heads=0"],
            {"setting": "model.n_heads", "value": "0", "rule": "is out of range"},
        ),
        (
            ["train", "model.n_head=4"],
            {"setting": "model.n_head", "value": "4", "suggestion": "model.n_heads"},
        ),
        (["train", "model.score=inner"], {"setting": "model.score", "value": "inner", "rule": "is not a choice"}),
        (["trian"], {"setting": None, "value": None, "suggestion": "train", "remedy": "did you mean train?"}),
        (["evaluate"], {"setting": "run", "rule": "run is empty"}),
    ],
)
@pytest.mark.parametrize("typed", ["errors=json", "--json"])
def test_a_mistake_is_an_object(words, parts, typed, capsys):
    assert main([*words, typed]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    found = json.loads(said.err)
    assert found["code"] == 2
    assert found.items() >= parts.items()
    assert main(words) == 2
    assert capsys.readouterr().err == found["message"] + "\n"


def test_the_parts_are_those_of_the_sentence():
    sentence = "data.path=a.csv row 7: the label is empty: fill it, or type data.on_bad_row=drop"
    found = mistake(sentence, 2)
    assert (found["setting"], found["value"]) == ("data.path", "a.csv")
    assert found["rule"] == "row 7: the label is empty"
    assert found["remedy"] == "fill it, or type data.on_bad_row=drop"
    assert mistake("a.csv has no column 'text' (data.text): name one", 2)["setting"] == "data.text"
    assert mistake("require on test of films: loss<0.1 is not met: it is 0.6", 3)["setting"] == "require"


@pytest.mark.parametrize(
    ("sentence", "words", "parts"),
    [
        ("data.path=/a/b c.csv does not exist: name one", ["data.path=/a/b c.csv"], ("/a/b c.csv", "does not exist")),
        ("data.path=/a b.csv, row 7: bad: mend it", ["data.path='/c/../a b.csv'"], ("/a b.csv", "row 7: bad")),
        ("data.label=a: b is no column: choose x", ["data.label='a: b'"], ("a: b", "is no column")),
        ("runs=['/a', '/a'] names one twice: name others", ["runs=[a,a]"], ("['/a', '/a']", "names one twice")),
        ("data.path=/a is no file: name one", ["data.path=/b"], ("/a", "is no file")),
    ],
)  # fmt: skip
def test_a_value_with_spaces_is_whole(sentence, words, parts):
    found = mistake(sentence, 2, words)
    assert (found["value"], found["rule"]) == parts


def test_a_figure_that_is_missed_leaves_the_document(reviews, tmp_path, monkeypatch, capfd):
    """Of train, of all folds, of a run that was finished, and of evaluate."""
    monkeypatch.chdir(tmp_path)
    columns = ["data.text=review", "data.label=stars"]
    train = ["train", f"data.path={reviews}/reviews.csv", *columns, "debug=fast", "--json"]
    for words, code, has in (
        (["output=one", "require=[accuracy>1]"], 3, "best"),
        (["output=one", "require=[accuracy>1]", "resume=auto"], 3, "best"),
        (["output=folds", "data.folds=2", "require=[accuracy>1]"], 3, "n_rows"),
    ):
        assert main([*train, *words]) == code
        assert has in json.loads(capfd.readouterr().out)
    assert main(["evaluate", "run=one", "require=[accuracy>1]", "--json"]) == 3
    assert json.loads(capfd.readouterr().out) == json.loads(
        next(Path("one/evaluate").glob("*/metrics.json")).read_text()
    )


def test_another_form_is_refused(capsys):
    with pytest.raises(UserError, match="errors=xml is not a choice: choose json or text"):
        take_readers(["train", "errors=xml"])
    for words, flag in ((["train", "--json", "--info"], "--info"), (["train", "--cfg", "job", "--json"], "--cfg")):
        assert main(words) == 2
        assert f"--json does nothing with {flag}: remove it" in capsys.readouterr().err


def test_one_document_on_standard_output(python, model_folder: Path, tmp_path: Path):
    words = ["-m", "manyheads", "predict", f"run={model_folder}", "text=good"]
    done = python.run(*words, "format=json")
    (answer,) = json.loads(done.stdout)
    assert answer["text"] == "good"
    assert set(answer) >= {"label", "probabilities"}
    assert done.stderr == ""
    written = json.loads(python.run(*words, f"output={tmp_path / 'out.csv'}", "--json").stdout)
    assert written == {"output": str(tmp_path / "out.csv"), "rows": 1}


PAGE = (Path(__file__).parents[3] / "docs" / "programs.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the rows and the run that the page names."""
    folder = tmp_path_factory.mktemp("page")
    rows = [f"{text} {at},{stars}" for at in range(20) for text, stars in (("good film", 5), ("bad film", 1))]
    (folder / "reviews.csv").write_text("\n".join(["review,stars", *rows]) + "\n", encoding="utf-8")
    columns = ["data.text=review", "data.label=stars"]
    words = [f"data.path={folder}/reviews.csv", *columns, f"output={folder}/outputs/reviews", "debug=fast"]
    assert main(["train", *words]) == 0
    return folder


@pytest.mark.parametrize("command", re.findall(r"(?m)^    manyheads (.*)$", PAGE))
def test_commands_of_the_page(command, reviews, tmp_path, monkeypatch, capfd):
    """Typed as they are, on a run and rows of the names that the page uses."""
    shutil.copytree(reviews, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    words, _, target = command.partition(" > ")
    words = shlex.split(words)
    if words[0] not in VERBS:
        pytest.skip(f"no plugin adds the verb {words[0]}")
    if words[0] == "train":
        words.append("debug=fast")
        shutil.rmtree("outputs")
    capfd.readouterr()
    code = main(words)
    said = capfd.readouterr()
    if "errors=json" in words:
        assert code == 2
        assert said.err in PAGE
    elif any(word.startswith("require=") for word in words):
        assert code in (0, 3)
    else:
        assert code == 0
    if "--json" in words:
        json.loads(said.out)
    if target:
        assert "--json" in words, "what is written into the file is a document"
