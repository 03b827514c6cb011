"""Lines of a stream: only newlines end a line, and every mistake names its row."""

import io
import os
import threading
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyheads.config import OnBadText
from manyheads.inference import chunks as lines
from manyheads.inference.chunks import Chunk, chunks_of_lines, decoded_lines, row_of_line

LETTERS = st.text(st.characters(exclude_characters="\n\r\ufeff", exclude_categories=["Cs"]), max_size=12)
ODD = ["a\x85b", "c\u2028d", "e\u2029\x0b\x0c\x1c\x1d\x1ef", "", "\t", "  spaces  ", "\ufffe", "naïve 爱 🙂", '"']


def texts_of(chunks: Any) -> list[str]:
    return [text for chunk in chunks for text in chunk.texts]


@given(st.lists(LETTERS | st.sampled_from(ODD), max_size=30), st.sampled_from(["\n", "\r\n"]))
def test_a_line_is_what_stands_between_newlines(texts: list[str], end: str) -> None:
    content = "".join(text + end for text in texts).encode()
    assert texts_of(chunks_of_lines(io.BytesIO(content), "input", pairs=False)) == texts
    cut = content.removesuffix(end.encode())
    expected = texts[:-1] if texts and not texts[-1] else texts  # nothing behind the last newline is no line
    assert texts_of(chunks_of_lines(io.BytesIO(cut), "input", pairs=False)) == expected


def test_a_byte_order_mark_is_no_letter() -> None:
    assert texts_of(chunks_of_lines(io.BytesIO(b"\xef\xbb\xbfone\ntwo\n"), "input", pairs=False)) == ["one", "two"]


def test_chunks_are_bounded_and_numbered_through() -> None:
    content = b"good\n" * 3000 + b"\xff\n"
    chunks = chunks_of_lines(io.BytesIO(content), "input", pairs=False)
    sizes = [len(chunk.texts) for chunk in islice(chunks, 2)]
    with pytest.raises(
        ValueError,
        match=r"^input, row 3001: byte 0xff at position 15,000 is not UTF-8; save the file as UTF-8, if it is ",
    ):
        next(chunks)
    assert sizes == [1024, 1024]


def test_chunks_are_the_same_however_a_stream_delivers() -> None:
    """In bf16 the last digits of an answer depend on the rows beside it."""
    content = b"".join(b"row %d\n" % at for at in range(1500))
    of_file = list(chunks_of_lines(io.BytesIO(content), "file", pairs=False))
    ends = os.pipe()
    with os.fdopen(ends[0], "rb") as read, os.fdopen(ends[1], "wb", buffering=0) as write:
        writing = threading.Thread(
            target=lambda: (
                [write.write(content[at : at + 1000]) for at in range(0, len(content), 1000)],
                write.close(),
            )
        )
        writing.start()
        assert list(chunks_of_lines(read, "pipe", pairs=False)) == of_file
        writing.join()
    assert [len(chunk.texts) for chunk in of_file] == [1024, 476]


def test_what_a_person_types_is_answered_at_once() -> None:
    ends = os.pipe()
    with os.fdopen(ends[0], "rb") as read, os.fdopen(ends[1], "wb", buffering=0) as write:
        chunks = chunks_of_lines(read, "terminal", pairs=False, at_once=True)
        write.write(b"first\nsec")
        assert next(chunks).texts == ["first"]
        closing = threading.Timer(0.05, lambda: (write.write(b"ond\nlast"), write.close()))
        closing.start()
        assert texts_of(chunks) == ["second", "last"]
        closing.join()


def test_long_lines_make_short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MOST_CHARACTERS", 10)
    chunks = chunks_of_lines(io.BytesIO(b"good film\n" * 5), "input", pairs=False)
    assert [len(chunk.texts) for chunk in chunks] == [2, 2, 1]


def test_a_tab_divides_a_pair() -> None:
    (chunk,) = chunks_of_lines(io.BytesIO(b"one\ttwo\n\tonly second\n"), "input", pairs=True)
    assert chunk == Chunk(
        [{"text": "one", "text_pair": "two"}, {"text": "", "text_pair": "only second"}],
        ["one", ""],
        ["two", "only second"],
        {1: "row 2: the text is empty"},
    )
    with pytest.raises(ValueError, match=r"^input, row 2 has 0 tabs, but the model takes pairs of texts"):
        texts_of(chunks_of_lines(io.BytesIO(b"a\tb\nno tab\n"), "input", pairs=True))
    with pytest.raises(ValueError, match=r"^text has 2 tabs, but the model takes pairs"):
        row_of_line("a\tb\tc", "", "text", pairs=True)


def test_a_line_with_other_tabs_has_no_answer_where_such_rows_are_dropped() -> None:
    content = b"a\tb\nno tab\nc\td\te\n"
    (chunk,) = chunks_of_lines(io.BytesIO(content), "input", pairs=True, on_bad_row=OnBadText.drop)
    assert chunk.faults == {
        1: "row 2: has 0 tabs, but the model takes pairs of texts",
        2: "row 3: has 2 tabs, but the model takes pairs of texts",
    }
    assert chunk.kept[1:] == [{"text": "no tab", "text_pair": None}, {"text": "c\td\te", "text_pair": None}]
    how = {"pairs": False, "fields": ["title", "body"], "on_bad_row": OnBadText.drop}
    (chunk,) = chunks_of_lines(io.BytesIO(content), "input", **how)
    assert [*chunk.faults] == [1, 2]
    assert chunk.kept[1] == {"title": "no tab", "body": None}


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MOST_ROW", 100)
    said = r"^input, row 3 is longer than 100 bytes: give one text a line$"
    fits, endless = b"a\n" + b"x" * 100 + b"\n", b"y" * 10_000
    assert [len(text) for text in texts_of(chunks_of_lines(io.BytesIO(fits), "input", pairs=False))] == [1, 100]
    stream = io.BytesIO(fits + endless)
    with pytest.raises(ValueError, match=said):
        texts_of(chunks_of_lines(stream, "input", pairs=False))
    assert stream.tell() < 400
    assert list(decoded_lines(io.BytesIO(b"a\n\nb"), "input")) == [(1, "a"), (2, ""), (3, "b")]
    stream = io.BytesIO(b"a\nb\n" + endless)
    with pytest.raises(ValueError, match=said):
        list(decoded_lines(stream, "input"))
    assert stream.tell() < 400


@pytest.mark.parametrize("line", ["label,text", '"id"\t"text"', '{"text": "good"}'])
def test_a_table_that_is_read_as_lines_is_said_to_be_one(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    how = {"pairs": False, "columns": ["text"]}
    chunk = next(chunks_of_lines(io.BytesIO(f"{line}\ngood\n".encode()), "standard input", **how))
    assert chunk.texts == [line, "good"]
    assert "give a table as a .csv, .tsv or .jsonl by input=<file>" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["a text, or two", "text", "{a}, [b]"])
def test_a_text_is_not_said_to_be_a_table(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert next(chunks_of_lines(io.BytesIO(line.encode()), "a.txt", pairs=False, columns=["text"])).texts == [line]
    assert not capsys.readouterr().err
