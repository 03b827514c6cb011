"""The comparisons of docs/results/ablations.md: run what is missing, and put the tables into the document.

    MANYHEADS_DATA=<folder of NAME/train.csv ...> python benchmarks/ablations.py [NAME ...]
    python benchmarks/ablations.py tables

Each NAME is an experiment, conf/experiment/ablate_NAME.yaml; its figures go to benchmarks/ablations/NAME.json after
every run, and a second start measures only what is missing. `tables` alone runs nothing.
"""

import sys
from pathlib import Path

from contestants.tables import fill_document

from manyheads.cli.compose import compose
from manyheads.plugins.sweep.ablate import ablate
from manyheads.plugins.sweep.results_file import read_results
from manyheads.plugins.sweep.tables import sheets
from manyheads.terminal import Sheet

NAMES = ["scores", "heads", "d_k", "positions", "placement"]
HERE = Path(__file__).parent
RESULTS, DOCUMENT = HERE / "ablations", HERE.parent / "docs" / "results" / "ablations.md"


def main() -> None:
    for name in [] if sys.argv[1:] == ["tables"] else sys.argv[1:] or NAMES:
        ablate(compose("ablate", [f"experiment=ablate_{name}", f"output={RESULTS / name}.json"]))
    print(f"{DOCUMENT}: {', '.join(fill_document(DOCUMENT, tables(RESULTS)))}")


def tables(results: Path) -> dict[str, str]:
    """The tables of each results file as Markdown."""
    files = sorted(results.glob("*.json"))
    return {file.stem: "\n\n".join(markdown(sheet) for sheet in sheets(read_results(file))) for file in files}


def markdown(sheet: Sheet) -> str:
    """The table with its title before it and its notes after it; what a cell holds is text, never markup."""

    def line(cells: list[str]) -> str:
        return f"| {' | '.join(map(plain, cells))} |"

    ruler = "|" + "|".join(["---"] + ["---:"] * (len(sheet.columns) - 1)) + "|"
    table = [line(sheet.columns), ruler, *map(line, sheet.lines)]
    return "\n".join([f"**{plain(sheet.title)}**", "", *table, "", *map(plain, sheet.notes)])


def plain(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;")


if __name__ == "__main__":
    main()
