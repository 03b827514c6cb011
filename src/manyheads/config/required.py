"""Figures that a run must reach: `require=[accuracy.low>0.85,macro_f1>0.8]`. Standard library only."""

import operator
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import manyheads.plugin as plugin
from manyheads.config.facts import nearest, require
from manyheads.config.sentences import format_value, one_of
from manyheads.errors import UserError

COMPARED = {">=": operator.ge, "<=": operator.le, "!=": operator.ne, "==": operator.eq, "=": operator.eq}
COMPARED |= {">": operator.gt, "<": operator.lt}
CONDITION = re.compile(rf"\s*([^<>=!,]*?[^\s<>=!,])\s*({'|'.join(COMPARED)})\s*(.*?)\s*")
COMMA = re.compile(r",(?![^\[]*\])")  # outside of a list
BOUNDS = (">", ">=", "<", "<=")
ENDS = ("value", "low", "high")  # of a figure: itself, and the ends of its 95 % interval
OF_COLUMN = "COLUMN.FIGURE"  # among the figures that are known: any such as topic.accuracy may be one, too
EXAMPLE = "require=[accuracy.low>0.85,macro_f1>0.8]"
HELP = "figures to reach, else exit code 3, such as [accuracy.low>0.85,macro_f1>0.8]; low, high: of the 95 % interval"


class RequirementError(UserError):
    """A figure is not as `require` asks. All files are written; the exit code is 3. `summary` is that of the run which
    was trained, or what another verb found."""

    exit_code = 3
    summary: Any = None


@dataclass(frozen=True, slots=True)
class Bound:
    """One condition: an end of a figure, a sign and a number."""

    figure: str
    end: str
    sign: str
    number: float

    @property
    def words(self) -> str:
        return self.figure if self.end == "value" else f"{self.figure}.{self.end}"


def conditions_of(where: str, name: str, example: str) -> list[tuple[str, str, str]]:
    """`[data=reviews, accuracy>0.8]`, with brackets or without, as names, signs and values; `name` is the setting."""
    inside = where.strip()
    inside = inside[1:-1] if inside.startswith("[") and inside.endswith("]") else inside
    found = [CONDITION.fullmatch(one) for one in COMMA.split(inside)] if inside.strip() else []
    require(None not in found, f"{name}={format_value(where)} is not understood: write it as '{example}', in quotes")
    return [(one[1], one[2], one[3]) for one in found if one]


def bounds_of(required: str, known: Collection[str]) -> list[Bound]:
    """The conditions in the setting `require`, of `known` figures.

    Raises:
        UserError: another figure, a sign that is no bound, or a bound that is not a number.
    """
    bounds = list[Bound]()
    for name, sign, to in conditions_of(required, "require", EXAMPLE):
        typed = f"require={format_value(name + sign + to)}"
        figure, dot, end = name.rpartition(".")
        if not dot or end not in ENDS:
            figure, end = name, "value"
        if figure not in known and not ("." in figure and OF_COLUMN in known):
            near = nearest(figure, known)
            remedy = f"did you mean {near}?" if near else f"choose {one_of([*known])}, each with .low or .high"
            raise UserError(f"{typed} names no figure that is measured here: {remedy}")
        shown = to.lstrip("<>=! ") or "0.8"
        require(sign in BOUNDS, f"{typed} is no bound: write {name}>{shown} or {name}<{shown}")
        try:
            number = float(to)
        except ValueError:
            number = float("nan")
        require(number == number, f"{typed} compares with {to or 'nothing'}: give a number, such as {name}{sign}0.8")
        part = plugin.parts("figure").get(figure.rpartition(".")[2])
        is_share = part is not None and part.facts.get("is_share", False)
        far = f"{typed} compares with {to}, but {figure} is a share between 0 and 1: write {name}{sign}0.8"
        require(not is_share or abs(number) <= 1, far)  # a difference of shares may be negative
        bounds.append(Bound(figure, end, sign, number))
    return bounds


def check_reached(required: str, figures: Mapping[str, Any], where: str, summary: Any = None) -> None:
    """Compare the bounds with `figures`, each as value, low and high by name, which were measured on `where`; `summary`
    is what a program reads all the same.

    Raises:
        RequirementError: some are not met; the sentence names each.
    """
    missed = list[str]()
    for bound in bounds_of(required, [name for name, of in figures.items() if isinstance(of, Mapping) and "low" in of]):
        measured = figures[bound.figure]
        if COMPARED[bound.sign](measured[bound.end], bound.number):
            continue
        found = f"{measured[bound.end]:.6g}"
        interval = f"({measured['low']:.3f} to {measured['high']:.3f})"
        if bound.end == "value":
            found = f"{found} {interval}"
        else:
            found = f"{found}, as {bound.figure} is {measured['value']:.4f} {interval}"
        missed.append(f"{bound.words}{bound.sign}{bound.number:g} is not met: it is {found}")
    if missed:
        error = RequirementError(f"require on {where}: {'; '.join(missed)}")
        error.summary = summary
        raise error
