"""On which device, with how many threads and in which precision a model computes, in training and afterwards."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from manyheads.config import Accelerator, HardwareConfig, InferenceHardware, ModelConfig, Precision
from manyheads.distributed.machine import n_cores
from manyheads.distributed.ranks import this_process
from manyheads.errors import UserError

DTYPES = {Precision.fp32: None, Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}
CUDNN: Any = torch.backends.cudnn  # where torch keeps what cuDNN may round to


def choose_device(hardware: HardwareConfig | InferenceHardware) -> torch.device:
    """Where this process computes: on a GPU if there is one and it is not refused, else on the CPU. Of several
    processes of a machine each has a GPU of its own.

    Raises:
        UserError: a GPU is required and there is none, or more of them than there are.
    """
    if hardware.accelerator is Accelerator.cpu:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        if hardware.accelerator is Accelerator.gpu:
            raise UserError(
                "hardware.accelerator=gpu, but torch sees no GPU on this machine: use hardware=cpu, "
                "or install a build of torch for your GPU"
            )
        return torch.device("cpu")
    ranks, available = this_process(), torch.cuda.device_count()
    needed = max(hardware.devices, ranks.n_local)
    if needed > available:
        raise UserError(
            f"hardware.devices={needed}, but this machine has {available}: use hardware.devices={available}, or 0 for "
            "all"
        )
    return torch.device("cuda", ranks.local_rank)


def choose_precision(precision: Precision, device: torch.device) -> Precision:
    """What a training multiplies in: `auto` is bf16 where the processor multiplies in it, else fp32.

    Raises:
        UserError: fp16 on the CPU.
    """
    if precision is Precision.fp16 and device.type == "cpu":
        raise UserError(
            "hardware.precision=fp16 needs a GPU, but this run computes on the CPU: "
            "use hardware.precision=bf16 or hardware.precision=fp32"
        )
    if precision is not Precision.auto:
        return precision
    return Precision.bf16 if multiplies_bf16(device) else Precision.fp32


def inference_dtype(precision: Precision, model: ModelConfig, device: torch.device) -> torch.dtype | None:
    """What a finished classifier multiplies in, None for fp32: `auto` is bf16 where the processor multiplies in it.

    At 4 x 256 on two cores with avx512_bf16, against fp32: 400 texts in two thirds of the time, one text of 50 tokens
    in 3.4 ms instead of 5.5; 5 of 7,600 labels changed (benchmarks/prediction.json).
    Recurrent layers were not measured and stay in fp32.
    """
    if precision is not Precision.auto:
        return DTYPES[precision]
    return torch.bfloat16 if model.has_heads and multiplies_bf16(device) else None


def multiplies_bf16(device: torch.device) -> bool:
    """Whether the device has instructions for it, and does not emulate them."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return cpu_multiplies_bf16()


def cpu_multiplies_bf16() -> bool:
    """Whether the processor has bf16 instructions (avx512_bf16 or AMX), as Linux lists them."""
    listing = Path("/proc/cpuinfo")
    flags = listing.read_text().split() if listing.exists() else []
    return "avx512_bf16" in flags or "amx_bf16" in flags


def set_threads(hardware: HardwareConfig | InferenceHardware) -> None:
    """Give torch the CPU threads of this process: as many as were typed, or its share of the processors that it may
    use. torch's own choice does not know of other processes of ours, nor of a limit on processor time, such as a
    container's: its threads would wait for each other."""
    n_threads, n_local = hardware.threads, this_process().n_local
    if not n_threads and "OMP_NUM_THREADS" not in os.environ:
        if n_local > 1 and "SLURM_CPUS_PER_TASK" in os.environ:
            n_threads = int(os.environ["SLURM_CPUS_PER_TASK"])
        elif n_local > 1:
            n_threads = max(1, n_cores() // n_local)
        else:
            n_threads = min(n_cores(), torch.get_num_threads())
    if n_threads:
        torch.set_num_threads(n_threads)


@contextmanager
def multiplying_in(autocast: torch.dtype | None, device: torch.device) -> Iterator[None]:
    """Matrices are multiplied in `autocast`; None is fp32."""
    in_fp32 = without_tf32() if autocast is None and device.type == "cuda" else nullcontext()
    with in_fp32, torch.autocast(device.type, autocast, enabled=autocast is not None):
        yield


@contextmanager
def without_tf32() -> Iterator[None]:
    """Convolutions and recurrent layers on a GPU multiply in fp32: by default torch lets cuDNN round to TF32, with 10
    bits for 23."""
    kinds = (CUDNN.conv, CUDNN.rnn)
    before = [kind.fp32_precision for kind in kinds]
    for kind in kinds:
        kind.fp32_precision = "ieee"
    try:
        yield
    finally:
        for kind, precision in zip(kinds, before, strict=True):
            kind.fp32_precision = precision
