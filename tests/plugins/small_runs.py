"""Help, a small training, an evaluation and an answer by each of several copies of the package, given by their folders.

A process that is forked where torch and Lightning are imported, and nothing of ours, forks one for each; it prints
their exit codes.
"""

import os
import sys
import traceback
from pathlib import Path

from tests.pictures import draw_nothing

SMALL = [
    *("model.d_model=16", "model.n_layers=1", "model.n_heads=1", "model.d_ff=16", "model.d_k=8", "model.d_v=8"),
    *("trainer.max_epochs=1", "trainer.max_steps=2", "hardware.accelerator=cpu", "hardware.precision=fp32"),
]


def use(copy: str) -> int:
    sys.path.insert(0, os.path.join(copy, "src"))
    os.chdir(copy)
    os.environ["MANYHEADS_CACHE"] = os.path.join(copy, "cache")
    said = os.open("said", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    draw_nothing()
    import manyheads
    from manyheads.cli.main import main

    assert Path(manyheads.__file__).is_relative_to(copy)
    on_cpu = "hardware.accelerator=cpu"
    return (
        main(["--help"])
        or main(["train", "data.path=rows.csv", "output=run", *SMALL])
        or main(["evaluate", "run=run", on_cpu])
        or main(["predict", "run=run", "text=good", on_cpu])
    )


if __name__ == "__main__":
    for copy in sys.argv[1:]:
        child = os.fork()
        if not child:
            code = 1
            try:
                code = use(copy)
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            os._exit(code)
        print(copy, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
