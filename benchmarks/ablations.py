"""The comparisons of docs/ablations.md: run what is missing, and put the tables into the document.

    MANYHEADS_DATA=<folder of NAME/train.csv ...> python benchmarks/ablations.py [NAME ...]
    python benchmarks/ablations.py tables

Each NAME is an experiment, conf/experiment/ablate_NAME.yaml; its figures go to benchmarks/ablations/NAME.json after
every run, and a second start measures only what is missing. `tables` alone runs nothing.
"""

import sys
from pathlib import Path

from manyheads.cli.compose import compose
from manyheads.sweep.ablate import ablate
from manyheads.sweep.comparison import fill_document

NAMES = ["scores", "heads", "d_k", "positions", "placement"]
HERE = Path(__file__).parent
RESULTS, DOCUMENT = HERE / "ablations", HERE.parent / "docs" / "ablations.md"


def main() -> None:
    for name in [] if sys.argv[1:] == ["tables"] else sys.argv[1:] or NAMES:
        ablate(compose("ablate", [f"experiment=ablate_{name}", f"output={RESULTS / name}.json"]))
    print(f"{DOCUMENT}: {', '.join(fill_document(DOCUMENT, RESULTS))}")


if __name__ == "__main__":
    main()
