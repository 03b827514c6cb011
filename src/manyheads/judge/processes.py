"""A verb in one process, or in the first of several with the help of the others. Nothing heavy is imported for one."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from manyheads.config import InferenceHardware
from manyheads.launch import started
from manyheads.ranks import this_process

if TYPE_CHECKING:
    from manyheads.ship.crew import Answers, Crew

Result = TypeVar("Result")


def answer_together(
    verb: "Callable[[Crew | None], Result]", opened: "Callable[[], Answers]", hardware: InferenceHardware
) -> Result | None:
    """What `verb` returns, which is given the processes to share the work with, if there are several; None in those
    that help the first, by the model `opened`.

    Raises:
        Lost: another process ended, or gave no answer for `hardware.timeout` seconds.
        ValueError: not as many devices are asked for as there are processes.
    """
    ranks = this_process()
    if ranks.n_ranks == 1:
        started(hardware)
        return verb(None)
    from manyheads.judge.shares import joined

    with joined(ranks, hardware.timeout) as shares:
        if ranks.is_first:
            started(hardware)
            return verb(shares)
        shares.help(opened)
    return None
