"""What a benchmark ran on. Standard library only."""

import os
import platform
from pathlib import Path
from typing import Any


def machine() -> dict[str, Any]:
    listing = Path("/proc/cpuinfo")
    names = [line for line in listing.read_text().splitlines() if "model name" in line] if listing.exists() else []
    return {"processor": names[0].split(":")[1].strip() if names else platform.processor(), "cores": os.cpu_count()}
