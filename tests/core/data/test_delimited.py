"""The rows of csv and tsv files: their separator, their quotes, and the lines that these join."""

import csv
import gzip
import io
import re
import tracemalloc
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyheads.config import DataConfig
from manyheads.data.columns import find_columns
from manyheads.data.formats import blocks
from manyheads.data.formats.dialect import start_of
from manyheads.data.formats.source import lines_of
from manyheads.data.opening import read_file
from manyheads.inference.chunks import WantedColumns
from manyheads.inference.format import ColumnNames
from manyheads.inference.reading import open_texts
from manyheads.inference.records import chunks_of_table


@given(st.text(alphabet='ab,"\n\r\x85\u2028 ', max_size=30))
def test_lines_are_those_of_a_file_opened_without_translation(text):
    assert list(lines_of(text)) == list(io.StringIO(text, newline=""))


@pytest.mark.parametrize(
    ("header", "sign"),
    [("", ","), ("a", ","), ("a;b", ";"), ("a;b,c", ","), ("a\tb;c", ";"), ("a\tb", "\t"), ("a\n", ",")],
)
def test_the_header_alone_tells_the_separator(header, sign):
    assert start_of([header], ".csv", lambda n_lines: True).dialect.delimiter == sign


def test_a_space_behind_each_separator_is_no_part_of_a_cell(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('id, text, label\n0, "hello, there", "a"\n1, "two\nlines", b\n')
    table = read_file(path)
    assert (table.column("text"), table.column("label")) == (["hello, there", "two\nlines"], ["a", "b"])
    assert not table.broken
    path.write_text("id, text,label\n0, hello,a\n")
    assert read_file(path).column("text") == [" hello"]
    path.write_text('text, label\nx, "a\n')
    with pytest.raises(ValueError, match="row 2: a quoted text is never closed"):
        read_file(path)


STRAY = [f"text {at}" for at in range(40)]
STRAY[10], STRAY[20] = '"he began', 'and ended"'


@pytest.mark.parametrize("at", [5, 15, 30])
@pytest.mark.parametrize("cells", [["a", "b", "c"], ["a"]])
def test_one_bad_line_does_not_let_stray_quotes_join_rows(at, cells, tmp_path):
    path = tmp_path / "a.tsv"
    lines = [f"{text}\tx" for text in STRAY]
    lines.insert(at, "\t".join(cells))
    path.write_text("\n".join(["text\tlabel", *lines, ""]))
    table = read_file(path)
    assert [*table.broken] == [at]
    assert [text for row, text in enumerate(table.column("text")) if row != at] == STRAY


@given(
    st.lists(st.tuples(st.text(alphabet='ab"\n ', min_size=1), st.sampled_from("xy")), min_size=1, max_size=8),
    st.booleans(),
)
def test_what_the_csv_module_writes_with_tabs_is_read_again(tmp_path_factory, rows, text_first):
    path = tmp_path_factory.mktemp("tabs") / "a.tsv"
    with path.open("w", newline="", encoding="utf-8") as file:
        file.write("text\tlabel\r\n" if text_first else "label\ttext\r\n")
        table = csv.writer(file, delimiter="\t", quoting=csv.QUOTE_ALL)
        table.writerows(row if text_first else row[::-1] for row in rows)
    found = read_file(path)
    assert list(zip(found.column("text"), found.column("label"), strict=True)) == rows


@pytest.mark.parametrize("kind", [".csv", pytest.param(".tsv", marks=pytest.mark.slow)])
def test_a_table_of_millions_of_columns_is_refused_before_it_fills_the_memory(tmp_path, kind):
    sign, path = "," if kind == ".csv" else "\t", tmp_path / f"wide{kind}"
    few = "a table has at most 262,144: keep those of the text and the label"
    rules = {
        1_100_000: f", line 1 has more than {2**20:,} separators: it is no table of texts",
        300_000: f" has 300,000 columns, but {few}",
    }
    for n_columns, rule in rules.items():
        path.write_text("text" + sign + sign.join("abc" for _ in range(n_columns - 1)) + "\n")
        if n_columns > 2**20:
            tracemalloc.start()
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
            read_file(path)
        if n_columns > 2**20:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 3.5 * path.stat().st_size
        assert str(caught.value) == f"{path}{rule}"
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
            answered(path)
        assert str(caught.value) == f"{path}{rule}"


def answered(path, text=("text",), **more):
    """The rows that predict answers."""
    return [row for chunk in chunks_of_table(path, WantedColumns([*text], [], **more)) for row in chunk.kept]


ROWS = [
    ["id", "text", "label", "note (who, when)"],
    ["1", "a; b, c | d\te ^", "x", ""],
    ["2", 'he said "no"', "y", "Ann, May"],
    ["3", "two\nlines", "x", ""],
    *([str(at), f"text {at}, and so on", "xy"[at % 2], ""] for at in range(4, 80)),
]


@pytest.mark.parametrize("block", [2**23, 64])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize(
    ("kind", "sign", "said"),
    [
        *((".csv", sign, said) for sign in ",;|\t" for said in ("", "sep={}")),
        (".csv", ";", '"sep={}"'),
        (".csv", "^", "SEP={}"),
        (".tsv", "\t", ""),
        (".tsv", "\t", "sep={}"),
        (".tsv", ";", "sep={}"),
    ],
)
def test_the_separator_is_told_alike_by_training_and_predict(tmp_path, monkeypatch, kind, sign, said, mark, end, block):
    monkeypatch.setattr(blocks, "BLOCK", block)
    path, file = tmp_path / f"a{kind}", io.StringIO(newline="")
    writer = csv.writer(file, delimiter=sign, lineterminator=end)
    writer.writerows(ROWS)
    line = said.format(sign) + end if said else ""
    content = (mark + line + file.getvalue()).encode()
    path.write_bytes(content)
    path.with_name(f"a{kind}.gz").write_bytes(gzip.compress(content))
    for one, large in ((path, False), (path, True), (path.with_name(f"a{kind}.gz"), False)):
        table = read_file(one, large=large, cache=tmp_path)
        assert [*map(list, zip(*map(table.column, table.names), strict=True))] == ROWS[1:]
        assert (table.names, table.numbers[0], table.broken) == (ROWS[0], 2 + bool(said), {})
    assert [[*row.values()] for row in answered(path)] == ROWS[1:]


@pytest.mark.parametrize("n_blank", [0, 2])
@pytest.mark.parametrize(
    ("title", "sign"),
    [
        ("Reviews of May; all shops!,,", ","),
        ("Export 2026-05-03 12:00,,", ","),
        ("Reviews of May; all shops!", ","),
        ("Reviews of May!", ";"),
        ("Reviews of May, all shops!", ";"),
        ("Report;May 2026;", ";"),
        ("Report;May 2026;all shops!", ";"),
        ("Report,,\nof May,all shops,", ","),
        ("Reviews of May!\t\t", "\t"),
        ("sep=;\nReviews of May!", ";"),
    ],
)
def test_a_title_above_a_table_is_refused_by_training_and_predict(tmp_path, title, sign, n_blank):
    path = tmp_path / ("a.tsv" if sign == "\t" else "a.csv")
    row = sign.join
    rows = [row([f"T-{at}", f"a text of {at} words", str(at % 5)]) for at in range(60)]
    path.write_text("\n".join([title, *[""] * n_blank, row(["id", "text", "stars"]), *rows, ""]))
    number = title.count("\n") + n_blank + 2
    why = (
        f"row {number} looks like its header (id, text, stars), and what is above it like a title: remove all lines "
        "above the header"
    )
    with pytest.raises(ValueError, match=re.escape(why)):
        find_columns(read_file(path), DataConfig(label="stars"))
    with pytest.raises(ValueError, match=re.escape(why)):
        answered(path, ["review", "text"])


def test_a_header_that_names_the_column_is_no_title(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,,\n" + "good film,Ann,May\n" * 9)
    assert (read_file(path).names, len(answered(path))) == (["text"], 9)
    path.write_text("text\n" + "good; film\n" * 9)  # a separator is in the header
    assert read_file(path).column("text") == ["good; film"] * 9 == [row["text"] for row in answered(path)]
    path.write_text("What a film!,,\n" + "a bad one,,\n" * 9)
    assert [row["text"] for row in answered(path, ["review", "text"])] == ["What a film!", *["a bad one"] * 9]
    path.write_text("Great film: loved it\n" + "bad film: hated it\n" * 9)
    assert len(answered(path, ["review", "text"])) == 10
    path.write_text("What a film! | really\n" + "a bad one | so\n" * 9)
    assert len(answered(path, ["review", "text"])) == 10


def test_votes_and_cells_of_rows_make_no_title_of_the_header(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,votes,kind\n" + "".join(f"text {at},spam:2|ham:{at},p\n" for at in range(20)))
    with pytest.raises(ValueError, match=r"has no column 'vote' \(data.votes\).*; did you mean data.votes=votes\?"):
        find_columns(read_file(path), DataConfig(votes="vote"))
    path.write_text("text,label,kind\n" + "".join(f"text {at},{at},p\n" for at in range(20)))
    with pytest.raises(ValueError, match=r"has no column 'p' \(data.text\).*; name one by data.text=<column>"):
        find_columns(read_file(path), DataConfig(text="p"))


def test_cells_after_a_single_text_are_not_lost(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("What a film!,,\na bad one,5,\n")
    with pytest.raises(ValueError, match=r"row 2: has 3 cells, but the header has 1: quote texts that hold"):
        answered(path, ["review", "text"])


def test_a_header_with_another_separator_is_not_answered_as_a_text(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("text,label\na,x\nb,y\n")
    with pytest.raises(ValueError, match=r"separated by ,, not by tab: let its name end with \.csv$"):
        answered(path, ["review", "text"])


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.tsv", "text,label\na,b\n", "separated by ,, not by tab: let its name end with .csv"),
        ("a.csv", "text^label\na^b\n", "separated by ^, not by ,: put a line that says sep=^ on top"),
        ("a.csv", "sep=;\ntext,label\na,b\n", "separated by ,, not by ;: put a first line that says sep=,"),
    ],
)
def test_a_separator_that_is_not_read_is_named(tmp_path, name, content, why):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ValueError, match=re.escape(why)):
        find_columns(read_file(path), DataConfig())
    with pytest.raises(ValueError, match=re.escape(why)):
        answered(path)


def test_a_header_of_two_lines_has_its_own_separator(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('"the\ntext",label\na,x\nb,y\n')
    with pytest.raises(ValueError, match=r"its columns are 'the\\ntext', label; name one by data.text=<column>$"):
        find_columns(read_file(path), DataConfig())


def test_blank_lines_above_a_header_are_no_rows(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("\n\ntext,label\na,x\n")
    assert (read_file(path).column("text"), [*read_file(path).numbers]) == (["a"], [4])
    assert answered(path) == [{"text": "a", "label": "x"}]


def test_a_title_above_a_single_column_or_pairs_is_no_text(tmp_path):
    (tmp_path / "a.csv").write_text("Reviews of May!\ntext\ngood\n")
    with pytest.raises(ValueError, match=r"row 2 looks like its header \(text\), and what is above it like a title"):
        answered(tmp_path / "a.csv", ["review", "text"])
    (tmp_path / "a.tsv").write_text("Reviews of May!\tall shops\ntext\ttext_pair\ngood\tbad\n")
    pairs = SimpleNamespace(pairs=True, settings=SimpleNamespace(columns=ColumnNames(), fields=[]))
    with (
        pytest.raises(ValueError, match=r"row 2 looks like its header \(text, text_pair\)"),
        open_texts("", str(tmp_path / "a.tsv"), pairs) as chunks,
    ):
        list(chunks)
