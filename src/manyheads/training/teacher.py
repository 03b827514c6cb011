"""`teacher=<run>`: the logits of a finished run for the training rows, from which another one learns.

n rows . C classes
"""

import hashlib
from typing import TYPE_CHECKING

from manyheads.config import InferenceHardware, RunConfig, Task
from manyheads.config.fields import listed
from manyheads.data.rows import Rows, Splits
from manyheads.inference.format import FILES, MORE, ModelFolder, open_folder
from manyheads.runs.resume import Start

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def check_teacher(teacher: str, splits: Splits) -> None:
    """The teacher, if there is one, must answer such rows with the same classes. Nothing heavy is imported.

    Raises:
        ValueError: one sentence; it is no run, or answers otherwise.
    """
    if not teacher:
        return
    folder = open_teacher(teacher)
    settings = folder.settings
    if settings.task is not Task.classify:
        raise ValueError(f"teacher={teacher} has task={settings.task.name}, but a teacher must be a classifier")
    takes, has = (
        "pairs of texts" if pairs else "single texts" for pairs in (settings.pairs, splits.train.pairs is not None)
    )
    if takes != has:
        raise ValueError(f"teacher={teacher} takes {takes}, but the data has {has}: name another run")
    labels = folder.labels()
    if sorted(labels) != sorted(splits.labels):
        raise ValueError(
            f"teacher={teacher} has the classes {listed(labels)}, but the data has {listed(splits.labels)}: "
            "name a run that was trained on the same classes"
        )
    if settings.multi != splits.multi:
        gives, has = ("any number of labels" if multi else "one label" for multi in (settings.multi, splits.multi))
        raise ValueError(f"teacher={teacher} answers with {gives}, but a row of the data has {has}: name another run")


def open_teacher(teacher: str) -> ModelFolder:
    """The folder of the teacher's model.

    Raises:
        ValueError: there is none.
    """
    try:
        return open_folder(teacher)
    except ValueError as error:
        raise ValueError(str(error).replace("run=", "teacher=", 1)) from error


def teach(run: RunConfig, splits: Splits) -> "Tensor":
    """The teacher's logits `(n, C)` of the training rows, its classes in the order of `splits.labels`.

    It reads the texts by its own tokenizer, and answers in the type that was asked for, by default the quickest.
    Answers are cached as tokens are: of processes that start together one computes them. Adds to `splits.notes` what
    was answered.
    """
    import torch

    from manyheads.data.cache import cache_folder, cached_logits
    from manyheads.inference.precision import choose_device, quick

    folder, rows, hardware = open_teacher(run.teacher), splits.train, run.hardware
    names = folder.labels()
    device = choose_device(InferenceHardware(accelerator=hardware.accelerator, threads=hardware.threads))
    autocast = quick(hardware.precision, folder.settings.model, device)
    logits_nC = cached_logits(
        rows,
        f"{digest_of(run.teacher)} {autocast or torch.float32}",
        len(names),
        lambda: answers(folder, rows, device, autocast),
        cache_folder(run.data),
        float(hardware.timeout),
    )
    logits_nC = logits_nC[:, [names.index(label) for label in splits.labels]]
    note = f"teacher: {run.teacher} answers {len(rows):,} training rows"
    if not splits.multi:
        right = (logits_nC.argmax(-1) == torch.tensor(rows.labels)).double().mean()
        note += f", {float(right):.1%} of them as they are labelled"
    splits.notes.append(note)
    return logits_nC


def answers(folder: ModelFolder, rows: Rows, device: "torch.device", autocast: "torch.dtype | None") -> "Tensor":
    """Logits `(n, C)` of the model in `folder`, its classes in their own order."""
    from manyheads.inference.classifier import TextClassifier, in_chunks
    from manyheads.inference.folder import load
    from manyheads.terminal import progress_bar

    with progress_bar(len(rows)) as progress:
        model = load(folder, TextClassifier).on(device, autocast)
        ask = lambda texts, pairs: {"": model.logits(texts, pairs, tokens=8192)}  # noqa: E731
        return in_chunks(ask, rows, len(model.labels), progress)[""]


def digest_of(teacher: str) -> str:
    """Of all that the teacher answers by."""
    folder, digest = open_teacher(teacher).path, hashlib.sha256()
    for name in (*FILES, *(one for one in MORE if (folder / one).is_file())):
        digest.update(hashlib.sha256((folder / name).read_bytes()).digest())
    return digest.hexdigest()


def check_same_teacher(teacher: str, start: Start) -> None:
    """A student goes on with the teacher it began with: its path alone does not say that it is the same.

    Raises:
        ValueError: it is another.
    """
    before = start.progress.get("teacher", "")
    if start.checkpoint is not None and teacher and before and before != digest_of(teacher):
        raise ValueError(
            f"teacher={teacher} is no longer the model that {start.checkpoint} was taught by: put that model back, or "
            "start a new run in another folder"
        )
