"""What a search varies: one setting each, with its values listed or between two ends."""

import math
import re
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any

from manyheads.config.knobs import range_words, require, within
from manyheads.config.names import Setting, nearest_setting, settings
from manyheads.config.plain import convert, show, unwrap
from manyheads.config.run import RunConfig

SECTIONS = ("model.", "optim.", "batch.", "tokenizer.")  # the rows of train and validation stay the same
FLAGS: dict[str, type] = {
    "trainer.max_epochs": int,
    "trainer.max_steps": int,
    "trainer.gradient_clip_val": float,
}
PLACES = "model, optim, batch or tokenizer"
RANGE = re.compile(r"(log:)?([^\[\]{}(),'\"]*?)\.\.([^\[\]{}(),'\"]*)")
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
    def listed(self) -> tuple[Any, ...] | None:
        """Every value there is, or None for numbers between two ends that are not whole."""
        if self.values:
            return self.values
        return tuple(range(int(self.low), int(self.high) + 1)) if self.whole else None

    def draw(self, random: Random) -> Any:
        """A value, each as likely as the others."""
        if self.values:
            return random.choice(self.values)
        if self.whole and not self.log:
            return random.randint(int(self.low), int(self.high))
        if not self.log:
            return self.rounded(random.uniform(self.low, self.high))
        half = 0.5 if self.whole else 0.0  # the ends, too, own what is rounded to them
        return self.rounded(math.exp(random.uniform(math.log(self.low - half), math.log(self.high + half))))

    def rounded(self, value: float) -> float | int:
        """A number that lies between the ends, whole or of few digits."""
        near = round(value) if self.whole else float(f"{value:.{DIGITS}g}")
        near = min(max(near, self.low), self.high)
        return int(near) if self.whole else near


def is_range(text: Any) -> bool:
    """Whether a text is meant as two ends."""
    return isinstance(text, str) and RANGE.fullmatch(text.strip()) is not None


def make_axis(name: str, given: Any) -> Axis:
    """The axis of a setting from a list of values, or a text such as `1e-4..1e-2`, `log:1e-4..1e-2` or `1..4`.

    Raises:
        ValueError: not a setting, or one that all runs of a search share; values or ends that it cannot have.
    """
    kind, one = _searchable(name)
    if is_range(given):
        return _between(name, given, kind, one)
    values = given if isinstance(given, list) else [given]
    require(
        len(values) > 1,
        f"search gives {name} {len(values)} value{'' if len(values) == 1 else 's'}: two at least can be searched, such "
        f"as {name}=VALUE,VALUE",
    )
    made = tuple(_one_value(name, kind, value, one) for value in values)
    for at, value in enumerate(made):
        require(value not in made[:at], f"{name} is given {show(value)} twice: name each value once")
    return Axis(name, made)


def _searchable(name: str) -> tuple[Any, Setting | None]:
    """The type of a setting that may be searched, and the setting where it is none of Lightning's."""
    if name in FLAGS:
        return FLAGS[name], None
    known = settings(RunConfig)
    if name in known and (name.startswith(SECTIONS) or name == "data.max_length") and known[name].kind is not str:
        one = known[name]
        inner, _ = unwrap(one.kind)
        return (int if inner is Any and isinstance(one.default, int) else one.kind), one
    if name in known or name.startswith("trainer."):
        remedy = "seeds=5 runs each setting with five" if name == "seed" else f"choose one of {PLACES}"
        raise ValueError(f"{name} cannot be searched, as all runs share data, hardware and limits: {remedy}")
    near = nearest_setting(name, RunConfig)
    raise ValueError(f"{name} is not a setting: {f'did you mean {near}?' if near else f'choose one of {PLACES}'}")


def _one_value(name: str, kind: Any, value: Any, one: Setting | None) -> Any:
    if kind is int and one is not None and one.kind is Any and isinstance(value, str):
        return value  # batch.tokens=auto; the section itself checks it
    default = one.default if one is not None else None
    made = convert(name, kind, value, default)
    words = [] if one is None or made is None else range_words(one.metadata)
    require(
        not words or within(made, one.metadata if one else {}),
        f"{name}={show(made)} is out of range: it must be {' and '.join(words)}; the default is {show(default)}",
    )
    return _plain(made)


def _plain(value: Any) -> Any:
    """Choices by their names."""
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value.name if isinstance(value, Enum) else value


def _between(name: str, text: str, kind: Any, one: Setting | None) -> Axis:
    match = RANGE.fullmatch(text.strip())
    assert match is not None, "it was seen to be a range"
    inner, _ = unwrap(kind)
    require(
        inner in (int, float),
        f"{name}={text} is a range, but {name} is no number: list its values, such as {name}=VALUE,VALUE",
    )
    log, ends = bool(match[1]), [match[2].strip(), match[3].strip()]
    try:
        low, high = (float(_one_value(name, kind, end, one)) for end in ends)
    except ValueError as error:
        raise ValueError(f"{name}={text} has an end that {name} cannot have: {error}") from error
    require(low < high, f"{name}={text} ends where it begins or below: write {name}={ends[1]}..{ends[0]}")
    require(
        not log or low > 0,
        f"{name}={text} begins at {low:g}, but factors have no zero: begin above it, or leave log: away",
    )
    return Axis(name, low=low, high=high, log=log, whole=inner is int)
