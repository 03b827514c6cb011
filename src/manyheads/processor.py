"""What the processor can do, without importing torch."""

from pathlib import Path


def cpu_multiplies_bf16() -> bool:
    """Whether the processor has bf16 instructions (avx512_bf16 or AMX), as Linux lists them."""
    listing = Path("/proc/cpuinfo")
    flags = listing.read_text().split() if listing.exists() else []
    return "avx512_bf16" in flags or "amx_bf16" in flags
