"""The tables of docs/results/ablations.md, from the results files next to the script."""

import ablations
from contestants.tables import MARKER

from manyheads.terminal import Sheet


def test_the_document_holds_what_the_results_files_say(tmp_path):
    document, text = tmp_path / "ablations.md", ablations.DOCUMENT.read_text()
    document.write_text(MARKER.sub(r"\1old | stuff\n\3", text))
    filled = ablations.fill_document(document, ablations.tables(ablations.RESULTS))
    assert sorted(filled) == sorted(ablations.NAMES)
    assert document.read_text() == text


def test_markdown_is_a_table_of_plain_cells():
    sheet = Sheet("a|b", ["score", "p"], [["dot", "<0.001"], ["x\ny", ""]], ["A note."])
    assert ablations.markdown(sheet).splitlines() == [
        r"**a\|b**",
        "",
        "| score | p |",
        "|---|---:|",
        "| dot | &lt;0.001 |",
        "| x y |  |",
        "",
        "A note.",
    ]
