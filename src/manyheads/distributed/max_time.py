"""`trainer.max_time`, which `Stop` keeps in place of Lightning: its timer ends a run as if it were done."""

from typing import Any

from manyheads.errors import UserError

UNITS = {"days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}


def parse_max_time(limit: Any) -> float | None:
    """Seconds of "days:hours:minutes:seconds" or {hours: 1, minutes: 30}; None where there is no limit.

    Raises:
        UserError: it is anything else.
    """
    if limit is None:
        return None
    counts: dict[str, Any] = {}
    if isinstance(limit, dict):
        counts = limit
    elif isinstance(limit, str) and limit.count(":") == 3:
        counts = dict(zip(UNITS, limit.split(":"), strict=True))
    try:
        seconds = sum(UNITS[unit] * float(count) for unit, count in counts.items())
    except (KeyError, TypeError, ValueError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UserError(
            f"trainer.max_time={limit} is not a time: write days:hours:minutes:seconds, such as 00:01:30:00"
        )
    return seconds
