"""How long a run trains: by a budget, or by limits of epochs and steps."""

from collections.abc import Mapping
from typing import Any

from manyheads.config.plain import show

LIMITS = ("trainer.max_steps", "trainer.max_epochs")
BY_DATA = ("few_epochs", "steps_per_class")  # of optim


def settle_end(values: dict[str, Any], typed: Mapping[str, Any]) -> None:
    """Let a limit that was typed, or that a search varies, take the place of a budget, and of limits that the data
    decides, that were not.

    Raises:
        ValueError: both were typed.
    """
    search = values.get("search")
    named = {**(search if isinstance(search, dict) else {}), **typed}
    limit = next((name for name in LIMITS if name in named), None)
    if limit is None:
        return
    for name in BY_DATA:
        if f"optim.{name}" not in named and name in values.get("optim", {}):
            values["optim"][name] = 0
    if not values.get("budget"):
        return
    if typed.get("budget"):
        given = named[limit]
        said = ",".join(map(show, given)) if isinstance(given, list) else show(given)
        raise ValueError(
            f"{limit}={said} does nothing beside budget={typed['budget']}, which says how long the run "
            "trains: leave one of them away"
        )
    values["budget"] = ""


def keep_limits(values: dict[str, Any], own: Mapping[str, Any]) -> None:
    """Let a limit among the settings `own` of an experiment take the place of those that the data decides."""
    if any(name in own for name in LIMITS):
        for name in BY_DATA:
            if f"optim.{name}" not in own and name in values.get("optim", {}):
                values["optim"][name] = 0


def reopen_end(values: dict[str, Any], typed: Mapping[str, Any], usual: Mapping[str, Any]) -> None:
    """Where a run goes on by one limit that was typed, let the other be no longer what its budget or its data came to.

    Args:
        usual: the flags of the Trainer by the presets of such a run.
    """
    if not any(name in typed for name in LIMITS):
        return
    trainer, by_data = values["trainer"], any(values["optim"][name] for name in BY_DATA)
    for key in (name.removeprefix("trainer.") for name in LIMITS if name not in typed):
        if values["budget"]:
            trainer[key] = -1
        elif by_data and trainer.get(key) not in (None, -1):
            trainer[key] = max(trainer[key], usual[key])  # a run that has passed the preset's goes on, too
