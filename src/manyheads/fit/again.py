"""A run that is to begin again from its newest checkpoint, and what it does otherwise then. Standard library only.

`<run>/again.json` holds it, so that whoever starts the run again, in this process or in others, finds it there.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from manyheads.fit.saved import json_or_none
from manyheads.whole import replace_file

FILE = "again.json"
EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h: try again
MOST_SPLIT = 2**20  # more parts than a micro-batch has rows


@dataclass(frozen=True, slots=True)
class Again:
    """Each micro-batch is cut into `split`, a power of two; the optimiser steps `left_out`, from 1, update nothing.

    `why` says what came of the last start, in a sentence.
    """

    split: int = 1
    left_out: tuple[int, ...] = ()
    why: str = ""

    def notes(self) -> list[str]:
        """What the log says of it when the run begins."""
        said = [self.why] if self.why else []
        said += [f"micro-batches are cut into {self.split}, and as many more summed into a step"] * (self.split > 1)
        return said + [f"left out: steps {', '.join(map(str, self.left_out))}"] * (len(self.left_out) > 1)


class StartAgain(SystemExit):
    """The run is to begin again as `again` says, which is written down. Its exit code tells whoever started it."""

    def __init__(self, again: Again) -> None:
        super().__init__(EXIT_CODE)
        self.again = again


def read_again(folder: Path) -> Again:
    """What is written down for the run in `folder`; where nothing is, or nothing that can be read, nothing changes."""
    found = json_or_none(folder / FILE)
    if not isinstance(found, dict):
        return Again()
    split, left_out, why = found.get("split"), found.get("left_out"), found.get("why")
    steps = left_out if isinstance(left_out, list) else []
    return Again(
        split if isinstance(split, int) and 0 < split <= MOST_SPLIT and split & (split - 1) == 0 else 1,
        tuple(step for step in steps if isinstance(step, int)),
        why if isinstance(why, str) else "",
    )


def write_again(folder: Path, again: Again) -> None:
    """The file appears whole or not at all; several processes that find the same write the same."""
    with replace_file(folder / FILE) as part:
        part.write_text(json.dumps(asdict(again)) + "\n", encoding="utf-8")
