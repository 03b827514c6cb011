"""What a training consists of between two optimiser steps: gathered as plain values and tensors, and put back.

All of it is read through `state_dict()`, so whatever an optimiser or a callback holds travels with it. Plain values and
tensors, nested in each other, are one safetensors file: the nest is JSON in the file's header, where a tensor stands as
its number. Nothing that is read back can be code.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import lightning.pytorch as pl
import safetensors
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torchmetrics import Metric

from manyheads.data.tokens import Tokens
from manyheads.runs.checkpoints import check_alike, check_moments
from manyheads.training import strategies as shards
from manyheads.training.logs import Meter, MetricsFile

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


def write_nest(nest: Any, file: IO[bytes]) -> None:
    """Write dicts, lists, tuples, numbers, texts, None and tensors, one tensor after the other, without a copy."""
    tensors: list[Tensor] = []
    header: dict[str, Any] = {"__metadata__": {"nest": json.dumps(_apart(nest, tensors))}}
    end = 0
    aligned = sorted(enumerate(tensors), key=lambda one: -one[1].element_size())
    for number, tensor in aligned:
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[str(number)] = {"dtype": TYPES[tensor.dtype], "shape": [*tensor.shape], "data_offsets": [start, end]}
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    file.write(len(head).to_bytes(8, "little") + head)
    for _, tensor in aligned:
        if tensor.numel():
            file.write(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)


def read_nest(path: Path) -> Any:
    """What `write_nest` wrote, equal to the bit, in the same types; the file may be anybody's.

    Raises:
        ValueError: it is no such file; names it.
    """
    try:
        with safetensors.safe_open(path, "pt") as file:
            # copies: what is mapped would die with the file
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - no mapping
            nest = (file.metadata() or {})["nest"]
        return _together(json.loads(nest), tensors)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, safetensors.SafetensorError) as problem:
        why = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise ValueError(f"{path} is not a state that manyheads saved ({type(problem).__name__}: {why})") from problem


def _apart(nest: Any, tensors: list[Tensor]) -> Any:
    """As JSON; tensors are added to `tensors`."""
    if isinstance(nest, Tensor):
        tensors.append(nest)
        return {"tensor": str(len(tensors) - 1)}
    if isinstance(nest, dict):
        assert all(type(key) in (str, int) for key in nest)
        return {"dict": [[key, _apart(value, tensors)] for key, value in nest.items()]}
    if isinstance(nest, list | tuple):
        kind = "list" if isinstance(nest, list) else "tuple"
        return {kind: [_apart(value, tensors) for value in nest]}
    if nest is not None and type(nest) not in (bool, int, float, str):
        raise ValueError(
            f"a checkpoint cannot hold the {type(nest).__name__} in the state of a callback: only numbers, texts and "
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


def of_all(trainer: pl.Trainer) -> dict[str, Any]:
    """What is the same in every process: optimiser, schedule, precision, and what the callbacks hold, all of it whole.
    All ranks call it."""
    everyones = {
        "optimizers": [one.state_dict() for one in trainer.optimizers],
        "schedules": [one.scheduler.state_dict() for one in trainer.lr_scheduler_configs],
        "precision": trainer.precision_plugin.state_dict(),
        "callbacks": {
            one.state_key: its
            for one in _callbacks(trainer)
            if not isinstance(one, Meter) and (its := one.state_dict())
        },
    }
    return shards.whole(everyones)


def of_one(trainer: pl.Trainer, module: pl.LightningModule) -> dict[str, Any]:
    """What each process has of its own: random numbers, figures of the epoch under way, what was counted."""
    return {
        "random": random_numbers(module.device),
        "figures": {name: (one.update_count, dict(one.metric_state)) for name, one in _figures(module)},
        "callbacks": {one.state_key: one.state_dict() for one in _callbacks(trainer) if isinstance(one, Meter)},
    }


def weights_of(trainer: pl.Trainer, module: pl.LightningModule) -> dict[str, Tensor]:
    """The weights by name, whole. All ranks call it."""
    return shards.whole(module.state_dict())


def put_weights(trainer: pl.Trainer, module: pl.LightningModule, weights: dict[str, Tensor]) -> None:
    """Undo `weights_of`."""
    shards.put_weights(module, weights)


def put_back(trainer: pl.Trainer, module: pl.LightningModule, everyones: dict[str, Any], own: dict[str, Any]) -> None:
    """Undo `of_all` and `of_one`, but for the random numbers; the weights are put back before. A Trainer that does not
    train has no optimisers."""
    for optimizer, its in zip(trainer.optimizers, everyones["optimizers"], strict=bool(trainer.optimizers)):
        shards.put_optimizer(optimizer, its)
    check_moments(trainer.optimizers)
    for config, its in zip(trainer.lr_scheduler_configs, everyones["schedules"], strict=bool(trainer.optimizers)):
        check_alike("schedule", its, config.scheduler.state_dict())
        config.scheduler.load_state_dict(its)
    trainer.precision_plugin.load_state_dict(everyones["precision"])
    if own["random"]:
        torch.Generator().set_state(own["random"]["cpu"])  # as it will be, later: found out now
    by_key = everyones["callbacks"] | own["callbacks"]
    for callback in _callbacks(trainer):
        if its := by_key.get(callback.state_key):
            callback.load_state_dict(its)
    for name, one in _figures(module):
        updates, its = own["figures"][name]
        one._update_count = updates  # else torchmetrics takes it for one that saw nothing
        for key, value in its.items():
            setattr(one, key, value.to(module.device))


def share_out(ranks: list[dict[str, Any]], rank: int) -> dict[str, Any]:
    """What rank `rank` goes on from, where the number of ranks is not that of `ranks`: `of_one` of each.

    Rank 0 takes over what all of them had counted. Random numbers there are for as many ranks as before.
    """
    first = ranks[0]
    figures = {
        name: (0, {key: torch.zeros_like(one[key]) for key in one}) for name, (_, one) in first["figures"].items()
    }
    own = {"random": ranks[rank]["random"] if rank < len(ranks) else {}, "figures": figures, "callbacks": {}}
    if rank == 0:
        for name, (_, one) in first["figures"].items():
            sums = {key: sum(other["figures"][name][1][key] for other in ranks) for key in one}
            own["figures"][name] = sum(other["figures"][name][0] for other in ranks), sums
        for key in first["callbacks"]:
            own["callbacks"][key] = Meter.summed([other["callbacks"][key] for other in ranks])
    return own


def seed_rank(seed: int, rank: int, step: int) -> None:
    """Let `rank` draw random numbers that no other draws: Lightning seeds all ranks alike."""
    digest = hashlib.sha256(f"{seed}, rank {rank}, step {step}".encode()).digest()
    torch.manual_seed(int.from_bytes(digest[:8]))


def random_numbers(device: torch.device) -> dict[str, Tensor]:
    """The state of torch's default generators: nothing else is drawn from while a network trains."""
    states = {"cpu": torch.get_rng_state()}
    return states | ({"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {})


def put_random_numbers(states: dict[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


def place_of(trainer: pl.Trainer) -> dict[str, int]:
    """Epochs done, batches of the next one done, steps and batches of the whole run, and batches of a step: all of
    them as one rank counts."""
    batches = trainer.fit_loop.epoch_loop.batch_progress
    return {
        "per_step": trainer.accumulate_grad_batches,
        "step": trainer.global_step,
        "epoch": trainer.current_epoch,
        "batch": batches.current.completed,
        "batches": batches.total.completed,
    }


def counted_by(place: dict[str, Any], per_step: int) -> dict[str, Any]:
    """The same place where a step has `per_step` batches of each rank."""
    batches = {name: place[name] * per_step // place["per_step"] for name in ("batch", "batches")}
    return place | batches | {"per_step": per_step}


def put_place(trainer: pl.Trainer, place: dict[str, int]) -> None:
    """Set the counters of Lightning's loops, but for the batches of the epoch, which start from 0 in any case."""
    epochs, steps = trainer.fit_loop.epoch_progress, trainer.fit_loop.epoch_loop
    for one in (epochs.total, epochs.current):
        one.load_state_dict(dict.fromkeys(("ready", "started", "processed", "completed"), place["epoch"]))
    steps.batch_progress.total.load_state_dict(
        dict.fromkeys(("ready", "started", "processed", "completed"), place["batches"])
    )
    done = steps.automatic_optimization.optim_progress.optimizer.step.total
    done.load_state_dict({"ready": place["step"], "completed": place["step"]})
    steps.on_load_checkpoint({"_batches_that_stepped": place["step"]})  # by which rows of metrics.csv are numbered


def put_batch(trainer: pl.Trainer, n_batches: int) -> None:
    """Count the batches of the epoch that were done before, in the first `on_train_batch_start`."""
    batches = trainer.fit_loop.epoch_loop.batch_progress.current
    batches.load_state_dict(dict.fromkeys(("started", "processed", "completed"), n_batches))
    batches.ready = n_batches + 1


def rows_of(trainer: pl.Trainer) -> list[dict[str, float]]:
    """The rows of metrics.csv so far."""
    return [row for one in trainer.loggers if isinstance(one, MetricsFile) for row in one.rows.values()]


def put_rows(trainer: pl.Trainer, rows: list[dict[str, float]]) -> None:
    for one in trainer.loggers:
        if isinstance(one, MetricsFile):
            one.rows = {int(row["step"]): row for row in rows}


def leave_out(trainer: pl.Trainer, seconds: float) -> None:
    """Count the time of a save as none of training."""
    for one in _callbacks(trainer):
        if isinstance(one, Meter):
            one.leave_out(seconds)


def hash_tokens(tokens: dict[str, Tokens]) -> str:
    """Of everything that is trained and validated on."""
    digest = hashlib.sha256()
    for name in ("train", "validation"):
        for one in (tokens[name], tokens[name].targets):
            for tensor in (one.ids_N, one.offsets, one.segments_N, one.labels, *(one.windows or ())) if one else ():
                digest.update(b"none" if tensor is None else tensor.contiguous().numpy().data)
    return digest.hexdigest()


def _callbacks(trainer: pl.Trainer) -> list[Callback]:
    return list(trainer.callbacks)  # type: ignore[attr-defined]


def _figures(module: pl.LightningModule) -> Iterator[tuple[str, Metric]]:
    for name, one in module.named_modules():
        if isinstance(one, Metric):
            yield name, one
