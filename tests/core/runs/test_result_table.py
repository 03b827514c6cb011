"""Cells in words, and files of tables: which tables, of which document, in which kind of file."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import manyheads.plugin as plugin
from manyheads.cli.for_programs import found_by
from manyheads.cli.main import main
from manyheads.config import RunsConfig
from manyheads.config.required import RequirementError
from manyheads.errors import UserError
from manyheads.plugin import Part, Plugin, Verb
from manyheads.runs.report import markdown_tables
from manyheads.runs.result_table import ResultTable, is_table_file, saved_record, tables_of, write_tables
from manyheads.runs.summary import Interval

TABLE = ResultTable(
    name="first",
    title="counts",
    columns=["who", "n", "share", "p"],
    rows=[["a|b", 1234, Interval(0.5, 0.25, 0.75), 0.0001], ["c", None, 0.125, 0.2]],
    formats={"p": "p"},
    notes=["A note."],
)


@given(st.floats(-10, 10), st.floats(0.1, 1), st.floats(0, 1))
def test_an_interval_is_worded_as_everywhere(value, below, above):
    figure = Interval(value, value - below, value + above)
    assert TABLE.word("share", figure) == figure.words
    own = replace(TABLE, formats={"share": "+.1f"})
    assert own.word("share", figure) == f"{figure.value:+.1f} ({figure.low:+.1f} to {figure.high:+.1f})"


def test_an_interval_without_width_is_left_out():
    """The loss of a single row says nothing of other rows."""
    figure = Interval(0.25, 0.25, 0.25)
    assert TABLE.word("share", figure) == "0.2500"
    assert replace(TABLE, formats={"share": "+.1f"}).word("share", figure) == "+0.2"


def test_cells_in_words():
    assert TABLE.in_words() == [["a|b", "1,234", "0.5000 (0.250 to 0.750)", "<0.001"], ["c", "", "0.1250", "0.200"]]
    assert [TABLE.is_text(name) for name in TABLE.columns] == [True, False, False, False]
    sheet = TABLE.as_sheet()
    assert (sheet.title, sheet.columns, sheet.lines) == ("counts", [*TABLE.columns], TABLE.in_words())


def test_markdown():
    assert markdown_tables([TABLE]).splitlines() == [
        "## counts",
        "",
        "| who | n | share | p |",
        "| --- | --- | --- | --- |",
        r"| a\|b | 1,234 | 0.5000 (0.250 to 0.750) | \<0.001 |",
        "| c |  | 0.1250 | 0.200 |",
        "",
        "A note.",
    ]


@pytest.fixture
def counting(monkeypatch):
    """A plugin with a verb whose document has a table for each of its `words`."""

    def count(config):
        found = {"words": ["b", "a"], "output": config.output}
        if config.sort == "missed":
            missed = RequirementError("words=2 is not met")
            missed.summary = found
            raise missed
        return found

    def tables(document):
        return [replace(TABLE, name=word, title=f"of {word}") for word in document["words"]]

    verb = Verb("counted", RunsConfig, count, "count")
    part = Part("record", "counted", tables, facts={"keys": ("words",), "file": "words.json"})
    plugin.register(Plugin("counting", verbs=[verb], parts=[part]))
    yield verb
    plugin.unregister("counting")


def test_a_verb_whose_output_is_a_table_works_in_its_usual_place(counting, tmp_path, capsys):
    file = tmp_path / "new" / "words.md"
    found = found_by(counting, RunsConfig(output=str(file)), as_record=False)
    assert found["output"] == ""
    assert file.read_text().count("## of ") == 2
    assert capsys.readouterr().out == f"{file}: b, a\n"
    found_by(counting, RunsConfig(output=str(file)), as_record=False)
    assert capsys.readouterr().out == f"{file}: an earlier file is replaced\n{file}: b, a\n"
    assert found_by(counting, RunsConfig(output="folder"), as_record=False)["output"] == "folder"
    file.unlink()
    with pytest.raises(RequirementError):
        found_by(counting, RunsConfig(output=str(file), sort="missed"), as_record=False)
    assert file.is_file()
    (tmp_path / "taken").write_text("")
    with pytest.raises(UserError, match=r"taken is a file: name another place by output="):
        found_by(counting, RunsConfig(output=str(tmp_path / "taken" / "x.md")), as_record=False)


def test_no_table_replaces_what_its_verb_reads(counting, tmp_path):
    file = tmp_path / "rows.md"
    file.write_text("text,label\n")
    with pytest.raises(UserError, match=r"output=.*rows\.md is a file that runs=.*rows\.md reads: name another file"):
        found_by(
            counting,
            RunsConfig(output=str(file), runs=[str(tmp_path), f"{tmp_path}/../{tmp_path.name}/rows.md"]),
            as_record=False,
        )
    assert file.read_text() == "text,label\n"


def test_results_are_reported_from_their_file_or_folder(counting, tmp_path, capsys):
    file = tmp_path / "words.json"
    file.write_text(json.dumps({"words": ["a", "b"]}))
    for place in (tmp_path, file):
        found = saved_record(place)
        assert found is not None
        assert found[0] == file
        assert main(["report", f"run={place}"]) == 0
        assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("#")] == ["## of a", "## of b"]
    assert main(["report", f"run={tmp_path}", "format=json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"words": ["a", "b"]}
    target = tmp_path / "out.md"
    assert main(["report", f"run={tmp_path}", "of=b", f"output={target}"]) == 0
    assert target.read_text().startswith("## of b\n")
    for words, said in (
        (["of=c"], "of=c is no table of these results: choose a or b\n"),
        (
            ["of=a", f"output={tmp_path}/x.txt"],
            f"output={tmp_path}/x.txt is no file of tables: choose a name that ends",
        ),
        (["of=a", "format=json"], "format=json does not go with a table or figure"),
        (["format=html"], f"{tmp_path}/report.html does not exist"),
    ):
        capsys.readouterr()
        assert main(["report", f"run={tmp_path}", *words]) == 2
        assert capsys.readouterr().err.startswith(said)


def test_files_that_are_no_results_are_refused(counting, tmp_path):
    (tmp_path / "words.json").write_text('{"other": 1}')
    with pytest.raises(UserError, match="holds no results of a verb"):
        saved_record(tmp_path)
    (tmp_path / "words.json").write_text('{"words": 7}')
    with pytest.raises(UserError, match="is damaged"):
        saved_record(tmp_path)
    assert saved_record(tmp_path / "nowhere") is None
    assert tables_of(["words"]) == []


def test_a_folder_named_like_a_file_is_a_folder(tmp_path):
    (tmp_path / "x.md").mkdir()
    assert not is_table_file(str(tmp_path / "x.md"))
    assert is_table_file(str(tmp_path / "y.MD"))
    assert not is_table_file(str(tmp_path / "v1.5"))
    for kind in ("docx", "XLSX"):
        with pytest.raises(UserError, match=r"choose a name that ends in .*\.md"):
            is_table_file(str(tmp_path / f"scores.{kind}"))
    with pytest.raises(UserError, match="is no file of tables"):
        write_tables(str(tmp_path / "x.md"), [TABLE])
    assert not list(Path(tmp_path, "x.md").iterdir())
