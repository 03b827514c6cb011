"""Any deliverable: a classifier, a model that answers by texts, or one that tells hidden words."""

from collections.abc import Callable
from pathlib import Path

import torch

from manyheads.config import Precision, Task
from manyheads.config.plain import one_of
from manyheads.ship.deliverable import Deliverable
from manyheads.ship.deliverable import load as load_classifier
from manyheads.ship.files import opened
from manyheads.ship.guesser import Guesser, load_guesser
from manyheads.ship.precision import exact, quick
from manyheads.ship.translator import Translator, load_translator

Shipped = Deliverable | Translator | Guesser
LOAD: dict[Task, Callable[[str | Path], Shipped]] = {
    Task.classify: load_classifier,
    Task.seq2seq: load_translator,
    Task.pretrain: load_guesser,
}


def load(folder: str | Path) -> Shipped:
    """Open a run folder or its model/ folder, wherever it was moved, in eval mode on the CPU, in fp32: to be judged.

    Raises:
        ValueError: one sentence; the folder is no run, or a file in it is missing, broken or does not fit.
    """
    with opened(folder) as (_, settings):
        return LOAD[settings.task](folder)


def load_to_answer(folder: str | Path, precision: str = "auto") -> Shipped:
    """`manyheads.load`: open a run folder or its model/ folder, wherever it was moved, on the CPU, ready to answer.

    Args:
        precision: fp32, bf16, or auto: bf16 for a classifier where the processor multiplies in it, else fp32.

    Raises:
        ValueError: as of `load`, or `precision` is none of these.
    """
    names = [one.name for one in (Precision.auto, Precision.fp32, Precision.bf16)]
    if precision not in names:
        raise ValueError(f"precision={precision} is not a choice: choose {one_of(names)}")
    return to_answer(load(folder), Precision[precision], torch.device("cpu"))


def to_answer(model: Shipped, precision: Precision, device: torch.device) -> Shipped:
    """The same model on `device` in the type it answers in."""
    if not isinstance(model, Deliverable):  # one other token changes all that follow it; and a guess is shown in digits
        return model.on(device, exact(precision))
    return model.on(device, quick(precision, model.model, device))
