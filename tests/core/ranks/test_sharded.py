"""Weights held in parts by two processes, against two that hold them whole, and against one alone.

This file is also what the processes run: `main` of it, in each.
"""

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file

from manyheads import plugin
from manyheads.config import (
    Accelerator,
    BatchConfig,
    CheckpointConfig,
    DataConfig,
    HardwareConfig,
    LoggerConfig,
    ModelConfig,
    OptimConfig,
    Precision,
    RunConfig,
    Strategy,
)
from manyheads.config.training import Compile
from manyheads.data.tokens import Tokens
from manyheads.distributed import faults
from manyheads.distributed.signals import Stopped
from manyheads.nn.layer_calls import compile_mode
from manyheads.runs.checkpoints import newest_checkpoint
from manyheads.runs.files import read_json_or_none
from manyheads.runs.resume import Start
from manyheads.training.build import Network
from manyheads.training.context import RunContext
from manyheads.training.module import LitModule
from manyheads.training.state import load_pytree
from manyheads.training.strategies import part
from manyheads.training.trainer import fit, trainer_hardware

WORDS, STEPS = 30, 20
FSDP, DDP, ALONE = Strategy.fsdp, Strategy.ddp, Strategy.auto


def run_of(strategy: Strategy = FSDP, **more: Any) -> RunConfig:
    """20 steps of 8 rows at most, in two micro-batches, of 22 rows: some steps are short, and no dropout is."""
    shape: dict[str, Any] = {"dropout": 0.0, "dropout_tokens": 0.0, **more.pop("model", {})}
    return RunConfig(
        task=more.pop("task", "classify"),
        data=DataConfig(path="nowhere.csv"),
        model=ModelConfig(n_layers=2, n_heads=2, d_model=10, d_k=4, d_v=4, d_ff=11, **shape),
        batch=BatchConfig(rows=4, accumulate=more.pop("accumulate", 2)),
        optim=OptimConfig(lr=1e-2, eps=1e-2, average=more.pop("average", 0), few=more.pop("few", 0)),  # ε: no step is
        # made of rounding alone
        checkpoint=CheckpointConfig(every=7, patience=0, metric="loss"),
        hardware=HardwareConfig(
            accelerator=Accelerator[more.pop("accelerator", "cpu")],
            strategy=strategy,
            devices=1 if strategy is ALONE else 2,
            precision=Precision[more.pop("precision", "fp32")],
            recompute=more.pop("recompute", False),
        ),
        logger=LoggerConfig(every=1),
        trainer={"max_epochs": -1, "max_steps": STEPS, "gradient_clip_val": 0.5},
        **more,
    )


def tokens(n_rows: int, seed: int, *, targets: bool = False) -> Tokens:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, 9, (n_rows,), generator=generator)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    ids_N = torch.randint(5, WORDS, (int(offsets[-1]),), dtype=torch.int32, generator=generator)
    ids_N[offsets[:-1]], ids_N[offsets[1:] - 1] = 2, 3  # as every text begins and ends
    answers = tokens(n_rows, seed + 10) if targets else None
    return Tokens(ids_N, offsets, None, torch.arange(n_rows) % 3, targets=answers)


def untrained(run: RunConfig) -> Network:
    """The same weights at every call."""
    torch.manual_seed(1)
    assemble = plugin.resolve(plugin.task(run.task).assemble)
    # Twice the words that texts have: where a network may leave the others out of training, it does.
    return assemble(run.model, vocab_size=2 * WORDS, n_classes=3, max_length=16, n_segments=0)


class Watched(LitModule):
    """Notes the loss of each micro-batch, as it goes into the mean over all of them, and what this rank holds."""

    losses: ClassVar[list[float]] = []
    numbers: ClassVar[dict[str, int]] = {}

    def training_step(self, batch, index):
        loss = super().training_step(batch, index)
        self.losses.append(float(loss.detach()) / self.trainer.accumulate_grad_batches)
        return loss

    def on_train_batch_end(self, outputs, batch, batch_idx):
        (optimizer,) = self.trainer.optimizers
        weights = [one for group in optimizer.param_groups for one in group["params"]]
        moments = [one for its in optimizer.state.values() for one in its.values() if one.ndim]
        self.numbers.update(weights=sum(part(one).numel() for one in weights))
        self.numbers.update(moments=sum(part(one).numel() for one in moments))


class Labelled(NamedTuple):
    """Of the splits of a run what `fit` asks for."""

    labels: list[str]


def train(folder: Path, run: RunConfig, *stops: str, finish: bool = True) -> None:
    """`fit` into `folder`, stopped at each of the faults and resumed; what came of it is left there."""
    from manyheads.training import trainer as session

    session.LitModule = Watched  # type: ignore[misc]
    rank, texts = os.environ.get("RANK", "0"), plugin.task(run.task).column == "target"
    Watched.losses.clear()
    rows = {"train": tokens(22, 0, targets=texts), "validation": tokens(9, 1, targets=texts)}
    for stop in (*stops, *([""] if finish else [])):
        faults.reset_counts()
        os.environ[faults.VARIABLE] = stop
        checkpoint = newest_checkpoint(folder / "checkpoints")
        start = Start(checkpoint, read_json_or_none(checkpoint / "progress.json")) if checkpoint else Start()
        network = untrained(run)
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(Stopped):
            context = RunContext(
                run=run, typed=run, splits=Labelled(["a", "b", "c"]), start=start, began=time.perf_counter()
            )  # type: ignore[arg-type]
            context.network, context.tokens, context.folder = network, rows, folder  # type: ignore[assignment]
            fit(context)
        if rank == "0" and not stop:
            save_file({name: one.contiguous() for name, one in network.state_dict().items()}, folder / "best")
    (folder / f"seen-{rank}.json").write_text(json.dumps({"losses": Watched.losses, **Watched.numbers}))


def of_ranks(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(one.read_text()) for one in sorted(folder.glob("seen-*.json"))]


def losses(folder: Path) -> torch.Tensor:
    """The loss of each step: the mean over ranks and micro-batches."""
    of_rank = torch.tensor([its["losses"] for its in of_ranks(folder)], dtype=torch.float64)
    return of_rank.mean(0).reshape(STEPS, -1).sum(1)


def assert_same_run(one: Path, other: Path, tolerance: float = 1e-6) -> None:
    """The same losses, kept weights, checkpoints and files, up to `tolerance`."""
    torch.testing.assert_close(losses(one), losses(other), rtol=0, atol=10 * tolerance)
    torch.testing.assert_close(load_file(one / "best"), load_file(other / "best"), rtol=0, atol=tolerance)
    mine, its = newest_checkpoint(one / "checkpoints"), newest_checkpoint(other / "checkpoints")
    assert mine
    assert its
    assert sorted(file.name for file in mine.iterdir()) == sorted(file.name for file in its.iterdir())
    weights, state = "weights.safetensors", "state.safetensors"
    torch.testing.assert_close(load_file(mine / weights), load_file(its / weights), rtol=0, atol=tolerance)
    assert_close(load_pytree(mine / state), load_pytree(its / state), tolerance)


def assert_close(one: Any, other: Any, tolerance: float) -> None:
    """Numbers and tensors up to `tolerance`, all else equal, whatever is nested in what."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        one, other = [*one.values()], [*other.values()]
    if isinstance(one, list | tuple):
        for mine, its in zip(one, other, strict=True):
            assert_close(mine, its, tolerance)
    elif isinstance(one, float | torch.Tensor):
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance)
    else:
        assert one == other


def job_plain(folder: Path) -> None:
    """The head is fitted by the first rank, whose weights the other gets."""
    train(folder / "fsdp", run_of(FSDP, few=50))
    train(folder / "ddp", run_of(DDP, few=50))


def test_parts_train_as_the_whole_does_on_two_ranks_and_on_one(two, tmp_path):
    train(tmp_path / "alone", run_of(ALONE, few=50))
    folder = two("plain")
    assert_same_run(folder / "fsdp", folder / "ddp")
    torch.testing.assert_close(losses(folder / "fsdp"), losses(folder / "alone"), rtol=0, atol=1e-5)
    whole, halves = of_ranks(folder / "ddp"), of_ranks(folder / "fsdp")
    for what in ("weights", "moments"):
        assert sum(its[what] for its in halves) == whole[0][what]
        assert max(its[what] for its in halves) < 0.6 * whole[0][what]


FORMS: dict[str, dict[str, Any]] = {
    "bf16": {"precision": "bf16"},
    "recomputed": {"recompute": True},
    "averaged": {"average": 10},
    "ranks without rows": {"accumulate": 7},
}


def job_forms(folder: Path, forms: dict[str, dict[str, Any]] = FORMS) -> None:
    for name, form in forms.items():
        train(folder / name / "fsdp", run_of(FSDP, **form))
        train(folder / name / "ddp", run_of(DDP, **form))


@pytest.mark.slow
def test_every_form_of_training_is_that_of_the_whole(two):
    folder = two("forms")
    for name in FORMS:
        if name == "bf16":  # sums of two orders, rounded to 8 bits in every product
            torch.testing.assert_close(losses(folder / name / "fsdp"), losses(folder / name / "ddp"), rtol=0, atol=0.01)
            continue
        assert_same_run(folder / name / "fsdp", folder / name / "ddp")


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="parts need two GPUs")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_two_gpus_do_as_two_processes(precision, two):
    folder = two(f"gpus_{precision}")
    assert_same_run(folder / "fsdp", folder / "ddp", tolerance=1e-5)


def job_gpus_fp32(folder: Path, precision: str = "fp32") -> None:
    for strategy in (FSDP, DDP):
        train(folder / strategy.name, run_of(strategy, average=10, precision=precision, accelerator="gpu"))


def job_gpus_bf16(folder: Path) -> None:
    job_gpus_fp32(folder, "bf16")


@pytest.mark.parametrize(("setting", "why"), [("precision", "a device sees"), ("compile", "gathers weights")])
def test_what_parts_do_not_go_with_is_one_sentence(setting, why):
    value: Any = {"precision": Precision.fp16, "compile": Compile.always}[setting]
    with pytest.raises(
        ValueError, match=f"^hardware.{setting}={value.name} cannot be combined with hardware.strategy=fsdp"
    ) as caught:
        HardwareConfig(strategy=FSDP, **{setting: value})
    assert why in str(caught.value)


def test_one_device_has_all_weights_in_any_case():
    assert trainer_hardware(HardwareConfig(strategy=FSDP, accelerator=Accelerator.cpu))["strategy"] == "auto"


def test_nothing_is_compiled_where_layers_are_gathered():
    hardware = HardwareConfig(strategy=FSDP, compile=Compile.auto)
    assert compile_mode(hardware, on_gpu=True, n_steps=10**6, mean_tokens=1.0, allows_graphs=False) == ""


DROPOUT = {"model": {"dropout": 0.2, "dropout_tokens": 0.2, "dropout_attention": 0.1}, "average": 10}


def job_segments(folder: Path) -> None:
    train(folder / "whole", run_of(**DROPOUT))
    train(folder / "parts", run_of(**DROPOUT), "step:5:term", "step:9:term")


@pytest.mark.slow
def test_three_segments_in_parts_are_one_run_to_the_bit(two):
    folder = two("segments")
    assert_same_run(folder / "parts", folder / "whole", tolerance=0)


def job_begun(folder: Path) -> None:
    train(folder / "parts", run_of(FSDP, average=10))
    for strategy in (DDP, FSDP):
        train(folder / strategy.name, run_of(FSDP, average=10), "step:9:term", finish=False)
        train(folder / strategy.name, run_of(strategy, average=10))
    train(folder / "alone", run_of(FSDP, average=10), "step:9:term", finish=False)


@pytest.mark.slow
def test_a_run_in_parts_goes_on_whole_and_in_one_process(two):
    folder = two("begun")
    train(folder / "alone", run_of(ALONE, average=10))
    for name in ("ddp", "fsdp", "alone"):
        torch.testing.assert_close(
            load_file(folder / name / "best"), load_file(folder / "parts" / "best"), rtol=0, atol=1e-6
        )


def job_other_rows(folder: Path, strategy: Strategy = DDP) -> None:
    """The second process has texts of fewer words, so that its network has weights of another shape."""
    rank, own = os.environ["RANK"], tokens
    if rank == "1":
        globals()["tokens"] = lambda n_rows, seed, **more: own(n_rows // 4, seed, **more)
    try:
        train(folder, run_of(strategy))
    except (ValueError, RuntimeError) as error:  # of the first one, which loses the other
        (folder / f"refusal-{rank}").write_text(str(error))


def job_other_rows_in_parts(folder: Path) -> None:
    job_other_rows(folder, FSDP)


@pytest.mark.parametrize("job", ["other_rows", "other_rows_in_parts"])
def test_processes_with_other_rows_are_refused(job, two):
    assert (two(job) / "refusal-1").read_text() == (
        "process 1 has other rows than process 0: give all machines the same data and the same folder, and start all "
        "processes by the same command"
    )


def main(job: str, folder: str) -> None:
    globals()[f"job_{job}"](Path(folder))
