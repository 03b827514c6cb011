"""What an experiment comes to."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """`says` is one line for the screen, `numbers` go to the JSON, `pictures` are PNGs by the rest of their name."""

    says: str
    numbers: dict[str, Any]
    pictures: dict[str, bytes]
