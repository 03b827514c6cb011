"""JSON: one object a line, or an array of objects, which also may be spread over lines."""

import codecs
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from manyheads.config.sentences import format_value, list_names
from manyheads.data.formats.source import RowBlock
from manyheads.errors import UserError

SPACES = re.compile(r"[ \t\n\r]*")  # of JSON
MOST_OBJECT = 2**26  # bytes in which one JSON object ends


def parse_objects(path: Path, raw: bytes, number: int, last: bool, again: bool) -> RowBlock | None:
    """Whole lines, of which each is an object; `again`: they were read before.

    Raises:
        UserError: the file is one object alone, which holds the rows.
    """
    n_bytes = len(raw) if last else raw.rfind(b"\n") + 1
    if not n_bytes and not last:
        return None
    text = raw[:n_bytes].decode()
    if number == 1 and not last and len(raw) < MOST_OBJECT and _is_cut_off(text):
        return None  # until the whole object is there, which the sentence about it names
    is_whole = number == 1 and last and not again
    objects: list[Any] = []
    numbers: list[int] = []
    broken: dict[int, str] = {}
    for at, line in enumerate(text.split("\n"), start=number):
        if not line or line.isspace():
            continue
        try:
            objects.append(json.loads(line))
        except (ValueError, RecursionError) as problem:
            if not objects and is_whole:
                _refuse_one_object(path, text)
            broken[len(objects)] = f"is not JSON ({problem})"
            if "Extra data" in str(problem) and line.lstrip().startswith("{"):
                is_one = line.rstrip().endswith("},")
                broken[len(objects)] = "ends with a comma" if is_one else "holds more than one JSON object"
            objects.append({})
        numbers.append(at)
    if is_whole and len(objects) == 1 and isinstance(objects[0], dict) and _are((list, dict), objects[0].values()):
        raise UserError(_one_object(path, objects[0]))
    return _block(objects, numbers, broken, n_bytes, raw.count(b"\n", 0, n_bytes))


def parse_array(path: Path, raw: bytes, number: int, last: bool, again: bool) -> RowBlock | None:
    """Whole elements of an array, the first of which is row `number`; `again`: they were read before.

    Raises:
        UserError: it is no array of JSON.
    """
    text = codecs.getincrementaldecoder("utf-8")().decode(raw, last)
    objects, end, wrong = _elements(text, opens=number == 1, closes=last)
    too_long = not objects and not last and len(raw) >= MOST_OBJECT
    if too_long:
        objects, end, wrong = _elements(text, opens=number == 1, closes=True)
    if wrong is not None and ((last and not again) or too_long):
        why = str(wrong)  # with the place in the text, which is that in the file if this is its first block
        if number != 1:
            why = f"row {number + len(objects)}: {getattr(wrong, 'msg', wrong)}"
        raise UserError(f"{path} is not JSON ({why}): it must hold an array of objects, or one object a line")
    if not objects and not last:
        return None
    n_bytes = len(text[:end].encode())  # without half a letter that `raw` may end in
    return _block(objects, range(number, number + len(objects)), {}, n_bytes, len(objects))


def _elements(text: str, *, opens: bool, closes: bool) -> tuple[list[Any], int, Exception | None]:
    """The elements of an array that are whole, where they end, and what is wrong there.

    Args:
        opens: the array begins with the text.
        closes: it may end in this text, the last of the file. Else its end would be alone in a block.
    """
    decode = json.JSONDecoder().raw_decode
    objects: list[Any] = []
    at = _after_spaces(text, 0)
    if opens:
        at = _after_spaces(text, at + 1)
    closed = opens and closes and text.startswith("]", at)  # an empty array
    end = _after_spaces(text, at + closed)
    try:
        while end < len(text) and not closed:
            one, at = decode(text, end)
            at = _after_spaces(text, at)
            closed = closes and text.startswith("]", at)
            if not closed and not text.startswith(",", at):
                raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
            objects.append(one)
            end = _after_spaces(text, at + 1)
        if not closed:
            raise json.JSONDecodeError("Expecting value", text, end)
        if end < len(text):
            raise json.JSONDecodeError("Extra data", text, end)
    except (json.JSONDecodeError, RecursionError) as problem:
        return objects, end, problem
    return objects, end, None


def elements_begun(text: str) -> int:
    """How many elements of an array begin in a text of whole elements that is cut anywhere."""
    objects, _, _ = _elements(text, opens=text.lstrip().startswith("["), closes=False)
    return len(objects) + 1


def _block(
    objects: list[Any], numbers: Sequence[int], broken: dict[int, str], n_bytes: int, n_numbers: int
) -> RowBlock:
    names: dict[str, None] = {}
    for index, one in enumerate(objects):
        if isinstance(one, dict):
            names.update(dict.fromkeys(one))
        else:
            broken[index] = 'is not a JSON object such as {"text": "...", "label": "..."}'
            if isinstance(one, list) and _are(dict, one):
                broken[index] = "is an array of JSON objects: let the name of the file end with .json"
            objects[index] = {}

    def column(name: str) -> list[Any]:
        return [one.get(name) for one in objects]

    return RowBlock([*names], column, lambda: objects, numbers, n_bytes, n_numbers, broken, by_arrow=True)


def _is_cut_off(text: str) -> bool:
    """Whether the first line begins a JSON object that it does not end."""
    line = next((line for line in text.split("\n") if line.strip()), "")
    try:
        json.loads(line)
    except json.JSONDecodeError as problem:
        return problem.pos >= len(line.rstrip())
    except RecursionError:
        return False  # it is reported as a broken row
    return False


def _after_spaces(text: str, at: int) -> int:
    found = SPACES.match(text, at)
    assert found is not None, "it matches nothing, too"
    return found.end()


def _refuse_one_object(path: Path, text: str) -> None:
    """Raise UserError if the whole text is one JSON object, spread over its lines."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(whole, dict):
        raise UserError(_one_object(path, whole))


def _one_object(path: Path, whole: dict[str, Any]) -> str:
    arrays = [key for key, value in whole.items() if isinstance(value, list) and _are(dict, value)]
    hint = ""
    if len(arrays) == 1:
        hint = f"; save the array under '{format_value(arrays[0])}' alone"
    elif arrays:
        names = list_names([format_value(key) for key in arrays])
        hint = f"; save each of its arrays, {names}, as a file of that name, in one folder"
    elif _are(dict, whole.values()) or _are(list, whole.values()):
        hint = "; it holds columns instead: of pandas, write it by to_json(FILE, orient='records', lines=True)"
    return f"{path} is a single JSON object, but it must hold an array of objects, or one object a line{hint}"


def _are(kind: type | tuple[type, ...], values: Iterable[Any]) -> bool:
    found = [*values]
    return bool(found) and all(isinstance(one, kind) for one in found)
