"""train, evaluate and predict find the same texts in a file, and say the same of one that is broken."""

import gzip
import json
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from manyheads.config import DataConfig, OnBadText, TextColumns
from manyheads.data.formats import blocks
from manyheads.data.sources import read_split, read_splits
from manyheads.inference.format import ColumnNames
from manyheads.inference.reading import check_input, open_texts

GOOD = [(f"text {at}, and so on", "xy"[at % 2]) for at in range(30)]
TABLE = "text,label\n" + "".join(f'"{text}",{label}\n' for text, label in GOOD)
OBJECTS = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in GOOD)
READ: dict[str, str | bytes] = {
    "mark.csv": "\ufeff" + TABLE,
    "crlf.csv": TABLE.replace("\n", "\r\n"),
    "bare returns.csv": TABLE.replace("\n", "\r"),
    "sep.csv": "sep=;\n" + TABLE.replace('",', '";').replace("text,label", "text;label"),
    "semicolons.csv": TABLE.replace('",', '";').replace("text,label", "text;label"),
    "tabs.csv": TABLE.replace('",', '"\t').replace("text,label", "text\tlabel"),
    "spaces.csv": TABLE.replace('",', '", ').replace("text,label", "text, label"),
    "blank lines.csv": "\n" + TABLE.replace("\n", "\n\n"),
    "odd letters.csv": TABLE
    + '"next\u0085line\u2028and\x0b more",x\n"two\nlines",y\n"say ""no""",x\nNA,y\nnull,x\n1.50,y\n',
    "unnamed columns.csv": TABLE.replace("label\n", "label,,\n").replace("x\n", "x,,\n"),
    "nul.csv": TABLE + "a\0b,x\n",
    "plain quotes.tsv": "text\tlabel\n" + "".join(f'"he began {at}\tx\nand ended {at}"\ty\n' for at in range(15)),
    "quoted.tsv": 'text\tlabel\n"two\nlines"\tx\n"a ""b"""\ty\n' * 1 + "c\tx\nd\ty\ne\tx\n",
    "never closed.tsv": 'text\tlabel\n"never closed\tx\nawful\ty\nc\tx\nd\ty\n',
    "packed.csv.gz": gzip.compress(TABLE.encode()),
    "lines.jsonl": OBJECTS,
    "blank lines.jsonl": "\ufeff" + OBJECTS.replace("\n", "\r\n \n"),
    "lines.json": OBJECTS,
    "array.json": json.dumps([{"text": text, "label": label} for text, label in GOOD], indent=1),
    "packed.jsonl.gz": gzip.compress(OBJECTS.encode()),
}
REFUSED: dict[str, str | bytes] = {
    "empty.csv": "",
    "twice.csv": "text,text,label\na,b,x\n",
    "latin.csv": TABLE.encode() + "caf\xe9,x\n".encode("latin-1"),
    "utf-16.csv": TABLE.encode("utf-16"),
    "binary.csv": b"\x7fELF" + bytes(range(256)) * 9,
    "never closed.csv": TABLE + '"open,x\n' + "more,y\n" * 20,
    "header never closed.csv": 'text,"label\n' + "more,y\n" * 20,
    "half quoted.csv": TABLE + '"good" film,x\n',
    "ragged.csv": TABLE + "good,x,y\nbad\n",
    "empty text.csv": TABLE + ",x\n",
    "white space.csv": TABLE + "\u3000,x\n",
    "latin.jsonl": OBJECTS.encode() + b'{"text": "\xe9"}\n',
    "not json.jsonl": OBJECTS + '{"text": \n',
    "first is not json.jsonl": "text\n" + OBJECTS,
    "several in a line.jsonl": OBJECTS + '{"text": "a", "label": "x"} {"text": "b", "label": "y"}\n',
    "a list.jsonl": OBJECTS + '["a", "x"]\n',
    "a number.jsonl": OBJECTS + '{"text": 7, "label": "x"}\n',
    "null.jsonl": OBJECTS + '{"text": null, "label": "x"}\n',
    "deep.jsonl": OBJECTS + '{"text": ' + "[" * 100_000 + "\n",
    "one object.json": json.dumps({"data": [{"text": "a", "label": "x"}]}, indent=1),
    "columns.json": json.dumps({"text": ["a", "b"], "label": ["x", "y"]}),
    "cut.json": json.dumps([{"text": text, "label": label} for text, label in GOOD])[:-9],
    "more.json": json.dumps([{"text": text, "label": label} for text, label in GOOD]) + "[]",
    "cut.csv.gz": gzip.compress(TABLE.encode())[:-9],
    "other.csv.gz": TABLE,
    "other.parquet": TABLE,
}


def answered(path: Path, on_bad_row: OnBadText = OnBadText["raise"]) -> list[str]:
    """The texts that predict answers."""
    predictor: Any = SimpleNamespace(pairs=False, settings=SimpleNamespace(columns=ColumnNames(), fields=[]))
    with open_texts("", str(path), predictor, TextColumns(on_bad_row=on_bad_row)) as chunks:
        return [text for chunk in chunks for text in chunk.texts]


def judged(path: Path) -> list[str]:
    return list(read_split(DataConfig(path=str(path)), "test", ["x", "y"]).texts)


def trained(path: Path) -> list[str]:
    return [text for rows in read_splits(DataConfig(path=str(path)), 0).by_name().values() for text in rows.texts]


def said(read: Any, path: Path) -> str:
    """Why a file is refused: of a row its number and what is wrong with it, else the whole sentence."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared by who calls
        read(path)
    sentence = str(caught.value)
    assert str(path) in sentence or path.name in sentence
    of_row = re.search(r"row \d+: .*?(?= \(\d+ more rows? (?:is|are) bad\)|; correct it)", sentence)
    return of_row[0] if of_row else sentence


@pytest.fixture(params=[2**20, 61], ids=["whole", "in blocks"])
def in_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", request.param)
    monkeypatch.setattr(blocks, "STREAMED", request.param)


@pytest.mark.usefixtures("in_blocks")
@pytest.mark.parametrize("name", READ)
def test_all_verbs_read_the_same_texts(tmp_path: Path, name: str) -> None:
    path, content = tmp_path / name, READ[name]
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    texts = answered(path)
    assert texts == judged(path)
    assert sorted(texts) == sorted(trained(path))
    assert len(texts) >= 4


def test_a_mark_within_a_table_is_part_of_a_text(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("\ufefftext,label\n\ufeffgood,x\n\ufeffbad,y\n", encoding="utf-8")
    assert answered(path) == judged(path) == ["\ufeffgood", "\ufeffbad"]


@pytest.mark.usefixtures("in_blocks")
@pytest.mark.parametrize("name", REFUSED)
def test_all_verbs_say_the_same_of_a_broken_file(tmp_path: Path, name: str) -> None:
    path, content = tmp_path / name, REFUSED[name]
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert said(trained, path) == said(judged, path) == said(answered, path)


def test_a_parquet_file_is_read_alike(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts, labels = map(list, zip(*GOOD, strict=True))
    pyarrow.parquet.write_table(pyarrow.table({"text": texts, "label": labels}), path)
    assert answered(path) == judged(path) == texts
    pyarrow.parquet.write_table(pyarrow.table({"text": [*texts[:-1], " "], "label": labels}), path)
    assert said(trained, path) == said(judged, path) == said(answered, path) == "row 30: the text is only white space"
    path.write_bytes(path.read_bytes()[:-20])
    assert said(trained, path) == said(judged, path) == said(answered, path)


def test_a_pipe_that_would_be_read_twice_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.csv")
    os.mkfifo(tmp_path / "a.tsv")
    check_input("", str(tmp_path / "a.csv"))
    with pytest.raises(ValueError, match=r"a\.tsv is a pipe, but a \.tsv is read twice"):
        check_input("", str(tmp_path / "a.tsv"))
