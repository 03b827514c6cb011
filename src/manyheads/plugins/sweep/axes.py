"""One setting of a search: the values that are listed for it, or a range; and what may be searched."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from manyheads.cli.grammar import RANGE, is_range
from manyheads.config.conversion import convert, mapping_of, split_optional, to_plain
from manyheads.config.facts import Facts, Setting, nearest_setting, require, settings
from manyheads.config.run import RunConfig
from manyheads.config.sentences import format_value
from manyheads.errors import UserError

SEARCHED = ("model.", "optim.", "batch.", "tokenizer.")  # the rows of train and validation stay the same
FLAGS = {"trainer.max_epochs": int, "trainer.max_steps": int, "trainer.gradient_clip_val": float}
PLACES = "model, optim, batch or tokenizer"
MOST_WHOLE = 2**53  # above it a float skips some
DIGITS = 4  # of a number drawn between two ends: as many as anybody can type


@dataclass(frozen=True, slots=True)
class Axis:
    """One setting of a search: `values` listed, or a number from `low` to `high`, both included.

    `log`: each factor of ten is as likely as the next. `whole`: whole numbers.
    """

    name: str
    values: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False

    @property
    def listed(self) -> Sequence[Any] | None:
        """Every value there is, or None for numbers between two ends that are not whole."""
        if self.whole:
            return range(int(self.low), int(self.high) + 1)
        return self.values or None

    def draw(self, random: Random) -> Any:
        """A value, each as likely as the others."""
        if self.listed and not self.log:
            return random.choice(self.listed)
        if not self.log:
            return self.rounded(random.uniform(self.low, self.high))
        half = 0.5 if self.whole else 0.0  # the ends, too, own what is rounded to them
        return self.rounded(math.exp(random.uniform(math.log(self.low - half), math.log(self.high + half))))

    def rounded(self, value: float) -> float | int:
        """A number that lies between the ends, whole or of few digits."""
        if self.whole:
            return int(min(max(round(value), self.low), self.high))
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)


def values_tried(name: str, given: Any) -> list[Any]:
    """Each value of an axis, or its ends."""
    axis = make_axis(name, given)
    return list(axis.values or (axis.low, axis.high))


def make_axis(name: str, given: Any) -> Axis:
    """The axis of a setting from a list of values, or a text such as `1e-4..1e-2`, `log:1e-4..1e-2` or `1..4`.

    Raises:
        UserError: not a setting, or one that all runs of a search share; values or ends that it cannot have.
    """
    one = _searchable(name)
    if is_range(given):
        return _between(one, given)
    values = given if isinstance(given, list) else [given]
    require(
        len(values) > 1,
        f"search gives {name} {count_values(values)}: two at least can be searched, such as {name}=VALUE,VALUE",
    )
    made = tuple(_one_value(one, value) for value in values)
    for at, value in enumerate(made):
        require(value not in made[:at], f"{name} is given {format_value(value)} twice: name each value once")
    return Axis(name, made)


def _searchable(name: str) -> Setting:
    """The setting `name`, where the runs of a search may differ in it."""
    if name in FLAGS:
        return Setting(name, FLAGS[name], None, Facts(""))
    one = settings(RunConfig).get(name)
    if name.startswith("model.") and mapping_of(name, settings(RunConfig)):
        return Setting(name, Any, None, Facts(""))
    if one and (name.startswith(SEARCHED) or name == "data.max_length") and not one.is_text:
        return replace(one, kind=int) if name == "batch.tokens" else one
    if one or name.startswith("trainer."):
        remedy = "seeds=5 runs each setting with five" if name == "seed" else f"choose one of {PLACES}"
        raise UserError(f"{name} cannot be searched, as all runs share data, hardware and limits: {remedy}")
    near = nearest_setting(name, RunConfig)
    remedy = f"did you mean {near}?" if near else f"choose one of {PLACES}"
    raise UserError(f"{name} is not a setting: {remedy}")


def _one_value(one: Setting, value: Any) -> Any:
    if one.name == "batch.tokens" and isinstance(value, str):
        return value  # auto; the section itself checks it
    made = convert(one, value)
    limits = " and ".join(one.facts.limits())
    require(
        made is None or not limits or one.facts.allows(made),
        f"{one.name}={format_value(made)} is out of range: it must be {limits}; the default is "
        f"{format_value(one.default)}",
    )
    return to_plain(made)


def _between(one: Setting, text: str) -> Axis:
    match, (inner, _), name = RANGE.fullmatch(text.strip()), split_optional(one.kind), one.name
    assert match is not None, "it was seen to be a range"
    require(
        inner in (int, float),
        f"{name}={text} is a range, but {name} is not a number: list its values, such as {name}=VALUE,VALUE",
    )
    log, ends = bool(match[1]), [match[2].strip(), match[3].strip()]
    try:
        low, high = (float(_one_value(one, end)) for end in ends)
    except ValueError as error:
        raise UserError(f"{name}={text} has an end that {name} cannot have: {error}") from error
    require(low < high, f"{name}={text} ends where it begins or below: write {name}={ends[1]}..{ends[0]}")
    require(
        inner is float or high <= MOST_WHOLE,
        f"{name}={text} ends above {MOST_WHOLE:,}, up to which whole numbers can be drawn: choose a lower end",
    )
    require(
        not log or low > 0,
        f"{name}={text} begins at {low:g}, but factors have no zero: begin above it, or remove log:",
    )
    return Axis(name, low=low, high=high, log=log, whole=inner is int)


def count_values(values: list[Any]) -> str:
    """`1 value`, `2 values`."""
    return "1 value" if len(values) == 1 else f"{len(values)} values"
