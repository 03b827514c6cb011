"""What the machine itself reaches in a large matrix product, measured in turn with the contestants."""

from multiprocessing.connection import Connection
from time import perf_counter

import torch

from contestants.turns import next_turn

SIZE, TIMES = 4096, {"fp32": 1, "bf16": 4}
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def measure_peaks(driver: Connection) -> None:
    """Answer each order of the driver with TFLOP/s of a product of two square matrices in each precision."""
    factors = {name: torch.randn(SIZE, SIZE).to(kind) for name, kind in TYPES.items()}
    for one in factors.values():
        torch.mm(one, one)
    while next_turn(driver):
        driver.send({name: _tflops(factors[name], times) for name, times in TIMES.items()})


def _tflops(factor: torch.Tensor, times: int) -> float:
    started = perf_counter()
    for _ in range(times):
        torch.mm(factor, factor)
    return round(times * 2 * SIZE**3 / (perf_counter() - started) / 1e12, 4)
