"""What the config asks for, in Lightning's words, and what the machine and Lightning refuse, each as one sentence."""

import platform
import subprocess
import sys
import threading
import time
import warnings
from dataclasses import replace
from datetime import timedelta

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import distributed as dist

from manyheads.config import Accelerator, HardwareConfig, Precision, RunConfig, Strategy
from manyheads.distributed.ranks import Ranks
from manyheads.inference import precision as processor
from manyheads.inference.precision import choose_device, choose_precision, set_threads
from manyheads.training import trainer as hardware
from manyheads.training.strategies import current_store
from manyheads.training.trainer import build_trainer, check_trainer


def test_several_processes_mean_ddp(monkeypatch):
    one = HardwareConfig(accelerator=Accelerator.cpu)
    assert hardware.trainer_hardware(one)["strategy"] == "auto"
    assert hardware.trainer_hardware(replace(one, devices=2))["strategy"] == "auto", "nobody has started two"
    alone = hardware.trainer_hardware(replace(one, strategy=Strategy.ddp))["strategy"]
    assert alone == "auto", "one process meets nobody, and takes no port that another run has"
    for name, value in {"RANK": "5", "WORLD_SIZE": "6", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    flags = hardware.trainer_hardware(replace(one, timeout=7))
    assert (flags["devices"], flags["num_nodes"]) == (2, 3)
    trainer = pl.Trainer(**flags, logger=False, enable_checkpointing=False)  # type: ignore[arg-type]
    assert (trainer.world_size, trainer.global_rank, trainer.local_rank, trainer.node_rank) == (6, 5, 1, 2)
    strategy = trainer.strategy
    assert isinstance(strategy, DDPStrategy)
    assert strategy._timeout == timedelta(seconds=7)
    assert strategy.cluster_environment is not None
    assert strategy.cluster_environment.creates_processes_externally, "Lightning starts none"


def test_threads_are_shared_by_the_processes_of_a_machine(monkeypatch):
    set_to: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", set_to.append)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(7)))
    for n_of_torch, n_set in ((64, 7), (4, 4)):  # it may know nothing of a container's limit
        monkeypatch.setattr(torch, "get_num_threads", lambda n=n_of_torch: n)
        set_threads(HardwareConfig())
        assert set_to.pop() == n_set
    for name, value in {"RANK": "0", "WORLD_SIZE": "6", "LOCAL_WORLD_SIZE": "3"}.items():
        monkeypatch.setenv(name, value)
    set_threads(HardwareConfig())
    set_threads(HardwareConfig(threads=5))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "9")
    set_threads(HardwareConfig())
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "3")
    set_threads(HardwareConfig())
    assert set_to == [2, 5, 1, 3]
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    set_threads(HardwareConfig())
    assert set_to == [2, 5, 1, 3], "torch has read it"


@pytest.mark.parametrize(("flags", "expected"), [("avx2", Precision.fp32), ("avx512_bf16", Precision.bf16)])
def test_precision_follows_the_processor(flags, expected, monkeypatch):
    monkeypatch.setattr(processor.Path, "read_text", lambda self: f"flags : fpu {flags} sse")
    monkeypatch.setattr(processor.Path, "exists", lambda self: True)
    cpu = torch.device("cpu")
    assert choose_precision(Precision.auto, cpu) is expected
    assert choose_precision(Precision.bf16, cpu) is Precision.bf16
    assert choose_precision(Precision.fp16, torch.device("cuda")) is Precision.fp16


def test_more_gpus_than_there_are_is_one_sentence(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(
        ValueError, match=r"^hardware\.devices=4, but this machine has 2: use hardware\.devices=2, or 0"
    ):
        choose_device(HardwareConfig(devices=4))
    assert choose_device(HardwareConfig(devices=2)) == torch.device("cuda", 0)
    assert hardware.count_devices(HardwareConfig(devices=0), on_gpu=True) == 2
    assert hardware.count_devices(HardwareConfig(devices=0), on_gpu=False) == 1


def complaint(run: RunConfig) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - every test compares the sentence
        check_trainer(run)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def run_with(**flags) -> RunConfig:
    return RunConfig(hardware=HardwareConfig(accelerator=Accelerator.cpu), trainer={"max_epochs": 1, **flags})


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("gradient_clip_algorithm", "abs", "`gradient_clip_algorithm` abs is invalid. Allowed algorithms: "),
        ("gradient_clip_val", "much", "`gradient_clip_val` should be an int or a float. Got much."),
        ("profiler", "no such", "When passing string value for the `profiler` parameter of `Trainer`, it can only be "),
        ("limit_val_batches", 1.5, "You have passed invalid value 1.5 for limit_val_batches, it has to be in [0.0,"),
    ],
)
def test_a_flag_that_lightning_refuses_is_one_sentence(flag, value, words):
    assert complaint(run_with(**{flag: value})).startswith(
        f"Lightning refuses the flags of hardware and trainer: {words}"
    )


def test_two_intervals_of_validation_are_one_sentence():
    assert complaint(run_with(val_check_interval=50, check_val_every_n_epoch=2)) == (
        "trainer.check_val_every_n_epoch=2 cannot be combined with trainer.val_check_interval=50, an interval in "
        "batches, which are counted over the whole run: remove one of them"
    )
    check_trainer(run_with(val_check_interval=0.5, check_val_every_n_epoch=2))
    check_trainer(run_with(val_check_interval=50, check_val_every_n_epoch=None))


def test_flags_that_lightning_takes_are_not_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_trainer(run_with(detect_anomaly=False, max_time="00:01:00:00"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "heard"), [("train_loss", 0), ("validation_accuracy", 0), ("mine", 1)])
def test_advice_about_figures_that_ranks_have_shared_is_not_heard(name, heard):
    with warnings.catch_warnings(record=True) as said:
        build_trainer(run_with(), None, [], [])
        advice = f"It is recommended to use `self.log('{name}', ..., sync_dist=True)` when logging on epoch level"
        warnings.warn_explicit(advice, UserWarning, "result.py", 434, module="lightning.pytorch.trainer.result")
    assert len(said) == heard


PAGES = """
import resource, sys, torch
from manyheads.training.trainer import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
def faults():
    torch.empty(12_000_000).fill_(1.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    faults()
counts = [faults() for _ in range(10)]
print(min(after - before for before, after in zip(counts, counts[1:])))
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries of C have no such setting")
def test_freed_memory_is_not_asked_for_again():
    lent, kept = (
        int(subprocess.run([sys.executable, "-c", PAGES, how], capture_output=True, check=True).stdout)
        for how in ("lent", "kept")
    )
    assert kept * 10 < lent


SOON = timedelta(seconds=60)


@pytest.mark.parametrize("first_is_late", [False, True])
def test_what_an_earlier_start_left_in_the_store_leads_nowhere(first_is_late):
    store = dist.HashStore()
    for key, value in {"call": "old", "old/1": "gone", "old/2": "gone too", "old/go": "gone,gone too"}.items():
        store.set(f"manyheads/{key}", value)
    found: dict[int, dist.Store] = {}

    def come(rank: int) -> None:
        time.sleep(0.3 * (first_is_late == (rank == 0)))
        found[rank] = current_store(store, Ranks(rank, 3, rank, 3, started_by="torchrun"), SOON)

    threads = [threading.Thread(target=come, args=(rank,)) for rank in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    found[0].set("address", "today")
    assert found[1].get("address") == found[2].get("address") == b"today"
    with pytest.raises(RuntimeError, match="rank 0 has not called within"):
        current_store(store, Ranks(1, 3, 1, 3), timedelta(seconds=0.2))
