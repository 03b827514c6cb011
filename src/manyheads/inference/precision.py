"""Where and in which type a model computes, in training and afterwards, chosen in one place."""

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from manyheads.config import Accelerator, HardwareConfig, InferenceHardware, ModelConfig, Precision
from manyheads.distributed.ranks import this_process
from manyheads.nn.classifier import Cross

TYPES = {Precision.fp32: None, Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}
Network = TypeVar("Network", bound=nn.Module)
CUDNN_RNN: Any = torch.backends.cudnn.rnn  # where torch keeps what cuDNN's recurrent layers may round to


def choose_device(hardware: InferenceHardware) -> torch.device:
    """A GPU if there is one and it is not refused, else the CPU with as many threads as typed; of several processes
    each takes its own GPU, or its share of the CPU. A ValueError where a GPU is asked for and there are too few."""
    ranks, threads = this_process(), hardware.threads
    if ranks.n_local > 1 and not threads and "OMP_NUM_THREADS" not in os.environ:
        threads = max(1, torch.get_num_threads() // ranks.n_local)  # side by side, lest they wait for each other
    if threads:
        torch.set_num_threads(threads)
    has_gpu = hardware.accelerator is not Accelerator.cpu and torch.cuda.is_available()
    if hardware.accelerator is Accelerator.gpu and not has_gpu:
        raise ValueError(
            "hardware.accelerator=gpu, but torch finds no GPU here: choose hardware.accelerator=cpu, or auto"
        )
    if not has_gpu:
        return torch.device("cpu")
    available = torch.cuda.device_count()
    if ranks.n_local > available:
        raise ValueError(
            f"hardware.devices={ranks.n_local}, but this machine has {available}: use hardware.devices={available}, "
            "or 0 for all"
        )
    return torch.device("cuda", ranks.local_rank)


def cpu_multiplies_bf16() -> bool:
    """Whether the processor has bf16 instructions (avx512_bf16 or AMX), as Linux lists them."""
    listing = Path("/proc/cpuinfo")
    flags = listing.read_text().split() if listing.exists() else []
    return "avx512_bf16" in flags or "amx_bf16" in flags


def multiplies_bf16(*, on_gpu: bool) -> bool:
    """Whether the device has instructions for it, and does not emulate them."""
    return torch.cuda.is_bf16_supported(including_emulation=False) if on_gpu else cpu_multiplies_bf16()


def uses_gpu(accelerator: Accelerator) -> bool:
    """Whether the run computes on GPUs; refused is to ask for one where there is none."""
    has_gpu = torch.cuda.is_available()
    if accelerator is Accelerator.gpu and not has_gpu:
        raise ValueError(
            "hardware.accelerator=gpu, but torch sees no GPU on this machine: use hardware=cpu, "
            "or install a build of torch for your GPU"
        )
    return has_gpu and accelerator is not Accelerator.cpu


def pick_precision(precision: Precision, *, on_gpu: bool) -> Precision:
    """The precision asked for, but fp16 on the CPU; `auto` is bf16 where the processor multiplies in it, else fp32."""
    if precision is Precision.fp16 and not on_gpu:
        raise ValueError(
            "hardware.precision=fp16 needs a GPU, but this run computes on the CPU: "
            "use hardware.precision=bf16 or hardware.precision=fp32"
        )
    if precision is not Precision.auto:
        return precision
    return Precision.bf16 if multiplies_bf16(on_gpu=on_gpu) else Precision.fp32


def autocast_type(hardware: HardwareConfig) -> torch.dtype | None:
    """What products are computed in; None: in the type of the weights."""
    return TYPES[pick_precision(hardware.precision, on_gpu=uses_gpu(hardware.accelerator))]


def quick(precision: Precision, model: ModelConfig, device: torch.device) -> torch.dtype | None:
    """What a classifier answers in: the type asked for; `auto` is bf16 where the processor multiplies in it.

    At 4 x 256 on two cores with avx512_bf16, against fp32: 400 texts in two thirds of the time, one text of 50 tokens
    in 3.4 ms instead of 5.5; 5 of 7,600 labels changed (benchmarks/prediction.json).
    Layers that run along the text were not measured and stay in fp32.
    """
    if precision is not Precision.auto:
        return TYPES[precision]
    multiplies = multiplies_bf16(on_gpu=device.type == "cuda")
    return torch.bfloat16 if multiplies and model.has_heads else None


@contextmanager
def multiplying_in(autocast: torch.dtype | None, device: torch.device) -> Iterator[None]:
    """Matrices are multiplied in `autocast`; None is fp32."""
    in_fp32 = without_tf32() if autocast is None and device.type == "cuda" else nullcontext()
    with in_fp32, torch.autocast(device.type, autocast, enabled=autocast is not None):
        yield


@contextmanager
def without_tf32() -> Iterator[None]:
    """Recurrent layers on a GPU multiply in fp32: by default torch lets cuDNN round to TF32, with 10 bits for 23. For a
    while only: `torch.backends.cudnn.allow_tf32` and `flags` raise an error as long as convolutions differ."""
    before = CUDNN_RNN.fp32_precision
    CUDNN_RNN.fp32_precision = "ieee"
    try:
        yield
    finally:
        CUDNN_RNN.fp32_precision = before


class LaidOut(nn.Module):
    """A linear map whose matrix in bf16 lies in memory as oneDNN multiplies by it: else each call puts it so anew, at
    4 x 256 on two cores a tenth of the time of many texts and a quarter of that of one. The answers have the same bits.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach())
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x.to(torch.bfloat16), self.weight, self.bias, "none", [], "")


def cast_once(network: Network, autocast: torch.dtype | None) -> Network:
    """A copy whose matrices are in the type that autocast would cast them to in every call; the rest is shared. So its
    answers under autocast are the same to the last bit."""
    if autocast is None:
        return network
    held = [*network.parameters(), *network.buffers()]
    cast = {id(one) for module in _linear(network) for one in module.parameters()}
    network = copy.deepcopy(network, {id(one): one for one in held if id(one) not in cast})
    for module in _linear(network):
        module.to(autocast)
    if _can_lay_out(network, autocast):
        for module in list(network.modules()):
            for name, child in module.named_children():
                if isinstance(child, nn.Linear):
                    setattr(module, name, LaidOut(child))
    return network


def _linear(network: nn.Module) -> list[nn.Linear]:
    return [module for module in network.modules() if isinstance(module, nn.Linear)]


def _can_lay_out(network: nn.Module, dtype: torch.dtype) -> bool:
    """Cross-attention takes its matrix apart, for which it must lie as it is written."""
    on_cpu = all(module.weight.device.type == "cpu" for module in _linear(network))
    crossed = any(isinstance(module, Cross) for module in network.modules())
    known = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return dtype == torch.bfloat16 and on_cpu and not crossed and known and torch.ops.mkldnn._is_mkldnn_bf16_supported()
