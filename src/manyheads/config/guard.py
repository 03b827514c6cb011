"""What a run does where a step goes wrong."""

from dataclasses import dataclass
from enum import Enum

from manyheads.config.knobs import check_ranges, knob

Nonfinite = Enum("Nonfinite", {"raise": "raise", "skip": "skip", "rollback": "rollback"})  # `raise` is a keyword


@dataclass(kw_only=True, slots=True)
class GuardConfig:
    """Steps whose loss or gradient is not a finite number change nothing; too little memory makes smaller batches."""

    nonfinite: Nonfinite = knob(
        Nonfinite["raise"],
        "at a loss or gradient that is no number: raise, skip the step, or rollback and leave it out",
    )
    at_most: int = knob(5, "steps that are skipped or left out before the run ends", at_least=1, at_most=10_000)
    halve: bool = knob(True, "where memory runs out, cut batches in two and sum twice as many into a step")

    def __post_init__(self) -> None:
        check_ranges(self, "guard.")
