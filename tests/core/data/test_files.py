"""Every kind of local file reads alike; every damage is one sentence that names file and row."""

import bz2
import csv
import gzip
import json
import lzma
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from manyheads.config.data import stem_of
from manyheads.data.formats import blocks, source
from manyheads.data.formats.kinds import kind_of
from manyheads.data.opening import read_file

ODD = ["plain", 'with "quotes", commas', "two\nlines", "next\u0085line", "para\u2029graph", "tab\there", "naïve 東京"]


def write_csv(path: Path, rows: list[list[str]], **options) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, **options).writerows(rows)
    return path


def write_kind(folder: Path, kind: str) -> Path:
    path = folder / f"train{kind}"
    rows = [["text", "label"], *([text, "x"] for text in ODD)]
    if kind.startswith((".csv", ".tsv")):
        write_csv(path, rows, delimiter="\t" if kind.startswith(".tsv") else ",")
    elif kind.startswith(".json"):
        lines = [json.dumps({"text": text, "label": "x"}, ensure_ascii=False) for text in ODD]
        path.write_text("\n".join(lines), encoding="utf-8")
    else:
        pyarrow.parquet.write_table(pyarrow.table({"text": ODD, "label": ["x"] * len(ODD)}), path)
    press = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}.get(path.suffix)
    if press:
        path.write_bytes(press(path.read_bytes()))
    return path


def complaint(path: Path) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - every test compares the whole sentence
        read_file(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


KINDS = [".csv", ".tsv", ".jsonl", ".json", ".parquet"]
PRESSED = [f"{kind}{press}" for kind in KINDS[:4] for press in (".gz", ".bz2", ".xz")]


@pytest.mark.parametrize("kind", KINDS + PRESSED)
def test_every_kind_keeps_odd_texts_whole(tmp_path, kind):
    path = write_kind(tmp_path, kind)
    table = read_file(path)
    assert table.names == ["text", "label"]
    assert table.column("text") == ODD
    assert table.column("label") == ["x"] * len(ODD)
    assert len(table.numbers) == len(ODD)
    assert table.source == path.name
    assert stem_of(path) == "train"


@pytest.mark.parametrize("name", ["a.ods", "a.gz", "a.parquet.gz", "a", "a.doc", "README.md"])
def test_other_kinds_are_not_read(name):
    assert kind_of(Path(name)) is None


def test_a_json_array_reads_like_lines(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('[{"text": "a", "label": 1},\n {"label": 2}]')
    table = read_file(path)
    assert (table.column("text"), table.column("label"), list(table.numbers)) == (["a", None], [1, 2], [1, 2])


def test_a_byte_order_mark_is_no_part_of_the_header(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbftext,label\r\nhi,x\r\n")
    assert read_file(path).names == ["text", "label"]


def test_rows_are_numbered_as_users_see_them(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('text,label\n"two\nlines",x\n\nb,y\n')
    assert list(read_file(path).numbers) == [2, 4]
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n\n{"text": "b"}\n')
    assert list(read_file(path).numbers) == [1, 3]


def test_a_long_field_is_no_mistake(tmp_path):
    path = write_csv(tmp_path / "a.csv", [["text", "label"], ["x" * 1_000_000, "a"]])
    assert len(read_file(path).column("text")[0]) == 1_000_000


def test_unquoted_tsv_keeps_its_quotes(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text('text\tlabel\n"Hello" he said\tx\n"open\ty\n')
    assert read_file(path).column("text") == ['"Hello" he said', '"open']


def test_quotes_that_would_join_rows_of_a_tsv_are_plain(tmp_path):
    path = tmp_path / "a.tsv"
    texts = [f"text {i}" for i in range(300)]
    texts[100], texts[150] = '"he began', 'and ended"'
    path.write_text("\n".join(["label\ttext", *(f"ham\t{text}" for text in texts), ""]))
    table = read_file(path)
    assert (table.column("text"), list(table.numbers)) == (texts, list(range(2, 302)))
    path.write_text('label\ttext\nham\t"two\nlines"\n')
    assert read_file(path).column("text") == ["two\nlines"]
    path.write_text('text\n"two\nlines"\n')
    assert read_file(path).column("text") == ["two\nlines"]


def test_rows_of_another_width_are_broken(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\na,x\nb, c,x\nd\n")
    table = read_file(path)
    assert table.broken == {
        1: "has 3 cells, but the header has 2: quote texts that hold the separator (,)",
        2: "has 1 cell, but the header has 2: quote texts that hold a line end",
    }
    assert table.column("text") == ["a", "b", "d"]


def test_lines_that_are_no_objects_are_broken(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n{"text": \n3\n')
    broken = read_file(path).broken
    assert broken[1].startswith("is not JSON (Expecting value")
    assert broken[2] == 'is not a JSON object such as {"text": "...", "label": "..."}'


@pytest.mark.parametrize("sign", [";", "\t", ","])
def test_a_csv_may_be_separated_otherwise(tmp_path, sign):
    path = tmp_path / "a.csv"
    path.write_text(f'text{sign}label\n"one{sign} two",x\n'.replace('",x', f'"{sign}x'))
    table = read_file(path)
    assert (table.names, table.column("text"), table.column("label")) == (["text", "label"], [f"one{sign} two"], ["x"])
    path.write_text(f'text{sign}label\na{sign}x\n"b{sign}x\n')
    assert complaint(path).startswith(f"{path}, row 3: a quoted text is never closed")


@pytest.mark.parametrize("kind", [".json", ".jsonl"])
def test_a_single_object_is_no_table(tmp_path, kind):
    path = tmp_path / f"pretty{kind}"
    path.write_text(json.dumps({"version": 1, "data": [{"text": "a", "label": "x"}]}, indent=2))
    assert complaint(path) == (
        f"{path} is a single JSON object, but it must hold an array of objects, or one object a line; "
        "save the array under 'data' alone"
    )
    path.write_text('{\n"text": "a"\n}')
    assert complaint(path) == (
        f"{path} is a single JSON object, but it must hold an array of objects, or one object a line"
    )
    path.write_text('{"text": "a"\n{"text": "b"}\n')
    assert list(read_file(path).broken) == [0]


ROWS = [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]
ONE_OBJECT = "is a single JSON object, but it must hold an array of objects, or one object a line"
COLUMNS = "it holds columns instead: of pandas, write it by to_json(FILE, orient='records', lines=True)"


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        ({"data": ROWS}, "save the array under 'data' alone"),
        (
            {"train": ROWS, "test": ROWS},
            "save each of its arrays, train, test, as a file of that name, in one folder",
        ),
        ({"text": {"0": "a", "1": "b"}, "label": {"0": "x", "1": "y"}}, COLUMNS),
        ({"text": ["a", "b"], "label": ["x", "y"]}, COLUMNS),
    ],
)
@pytest.mark.parametrize("indent", [None, 1])
def test_an_object_of_rows_or_columns_is_no_row(content, hint, indent, tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(content, indent=indent))
    assert complaint(path) == f"{path} {ONE_OBJECT}; {hint}"


def test_an_object_alone_may_be_a_row_and_several_of_a_line_are_none(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"text": "a", "spans": [{"start": 1}], "labels": ["x"]}')
    assert read_file(path).column("labels") == [["x"]]
    path.write_text('{"text": "a"} {"text": "b"}')
    assert read_file(path).broken == {0: "holds more than one JSON object"}
    path.write_text('{"text": "a"},\n{"text": "b"}\n')
    assert read_file(path).broken == {0: "ends with a comma"}


def test_columns_without_a_name_are_not_read(tmp_path):
    path = tmp_path / "spam.csv"
    path.write_text("v1,v2,,,\nham,hi,,,\nspam,a, b,c,\nham,short\nham\n")
    table = read_file(path)
    assert (table.names, table.column("v1")[:3], table.column("v2")) == (
        ["v1", "v2"],
        ["ham", "spam", "ham"],
        ["hi", "a", "short", ""],
    )
    assert list(table.broken) == [3]


def test_a_header_that_lacks_a_name_is_said_to(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('"text","label"\n"1","a text","x"\n"2","b text","y"\n')  # as R writes a table with row names
    assert [*read_file(path).broken] == [0, 1]
    assert read_file(path).broken[0].endswith(", or add a name to the header, which all rows exceed")


def test_an_array_in_a_file_of_lines_is_said_to_be_one(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('[{"text": "a"}, {"text": "b"}]\n')
    assert read_file(path).broken == {0: "is an array of JSON objects: let the name of the file end with .json"}


NO_HEADER = " has no header: its first row must name the columns, such as text,label"
BY_ICONV = "save the file as UTF-8, if it is of Windows or Latin-1 by iconv -f cp1252 -t utf-8 FILE > NEW"
UTF_16 = " is UTF-16, not UTF-8: save it as UTF-8, as by iconv -f utf-16 -t utf-8 FILE > NEW"
DAMAGED = [
    ("csv", b"", NO_HEADER),
    ("csv", b",,\n1,2,3\n", NO_HEADER),
    ("csv", b"text,text\na,b\n", ", row 1: the header names the column 'text' twice; rename one"),
    (
        "csv",
        b'text,label\na,x\n"b,x\nc,y\n',
        ", row 3: a quoted text is never closed; the file is truncated, or a quote inside a text is not doubled",
    ),
    (
        "csv",
        b'text,label\na,x\n"b"c,x\n',
        ", row 3: broken quoting (',' expected after '\"'); double the quotes inside a quoted text",
    ),
    ("csv", b"text,label\na,x\nca\xe9,y\n", f", row 3: byte 0xe9 at position 17 is not UTF-8; {BY_ICONV}"),
    ("csv", b"\xef\xbb\xbftext,label\na,x\nca\xe9,y\n", f", row 3: byte 0xe9 at position 20 is not UTF-8; {BY_ICONV}"),
    ("csv", "\ufefftext,label\na,x\n".encode("utf-16-le"), UTF_16),
    ("csv", "\ufefftext,label\na,x\n".encode("utf-16-be"), UTF_16),
    ("csv", "text,label\na,x\n".encode("utf-16-le"), UTF_16.replace("utf-16 ", "utf-16le ")),
    ("txt", "a text\n".encode("utf-16-be"), UTF_16.replace("utf-16 ", "utf-16be ")),
    ("csv", "text,label\na,x\n".encode("utf-32"), UTF_16.replace("UTF-16", "UTF-32").replace("utf-16", "utf-32")),
    ("csv", gzip.compress(b"text,label\na,x\n", mtime=0), " is compressed by gzip: let its name end with .gz"),
    ("csv", b"PK\x03\x04\x14\x00\xff", " is an archive or a spreadsheet: unpack it, or save it as .csv"),
    ("csv", b"PAR1\x15\x04\xff", " is a parquet file: let its name end with .parquet"),
    ("jsonl", b'{"text": "a"}\n{"text": "\xff"}\n', f", row 2: byte 0xff at position 24 is not UTF-8; {BY_ICONV}"),
    (  # a row has several lines where its separator says so
        "csv",
        b'label;text\nx;"two\nlines"\ny;ca\xe9\n',
        f", row 3: byte 0xe9 at position 29 is not UTF-8; {BY_ICONV}",
    ),
    ("tsv", b'text\tlabel\n"a\tx\nb\ty\nca\xe9\tz\n', f", row 4: byte 0xe9 at position 22 is not UTF-8; {BY_ICONV}"),
    (  # the second of an array
        "json",
        b'[\n {"text": "a"},\n {"text": "\xff"}\n]\n',
        f", row 2: byte 0xff at position 29 is not UTF-8; {BY_ICONV}",
    ),
]


@pytest.mark.parametrize(("kind", "content", "sentence"), DAMAGED)
def test_a_damaged_file_is_one_sentence_that_names_the_row(tmp_path, kind, content, sentence):
    path = tmp_path / f"a.{kind}"
    path.write_bytes(content)
    assert complaint(path) == f"{path}{sentence}"


@pytest.mark.parametrize("kind", [".csv.gz", ".csv.bz2", ".csv.xz"])
@pytest.mark.parametrize("damage", ["cut", "other"])
def test_damaged_compression_is_one_sentence(tmp_path, kind, damage):
    path = write_kind(tmp_path, kind)
    path.write_bytes(path.read_bytes()[:-9] if damage == "cut" else b"text,label\na,x\n" * 9)
    assert complaint(path).startswith(f"{path} cannot be decompressed (")


@pytest.mark.parametrize("kind", [".csv.gz", ".csv.bz2", ".csv.xz"])
def test_a_file_that_unpacks_without_end_is_one_sentence(tmp_path, kind, monkeypatch):
    path = write_kind(tmp_path, kind)
    monkeypatch.setattr(blocks, "BLOCK", 10)
    assert read_file(path).column("text") == ODD
    monkeypatch.setattr(source, "MOST_BYTES", 2**6)
    assert complaint(path) == (
        f"{path} holds more than 64 bytes once decompressed: decompress it yourself and give the plain file, "
        "or split it"
    )


def test_the_smaller_a_file_the_less_it_may_unpack_to(tmp_path, monkeypatch):
    path = tmp_path / "a.csv.xz"
    path.write_bytes(lzma.compress(b"x" * 2**22, preset=1))
    assert source.most_unpacked(path) == 2**27
    monkeypatch.setattr(source, "FREE_BYTES", 2**21)
    assert path.stat().st_size * source.MOST_TIMES < 2**21
    assert complaint(path).startswith(f"{path} holds more than {2**21:,} bytes once decompressed: ")


def test_a_row_of_few_cells_costs_no_more_than_they_do(tmp_path):
    path = write_csv(tmp_path / "a.csv", [["text", *map(str, range(100_000))], *[["a"]] * 10_000])
    table = read_file(path)
    assert len(table.broken) == 10_000
    assert table.column("text") == ["a"] * 10_000
    assert table.column("99999") == [""] * 10_000


def test_a_damaged_json_array_is_one_sentence(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('[{"text": "a"}, {')
    assert complaint(path).startswith(f"{path} is not JSON (Expecting property name")


def test_truncated_parquet_is_one_sentence(tmp_path):
    path = write_kind(tmp_path, ".parquet")
    path.write_bytes(path.read_bytes()[:-20])
    assert complaint(path) == (
        f"{path} cannot be read as parquet: the file is truncated, damaged or of another kind; copy it again"
    )


def test_parquet_that_is_not_utf8_is_one_sentence(tmp_path):
    path = tmp_path / "a.parquet"
    text = pyarrow.array([b"\xff\xfe"], pyarrow.binary()).view(pyarrow.string())
    pyarrow.parquet.write_table(pyarrow.table({"text": text}), path)
    with pytest.raises(ValueError, match=r"the column 'text' holds text that is not UTF-8; write it as UTF-8$"):
        list(read_file(path).column("text"))


def test_class_names_written_by_datasets_are_kept(tmp_path):
    import datasets

    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
    made = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]}, features=features)
    made.to_parquet(tmp_path / "a.parquet")
    table = read_file(tmp_path / "a.parquet")
    assert (table.classes, table.column("label")) == ({"label": ["no", "yes"]}, [1, 0])
