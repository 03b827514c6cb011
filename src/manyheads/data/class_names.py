"""Names of classes: what the cells of a label column say, and which spellings mean one class.

A cell holds a name, the number of a class that the dataset declares, or, where a row has any number of labels, a list
of names. Standard library at first.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from manyheads.config.sentences import format_value
from manyheads.data.ids.terms import normalise_unicode
from manyheads.data.table import Coded
from manyheads.data.texts import NOT_UTF8, is_encodable, type_in_words

MULTI_LABEL = "labels"  # the column in which datasets keep any number of labels a row
WHOLE = re.compile(r"([+-]?[0-9]+)(?:\.0*)?")  # a whole number, with or without a fraction of zeros
NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")
QUOTED = re.compile(r"""'(?:[^'\\]|\\['"\\])*'|"(?:[^"\\]|\\['"\\])*\"""")  # with no escapes but these
PYTHON_LIST = re.compile(rf"\[\s*(?:(?:{QUOTED.pattern})\s*(?:,\s*(?:{QUOTED.pattern})\s*)*,?\s*)?\]")
NULL = "\\N"  # what is missing, as MySQL and PostgreSQL write it to a file
SHOWN = 3  # groups of names in a note
NOT_ASCII = r"[^\x00-\x7f]"
UNSEEN = re.compile(  # signs of no width; joiners have a meaning between letters of Persian or Hindi, and in emoji
    "[\u00ad\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]"
    rf"|[\u200c\u200d](?!{NOT_ASCII})|(?<!{NOT_ASCII})[\u200c\u200d]"
)


def normalise_name(cell: object) -> str:
    """The name in a cell, the same from every format: composed (NFC), with single spaces between words and without
    signs that cannot be seen; true and false as JSON has them, numbers as Python writes them. Empty: there is none."""
    if cell is None or cell != cell or cell == NULL:  # null, NaN
        return ""
    if isinstance(cell, float):
        cell += 0.0  # -0.0 becomes 0.0
    name = str(cell)
    if not name.isascii():
        name = normalise_unicode(UNSEEN.sub("", name))
    name = " ".join(name.split())
    if name.lower() in ("true", "false"):
        return name.lower()
    return name


def drop_zero_fraction(name: str) -> str:
    """1 for 1.0, and 0 for -0; any other name as it is."""
    found = WHOLE.fullmatch(name)
    if not found:
        return name
    return "0" if found[1] == "-0" else found[1]


def _loose_spelling(cell: str) -> str:
    """The name in a cell without such a fraction, also after a last ": ", as in stars: 1.0."""
    before, colon, last = normalise_name(cell).rpartition(": ")
    return before + colon + drop_zero_fraction(last)


def declared_classes(features: dict[str, Any]) -> dict[str, list[str]]:
    """Names of the classes by column, from a dataset's features as `datasets` writes them; also of lists of classes."""
    found: dict[str, list[str]] = {}
    for name, feature in features.items():
        if isinstance(feature, dict):
            feature = feature.get("feature", feature)  # of a list: what it is a list of
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel":
            found[name] = [str(one) for one in feature["names"]]
    return found


class ClassLookup:
    """Finds the class that a name means, also if it is spelled another way: 1.0 is 1 where there is no 1.0; in
    `any_case`, card is Card where there is no card."""

    def __init__(self, names: Sequence[str], *, any_case: bool = False) -> None:
        self.names = [*names]
        # from exact to loose; a spelling that two classes share stands for neither
        self._spellings: list[Callable[[str], str]] = [str, normalise_name, _loose_spelling]
        if any_case:
            self._spellings.append(lambda name: _loose_spelling(name).casefold())
        self._by_spelling: list[dict[str, str]] = []
        for spell in self._spellings:
            counts = Counter(map(spell, names))
            self._by_spelling.append({spell(name): name for name in names if counts[spell(name)] == 1})

    def find(self, cell: object) -> str:
        """The class that a cell names; the normalised name if it is none of them."""
        name = cell if isinstance(cell, str) else normalise_name(cell)
        for spell, by_spelling in zip(self._spellings, self._by_spelling, strict=True):
            found = by_spelling.get(spell(name))
            if found is not None:
                return found
        return normalise_name(name)


def label_cells(cells: Sequence[Any], column: str, *, multi: bool = False) -> list[Any]:
    """Cells of the label column; in a column called `labels`, or if rows have any number of labels, a text becomes the
    list of the names that `join_names` joined in it."""
    if column != MULTI_LABEL and not multi:
        return [*cells]
    lists: list[Any] = []
    for cell in cells:
        if cell is None or isinstance(cell, str):
            lists.append(split_names(cell or ""))
        else:
            lists.append(cell)
    return lists


def label_names(
    cells: Sequence[Any], classes: list[str] | None, lookup: ClassLookup | None = None
) -> tuple[list[str], dict[int, str]]:
    """The class name in each cell, and by index why a cell names no class.

    A list of one label, once or more, is that label; a row with several, or with none, has no class.

    Args:
        classes: names of the classes, if cells are their numbers.
        lookup: finds the class that a name means; None: names are normalised alone.
    """
    names: list[str] = []
    faults: dict[int, str] = {}
    for index, cell in enumerate(cells):
        name, fault = _label_name(cell, classes)
        if fault:
            faults[index] = fault
        if name and lookup is not None:
            name = lookup.find(name)
        names.append(name)
    return names, faults


def _label_name(cell: Any, classes: list[str] | None) -> tuple[str, str]:
    """The class name in a cell, and why it names no class; empty: none."""
    if isinstance(cell, list):
        if not cell:
            return "", "has no label, but one is needed"
        if len({normalise_name(one) for one in cell}) > 1:
            return "", f"has {len(cell)} labels, but one is needed"
        cell = cell[0]
    if isinstance(cell, (list, dict, bytes)):
        return "", f"the label is {type_in_words(cell)}, but a row has one class"
    if classes is not None and isinstance(cell, float) and cell.is_integer():  # as where others are missing
        cell = int(cell)
    if classes is not None and isinstance(cell, int):
        name = normalise_name(classes[cell]) if 0 <= cell < len(classes) else ""
        empty = f"the label {cell} is not a known class"
    else:
        name = normalise_name(cell)
        empty = "the label is empty"
    if not name:
        return "", empty
    if classes is not None and name not in classes:
        declared = [*map(normalise_name, classes)]
        name = ClassLookup(declared).find(name)
        if name not in declared:
            return "", f"the label '{format_value(name)}' is not a known class"
    if not is_encodable(name):
        return name, f"the label {NOT_UTF8}"
    return name, ""


def label_sets(
    cells: list[object], classes: list[str] | None, lookup: ClassLookup | None = None
) -> tuple[list[tuple[str, ...]], dict[int, str]]:
    """The label names in each cell, each once, in its order, and by index why a cell is no set of labels. An empty cell
    has none. For `classes` and `lookup` see `label_names`."""
    sets: list[tuple[str, ...]] = []
    faults: dict[int, str] = {}
    for index, cell in enumerate(cells):
        if cell is None or cell in ("", NULL) or cell != cell:  # null, NaN
            cell = []
        names, of_names = label_names(cell if isinstance(cell, list) else [cell], classes, lookup)
        if of_names:
            faults[index] = of_names[min(of_names)]
        sets.append(tuple(dict.fromkeys(names)))
    return sets, faults


def join_names(names: Sequence[str]) -> str:
    """Names of labels in one cell: by |, or as a list in JSON where that would be read as other names; empty: none."""
    cell = "|".join(names)
    if cell.startswith("[") or cell.count("|") >= max(1, len(names)):
        return json.dumps([*names], ensure_ascii=False)
    return cell


def split_names(cell: str) -> list[str]:
    """The names that are joined in a cell."""
    listed = names_in_list(cell)
    if listed is not None:
        return listed
    return [name for name in cell.split("|") if normalise_name(name)]


def names_in_list(cell: str) -> list[str] | None:
    """The names in a cell that is a list of texts or whole numbers in JSON, or as Python shows one (`['a', 'b']`, which
    pandas writes); None: it is not."""
    if not cell.lstrip().startswith("["):
        return None
    if PYTHON_LIST.fullmatch(cell.strip()):
        return [re.sub(r"\\(.)", r"\1", quoted[1:-1]) for quoted in QUOTED.findall(cell)]
    try:
        found = json.loads(cell)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list) or not all(type(one) in (str, int) for one in found):  # True is an int, too
        return None
    return [str(one) for one in found]


def natural_order(names: Iterable[str]) -> list[str]:
    """Sorted as a person would: 2 before 10, numbers by value."""

    def key(name: str) -> tuple[list[tuple[int, float, str]], str]:
        if re.fullmatch(r"[+-]?\d+(\.\d+)?", name):
            return [(0, float(name), "")], name
        parts: list[tuple[int, float, str]] = []
        for part in re.split(r"(\d+)", name):
            if part.isdecimal():
                parts.append((0, float(part), ""))
            else:
                parts.append((1, 0.0, part))
        return parts, name

    return sorted(names, key=key)


def merge_spellings(
    answers: Coded, declared: Sequence[str], source: str, *, any_case: bool
) -> tuple[dict[str, str], list[str]]:
    """Decide which names of a training split are written another way.

    Whole numbers lose their fraction where all names are whole numbers; in `any_case`, names that differ by case only
    become the one that most rows have.

    Args:
        answers: the name, or the names of all labels, of each row.
        declared: the class names that the dataset itself gives.
        source: of the rows, for the notes.

    Returns:
        The new name by the old one, for names that change; and notes on names that may mean one class.
    """
    counts = _rows_by_name(answers, declared)
    new_names = {name: name for name in counts}
    if all(WHOLE.fullmatch(name) for name in counts):
        new_names = {name: drop_zero_fraction(name) for name in counts}
    n_rows = Counter[str]()
    for name, n in counts.items():
        n_rows[new_names[name]] += n
    notes: list[str] = []
    groups = alike(n_rows, str.casefold)
    if groups and any_case:
        notes.append(f"{source}: data.merge_labels=case joins {_show_groups(groups, n_rows)}")
        most_frequent: dict[str, str] = {}
        for group in groups:
            most_frequent |= dict.fromkeys(group, max(group, key=n_rows.__getitem__))
        for name, new_name in new_names.items():
            new_names[name] = most_frequent.get(new_name, new_name)
    elif groups:
        shown = _show_groups(groups, n_rows)
        notes.append(f"{source}: classes that differ by case only: {shown}: data.merge_labels=case joins them")
    groups = alike(n_rows, _number)
    if groups:
        shown = _show_groups(groups, n_rows)
        differ = "classes that differ by how a number is written"
        notes.append(f"{source}: {differ}: {shown}: write them alike if they are one")
    return {name: new_name for name, new_name in new_names.items() if new_name != name}, notes


def _rows_by_name(answers: Coded, declared: Sequence[str]) -> Counter[str]:
    """How many rows have each name; those that are only declared are among them, first."""
    import numpy as np

    counts = Counter[str](dict.fromkeys(map(normalise_name, declared), 0))
    n_by_value = np.bincount(answers.codes, minlength=len(answers.values)).tolist()
    for answer, n in zip(answers.values, n_by_value, strict=True):
        if n == 0:  # all its rows were left out
            continue
        for name in [answer] if isinstance(answer, str) else dict.fromkeys(answer):
            counts[name] += n
    return counts


def alike(names: Iterable[str], key: Callable[[str], Any]) -> list[list[str]]:
    """Groups of two or more names that have one key."""
    by_key = defaultdict[Any, list[str]](list)
    for name in natural_order(names):
        by_key[key(name)].append(name)
    return [group for group in by_key.values() if len(group) > 1]


def _number(name: str) -> Decimal | str:
    return Decimal(name) if NUMBER.fullmatch(name) else name


def _show_groups(groups: list[list[str]], n_rows: Mapping[str, int]) -> str:
    shown = []
    for group in groups[:SHOWN]:
        shown.append(", ".join(f"{format_value(name)} ({n_rows[name]:,})" for name in group))
    more = f" and {len(groups) - SHOWN:,} more" if len(groups) > SHOWN else ""
    return "; ".join(shown) + more


def rename_answer(answer: Any, new_names: Mapping[str, str]) -> Any:
    """A name, or those of all labels of a row, each once, by their new names."""
    if isinstance(answer, str):
        return new_names.get(answer, answer)
    return tuple(dict.fromkeys(new_names.get(name, name) for name in answer))
