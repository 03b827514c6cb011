"""How a typed value is read and written: one grammar for plain runs, `-m`, `--cfg` and searches.

It is Hydra's: numbers, names, constants, `'quotes'`, `[lists]`, `{mappings}`, `several,values`, and functions such as
`range(1,4)`, for which Hydra is asked. Names are kept as they are written: keys of a mapping, and all elements where
texts are wanted, are never read as numbers or constants. Standard library only, until Hydra is asked.
"""

import json
import re
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
PAIRS = (  # key and value: a space after the colon; a number after the last one; whatever follows the first one
    r"(.+?)\s*:\s+(.+)",
    rf"(.+):({NUMBER.pattern}|{INTEGER.pattern})",
    r"(.+?)\s*:(.+)",
)
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
    """A value, or several; with `names` each is a text, as it is written, or a list of texts."""
    several = _parts(text)
    if len(several) > 1:
        return Parsed([_element(one, names) for one in several], sweep=True)
    if text.strip()[:1] in ("[", "{", "'", '"') or (names and "(" not in text):
        return Parsed([_element(text.strip(), names)])
    return _plain(text)


def _parts(text: str) -> list[str]:
    """What lies between commas outside of quotes and brackets. A quote opens where a value may begin alone, so that
    `it's` is a name."""
    parts: list[str] = []
    closing: list[str] = []  # what closes the brackets that are open, the innermost last
    start = at = 0
    may_begin = True  # whether a value may begin here
    while at < len(text):
        sign = text[at]
        if may_begin and sign in "'\"":
            quoted = QUOTED.match(text, at)
            if quoted is None:
                raise UserError(f"a quote is not closed in {text}")
            at, may_begin = quoted.end(), False
            continue
        if sign in CLOSES:
            closing.append(CLOSES[sign])
        elif sign in CLOSES.values() and (not closing or closing.pop() != sign):
            raise UserError(f"a bracket is not opened in {text}")
        elif sign == "," and not closing:
            parts.append(text[start:at].strip())
            start = at + 1
        may_begin = sign in "[{(,:" or (may_begin and sign.isspace())
        at += 2 if sign == "\\" else 1  # what follows a backslash is a sign of the text
    if closing:
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
        if text[0] == "[":
            return [_element(one, names) for one in parts]
        pairs = [_pair(one) for one in parts]
        made = {key: _element(value, names) for key, value in pairs}
        if len(made) < len(pairs):
            raise UserError("a key is named twice")
        return made
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


def _pair(text: str) -> tuple[str, str]:
    """`key: value`. Where no space follows any colon, a number begins after the last one, all else after the first."""
    quoted = QUOTED.match(text)
    if quoted is None:
        for pattern in PAIRS:
            if found := re.fullmatch(pattern, text, re.DOTALL):
                return ESCAPED.sub(r"\1", found[1]), found[2]
    elif found := re.fullmatch(r"\s*:\s*(.+)", text[quoted.end() :], re.DOTALL):
        try:
            return json.loads(quoted[0]), found[1]  # as JSON and YAML write it, "\\u00e9" too
        except ValueError:
            return _unquoted(quoted[0]), found[1]
    raise UserError(f"{text} is no key: value")


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

    def plain(found: re.Match[str]) -> str:
        if found[0] == "''":
            return "'"
        return found[1][: len(found[1]) // 2] + found[2]

    pattern = rf"(\\+)({text[0]}|\Z)"
    if text[0] == "'":
        pattern += "|''"
    return re.sub(pattern, plain, text[1:-1])


def write(value: Any) -> str:
    """Text that `read` reads back equal."""
    if isinstance(value, dict):
        pairs = [f"{json.dumps(key, ensure_ascii=False)}: {write(inner)}" for key, inner in value.items()]
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(write, value)) + "]"
    if isinstance(value, str):
        is_plain = PLAIN.fullmatch(value) and value.lower() not in CONSTANTS
        return value if is_plain else quote(value)
    if value is None:
        return "null"
    return repr(value).lower()


def quote(text: str) -> str:
    """A text in quotes as Hydra reads them: a backslash counts as two before a quote."""

    def escaped(found: re.Match[str]) -> str:
        backslashes, sign = found.groups()
        return backslashes * 2 + (f"\\{sign}" if sign else "")

    return "'" + re.sub(r"(\\*)('|\Z)", escaped, text) + "'"
