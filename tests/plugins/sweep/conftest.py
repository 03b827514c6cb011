"""The tables of docs/results/ablations.md are made by a script of benchmarks/."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
