"""Lines and csv rows of a stream: only newlines end a line, and every mistake names its line."""

import csv
import io
import os
import threading
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyheads.judge import lines
from manyheads.judge.lines import Chunk, as_chunk, read_lines, read_table

LETTERS = st.text(st.characters(exclude_characters="\n\r\ufeff", exclude_categories=["Cs"]), max_size=12)
ODD = ["a\x85b", "c\u2028d", "e\u2029\x0b\x0c\x1c\x1d\x1ef", "", "\t", "  spaces  ", "\ufffe", "naïve 爱 🙂", '"']


def texts_of(chunks: Any) -> list[str]:
    return [text for chunk in chunks for text in chunk.texts]


@settings(max_examples=150, deadline=None)
@given(st.lists(LETTERS | st.sampled_from(ODD), max_size=30), st.sampled_from(["\n", "\r\n"]), st.integers(1, 64))
def test_a_line_is_what_stands_between_newlines(texts: list[str], end: str, block: int) -> None:
    content = "".join(text + end for text in texts).encode()
    before = lines.BLOCK
    lines.BLOCK = block
    try:
        assert texts_of(read_lines(io.BytesIO(content), "input", pairs=False)) == texts
        cut = content.removesuffix(end.encode())
        expected = texts[:-1] if texts and not texts[-1] else texts  # nothing behind the last newline is no line
        assert texts_of(read_lines(io.BytesIO(cut), "input", pairs=False)) == expected
    finally:
        lines.BLOCK = before


def test_a_byte_order_mark_is_no_letter() -> None:
    assert texts_of(read_lines(io.BytesIO(b"\xef\xbb\xbfone\ntwo\n"), "input", pairs=False)) == ["one", "two"]


def test_chunks_are_bounded_and_numbered_through() -> None:
    content = b"good\n" * 3000 + b"\xff\n"
    chunks = read_lines(io.BytesIO(content), "input", pairs=False)
    sizes = [len(chunk.texts) for chunk in islice(chunks, 2)]
    with pytest.raises(ValueError, match=r"^input, line 3001 is not UTF-8: invalid start byte at byte 1$"):
        next(chunks)
    assert sizes == [1024, 1024]


def test_a_slow_stream_is_answered_as_it_arrives() -> None:
    ends = os.pipe()
    with os.fdopen(ends[0], "rb") as read, os.fdopen(ends[1], "wb", buffering=0) as write:
        chunks = read_lines(read, "pipe", pairs=False)
        write.write(b"first\nsec")
        assert next(chunks).texts == ["first"]
        closing = threading.Timer(0.05, lambda: (write.write(b"ond\nlast"), write.close()))
        closing.start()
        assert texts_of(chunks) == ["second", "last"]
        closing.join()


def test_a_tab_divides_a_pair() -> None:
    (chunk,) = read_lines(io.BytesIO(b"one\ttwo\n\tonly second\n"), "input", pairs=True)
    assert chunk == Chunk(
        [{"text": "one", "text_pair": "two"}, {"text": "", "text_pair": "only second"}],
        ["one", ""],
        ["two", "only second"],
    )
    with pytest.raises(ValueError, match=r"^input, line 2 has 0 tabs, but the model takes pairs of texts"):
        texts_of(read_lines(io.BytesIO(b"a\tb\nno tab\n"), "input", pairs=True))
    with pytest.raises(ValueError, match=r"^text has 2 tabs, but the model takes pairs"):
        as_chunk(["a\tb\tc"], "text", 1, pairs=True)


def table(content: str | bytes, text: list[str] | None = None, text_pair: list[str] | None = None) -> list[Chunk]:
    stream = io.BytesIO(content if isinstance(content, bytes) else content.encode())
    return list(read_table(stream, "in.csv", text=text or ["text"], text_pair=text_pair or []))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(*[LETTERS | st.just('a\n"b",c')] * 2).filter(any), min_size=1, max_size=20))
def test_every_column_is_kept(rows: list[tuple[str, str]]) -> None:
    file = io.StringIO(newline="")
    writer = csv.writer(file, quoting=csv.QUOTE_ALL)
    writer.writerows([("id", "text"), *rows])
    chunks = table(file.getvalue())
    assert [row for chunk in chunks for row in chunk.kept] == [{"id": one, "text": two} for one, two in rows]
    assert texts_of(chunks) == [two for _, two in rows]


def test_the_column_of_the_text_is_found() -> None:
    assert texts_of(table("review\ngood\n")) == ["good"]
    assert texts_of(table("text,review\na,b\n", ["review", "text"])) == ["b"]
    (chunk,) = table("b,a\n1,2\n", ["a"], ["b"])
    assert (chunk.texts, chunk.pairs) == (["2"], ["1"])


def test_long_texts_make_short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MOST_CHARACTERS", 10)
    assert [len(chunk.texts) for chunk in table("text\n" + "good film\n" * 5)] == [2, 2, 1]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "in.csv is empty: its first line must name the columns"),
        ("a,b\n1,2\n", "in.csv has no column 'text', which the model reads: its columns are a, b; rename one of them"),
        ("text,text\n1,2\n", "in.csv has the column 'text' twice: name every column once"),
        ("text,b\n1,2\n1\n", "in.csv, line 3 has 1 cells, but its header names 2 columns"),
        (b"text,b\n1,2\n\xff,2\n", "in.csv, line 3 is not UTF-8: invalid start byte at byte 1"),
        ("text,b\na\rb,2\n", "in.csv, line 2 is not csv: new-line character seen in unquoted field"),
    ],
)
def test_a_mistake_names_its_line(content: str | bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        table(content)
