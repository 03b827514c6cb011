"""Where and in which precision a finished model computes."""

import os
from typing import TypeVar

import torch

from manyheads.config import Accelerator, InferenceHardware
from manyheads.ranks import Ranks, this_process
from manyheads.ship.deliverable import Deliverable
from manyheads.ship.load import Shipped, to_answer
from manyheads.ship.precision import exact

Placed = TypeVar("Placed", Deliverable, Shipped)


def place(deliverable: Placed, hardware: InferenceHardware) -> Placed:
    """The model on one device, to be judged or looked at: fp32 unless typed.

    Raises:
        ValueError: a GPU is asked for and there is none.
    """
    return deliverable.on(choose_device(hardware), exact(hardware.precision))


def place_to_answer(deliverable: Shipped, hardware: InferenceHardware) -> Shipped:
    """The model on one device, to answer: in the quickest type unless typed.

    Raises:
        ValueError: a GPU is asked for and there is none.
    """
    return to_answer(deliverable, hardware.precision, choose_device(hardware))


def choose_device(hardware: InferenceHardware) -> torch.device:
    """A GPU if there is one and it is not refused, else the CPU with as many threads as typed; of several processes
    each takes its own GPU, or its share of the CPU.

    Raises:
        ValueError: a GPU is asked for and there is none, or fewer than processes.
    """
    ranks = this_process()
    _set_threads(hardware.threads, ranks)
    has_gpu = hardware.accelerator is not Accelerator.cpu and torch.cuda.is_available()
    if hardware.accelerator is Accelerator.gpu and not has_gpu:
        raise ValueError(
            "hardware.accelerator=gpu, but torch finds no GPU here: choose hardware.accelerator=cpu, or auto"
        )
    return _own_gpu(ranks) if has_gpu else torch.device("cpu")


def _own_gpu(ranks: Ranks) -> torch.device:
    available = torch.cuda.device_count()
    if ranks.n_local > available:
        raise ValueError(
            f"hardware.devices={ranks.n_local}, but this machine has {available}: use hardware.devices={available}, "
            "or 0 for all"
        )
    return torch.device("cuda", ranks.local_rank)


def _set_threads(threads: int, ranks: Ranks) -> None:
    """As many as typed; else processes side by side share the processor, lest their threads wait for each other."""
    if ranks.n_local > 1 and not threads and "OMP_NUM_THREADS" not in os.environ:
        threads = max(1, torch.get_num_threads() // ranks.n_local)
    if threads:
        torch.set_num_threads(threads)
