"""Whether a checkpoint, which may be anybody's, fits the run that is to go on with it. Standard library only."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from manyheads.fit.saved import json_or_none

COUNTS = ("step", "epoch", "batch", "batches")
MOST = 2**53  # of any count: far beyond, and a float holds it exactly
MOMENTS = ("exp_avg", "exp_avg_sq")
OTHERWISE = "something in it has another name, type or shape than here"


def read_progress(checkpoint: Path) -> dict[str, Any]:
    """What progress.json says of the place in the training.

    Raises:
        ValueError: a count is none, or the time or the rows are not told.
    """
    progress = json_or_none(checkpoint / "progress.json")
    with fitting(checkpoint):
        counts = [progress[name] for name in COUNTS] + [progress.get(name, 1) for name in ("ranks", "per_step")]
        if not all(type(count) is int and 0 <= count < MOST for count in counts):
            raise ValueError("progress.json holds a count that is none")
        texts = progress["data"], progress.get("teacher", "")
        if not math.isfinite(progress["seconds"]) or not all(type(text) is str for text in texts):
            raise ValueError("progress.json does not tell the time, the rows or the teacher")
        if type(progress.get("finished", True)) is not bool:
            raise ValueError("progress.json does not tell whether it is the last")
    return progress


@contextmanager
def fitting(checkpoint: Path) -> Iterator[None]:
    """Turn whatever a state that does not fit brings about into one sentence, in which only our own words stand.

    Raises:
        ValueError: something came up within.
    """
    try:
        yield
    except Exception as problem:  # a state that fits raises nothing, and a stranger's may raise anything
        why = str(problem).strip().splitlines() if isinstance(problem, ValueError) else []
        raise ValueError(
            f"{checkpoint} does not fit this run, as {why[0] if why else OTHERWISE:.300}: delete it to go on from "
            "another checkpoint, or start a new run in another folder"
        ) from problem


def check_alike(name: str, its: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """The same names, values of the same types: what is put back as attributes replaces nothing else.

    Raises:
        ValueError: something is of another kind.
    """
    kinds = [{key: int if type(value) is float else type(value) for key, value in one.items()} for one in (its, own)]
    if kinds[0] != kinds[1]:
        raise ValueError(f"its {name} is of another kind")


def check_moments(optimizers: list[Any]) -> None:
    """What AdamW keeps of each weight, or Muon of a matrix, has its shape.

    Raises:
        ValueError: something is missing, or of another shape.
    """
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            [math.isfinite(group[name]) for name in ("lr", "eps", "weight_decay", "initial_lr")]  # else a TypeError
        hidden = getattr(optimizer, "hidden", {})
        for weight, kept in optimizer.state.items():
            moments = ("momentum",) if weight in hidden else MOMENTS
            if not {"step", *moments} <= kept.keys() or kept["step"].numel() != 1:
                raise ValueError("its optimiser lacks what it keeps of a weight")
            if any(kept[name].shape != weight.shape for name in moments):
                raise ValueError("its optimiser is that of other weights")
