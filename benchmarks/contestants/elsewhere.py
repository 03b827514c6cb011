"""A contestant that runs the code of another checkout, its own benchmarks included. Standard library only."""

import sys
from multiprocessing.connection import Connection
from pathlib import Path


def take_part_in(checkout: Path, name: str, setting: str, folder: Path, driver: Connection) -> None:
    """`take_part` as `checkout` has it, in a process that has imported nothing else of the repository."""
    for module in [one for one in sys.modules if one.partition(".")[0] in ("contestants", "manyheads")]:
        del sys.modules[module]
    sys.path[:0] = [str(checkout / "src"), str(checkout / "benchmarks")]
    from contestants.process import take_part

    take_part(name, setting, folder, driver)
