"""Files of tables hold what the table holds, whatever its texts are, and figures show every row."""

import csv
import io
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyheads.errors import UserError
from manyheads.evaluation.report import draw_table
from manyheads.plugins.papers.figures import bitmap, pdf, svg
from manyheads.plugins.papers.tables import comma_separated, latex
from manyheads.runs.result_table import ResultTable
from manyheads.runs.summary import Interval
from manyheads.terminal import one_line

SEEN = {r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^"}
SEEN |= {r"\textless{}": "<", r"\textgreater{}": ">", r"\textbar{}": "|", r"\textasciigrave{}": "`"}
SEEN |= {"{[}": "[", "{]}": "]", "{*}": "*", "{}": ""}
READ = re.compile("|".join(map(re.escape, SEEN)) + r"|\\([&%$#_{}])")
JOINED = ("--", "''", ",,")  # signs that fonts of LaTeX join


def table(**own):
    known = {
        "name": "all sets",
        "title": "accuracy of 100% of the rows",
        "columns": ["score", "n_rows", "accuracy", "change", "p"],
        "rows": [
            ["scaled_dot", 1000, Interval(0.5, 0.25, 0.75), -1.5, 0.04],
            ["cosine & more", 20, None, None, None],
        ],
        "formats": {"change": "+.2f", "p": "p"},
        "notes": ["How to read it."],
    }
    return ResultTable(**known | own)


def printed(source: str) -> str:
    """What LaTeX prints of a text in the middle of a line."""
    return READ.sub(lambda found: found[1] or SEEN.get(found[0], ""), source)


def body(source: str) -> list[list[str]]:
    """The cells of the first table, its header first."""
    lines = source.split(r"\toprule")[1].split(r"\bottomrule")[0].replace("\\midrule\n", "").strip().splitlines()
    return [[printed(cell) for cell in re.split(r"(?<!\\) & ", line.removesuffix(r" \\"))] for line in lines]


def test_latex_is_a_table_of_booktabs():
    source = latex([table()])
    assert source.count(r"\begin{table}") == source.count(r"\end{table}") == 1
    assert r"\begin{tabular}{lrrrr}" in source
    assert r"\caption{accuracy of 100\% of the rows. How to read it.}" in source
    assert r"\label{tab:all-sets}" in source
    assert body(source) == [
        ["score", "n_rows", "accuracy", "change", "p"],
        ["scaled_dot", "1,000", "0.5000 (0.250--0.750)", "$-$1.50", "0.040"],
        ["cosine & more", "20", "", "", ""],
    ]
    assert latex([table(), table(name="second")]).count(r"\toprule") == 2


def test_exponents_are_powers_and_a_cell_in_brackets_is_no_option_of_the_line_before():
    rows = [["[16,4]", 1, Interval(-0.5, -1.0, 0.25), -2.5e-7, 1.0], ["*", 1, None, 1.0, 1.0]]
    source = latex([table(rows=rows, formats={"change": ".2g"})])
    assert body(source)[1:] == [
        ["[16,4]", "1", "$-$0.5000 ($-$1.000 to 0.250)", r"$-2.5 \cdot 10^{-7}$", "1.0000"],
        ["*", "1", "", "1", "1.0000"],
    ]
    assert not re.search(r"\\\\\s*[\[*]|rule\s*\[", source)


@pytest.mark.parametrize("text", ["--x", "---", "it''s", ",,a", "``x''", "?`"])
@given(more=st.text(st.characters(exclude_categories=["Cs"])))
def test_no_two_signs_are_joined(text, more):
    test_no_text_is_a_command_of_latex.hypothesis.inner_test(more + text)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_no_text_is_a_command_of_latex(text):
    source = latex([table(columns=["a", "b"], rows=[[text, "x"]])])
    (line,) = re.findall(r"\\midrule\n(.*)\n\\bottomrule", source)
    cell = line.removesuffix(r" & x \\")
    bare = READ.sub("", cell)
    assert not {*bare} & {*"&%$#_{}\\~^<>|[]*`"}
    assert not any(two in cell for two in JOINED)
    assert printed(cell) == one_line(text)


def test_csv_has_all_digits():
    third = Interval(1 / 3, 0.1 + 0.2, 2 / 3)
    text = comma_separated([table(rows=[["a,b", 7, third, -1e-9, 0.5], ["c", 8, 0.25, None, None]])])
    first, second = csv.DictReader(io.StringIO(text))
    assert [*first] == ["score", "n_rows", "accuracy", "accuracy.low", "accuracy.high", "change", "p"]
    assert first["score"] == "a,b"
    assert [float(first[name]) for name in ("accuracy", "accuracy.low", "accuracy.high")] == [1 / 3, 0.1 + 0.2, 2 / 3]
    assert (float(first["change"]), second["accuracy"], second["accuracy.low"], second["p"]) == (-1e-9, "0.25", "", "")


@pytest.mark.drawn
def test_a_figure_has_a_line_for_each_row():
    rows = [[f"name {at} $x$", at, Interval(0.1 * at, 0.1 * at - 0.05, 0.1 * at + 0.05), 0.0, 0.5] for at in range(5)]
    named = table(rows=[["a", 1, Interval(0.5, 0.4, 0.6), 0.0, "b"]], columns=["x", "n", "accuracy", "c", "name"])
    assert draw_table(replace(named, named_by="name")).axes[0].get_yticklabels()[0].get_text() == "b"
    axes = draw_table(table(rows=rows, bars="95 % intervals of the mean over 3 seeds")).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [row[0] for row in rows]
    assert axes.get_xlabel() == "accuracy"
    assert axes.figure.get_supxlabel() == "bars: 95 % intervals of the mean over 3 seeds"
    assert [line.get_xdata()[0] for line in axes.lines] == pytest.approx([0.1 * at for at in range(5)])
    bars = [bar.get_paths()[0].vertices[:, 0].tolist() for bar in axes.collections]
    assert bars == [pytest.approx([row[2].low, row[2].high]) for row in rows]


def over():
    rows = [[10 * at, Interval(0.1 * at, 0.05, 0.9), Interval(0.2, 0.1, 0.3)] for at in (1, 2, 4)]
    rows.append(["80, by the fit", Interval(0.8, 0.7, 0.9), Interval(0.2, 0.1, 0.3)])
    fit = [(10.0, 0.1), (80.0, 0.8)]
    return table(columns=["rows", "both", "network"], rows=rows, over="rows", figure="accuracy", lines={"both": fit})


@pytest.mark.drawn
def test_figures_over_a_number_are_told_apart_without_colours():
    axes = draw_table(over()).axes[0]
    both, network = axes.containers
    assert both[0].get_xdata().tolist() == [10, 20, 40]
    assert both[0].get_marker() != network[0].get_marker()
    assert axes.get_xscale() == "log"
    assert [one.get_text() for one in axes.get_legend().get_texts()] == ["both", "network"]
    fits = [line for line in axes.lines if line.get_xdata()[-1] == 80.0]
    assert [line.get_color() for line in fits] == [both[0].get_color()]
    joined = draw_table(replace(over(), lines={})).axes[0].containers
    assert len({one[0].get_linestyle() for one in joined}) == 2
    bins = table(columns=["confidence", "accuracy"], rows=[[0.5, Interval(0.5, 0.4, 0.6)]], over="confidence")
    assert draw_table(bins).axes[0].get_xscale() == "linear"


@pytest.mark.drawn
def test_files_of_figures_are_the_same_each_time_and_their_letters_are_text():
    words = [one.text for one in ElementTree.fromstring(svg([over()])).iter("{http://www.w3.org/2000/svg}text")]
    assert {"both", "network", "accuracy"} <= {*words}
    assert pdf([over()])[:5] == b"%PDF-"
    assert bitmap([table()])[:4] == b"\x89PNG"
    for write in (pdf, svg):
        assert write([over()]) == write([over()])


@pytest.mark.parametrize(
    "own", [{"rows": [["a", 1, None, None, None]]}, {"over": "n_rows", "rows": [["a", 1, 2, 3, 4]]}]
)
def test_a_table_without_intervals_is_no_figure(own):
    with pytest.raises(UserError, match=r"all sets has no figures with intervals to draw: write it as \.tex"):
        draw_table(table(**own))
