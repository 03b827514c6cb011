"""Tables as Markdown, and between the markers of a document."""

import pytest

from manyheads.sweep.comparison import fill_document
from manyheads.terminal import Sheet, markdown, print_sheet


def test_markdown_is_a_table_of_plain_cells():
    sheet = Sheet("a|b", ["score", "p"], [["dot", "<0.001"], ["x\ny", ""]], ["A note."])
    assert markdown(sheet).splitlines() == [
        r"**a\|b**",
        "",
        "| score | p |",
        "|---|---:|",
        "| dot | &lt;0.001 |",
        "| x y |  |",
        "",
        "A note.",
    ]


def test_a_table_is_whole_on_any_screen(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    figures = [f"{n:,}" for n in range(1_000_000, 1_000_012)]
    print_sheet(Sheet("wide", [f"figure {n}" for n in range(12)], [figures], ["A note."]))
    out = capsys.readouterr().out
    assert all(figure in out for figure in figures)
    assert "…" not in out


def test_a_document_is_filled_between_its_markers_alone_and_again_the_same(record, tmp_path):
    record.write(tmp_path / "scores.json")
    document = tmp_path / "ablations.md"
    document.write_text("Before.\n\n<!-- table: scores -->\nold | stuff\n<!-- end -->\n\nAfter <!-- end -->.\n")
    assert fill_document(document, tmp_path) == ["scores"]
    text = document.read_text()
    assert text.startswith("Before.\n\n<!-- table: scores -->\n**cats: model.score, equal parameters**\n\n| score |")
    assert text.endswith("<!-- end -->\n\nAfter <!-- end -->.\n")
    assert "old" not in text
    assert "| cosine | 62 | -0.20% |" in text
    fill_document(document, tmp_path)
    assert document.read_text() == text


def test_a_marker_without_results_is_a_sentence_and_nothing_is_written(tmp_path):
    document = tmp_path / "ablations.md"
    document.write_text("<!-- table: heads -->\n<!-- end -->\n")
    with pytest.raises(ValueError, match=r"asks for the table heads, but .*heads\.json does not exist: run it first$"):
        fill_document(document, tmp_path)
    assert document.read_text() == "<!-- table: heads -->\n<!-- end -->\n"
