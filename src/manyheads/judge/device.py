"""Where and in which precision a finished model computes."""

from typing import TypeVar

import torch

from manyheads.config import Accelerator, InferenceHardware, Precision
from manyheads.ship.deliverable import Deliverable
from manyheads.ship.translator import Translator

Shipped = TypeVar("Shipped", Deliverable, Translator, Deliverable | Translator)
TYPES = {Precision.auto: None, Precision.fp32: None, Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}


def place(deliverable: Shipped, hardware: InferenceHardware) -> Shipped:
    """The model on one device: a GPU if there is one and it is not refused; fp32 unless typed.

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
    return deliverable.on("cuda" if has_gpu else "cpu", TYPES[hardware.precision])
