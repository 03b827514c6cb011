"""Any deliverable opened, on the device that answers.

Any deliverable: a classifier, a model that answers by texts, or one that tells hidden words.

Where and in which precision a finished model computes.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

from manyheads.config import Accelerator, InferenceHardware, Precision, Task
from manyheads.config.fields import one_of
from manyheads.distributed.ranks import Ranks, this_process
from manyheads.inference.classifier import Deliverable
from manyheads.inference.classifier import load as load_classifier
from manyheads.inference.format import opened
from manyheads.inference.masked_lm import Guesser, load_guesser
from manyheads.inference.precision import exact, quick
from manyheads.inference.seq2seq import Translator, load_translator

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
