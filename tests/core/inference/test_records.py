"""Rows of csv and json lines: every column is kept, and every mistake names its row."""

import csv
import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyheads.data.formats import blocks
from manyheads.inference import chunks as chunks_module
from manyheads.inference.chunks import Chunk, WantedColumns
from manyheads.inference.records import chunks_of_objects, chunks_of_table
from tests.core.inference.test_lines import texts_of

LETTERS = st.text(st.characters(exclude_characters="\n\r\ufeff", exclude_categories=["Cs"]), max_size=12)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | LETTERS

OBJECTS = st.fixed_dictionaries({"text": LETTERS, "id": PLAIN, "more": st.lists(PLAIN, max_size=2)})


@pytest.fixture(autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("in"))


def read(
    kind: str, content: str | bytes, text: list[str] | None = None, text_pair: list[str] | None = None
) -> list[Chunk]:
    path = Path(f"in.{kind}")
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    chunks = chunks_of_table if kind == "csv" else chunks_of_objects
    return list(chunks(path, WantedColumns(text or ["text"], text_pair or [])))


table, objects = partial(read, "csv"), partial(read, "jsonl")


@given(st.lists(st.tuples(*[LETTERS | st.just('a\n"b",c')] * 2).filter(any), min_size=1, max_size=20))
def test_every_column_is_kept(rows: list[tuple[str, str]]) -> None:
    file = io.StringIO(newline="")
    writer = csv.writer(file, quoting=csv.QUOTE_ALL)
    writer.writerows([("id", "text"), *rows])
    chunks = table(file.getvalue())
    assert [row for chunk in chunks for row in chunk.kept] == [{"id": one, "text": two} for one, two in rows]
    assert texts_of(chunks) == [two for _, two in rows]


def test_the_column_of_the_text_is_found() -> None:
    assert texts_of(table("review\ngood\n", ["review", "text"])) == ["good"]
    assert texts_of(table("text,review\na,b\n", ["review", "text"])) == ["b"]
    assert [one.kept for one in table("id, text, label\n1,a,b\n")] == [[{"id": "1", "text": "a", "label": "b"}]]
    (chunk,) = table("b,a\n1,2\n", ["a"], ["b"])
    assert (chunk.texts, chunk.pairs) == (["2"], ["1"])


def test_a_single_column_may_begin_with_a_text() -> None:
    first, second = "What a film this was.", "bad"
    assert texts_of(table(f"{first}\n{second}\n", ["review", "text"])) == [first, second]
    (chunk,) = table(f'"{first}, really"\n{second}\n', ["review", "text"])
    assert chunk.kept == [{"text": f"{first}, really"}, {"text": second}]
    assert texts_of(table(f" {first} \n {second} \n", ["review", "text"])) == [f" {first} ", f" {second} "]
    names = (
        "review_text",
        "customer.review",
        "review_text (en)",
        "_text",
        "body/text",
        "a:b",
        "text of the review",
        "[x]",
    )
    for line in ("good", "good film", *names):
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
            table(f"{line}\n{second}\n", ["words", "text"])
        assert str(caught.value) == (
            f"in.csv begins with '{line}', which may be the name of its column or a text: if texts begin there, put a "
            "line that says text on top, else call it text"
        )


def test_a_column_that_is_named_must_be_there() -> None:
    with pytest.raises(
        ValueError, match=r"^in.csv has no column 'body', which the model reads: its columns are review;"
    ):
        table("review\ngood\n", ["body"])
    with pytest.raises(
        ValueError, match=r"^in.jsonl has no column 'body', which the model reads: its columns are text;"
    ):
        objects('{"text": "good"}\n', ["body"])


def test_long_texts_make_short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks_module, "MOST_CHARACTERS", 10)
    assert [len(chunk.texts) for chunk in table("text\n" + "good film\n" * 5)] == [2, 2, 1]
    assert [len(chunk.texts) for chunk in table("a,b\n" + "a,good film\n" * 5, ["a"], ["b"])] == [2, 2, 1]


def test_one_column_is_not_both_texts() -> None:
    words = "^data.text=a and data.text_pair=a name one column of in.{} twice: each needs its own$"
    with pytest.raises(ValueError, match=words.format("csv")):
        table("a,b\n1,2\n", ["a"], ["a"])
    with pytest.raises(ValueError, match=words.format("jsonl")):
        objects('{"a": "x"}\n', ["a"], ["a"])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,b\n1,2\n", "in.csv has no column 'text', which the model reads: its columns are a, b; rename one of them"),
        ("text,b\na\rb,2\n", "^in.csv, row 2: has 1 cell, but the header has 2: "),
    ],
)
def test_a_mistake_in_a_table_names_its_row(content: str, words: str) -> None:
    """test_same_rows.py has those that training says, too."""
    with pytest.raises(ValueError, match=words):
        table(content)


def test_a_quote_that_is_never_closed_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "STREAMED", 50)
    monkeypatch.setattr(blocks, "MOST_ROW", 100)
    with pytest.raises(ValueError, match=r"^in.csv, row \d is longer than 100 bytes: end each row by a line feed, and"):
        table('text,b\n"' + "and so on\n" * 50)


@given(
    st.lists(
        st.fixed_dictionaries({"text": LETTERS, "id": PLAIN, "more": st.lists(PLAIN, max_size=2)}),
        min_size=1,
        max_size=9,
    ),
    st.booleans(),
)
def test_every_value_of_an_object_is_kept(rows: list[dict[str, Any]], ascii_only: bool) -> None:
    content = "\n\n".join(json.dumps(row, ensure_ascii=ascii_only) for row in rows)
    chunks = objects(content)
    assert [row for chunk in chunks for row in chunk.kept] == rows
    assert texts_of(chunks) == [row["text"] for row in rows]


def test_the_columns_are_those_of_the_first_object() -> None:
    assert texts_of(objects('\ufeff{"review": "good"}\r\n', ["words", "text"])) == ["good"]
    assert texts_of(objects('{"text": "a", "review": "b"}\n', ["review", "text"])) == ["b"]
    (chunk,) = objects('{"b": "1", "a": "2"}\n{"a": "4", "b": "3", "c": 5}', ["a"], ["b"])
    assert (chunk.texts, chunk.pairs, chunk.kept[1]) == (["2", "4"], ["1", "3"], {"a": "4", "b": "3", "c": 5})
    assert objects("\n \n") == []


def test_the_only_column_of_the_first_object_is_not_the_text_where_another_row_has_one() -> None:
    with pytest.raises(
        ValueError, match=r"^in.jsonl, row 2 has the column 'text', but the first object has 'label' al"
    ):
        objects('{"label": "x"}\n{"text": "good", "label": "y"}\n', ["review", "text"])


def test_an_endless_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "STREAMED", 50)
    monkeypatch.setattr(blocks, "MOST_ROW", 100)
    for read_any in (objects, table):
        with pytest.raises(ValueError, match=r"row 1 is longer than 100 bytes: end each row by a line feed"):
            read_any("x" * 1000)


def test_half_a_character_in_an_object_names_its_row() -> None:
    with pytest.raises(ValueError, match=r"^in.jsonl, row 1: holds half a character .*; correct it, or have"):
        objects('{"text": "\\ud83d"}')


def test_a_column_without_a_name_in_front_is_kept() -> None:
    (chunk,) = table(",text\n0,a\n1,b\n")
    assert chunk.kept == [{"": "0", "text": "a"}, {"": "1", "text": "b"}]
    with pytest.raises(ValueError, match="has the column '' twice: name every column once"):
        table(",text,,label\n0,a,1,x\n")


def test_columns_without_a_name_at_the_end_are_left_out_as_in_training() -> None:
    (chunk,) = table("text,label,,\na,x,,\nb,y\n")
    assert chunk.kept == [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]
    with pytest.raises(ValueError, match="row 3: has 1 cell, but the header has 4"):
        table("text,label,,\na,x,,\nb\n")
