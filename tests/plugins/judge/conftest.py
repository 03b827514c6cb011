"""Tests of a script of benchmarks/ find it as its own modules do."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
