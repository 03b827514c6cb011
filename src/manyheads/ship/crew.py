"""What a model offers where several processes answer together, and what it is offered: see judge/shares.py."""

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor

from manyheads.data.batches import Planned
from manyheads.data.tokens import Tokens

Part = tuple[int, int]  # (1, 3) is the second of three: each third batch, beginning with the second
WHOLE: Part = (0, 1)


def dealt(plan: Sequence[Planned], part: Part) -> Sequence[Planned]:
    """The batches of a part. Neighbours are of like length, so parts are of like size."""
    return plan[part[0] :: part[1]]


class Answers(Protocol):
    """A model that can answer a part of the batches that it would compute alone."""

    def found(self, encoded: Tokens, asked: dict[str, Any], part: Part = WHOLE) -> dict[str, Tensor]:
        """What it finds for the rows of that part: `rows`, their numbers `(m,)` in any order, and tensors that belong
        to them, in their order. `asked` are numbers by name."""
        ...


class Crew(Protocol):
    """Processes that hold the same model."""

    def found(self, model: Answers, encoded: Tokens, asked: dict[str, Any]) -> dict[str, Tensor]:
        """What all of them together find for all rows, each of which is in `rows` once."""
        ...
