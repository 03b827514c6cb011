"""A process that has imported all that a run needs, and forks the processes of a run: seconds less for each of them.

A line of its input is a JSON list: `["start", folder, environments, words]` forks a process for each environment, in a
session of its own, whose output goes to `folder/out-0` ..., and answers with their numbers; the rows that a rank trains
on are in `folder/rows-0` ... `["wait", numbers]` answers with their exit codes, below 0 where a signal ended them,
`["poll", numbers]` at once, with null for those that go on. `words` are those of the command line; or, where they begin
with the path of a python file, what its function `main` is called with; or `-m`, a module and its words, which alone is
given an input, `folder/in-0` ..., and no environment but its own.
"""

import json
import os
import runpy
import sys
import traceback
from pathlib import Path

import lightning.pytorch  # noqa: F401
import sklearn.linear_model  # noqa: F401
from matplotlib.figure import Figure

sys.path.append(str(Path(__file__).parents[1]))  # a file that is run may import from tests

import manyheads.training.batch_size
import manyheads.training.budget
import manyheads.training.dry_run
import manyheads.training.pipeline
import manyheads.training.trainer
import manyheads.training_run  # noqa: F401
from manyheads.cli.compose import compose
from manyheads.cli.main import main
from manyheads.distributed.ranks import this_process
from manyheads.evaluation import results
from manyheads.training.module import LitModule


def note_rows(folder: Path) -> None:
    """Let each rank write down the step, the epoch and the rows of each batch that it trains on."""
    step = LitModule.training_step

    def noting(self, batch, index):
        with (folder / f"rows-{this_process().rank}").open("a") as file:
            print(json.dumps([self.global_step, self.current_epoch, batch.rows_B.tolist()]), file=file)
        return step(self, batch, index)

    LitModule.training_step = noting


def child(words: list[str], folder: Path) -> int:
    if words[0].endswith(".py"):
        return runpy.run_path(words[0], run_name="rank")["main"](*words[1:]) or 0
    if words[0] != "-m":
        note_rows(folder)
    results.write_page = lambda path, _: path.touch()
    Figure.savefig = lambda figure, file, **how: file.write(b"PNG")
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__")
        return 0
    return main(words)


def start(folder: str, environment: dict[str, str], words: list[str], number: int) -> int:
    process = os.fork()
    if process:
        return process
    os.setsid()
    out = os.open(Path(folder, f"out-{number}"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(out, stream)
    is_module = words[0] == "-m"
    os.dup2(os.open(Path(folder, f"in-{number}") if is_module else os.devnull, os.O_RDONLY), 0)
    if is_module:
        os.environ.clear()
    os.environ.update(environment)
    try:
        code = child(words, Path(folder))
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    compose("train")  # imports Hydra's plugins
    for line in sys.stdin:
        kind, *what = json.loads(line)
        if kind == "start":
            folder, environments, words = what
            answer = [start(folder, one, words, number) for number, one in enumerate(environments)]
        elif kind == "poll":
            ended = [os.waitpid(one, os.WNOHANG) for one in what[0]]
            answer = [os.waitstatus_to_exitcode(status) if number else None for number, status in ended]
        else:
            answer = [os.waitstatus_to_exitcode(os.waitpid(one, 0)[1]) for one in what[0]]
        print(json.dumps(answer), flush=True)
