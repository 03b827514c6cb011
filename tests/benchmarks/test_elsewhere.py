"""A contestant of another checkout runs the code there."""

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPT = """
from pathlib import Path
from types import SimpleNamespace
import contestants.process
from contestants.elsewhere import take_part_in
take_part_in(Path("."), "f", "short-256", Path("tokens"), SimpleNamespace(send=print))
"""


def test_its_modules_are_those_of_the_checkout(tmp_path):
    package = tmp_path / "benchmarks" / "contestants"
    package.mkdir(parents=True)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "manyheads.py").write_text("NAME = 'the other code'\n")
    (package / "__init__.py").touch()
    code = "def take_part(*told):\n    import manyheads\n    told[-1].send(manyheads.NAME, *told[:3])\n"
    (package / "process.py").write_text(code)
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(BENCHMARKS)}, capture_output=True, text=True)
    assert done.stdout.split() == ["the", "other", "code", "f", "short-256", "tokens"], done.stderr
