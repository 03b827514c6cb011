"""The rows of csv and tsv files: their separator, their quotes, and the lines that these join."""

import csv
import io
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyheads.data import blocks  # noqa: F401 - its import takes memory, which is not measured
from manyheads.data.delimited import csv_reader, lines_of
from manyheads.data.files import read_file
from manyheads.inference.reading import read_table


@given(st.text(alphabet='ab,"\n\r\x85\u2028 ', max_size=30))
def test_lines_are_those_of_a_file_opened_without_translation(text):
    assert list(lines_of(text)) == list(io.StringIO(text, newline=""))


@pytest.mark.parametrize(
    ("header", "sign"),
    [("", ","), ("a", ","), ("a;b", ";"), ("a;b,c", ","), ("a\tb;c", ";"), ("a\tb", "\t"), ("a\n", ",")],
)
def test_the_header_alone_tells_the_separator(header, sign):
    assert csv_reader([header], header).dialect.delimiter == sign


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


@pytest.mark.parametrize("kind", [".csv", ".tsv"])
def test_a_table_of_millions_of_columns_is_refused_before_it_fills_the_memory(tmp_path, kind):
    sign, path = "," if kind == ".csv" else "\t", tmp_path / f"wide{kind}"
    few = "a table has at most 262,144: keep those of the text and the label"
    rules = {
        1_100_000: f", line 1 has more than {2**20:,} separators: it is no table of texts",
        300_000: f" has 300,000 columns, but {few}",
    }
    for n_columns, rule in rules.items():
        path.write_text("text" + sign + sign.join("abc" for _ in range(n_columns - 1)) + "\n")
        tracemalloc.start()
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
            read_file(path)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert str(caught.value) == f"{path}{rule}"
        assert n_columns < 2**20 or peak < 3.5 * path.stat().st_size
        with path.open("rb") as stream, pytest.raises(ValueError, match=r"separators|columns"):
            list(read_table(stream, str(path), text=["text"], text_pair=[]))
