"""How a typed value is read and written: one grammar for plain runs, `-m`, `--cfg` and searches.

It is Hydra's: numbers, names, constants, `'quotes'`, `[lists]`, `{mappings}`, `several,values`, and functions such as
`range(1,4)`, for which Hydra is asked. Names are kept as they are written: keys of a mapping, and all elements where
texts are wanted, are never read as numbers or constants. Standard library only, until Hydra is asked.
"""

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from manyheads.errors import UserError

INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*)", re.ASCII)
NUMBER = re.compile(r"[+-]?(0|[1-9][0-9]*)(\.[0-9]+([eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)", re.ASCII)
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PLAIN = re.compile(r"[A-Za-z_][\w./-]*", re.ASCII)  # a text that is written without quotes
CONSTANTS = {"true": True, "false": False, "null": None, "nan": float("nan"), "inf": float("inf")}
QUOTED = re.compile(r"""'(?:\\.|''|[^'\\])*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
RANGE = re.compile(r"(log:)?([^\[\]{}(),'\"]*?)\.\.([^\[\]{}(),'\"]*)")  # two ends, of a search
ESCAPED = re.compile(r"\\([\\()\[\]{}:=, \t])")
CLOSES = {"[": "]", "{": "}", "(": ")"}


@dataclass(frozen=True, slots=True)
class Parsed:
    """One plain value, or the elements of a sweep (none where they cannot be listed)."""

    values: list[Any]
    sweep: bool = False


def is_range(text: Any) -> bool:
    """Whether a text is meant as two ends."""
    return isinstance(text, str) and RANGE.fullmatch(text.strip()) is not None


def read(text: str, *, names: bool = False) -> Parsed:
    """A value, or several; with `names` each is a text, as it is written, or a list of texts.

    Raises:
        UserError: it cannot be read.
    """
    several = _parts(text)
    if len(several) > 1:
        return Parsed([_element(one, names) for one in several], sweep=True)
    if text.strip()[:1] in ("[", "{", "'", '"') or (names and "(" not in text):
        return Parsed([_element(text.strip(), names)])
    return _plain(text)


def _parts(text: str) -> list[str]:
    """What lies between commas outside of quotes and brackets. A quote opens where a value may begin alone, so that
    `it's` is a name."""
    parts, open_ones, start, at, begins = list[str](), list[str](), 0, 0, True
    while at < len(text):
        sign, quoted = text[at], QUOTED.match(text, at) if begins else None
        if begins and sign in "'\"" and not quoted:
            raise UserError(f"a quote is not closed in {text}")
        if sign in CLOSES:
            open_ones.append(CLOSES[sign])
        elif sign in CLOSES.values() and (not open_ones or open_ones.pop() != sign):
            raise UserError(f"a bracket is not opened in {text}")
        elif sign == "," and not open_ones:
            parts.append(text[start:at].strip())
            start = at + 1
        begins = sign in ("[", "{", "(", ",", ":") or (begins and sign.isspace())
        at = quoted.end() if quoted else at + 1 + (sign == "\\")
    if open_ones:
        raise UserError(f"a bracket is not closed in {text}")
    parts.append(text[start:].strip())
    if len(parts) > 1 and "" in parts:
        raise UserError(f"nothing lies between two commas in {text}")
    return parts


def _element(text: str, names: bool) -> Any:
    if text[:1] in ("[", "{"):
        if text[-1] != CLOSES[text[0]]:
            raise UserError(f"{text} continues after its bracket")
        inside = text[1:-1].strip()
        parts = _parts(inside) if inside else []
        return [_element(one, names) for one in parts] if text[0] == "[" else _mapping(parts, names)
    if QUOTED.fullmatch(text):
        return _unquoted(text)
    if text[:1] in ("'", '"'):
        raise UserError(f"{text} continues after its quote")
    if names:
        return ESCAPED.sub(r"\1", text)
    parsed = _plain(text)
    if parsed.sweep:
        raise UserError(f"{text} holds several values")
    return parsed.values[0]


def _mapping(parts: list[str], names: bool) -> dict[str, Any]:
    pairs = [_pair(one) for one in parts]
    made = {key: _element(value, names) for key, value in pairs}
    if len(made) < len(pairs):
        raise UserError("a key is named twice")
    return made


def _pair(text: str) -> tuple[str, str]:
    """`key: value`. Where no space follows any colon, a number begins after the last one, all else after the first."""
    if quoted := QUOTED.match(text):
        found, key = re.fullmatch(r"\s*:\s*(.+)", text[quoted.end() :], re.DOTALL), _unquoted(quoted[0])
        value = found and found[1]
        with suppress(ValueError):
            key = json.loads(quoted[0])  # as JSON and YAML write it, "\\u00e9" too
    else:
        found = re.fullmatch(r"(.+?)\s*:\s+(.+)", text, re.DOTALL)
        found = found or re.fullmatch(rf"(.+):({NUMBER.pattern}|{INTEGER.pattern})", text, re.DOTALL)
        found = found or re.fullmatch(r"(.+?)\s*:(.+)", text, re.DOTALL)
        key, value = (ESCAPED.sub(r"\1", found[1]), found[2]) if found else ("", None)
    if not value:
        raise UserError(f"{text} is no key: value")
    return key, value


def _plain(text: str) -> Parsed:
    """What is neither in quotes nor in brackets; Hydra is asked of all but a number, a name or a constant."""
    if INTEGER.fullmatch(text):
        return Parsed([int(text)])
    if NUMBER.fullmatch(text):
        return Parsed([float(text)])
    if NAME.fullmatch(text):
        return Parsed([CONSTANTS.get(text.lower(), text)])
    return parse(text)


def parse(text: str) -> Parsed:
    """A value in Hydra's grammar, as Hydra itself reads it."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, QuotedString, RangeSweep, ValueType
    from hydra.errors import HydraException

    try:
        override = OverridesParser.create().parse_override(f"value={text}")
    except (HydraException, ValueError, RecursionError) as error:
        raise UserError(f"{text} cannot be read") from error
    if isinstance(override._value, ChoiceSweep | RangeSweep):
        values = (one.text if isinstance(one, QuotedString) else one for one in override.sweep_iterator())
        return Parsed(list(values), sweep=True)
    if isinstance(override._value, IntervalSweep) or override.value_type is ValueType.GLOB_CHOICE_SWEEP:
        return Parsed([], sweep=True)
    return Parsed([override.value()])


def _unquoted(text: str) -> str:
    """A text without its quotes. Before one, and at the end, two backslashes are one; YAML doubles a quote instead."""
    inside = rf"(\\+)({text[0]}|\Z)" + "|''" * (text[0] == "'")
    return re.sub(inside, lambda one: "'" if one[0] == "''" else one[1][: len(one[1]) // 2] + one[2], text[1:-1])


def write(value: Any) -> str:
    """Text that `read` reads back equal."""
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{json.dumps(key, ensure_ascii=False)}: {write(one)}" for key, one in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + ",".join(map(write, value)) + "]"
    if isinstance(value, str):
        return value if PLAIN.fullmatch(value) and value.lower() not in CONSTANTS else quote(value)
    return "null" if value is None else repr(value).lower()


def quote(text: str) -> str:
    """A text in quotes as Hydra reads them: a backslash counts as two before a quote."""
    return "'" + re.sub(r"(\\*)('|\Z)", lambda found: found[1] * 2 + "\\'" * bool(found[2]), text) + "'"
