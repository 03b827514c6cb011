"""The state of a training between two optimiser steps: gathered, saved, loaded and restored.

It is gathered through `state_dict()`, so all that an optimiser or a callback holds is part of it. A pytree of plain
values and tensors is one safetensors file: the pytree as JSON in its header; tensors by index. Nothing in such a file
can be code. In a checkpoint of torch.distributed it can: `.metadata` is a pickle, and values that are not tensors are
read by `torch.load(weights_only=False)`.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import lightning.pytorch as pl
import safetensors
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torchmetrics import Metric

from manyheads.config.sentences import first_line
from manyheads.data.tokens import Tokens, drop_pages
from manyheads.errors import UserError
from manyheads.training import strategies as shards
from manyheads.training.logs import Meter

TYPES = {
    torch.float64: "F64",
    torch.int64: "I64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
HASHED_AT_ONCE = 2**24  # elements of a tensor
MOMENTS = ("exp_avg", "exp_avg_sq")
PROGRESS = ("ready", "started", "processed", "completed")  # the counts that Lightning has of epochs and batches


def save_pytree(nest: Any, file: IO[bytes]) -> None:
    """Write a pytree of dicts, lists, tuples, numbers, strings, None and tensors as a safetensors file."""
    tensors: list[Tensor] = []
    metadata = {"nest": json.dumps(_apart(nest, tensors))}
    write_tensors({str(number): tensor for number, tensor in enumerate(tensors)}, file, metadata)


def write_tensors(tensors: Mapping[str, Tensor], file: IO[bytes], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors as a safetensors file, one after another, without a copy of all of them."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    end = 0
    aligned = sorted(tensors.items(), key=lambda item: -item[1].element_size())  # wide types first: all are aligned
    for name, tensor in aligned:
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": TYPES[tensor.dtype], "shape": [*tensor.shape], "data_offsets": [start, end]}
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    file.write(len(head).to_bytes(8, "little") + head)
    for _, tensor in aligned:
        if tensor.numel():
            file.write(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)


def load_pytree(path: Path) -> Any:
    """What `save_pytree` wrote, equal to the bit, in the same types. The file may be anybody's: a UserError names
    it."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            # copies: what is mapped would die with the file
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - no mapping
            nest = (file.metadata() or {})["nest"]
        return _together(json.loads(nest), tensors)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, safetensors.SafetensorError) as problem:
        kind = type(problem).__name__
        raise UserError(f"{path} is not a state that manyheads saved ({kind}: {first_line(problem)})") from problem


def check_pytree(nest: Any) -> None:
    """Raise UserError for what `save_pytree` cannot write."""
    _apart(nest, [])


def _apart(nest: Any, tensors: list[Tensor]) -> Any:
    """The pytree as JSON; its tensors are appended to `tensors` and replaced by their index."""
    if isinstance(nest, Tensor) and nest.dtype in TYPES:
        tensors.append(nest)
        return {"tensor": str(len(tensors) - 1)}
    if isinstance(nest, dict):
        for key in nest:
            if type(key) not in (str, int):
                raise UserError(
                    f"a checkpoint cannot hold the key {key!r:.60} in the state of a callback: only texts and whole "
                    "numbers"
                )
        return {"dict": [[key, _apart(value, tensors)] for key, value in nest.items()]}
    if isinstance(nest, list | tuple):
        kind = "list" if isinstance(nest, list) else "tuple"
        return {kind: [_apart(value, tensors) for value in nest]}
    if nest is not None and type(nest) not in (bool, int, float, str):
        kind = nest.dtype if isinstance(nest, Tensor) else type(nest).__name__
        raise UserError(
            f"a checkpoint cannot hold the {kind} in the state of a callback: only numbers, texts and "
            "tensors, in lists and dicts"
        )
    return nest


def _together(plain: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(plain, dict):
        return plain
    ((kind, held),) = plain.items()
    if kind == "tensor":
        return tensors[held]
    if kind == "dict":
        return {key: _together(value, tensors) for key, value in held}
    values = [_together(value, tensors) for value in held]
    return values if kind == "list" else tuple(values)


def global_state(trainer: pl.Trainer, *, copied: bool = False) -> dict[str, Any]:
    """The state that is the same in every process: optimisers, schedules, precision and callbacks. All ranks call it.

    Sharded tensors are gathered; `copied` as in `strategies.whole`.
    """
    callbacks = {}
    for callback in _callbacks(trainer):
        if not isinstance(callback, Meter) and (held := callback.state_dict()):
            callbacks[callback.state_key] = held
    everyones = {
        "optimizers": [optimizer.state_dict() for optimizer in trainer.optimizers],
        "schedules": [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs],
        "precision": trainer.precision_plugin.state_dict(),
        "callbacks": callbacks,
    }
    return shards.whole(everyones, copied=copied)


def rank_state(trainer: pl.Trainer, module: pl.LightningModule) -> dict[str, Any]:
    """The state of this process alone: random numbers, the metrics of the current epoch, and the throughput meter."""
    device, random = module.device, {"cpu": torch.get_rng_state()}  # nothing else is drawn from while a network trains
    if device.type == "cuda":
        random["cuda"] = torch.cuda.get_rng_state(device)
    figures = {name: (metric.update_count, dict(metric.metric_state)) for name, metric in _metrics(module)}
    meters = {one.state_key: one.state_dict() for one in _callbacks(trainer) if isinstance(one, Meter)}
    return {"random": random, "figures": figures, "callbacks": meters}


def restore(trainer: pl.Trainer, module: pl.LightningModule, everyones: dict[str, Any], own: dict[str, Any]) -> None:
    """Restore what `global_state` and `rank_state` returned, except for the random numbers. The weights are restored
    before. A Trainer that does not train has no optimisers."""
    trains = bool(trainer.optimizers)
    for optimizer, held in zip(trainer.optimizers, everyones["optimizers"], strict=trains):
        shards.put_optimizer(optimizer, held)
        check_moments(optimizer)
    for config, held in zip(trainer.lr_scheduler_configs, everyones["schedules"], strict=trains):
        restore_schedule(config.scheduler, held)
    trainer.precision_plugin.load_state_dict(everyones["precision"])
    if own["random"]:  # set in the first step; here only tried, so that a broken checkpoint is found out now
        torch.Generator().set_state(own["random"]["cpu"])
    by_key = everyones["callbacks"] | own["callbacks"]
    for callback in _callbacks(trainer):
        if held := by_key.get(callback.state_key):
            callback.load_state_dict(held)
    for name, metric in _metrics(module):
        n_updates, values = own["figures"][name]
        metric._update_count = n_updates  # else torchmetrics takes it for one that saw nothing
        for key, value in values.items():
            setattr(metric, key, value)
        metric.to(module.device)


def restore_schedule(scheduler: Any, held: dict[str, Any]) -> None:
    """Restore a schedule, and the learning rates by the last step that the run has now: a limit may have been changed.

    Raises:
        UserError: the state is of another kind; its items become attributes, which must replace nothing else.
    """
    if _types(scheduler.state_dict()) != _types(held):
        raise UserError("its schedule is of another kind")
    scheduler.load_state_dict(held)
    for group, peak, factor in zip(
        scheduler.optimizer.param_groups, scheduler.base_lrs, scheduler.lr_lambdas, strict=True
    ):
        group["lr"] = peak * factor(scheduler.last_epoch)


def check_moments(optimizer: Any) -> None:
    """Raise UserError unless the optimiser's state has AdamW's two moments of each weight, in its shape."""
    for group in optimizer.param_groups:
        for name in ("lr", "eps", "weight_decay", "initial_lr"):
            math.isfinite(group[name])  # raises a KeyError or a TypeError where it is missing or not a number
    for weight, kept in optimizer.state.items():
        if kept.keys() != {"step", *MOMENTS} or kept["step"].numel() != 1:
            raise UserError("its optimiser keeps something else of a weight than AdamW")
        if any(kept[name].shape != weight.shape for name in MOMENTS):
            raise UserError("its optimiser is that of other weights")


def _types(values: dict[str, Any]) -> dict[str, type]:
    """The type of each value; whole and other numbers are of one."""
    types: dict[str, type] = {}
    for key, value in values.items():
        types[key] = int if type(value) is float else type(value)
    return types


def share_out(ranks: list[dict[str, Any]], rank: int) -> dict[str, Any]:
    """The state of rank `rank` when the number of ranks has changed; `ranks` are the former ones' `rank_state`.

    Rank 0 takes over the counts of all. Random numbers exist for as many ranks as before.
    """
    first = ranks[0]
    random, meters, figures = {}, {}, {}
    if rank < len(ranks):
        random = ranks[rank]["random"]
    for name, (_, values) in first["figures"].items():
        if rank == 0:
            n_updates = sum(other["figures"][name][0] for other in ranks)
            figures[name] = n_updates, {}
            for key in values:  # counts are added, lists of what is kept of each row are joined
                of_ranks = [other["figures"][name][1][key] for other in ranks]
                figures[name][1][key] = sum(of_ranks[1:], start=of_ranks[0])
        else:  # of no rows
            empty = {key: [] if isinstance(value, list) else torch.zeros_like(value) for key, value in values.items()}
            figures[name] = 0, empty
    if rank == 0:
        for key in first["callbacks"]:
            meters[key] = Meter.summed([other["callbacks"][key] for other in ranks])
    return {"random": random, "figures": figures, "callbacks": meters}


def seed_rank(seed: int, rank: int, step: int) -> None:
    """Seed torch differently on each rank: Lightning seeds all ranks alike, and dropout would be the same on all."""
    digest = hashlib.sha256(f"{seed}, rank {rank}, step {step}".encode()).digest()
    torch.manual_seed(int.from_bytes(digest[:8]))


def place_of(trainer: pl.Trainer) -> dict[str, int]:
    """Where training is: epochs done, batches of the current epoch done, steps and batches of the whole run, and
    batches of a step, as one rank counts them."""
    batches = trainer.fit_loop.epoch_loop.batch_progress
    return {
        "per_step": trainer.accumulate_grad_batches,
        "step": trainer.global_step,
        "epoch": trainer.current_epoch,
        "batch": batches.current.completed,
        "batches": batches.total.completed,
    }


def put_place(trainer: pl.Trainer, place: dict[str, int]) -> None:
    """Set the counters of Lightning's loops, except for the batch within the epoch, which Lightning resets to 0."""
    epochs, steps = trainer.fit_loop.epoch_progress, trainer.fit_loop.epoch_loop
    n_epochs = dict.fromkeys(PROGRESS, place["epoch"])
    epochs.total.load_state_dict(n_epochs)
    epochs.current.load_state_dict(n_epochs)
    steps.batch_progress.total.load_state_dict(dict.fromkeys(PROGRESS, place["batches"]))
    done = steps.automatic_optimization.optim_progress.optimizer.step.total
    done.load_state_dict({"ready": place["step"], "completed": place["step"]})
    steps.on_load_checkpoint({"_batches_that_stepped": place["step"]})  # by which rows of metrics.csv are numbered


def put_batch(trainer: pl.Trainer, n_batches: int) -> None:
    """Set the number of batches of the epoch that are done; called in the first `on_train_batch_start`."""
    batches = trainer.fit_loop.epoch_loop.batch_progress.current
    batches.load_state_dict(dict.fromkeys(("started", "processed", "completed"), n_batches))
    batches.ready = n_batches + 1


def hash_tokens(tokens: dict[str, Tokens]) -> str:
    """A SHA-256 digest of all tokens that are trained and validated on."""
    digest = hashlib.sha256()
    for name in ("train", "validation"):
        for texts in (tokens[name], tokens[name].targets):
            if texts:
                _hash_texts(digest, texts)
    return digest.hexdigest()


def _hash_texts(digest: Any, texts: Tokens) -> None:
    tensors = [texts.ids_N, texts.offsets, texts.segments_N, texts.labels, *(texts.windows or ())]
    tensors += [further for further in (texts.probabilities_nC, texts.any_of_n, texts.weights_n) if further is not None]
    for tensor in tensors:
        if tensor is None:
            digest.update(b"none")
            continue
        for part in tensor.split(HASHED_AT_ONCE):
            if tensor is texts.labels and part.ndim == 1:  # int64, as in the digests of earlier versions
                part = part.long()
            digest.update(part.contiguous().numpy().data)
            drop_pages(texts)


def _callbacks(trainer: pl.Trainer) -> list[Callback]:
    return list(trainer.callbacks)  # type: ignore[attr-defined]


def _metrics(module: pl.LightningModule) -> Iterator[tuple[str, Metric]]:
    for name, child in module.named_modules():
        if isinstance(child, Metric):
            yield name, child
