"""What processes do that are forked where all of ours is imported, other than `python WORDS`: see fork_server.py."""

import json
import os
import runpy
import sys
from pathlib import Path

import pytest  # noqa: F401  by files with a `main`

import manyheads.training.batch_size
import manyheads.training.budget
import manyheads.training.dry_run
import manyheads.training.trainer
import manyheads.training_run  # noqa: F401
from manyheads.cli.compose import compose
from manyheads.cli.main import main, worker_main
from manyheads.distributed.ranks import this_process
from manyheads.evaluation import report, results
from manyheads.training.module import LitModule
from tests.pictures import draw_nothing

# what each process would find out anew
compose("train")
report.installed_versions()
report.templates("manyheads.evaluation").get_template("page.html.j2")


def rank(folder: str, *words: str) -> None:
    """One of the processes of a run: a command line, or the path of a python file and what its `main` is called with.

    The rows that each rank trains on are noted in the folder, in `rows-0`, `rows-1` ...
    """
    if words[0].endswith(".py"):
        code = runpy.run_path(words[0], run_name="rank")["main"](*words[1:]) or 0
    else:
        note_rows(Path(folder))
        results.write_page = lambda path, _: path.touch()
        draw_nothing()
        code = main(list(words))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def training(*words: str) -> None:
    """One that a search asks its server for, without pictures."""
    draw_nothing()
    sys.argv[1:] = words
    worker_main()


def note_rows(folder: Path) -> None:
    """Let each rank write down the step, the epoch and the rows of each batch that it trains on."""
    step = LitModule.training_step

    def noting(self, batch, index):
        with (folder / f"rows-{this_process().rank}").open("a") as file:
            print(json.dumps([self.global_step, self.current_epoch, batch.rows_B.tolist()]), file=file)
        return step(self, batch, index)

    LitModule.training_step = noting
