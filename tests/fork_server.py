"""A process of several that make up a run: the server of `forks` has imported all that it needs, and calls `run` in it.

Its words are a folder, and those of the command line; or, where they begin with the path of a python file, what its
function `main` is called with. The rows that each rank trains on are noted in the folder, in `rows-0`, `rows-1` ...
"""

import json
import os
import runpy
import sys
from pathlib import Path

import lightning.pytorch  # noqa: F401
import sklearn.linear_model  # noqa: F401
from matplotlib.figure import Figure

import manyheads.training.batch_size
import manyheads.training.budget
import manyheads.training.dry_run
import manyheads.training.trainer
import manyheads.training_run  # noqa: F401
from manyheads.cli.compose import compose
from manyheads.cli.main import main
from manyheads.distributed.ranks import this_process
from manyheads.evaluation import results
from manyheads.training.module import LitModule

compose("train")  # imports Hydra's plugins


def note_rows(folder: Path) -> None:
    """Let each rank write down the step, the epoch and the rows of each batch that it trains on."""
    step = LitModule.training_step

    def noting(self, batch, index):
        with (folder / f"rows-{this_process().rank}").open("a") as file:
            print(json.dumps([self.global_step, self.current_epoch, batch.rows_B.tolist()]), file=file)
        return step(self, batch, index)

    LitModule.training_step = noting


def run() -> None:
    folder, *words = sys.argv[1:]
    if words[0].endswith(".py"):
        code = runpy.run_path(words[0], run_name="rank")["main"](*words[1:]) or 0
    else:
        note_rows(Path(folder))
        results.write_page = lambda path, _: path.touch()
        Figure.savefig = lambda figure, file, **how: file.write(b"PNG")
        code = main(words)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
