"""Where and in which precision a finished model computes."""

from typing import TypeVar

import torch

from manyheads.config import Accelerator, InferenceHardware
from manyheads.ship.deliverable import Deliverable
from manyheads.ship.load import to_answer
from manyheads.ship.precision import exact
from manyheads.ship.translator import Translator

Shipped = TypeVar("Shipped", Deliverable, Translator, Deliverable | Translator)


def place(deliverable: Shipped, hardware: InferenceHardware) -> Shipped:
    """The model on one device, to be judged or looked at: fp32 unless typed.

    Raises:
        ValueError: a GPU is asked for and there is none.
    """
    return deliverable.on(choose_device(hardware), exact(hardware.precision))


def place_to_answer(deliverable: Deliverable | Translator, hardware: InferenceHardware) -> Deliverable | Translator:
    """The model on one device, to answer: in the quickest type unless typed.

    Raises:
        ValueError: a GPU is asked for and there is none.
    """
    return to_answer(deliverable, hardware.precision, choose_device(hardware))


def choose_device(hardware: InferenceHardware) -> torch.device:
    """A GPU if there is one and it is not refused, else the CPU with as many threads as typed.

    Raises:
        ValueError: a GPU is asked for and there is none.
    """
    if hardware.threads:
        torch.set_num_threads(hardware.threads)
    has_gpu = hardware.accelerator is not Accelerator.cpu and torch.cuda.is_available()
    if hardware.accelerator is Accelerator.gpu and not has_gpu:
        raise ValueError(
            "hardware.accelerator=gpu, but torch finds no GPU here: choose hardware.accelerator=cpu, or auto"
        )
    return torch.device("cuda" if has_gpu else "cpu")
