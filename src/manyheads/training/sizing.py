"""How large a batch is and how many steps there are, settled before the first step; what a run would be (`dry=true`).

The largest batch is tried before anything is trained, so memory runs out at the start or hardly ever. A budget of time
or tokens becomes a number of optimiser steps, towards whose end the learning rate falls.
"""

import copy
import math
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch._subclasses import fake_tensor
from torch.func import functional_call

import manyheads.plugin as plugin
from manyheads.config import RunConfig
from manyheads.config.training import Budget, Compile, Strategy, read_budget
from manyheads.data.batches import Batch, padding_share
from manyheads.data.datamodule import TextData
from manyheads.data.rows import Splits
from manyheads.data.tokens import Tokens
from manyheads.distributed.signals import Stop, ending
from manyheads.errors import UserError
from manyheads.inference.precision import DTYPES, choose_device, choose_precision
from manyheads.layout import Packed
from manyheads.nn.assemble import count_parameters
from manyheads.nn.transformer import Decoder, Encoder, call_layer
from manyheads.terminal import as_text, console, say
from manyheads.training.guard import is_out_of_memory
from manyheads.training.module import Network, make_objective
from manyheads.training.optim import freeze
from manyheads.training.trainer import compile_mode, count_devices, run_trainer, set_layer_calls, trainer_hardware

ON_CPU = 8192  # tokens that batch.tokens=auto stands for where no GPU is
MOST = 65_536  # tokens that keep any GPU busy: from there on a larger batch makes fewer steps and none of them faster
STEP = 1024  # tokens between two numbers that are tried
MOST_LOOKING = 0.1  # of the time of a run that is validated at even distances
TIMED_SHARE, LEAST_TIMED, MOST_TIMED = 0.05, 2.0, 20.0  # of the budget, in seconds
FIRST = 3  # steps that are not timed: those of a process are slow at first
FORWARD = 1 / 3  # of the time of a step: the gradient takes twice as long
NEEDS_VALUES = (
    fake_tensor.DataDependentOutputException,
    fake_tensor.DynamicOutputShapeException,
    fake_tensor.UnsupportedOperatorException,
)


def settle_batch(run: RunConfig, network: Network, tokens: dict[str, Tokens], labels: list[str]) -> RunConfig:
    """`run` with a number for batch.tokens=auto, on a GPU the largest of which every batch fits.

    A number that was typed is tried, too. Weights, their gradients and all generators stay as they are. Refused are
    batches that do not fit, and auto on several devices, which might find several numbers.
    """
    device = choose_device(run.hardware)
    if device.type == "cpu":
        return with_tokens(run, ON_CPU) if run.batch.is_auto else run
    if count_devices(run.hardware, on_gpu=True) * run.hardware.nodes > 1:
        if run.batch.is_auto:
            raise UserError(
                "batch.tokens=auto tries batches on one device, but this run has several, which must agree: "
                "give a number"
            )
        return run
    task = make_objective(run, tokens["train"], labels)
    set_layer_calls(network, run.hardware)
    dtype = DTYPES[choose_precision(run.hardware.precision, device)]

    def fits(n_tokens: int) -> bool:
        batch = TextData(tokens, with_tokens(run, n_tokens).batch, run.seed).largest_batch()
        return tried(network, task, batch, device, dtype, copies=3 if run.optim.average else 2)

    try:
        return found(run, fits, longest=int(tokens["train"].lengths.max()))
    finally:
        network.cpu()


def found(run: RunConfig, fits: Callable[[int], bool], *, longest: int) -> RunConfig:
    """`run` with the number it says, if that fits, or with the largest that does."""
    if not run.batch.is_auto:
        if not fits(run.batch.tokens):
            raise UserError(
                f"batch.tokens={run.batch.tokens} needs more memory than the GPU has for its largest batch: use a "
                "smaller number, batch.tokens=auto to have it found, or hardware.recompute=true"
            )
        return run
    most = largest(fits, least=-(-longest // STEP), most=max(MOST, longest) // STEP)
    if not most:
        raise UserError(
            f"batch.tokens=auto finds no batch that the GPU has memory for, not even one text of {longest} tokens: "
            "set hardware.recompute=true, or use a smaller data.max_length or a smaller model"
        )
    return with_tokens(run, most * STEP)


def largest(fits: Callable[[int], bool], *, least: int, most: int) -> int:
    """The largest multiple of `STEP` from `least` to `most` that fits, as a factor; 0 if none does. What fits is taken
    to fit in smaller numbers, too."""
    if fits(most * STEP):
        return most
    n_fitting = bisect_left(range(least, most), True, key=lambda n: not fits(n * STEP))
    return least + n_fitting - 1 if n_fitting else 0


def tried(
    network: Network, task: Any, batch: Batch, device: torch.device, dtype: torch.dtype | None, *, copies: int
) -> bool:
    """Whether there is memory for a step: forward, in autocast of `dtype` if any, backward, and `copies` of the weights
    as the optimiser keeps them."""
    network.to(device)
    task.to(device)
    weights = [one for one in network.parameters() if one.requires_grad]
    cuda = [device] if device.type == "cuda" else []
    try:
        with torch.random.fork_rng(cuda), torch.autocast(device.type, dtype, enabled=dtype is not None):
            kept = [torch.empty_like(one) for one in weights for _ in range(copies)]
            losses_B = task.learn(network, batch.to(device))
            torch.autograd.grad(losses_B.sum(), weights, allow_unused=True)
            del kept
        return True
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return False
    finally:
        task.train_metrics.reset()
        if cuda:
            torch.cuda.empty_cache()


def with_tokens(run: RunConfig, n_tokens: int) -> RunConfig:
    return replace(run, batch=replace(run.batch, tokens=n_tokens))


def settle_budget(run: RunConfig, network: Network, tokens: dict[str, Tokens], labels: list[str]) -> RunConfig:
    """`run` with the steps that `run.budget` is enough for, of which a time is told by timing some, and validated at
    even distances where words are hidden. Weights and generators stay as they are.

    What a budget pays for are the steps and the validations among them. A time is refused on several devices, each of
    which would time its own steps. `Stopped` is raised where a signal came meanwhile.
    """
    budget = read_budget(run.budget)
    assert budget is not None
    n_devices = count_devices(run.hardware, on_gpu=choose_device(run.hardware).type == "cuda") * run.hardware.nodes
    if budget.seconds and n_devices != 1:
        raise UserError(
            f"a budget of {run.budget} is a time, which is measured on one device, but this run has several: give a "
            "number of tokens, such as 20Mtok"
        )
    data = TextData(tokens, run.batch, run.seed)
    per_step = data.tokens_of_step()
    look = FORWARD * float(tokens["validation"].lengths.sum()) / per_step  # in steps
    if budget.seconds:
        limits = rehearsed(run, network, tokens, labels, budget, look)
    else:
        n_steps = math.ceil(budget.tokens / per_step)
        limits = even(n_steps, n_looks(plugin.task(run.task).looks, n_steps, look))
    if "val_check_interval" in limits:
        batches = limits["val_check_interval"] * run.batch.accumulate
        limits["val_check_interval"] = run.trainer.get("val_check_interval") or batches
    return replace(run, trainer={**run.trainer, "max_epochs": -1, **limits})


def of_time(most: int, n_steps: float, look: float, steps_of_epoch: int) -> dict[str, int]:
    """The limits of a run that has the time of `n_steps` and takes that of `look` steps to look at validation: once an
    epoch or, where `most` is above 0, that often at the most."""
    if not most:
        return {"max_steps": max(1, int(n_steps / (1 + look / steps_of_epoch)))}
    looks = n_looks(most, n_steps, look)
    return even(max(1, int(n_steps - looks * look)), looks)


def n_looks(most: int, n_steps: float, look: float) -> int:
    """Validations that take a tenth of the time at the most, and are `most` at the most; at least one where that is
    above 0."""
    return most and max(1, min(most, int(MOST_LOOKING * n_steps / look)))


def even(n_steps: int, looks: int) -> dict[str, int]:
    """That many steps or a few more, with `looks` validations at even distances, the last of them at the end; where
    there are none, it is validated once an epoch."""
    if not looks:
        return {"max_steps": n_steps}
    each = -(-n_steps // looks)
    return {"max_steps": -(-n_steps // each) * each, "val_check_interval": each}


def rehearsed(
    run: RunConfig, network: Network, tokens: dict[str, Tokens], labels: list[str], budget: Budget, look: float
) -> dict[str, int]:
    """The limits of a run that has `budget.seconds`, found by timing its steps; with hardware.compile=auto their number
    decides whether the run compiles layers, so they are timed once more, compiled, where it will."""

    def timed(choice: Compile) -> dict[str, int]:
        one = replace(run, hardware=replace(run.hardware, compile=choice))
        n_steps = budget.seconds / seconds_of_step(one, network, tokens, labels, budget)
        return of_time(plugin.task(run.task).looks, n_steps, look, TextData(tokens, run.batch, run.seed).steps_of(0))

    hardware = run.hardware
    if hardware.compile is not Compile.auto:
        return timed(hardware.compile)
    limits, on_gpu = timed(Compile.never), choose_device(hardware).type == "cuda"
    compiles = compile_mode(hardware, on_gpu=on_gpu, n_steps=limits["max_steps"], mean_tokens=0.0, alone=False)
    return timed(Compile.always) if compiles else limits


def seconds_of_step(
    run: RunConfig, network: Network, tokens: dict[str, Tokens], labels: list[str], budget: Budget
) -> float:
    """What a step of this very run takes, on a copy of the network. A step whose loss is not finite takes as long as
    another: the run itself will meet and answer it."""
    pace = Pace(min(MOST_TIMED, max(LEAST_TIMED, TIMED_SHARE * budget.seconds)))
    endless: dict[str, Any] = {"max_epochs": -1, "max_steps": 2**31, "limit_val_batches": 0}
    flags = {key: value for key, value in run.trainer.items() if key not in ("val_check_interval", "max_time")}
    timed = replace(run, trainer={**flags, **endless}, checkpoint=replace(run.checkpoint, patience=0))
    cuda = [0] if torch.cuda.is_available() else []
    with torch.random.fork_rng(cuda), pace.stop.listening():
        run_trainer(timed, copy.deepcopy(network), tokens, labels, [pace])
    return pace.seconds / pace.steps


class Pace(Callback):
    """Ends training when `most` seconds of whole steps, at least one, were timed, or a signal comes: nothing was begun
    that would have to be saved. A GPU is waited for when the clock starts and when time is up: the run does not
    wait."""

    def __init__(self, most: float) -> None:
        self.most = most
        self.stop = Stop()
        self.steps, self.seconds = 0, 0.0
        self._last = 0
        self._since: float | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.stop.listen()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        if stopped := ending(self.stop.votes()):
            raise stopped
        if trainer.global_step == self._last:
            return  # gradients are still being summed
        self._last = trainer.global_step
        if self._last < FIRST:
            return
        if self._since is not None and time.perf_counter() - self._since < self.most:
            return
        if pl_module.device.type == "cuda":
            torch.cuda.synchronize(pl_module.device)
        if self._since is None:
            self._since = time.perf_counter()
        else:
            self.steps, self.seconds = self._last - FIRST, time.perf_counter() - self._since
            trainer.should_stop = True


def plan_figures(run: RunConfig, splits: Splits, tokens: dict[str, Tokens], network: Network) -> dict[str, str]:
    """Sizes, steps, memory, device and data of the run, by name."""
    hardware, rows = trainer_hardware(run.hardware), tokens["train"]
    texts, data = rows.offsets.diff(), TextData(tokens, run.batch, run.seed)
    n_parameters, n_words = count_parameters(network), network.words.num_embeddings
    task = make_objective(run, rows, splits.labels)
    n_devices = count_devices(run.hardware, on_gpu=hardware["accelerator"] == "gpu") * run.hardware.nodes
    n_steps = data.n_steps(run.trainer.get("max_epochs"), run.trainer.get("max_steps", -1))
    freeze(network, run.optim)
    state = state_bytes(run, network, n_devices)
    activations = activation_bytes(
        network,
        task.given(data.largest_batch()),
        precision=str(hardware["precision"]),
        recompute=run.hardware.recompute,
    )
    return {
        **task.plan(run, rows, splits.labels, n_words),
        "rows": ", ".join(f"{name} {len(one):,}" for name, one in tokens.items()),
        "tokens a text": f"{float(texts.double().mean()):.1f} on average, {int(texts.max())} at most",
        "truncated": f"{rows.n_truncated / len(rows):.1%} of the training texts, at {run.data.max_length}",
        "vocabulary": f"{n_words:,}",
        "parameters": f"{n_parameters:,}",
        "steps": f"{n_steps:,} of at most {run.batch.tokens * run.batch.accumulate:,} tokens",
        "padding": f"{padding_share(data.plan(0), rows):.1%}",
        "memory": f"{(state + activations) / 2**20:,.0f} MiB: {state / 2**20:,.0f} weights and optimiser, "
        f"{activations / 2**20:,.0f} activations of the largest batch",
        "device": f"{n_devices} x {hardware['accelerator']}, {hardware['precision']}",
    }


def show_plan(figures: dict[str, str], notes: Sequence[str] = ()) -> None:
    """Print the figures as a table, and what was noticed in the data below it."""
    from rich.table import Table

    screen, table = console(), Table(title="dry run: nothing was trained", show_header=False)
    for name, figure in figures.items():
        table.add_row(as_text(name, screen), as_text(figure, screen))
    screen.print(table)
    say(*notes)


def state_bytes(run: RunConfig, network: Network, n_devices: int) -> int:
    """Bytes that each device holds from one step to the next: weights and their running mean, and of those that learn
    gradients and AdamW's two moments; under ddp gradients once more, in the buckets that are sent."""
    in_parts = run.hardware.strategy is Strategy.fsdp and n_devices > 1
    learning = sum(one.numel() for one in network.parameters() if one.requires_grad)
    of_each = 2 if run.optim.average else 1
    of_learning = 3 if n_devices == 1 or in_parts else 4
    total = 4 * (of_each * count_parameters(network) + of_learning * learning)
    return total // n_devices if in_parts else total


def activation_bytes(network: Network, given: tuple[Any, ...], *, precision: str, recompute: bool = False) -> int:
    """Bytes that a forward pass of what is `given` to the network keeps for the backward pass; with `recompute` of each
    layer the input alone, and the rest of one at a time. The pass is gone through with shapes alone, which takes no
    memory; a network that reads lengths back from its tensors (texts of a pair apart, a recurrent one) computes once on
    the CPU."""
    network.train()
    held = dict(network.named_parameters()) | dict(network.named_buffers())
    known = tuple(one.rounded(1) if isinstance(one, Packed) else one for one in given)  # which know their sizes
    try:
        with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True) as shapes:
            fakes: dict[str, torch.Tensor] = {name: shapes.from_tensor(one) for name, one in held.items()}
            return _kept(network, fakes, known, precision, recompute=recompute)
    except NEEDS_VALUES:
        return _kept(network, held, given, precision, recompute=recompute)


def _kept(
    network: Network, held: dict[str, torch.Tensor], given: tuple[Any, ...], precision: str, *, recompute: bool
) -> int:
    """Bytes that are kept apart from the tensors of the network, `held`."""
    own = {tensor.untyped_storage()._cdata for tensor in held.values()}

    def weighing(kept: dict[int, int]) -> torch.autograd.graph.saved_tensors_hooks:
        """Notes the storages that the backward pass will read."""

        def weigh(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage._cdata not in own:
                kept[storage._cdata] = storage.nbytes()
            return tensor

        return torch.autograd.graph.saved_tensors_hooks(weigh, lambda tensor: tensor)

    outside: dict[int, int] = {}
    layers: list[dict[int, int]] = []

    def call(layer: torch.nn.Module, x: torch.Tensor, *context: Any) -> torch.Tensor:
        storage = x.untyped_storage()
        outside[storage._cdata] = storage.nbytes()
        layers.append({})
        with weighing(layers[-1]):
            return layer(x, *context)

    stacks = [one for one in network.modules() if isinstance(one, Encoder | Decoder)]
    for one in stacks:
        one.call = call if recompute else call_layer
    with weighing(outside), torch.autocast("cpu", torch.bfloat16, enabled=precision != "32-true"):
        logits = functional_call(network, held, given)
    for one in stacks:
        one.call = call_layer
    assert logits.requires_grad, "held until here, so that no storage is freed and counted twice"
    again = [sum(layer[key] for key in layer.keys() - outside.keys()) for layer in layers]
    return sum(outside.values()) + max(again, default=0)
