"""`<run>/again.json`: what a run does differently when it starts again, in this process or in others.

Standard library only.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from manyheads.errors import RunEnded
from manyheads.runs.files import read_json_or_none, write_atomic

FILE = "again.json"
EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h: try again
MAX_SPLIT = 2**20  # more parts than a micro-batch has rows


@dataclass(frozen=True, slots=True)
class RestartState:
    """What a guard has decided for the next start.

    Attributes:
        split: the number of parts each micro-batch is cut into, a power of two.
        left_out: optimiser steps, counted from 1, that update nothing.
        why: what ended the last start, as a sentence.
    """

    split: int = 1
    left_out: tuple[int, ...] = ()
    why: str = ""

    def notes(self) -> list[str]:
        """What the log says of it when the run starts again."""
        notes: list[str] = []
        if self.why:
            notes.append(self.why)
        if self.split > 1:
            notes.append(f"micro-batches are cut into {self.split}, and as many more summed into a step")
        if len(self.left_out) > 1:
            notes.append(f"left out: steps {', '.join(map(str, self.left_out))}")
        return notes


class RestartRequested(RunEnded):
    """The run is to start again in the `state`, which is written down."""

    def __init__(self, state: RestartState) -> None:
        super().__init__(state.why, EXIT_CODE)
        self.state = state


def read_restart_state(folder: Path) -> RestartState:
    """What is written down for the run in `folder`; the default where there is nothing, or nothing readable."""
    found = read_json_or_none(folder / FILE)
    if not isinstance(found, dict):
        return RestartState()
    split, left_out, why = found.get("split"), found.get("left_out"), found.get("why")
    if not isinstance(split, int) or not 0 < split <= MAX_SPLIT or split & (split - 1):  # not a power of two
        split = 1
    steps = left_out if isinstance(left_out, list) else []
    return RestartState(
        split=split,
        left_out=tuple(step for step in steps if isinstance(step, int)),
        why=why if isinstance(why, str) else "",
    )


def write_restart_state(folder: Path, state: RestartState) -> None:
    """The file appears whole or not at all; processes that decide the same write the same."""
    write_atomic(folder / FILE, json.dumps(asdict(state)) + "\n")
