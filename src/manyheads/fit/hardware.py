"""What the machine has, in Lightning's words."""

import os

import torch

from manyheads.config import Accelerator, HardwareConfig, Precision, Strategy
from manyheads.processor import cpu_multiplies_bf16
from manyheads.ranks import this_process

LIGHTNING_PRECISION = {Precision.fp32: "32-true", Precision.bf16: "bf16-mixed", Precision.fp16: "16-mixed"}
AUTOCAST = {Precision.fp32: None, Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}


def uses_gpu(accelerator: Accelerator) -> bool:
    """Whether the run computes on GPUs.

    Raises:
        ValueError: a GPU is asked for and there is none.
    """
    has_gpu = torch.cuda.is_available()
    if accelerator is Accelerator.gpu and not has_gpu:
        raise ValueError(
            "hardware.accelerator=gpu, but torch sees no GPU on this machine: use hardware=cpu, "
            "or install a build of torch for your GPU"
        )
    return has_gpu and accelerator is not Accelerator.cpu


def pick_precision(precision: Precision, *, on_gpu: bool) -> Precision:
    """The precision asked for; `auto` is bf16 where the processor multiplies in it, else fp32.

    Raises:
        ValueError: fp16 on the CPU.
    """
    if precision is Precision.fp16 and not on_gpu:
        raise ValueError(
            "hardware.precision=fp16 needs a GPU, but this run computes on the CPU: "
            "use hardware.precision=bf16 or hardware.precision=fp32"
        )
    if precision is not Precision.auto:
        return precision
    fast = torch.cuda.is_bf16_supported(including_emulation=False) if on_gpu else cpu_multiplies_bf16()
    return Precision.bf16 if fast else Precision.fp32


def count_devices(hardware: HardwareConfig, *, on_gpu: bool) -> int:
    """Devices of each node; 0 in the config is all GPUs, or one CPU process.

    Raises:
        ValueError: more GPUs are asked for than there are.
    """
    available = torch.cuda.device_count() if on_gpu else None
    if hardware.devices == 0:
        return available or 1
    if available is not None and hardware.devices > available:
        raise ValueError(
            f"hardware.devices={hardware.devices}, but this machine has {available}: use "
            f"hardware.devices={available}, or 0 for all"
        )
    return hardware.devices


def autocast_type(hardware: HardwareConfig) -> torch.dtype | None:
    """What products are computed in; None: in the type of the weights."""
    return AUTOCAST[pick_precision(hardware.precision, on_gpu=uses_gpu(hardware.accelerator))]


def share_of_threads(hardware: HardwareConfig) -> int:
    """Threads of this process: as many as were asked for, or where several are on this machine its share of the
    processors; 0 leaves it to torch."""
    n_local = this_process().n_local
    if hardware.threads or n_local == 1 or "OMP_NUM_THREADS" in os.environ:
        return hardware.threads
    if "SLURM_CPUS_PER_TASK" in os.environ:
        return int(os.environ["SLURM_CPUS_PER_TASK"])
    return max(1, len(os.sched_getaffinity(0)) // n_local)


def trainer_hardware(hardware: HardwareConfig) -> dict[str, object]:
    """The Trainer's flags of accelerator, devices, nodes, strategy and precision: of the processes that there are."""
    from manyheads.fit.cluster import Started, ddp  # Lightning, which the rest here does without
    from manyheads.fit.sharded import fsdp

    on_gpu = uses_gpu(hardware.accelerator)
    count_devices(hardware, on_gpu=on_gpu)
    if n_threads := share_of_threads(hardware):
        torch.set_num_threads(n_threads)
    ranks, spread = this_process(), fsdp if hardware.strategy is Strategy.fsdp else ddp
    several = ranks.n_ranks > 1 or hardware.strategy is Strategy.ddp
    return {
        "accelerator": "gpu" if on_gpu else "cpu",
        "devices": ranks.n_local,
        "num_nodes": max(1, ranks.n_ranks // ranks.n_local),
        "plugins": [Started()],
        "strategy": spread(hardware.timeout, on_gpu=on_gpu) if several else "auto",
        "precision": LIGHTNING_PRECISION[pick_precision(hardware.precision, on_gpu=on_gpu)],
    }
