"""How long a run trains, told as a time or as a number of tokens: `10min`, `90s`, `1h`, `20Mtok`."""

import math
import re
from typing import NamedTuple

from manyheads.config.knobs import require
from manyheads.config.plain import show

SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
TOKENS = {"tok": 1.0, "ktok": 1e3, "Mtok": 1e6, "Gtok": 1e9}
WRITTEN = re.compile(rf"(\d+(?:\.\d+)?)({'|'.join([*SECONDS, *TOKENS])})")


class Budget(NamedTuple):
    """One of the two is given, the other is zero."""

    seconds: float = 0.0
    tokens: float = 0.0


def read_budget(text: str) -> Budget | None:
    """What is written; None where nothing is.

    Raises:
        ValueError: neither a time nor a number of tokens, or none at all.
    """
    if not text:
        return None
    found = WRITTEN.fullmatch(text.replace(" ", ""))
    number = float(found[1]) if found else 0.0
    if found is None or not 0 < number < math.inf:
        raise ValueError(f"{text} is no budget")
    unit = found[2]
    return Budget(seconds=number * SECONDS[unit]) if unit in SECONDS else Budget(tokens=number * TOKENS[unit])


def check_budget(name: str, text: str) -> None:
    """Raise a ValueError that names the setting unless `text` can be read."""
    try:
        read_budget(text)
    except ValueError:
        require(
            False,
            f"{name}={show(text)} is no budget: write a time, such as 90s, 10min or 1h, or a number of tokens, such "
            "as 500ktok or 20Mtok",
        )
