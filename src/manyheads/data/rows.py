"""The shapes data takes on its way, and what is wrong with it, said before the first step.

Rows that were checked, the splits of a run. Errors name file and row, warnings are counted.
Standard library at first: a mistake is reported before torch is imported.
"""

import json
import re
import unicodedata
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b
from itertools import combinations, islice, repeat
from typing import Any

from manyheads.config import OnBadRow
from manyheads.config.sentences import format_value
from manyheads.data.table import Coded, RawTable, Unread, lists_of, take
from manyheads.errors import UserError

SCORES = 20  # labels with decimals, of fewer nothing is said
ROWS_AT_ONCE = 4096
LETTERS = 200  # of a text, by which its script is recognised
HALF = "holds half a character (a lone surrogate), which UTF-8 cannot write"
REMEDY = "correct it, or leave such rows out by data.on_bad_row=drop"
MULTI_LABEL = "labels"  # the column in which datasets keep any number of labels a row
WHOLE = re.compile(r"([+-]?[0-9]+)(?:\.0*)?")  # a number
NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")
MOST_MARKS = 1000  # on one letter
SHOWN = 3  # classes that are noted together
BLANK = {"Cc", "Cf", "Zl", "Zp", "Zs"}  # general categories of Unicode: controls, signs of no width, white space
BARE = r"[^\x00-\x7f]"
UNSEEN = re.compile(  # signs of no width; joiners have a meaning between letters of Persian or Hindi, and in emoji
    "[\u00ad\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]"
    rf"|[\u200c\u200d](?!{BARE})|(?<!{BARE})[\u200c\u200d]"
)


@dataclass(slots=True)
class Rows:
    """Checked rows of one split.

    `numbers` are the row numbers users see in `source`: the header of a csv or tsv is row 1, a jsonl row is its
    line, anything else counts from 1. `labels` are class ids; where a row is answered by a text, `targets` are these
    texts and every label is 0. Where a row has any number of labels, `sets` holds their ids, in their order, and
    `labels` the rarest of each, by which splits are carved: as many as there are classes where
    it has none. `unread` is the rest of the table, where that was asked for; `groups` a number a row, where rows of one
    must not be parted.

    All are sequences: texts, pairs and targets of a table are read again when they are asked for (`column.Column`), its
    labels and numbers are arrays, its sets are held once (`table.Coded`). `hashes` tell texts, or pairs, apart.
    """

    texts: list[str]
    pairs: list[str] | None
    labels: list[int]
    source: str
    numbers: Sequence[int]
    targets: list[str] | None = None
    sets: list[tuple[int, ...]] | None = None
    unread: Unread | None = field(default=None, compare=False, repr=False)
    hashes: Any = field(default=None, compare=False, repr=False)
    groups: Any = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.texts)

    def pick(self, indices: Any) -> "Rows":
        """The rows at `indices`, in that order."""

        def some(column: Any) -> Any:
            return column if column is None or not len(column) else take(column, indices)

        return Rows(
            texts=some(self.texts),
            pairs=some(self.pairs),
            labels=some(self.labels),
            source=self.source,
            numbers=some(self.numbers),
            targets=some(self.targets),
            sets=some(self.sets),
            unread=None if self.unread is None else self.unread.pick(indices),
            hashes=None if self.hashes is None else hashed(self).take(indices),
            groups=some(self.groups),
        )

    def drawn(self, n: int, seed: int) -> "Rows":
        """`n` of the rows, drawn and in their own order; all of them where n is 0 or no smaller."""
        import numpy as np

        if not 0 < n < len(self):
            return self
        return self.pick(np.sort(np.random.default_rng(seed).choice(len(self), n, replace=False)))

    def readable(self) -> "Rows":
        """Those whose texts can be read again: all but for a stream, of which some are kept."""
        found = getattr(self.texts, "readable", None)
        return self if found is None else self.pick(found())

    def contents(self) -> list[Any]:
        """What makes two rows the same text: the text, or the pair of texts."""
        return self.texts if self.pairs is None else list(zip(self.texts, self.pairs, strict=True))

    def digest(self, labels: list[str]) -> str:
        """Sixteen hex digits of the texts and their answers, in their order; classes count by their names."""
        if self.targets is not None:
            answers: Iterable[str] = self.targets
        elif self.sets is not None:
            answers = (join_names(sorted(labels[id] for id in one)) if labels else "" for one in self.sets)
        else:
            answers = (labels[id] for id in self.labels) if labels else repeat("", len(self))
        pairs: Iterable[Any] = repeat("", len(self)) if self.pairs is None else self.pairs
        texts: Iterable[Any] = self.texts
        if hasattr(texts, "readable"):
            texts, pairs = hashed(self).tolist(), repeat("", len(self))
        rows, found = map("{}\0{}\0{}\0".format, texts, pairs, answers), blake2b(digest_size=8)
        while some := "".join(islice(rows, ROWS_AT_ONCE)):
            found.update(some.encode())
        return found.hexdigest()

    def as_targets(self) -> "Rows":
        """The target texts as rows of their own."""
        assert self.targets is not None
        return Rows(self.targets, None, self.labels, self.source, self.numbers)


@dataclass(slots=True)
class Splits:
    """The splits of a run. `labels[i]` names class i, none where rows are answered by texts; `notes` are facts and
    warnings for the log and the report."""

    train: Rows
    validation: Rows
    test: Rows | None
    labels: list[str]
    notes: list[str] = field(default_factory=list)

    @property
    def multi(self) -> bool:
        """Whether a row has any number of labels: each of them is then answered by itself."""
        return self.train.sets is not None

    def digests(self) -> dict[str, str]:
        """That of the rows of each split."""
        return {name: rows.digest(self.labels) for name, rows in self.by_name().items()}

    def by_name(self) -> dict[str, Rows]:
        """The splits there are, by their names."""
        named = {"train": self.train, "validation": self.validation}
        return named if self.test is None else {**named, "test": self.test}


def hash_texts(texts: Any, pairs: Any) -> tuple[Any, dict[int, str]]:
    """Hashes of the texts, or of the pairs: int64; and by index why one cannot be a text."""
    hashes, faults = hash_cells(texts, "the text")
    if pairs is None:
        return hashes, faults
    from manyheads.data.hashes import pair_hashes

    of_pair, others = hash_cells(pairs, "the second text")
    return pair_hashes(hashes, of_pair), faults | others


def hash_cells(cells: Any, what: str) -> tuple["array[int]", dict[int, str]]:
    """A hash of each cell, and by index why one cannot be a text: what `text_faults` says."""
    if getattr(cells, "checked", None) is not None:
        return cells.checked
    hashes, faults = array("q"), dict[int, str]()
    for part in lists_of(cells):
        found = text_faults(part, what)
        faults |= {len(hashes) + at: why for at, why in found.items()}
        hashes.extend(map(hash, [one if isinstance(one, str) else "" for one in part] if found else part))
    return hashes, faults


def no_labels(like: Any) -> Any:
    """A class id for each row where there are no classes: 0."""
    import numpy as np

    return np.zeros(len(like), dtype=np.int32)


def is_blank(text: str) -> bool:
    """Whether nothing of a text can be seen: it holds white space, controls and signs of no width alone, or nothing."""
    return all(unicodedata.category(sign) in BLANK for sign in text)


def text_faults(texts: Sequence[Any], what: str) -> dict[int, str]:
    """By index, why a cell cannot be a text: null, not a string, blank, or not encodable."""
    plain = {*map(type, texts)} <= {str} and not any(map(is_blank, texts))
    if plain and (all(map(str.isascii, texts)) or _is_encodable("".join(texts))):
        return {}
    faults: dict[int, str] = {}
    for index, text in enumerate(texts):
        if text is None or text == "":
            faults[index] = f"{what} is empty"
        elif not isinstance(text, str):
            faults[index] = f"{what} is not a string but {_kind(text)}"
        elif text.isspace():
            faults[index] = f"{what} is only white space"
        elif is_blank(text):
            faults[index] = f"{what} has only signs that cannot be seen"
        elif not text.isascii() and not _is_encodable(text):
            faults[index] = f"{what} {HALF}"
    return faults


def script_of(text: str) -> str:
    """The writing system of most letters at the beginning of a text, by Unicode's names of them, such as `latin` or
    `cjk`; `none` where there is no letter."""
    found = Counter(map(_script, islice((one for one in text if one.isalpha()), LETTERS)))
    return found.most_common(1)[0][0] if found else "none"


@lru_cache(maxsize=2**14)
def _script(letter: str) -> str:
    return unicodedata.name(letter, "unknown").split(" ")[0].split("-")[0].lower()


def normalise_unicode(text: str) -> str:
    """The text in NFC. Python puts the marks of a letter in order in a time that grows with their number squared: runs
    of more than `MOST_MARKS`, which no writing has, stay as they are."""
    if len(text) <= MOST_MARKS:
        return unicodedata.normalize("NFC", text)
    parts = _many_marks().split(text)
    return "".join(part if at % 2 else unicodedata.normalize("NFC", part) for at, part in enumerate(parts))


@lru_cache(maxsize=1)
def _many_marks() -> re.Pattern[str]:
    marks = "".join(filter(unicodedata.combining, map(chr, range(0x300, 0x20000))))
    return re.compile(f"([{marks}]{{{MOST_MARKS},}})")


def spelled(cell: object) -> str:
    """The name in a cell, the same from every format: composed (NFC), with single spaces between words and without
    signs that cannot be seen; true and false as JSON has them, numbers as Python writes them. Empty: there is none."""
    if cell is None or cell != cell:
        return ""
    name = str(cell + 0.0 if isinstance(cell, float) else cell)  # of -0.0, 0.0
    if not name.isascii():
        name = normalise_unicode(UNSEEN.sub("", name))
    name = " ".join(name.split())
    return name.lower() if name.lower() in ("true", "false") else name


class Known:
    """Names of classes, and which of them another spelling means: 1.0 is 1 where there is no 1.0; in `any_case`, card
    is Card where there is no card."""

    def __init__(self, names: Sequence[str], *, any_case: bool = False) -> None:
        self.every = [*names]
        self.ways = [lambda name: name, spelled, without_zeros]
        if any_case:
            self.ways.append(lambda name: without_zeros(name).casefold())
        self.names: list[dict[str, str]] = []
        for way in self.ways:
            several = [*map(way, names)]
            times = Counter(several)
            self.names.append({one: name for one, name in zip(several, names, strict=True) if times[one] == 1})

    def named(self, cell: object) -> str:
        """The class; the name as it is spelled where it is none."""
        name = cell if isinstance(cell, str) else spelled(cell)
        found = (names.get(way(name)) for way, names in zip(self.ways, self.names, strict=True))
        return next((one for one in found if one is not None), spelled(name))


def without_zeros(name: str) -> str:
    """A number without a fraction of zeros, or the sign of -0."""
    found = WHOLE.fullmatch(name)
    return name if not found else "0" if found[1] == "-0" else found[1]


def label_names(
    cells: Sequence[Any], classes: list[str] | None, known: Known | None = None
) -> tuple[list[str], dict[int, str]]:
    """Class name of each cell, `spelled` or as one of the classes that are `known`, and by index why a cell names no
    class. A list of one label, once or more, is that label; a row with several, or with none, has no class."""
    faults: dict[int, str] = {}
    names: list[str] = []
    for index, cell in enumerate(cells):
        if isinstance(cell, list) and len({*map(spelled, cell)}) != 1:
            faults[index] = f"has {len(cell) or 'no'} label{'s' if cell else ''}, but one is needed"
            names.append("")
            continue
        cell = cell[0] if isinstance(cell, list) else cell
        if isinstance(cell, (list, dict, bytes)):
            faults[index] = f"the label is {_kind(cell)}, but a row has one class"
            names.append("")
            continue
        is_id = classes is not None and isinstance(cell, int)
        name = spelled((classes[cell] if 0 <= cell < len(classes) else "") if classes is not None and is_id else cell)
        if not name:
            faults[index] = f"the label {cell} is not a known class" if is_id else "the label is empty"
        elif not name.isascii() and not _is_encodable(name):
            faults[index] = f"the label {HALF}"
        names.append(name if known is None else known.named(name))
    return names, faults


def label_cells(cells: Sequence[Any], column: str, *, multi: bool = False) -> list[Any]:
    """Cells of the label column; in a column called `labels`, or where rows are known to have any number of labels, a
    text is `joined` names, or none."""
    if column != MULTI_LABEL and not multi:
        return [*cells]
    return [split_names(cell or "") if cell is None or isinstance(cell, str) else cell for cell in cells]


def label_sets(
    cells: list[object], classes: list[str] | None, known: Known | None = None
) -> tuple[list[tuple[str, ...]], dict[int, str]]:
    """Label names of each cell, each once, in its order, and by index why a cell is no set of labels. An empty one has
    none."""
    of_cells = [cell if isinstance(cell, list) else [] if cell is None or cell == "" else [cell] for cell in cells]
    names, faults = label_names([name for cell in of_cells for name in cell], classes, known)
    sets: list[tuple[str, ...]] = []
    found: dict[int, str] = {}
    start = 0
    for index, cell in enumerate(of_cells):
        one = tuple(dict.fromkeys(names[start : start + len(cell)]))
        wrong = next((faults[at] for at in range(start, start + len(cell)) if at in faults), None)
        if wrong is not None:
            found[index] = wrong
        sets.append(one)
        start += len(cell)
    return sets, found


def join_names(names: Sequence[str]) -> str:
    """Names of labels in one cell: by |, or as a list in JSON where that would be read as other names; empty: none."""
    cell = "|".join(names)
    is_plain = cell.count("|") < max(1, len(names)) and not cell.startswith("[")
    return cell if is_plain else json.dumps([*names], ensure_ascii=False)


def split_names(cell: str) -> list[str]:
    """The names that are joined in a cell."""
    listed_in = in_json(cell)
    return [name for name in cell.split("|") if spelled(name)] if listed_in is None else listed_in


def in_json(cell: str) -> list[str] | None:
    """The names in a cell that is a list of texts in JSON; None: it is none."""
    try:
        found = json.loads(cell) if cell.lstrip().startswith("[") else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) and all(isinstance(one, str) for one in found) else None


def natural_order(names: Iterable[str]) -> list[str]:
    """Sorted as a person would: 2 before 10, numbers by value."""

    def key(name: str) -> tuple[list[tuple[int, float, str]], str]:
        if re.fullmatch(r"[+-]?\d+(\.\d+)?", name):
            return [(0, float(name), "")], name
        parts = re.split(r"(\d+)", name)
        return [(0, float(part), "") if part.isdecimal() else (1, 0.0, part) for part in parts], name

    return sorted(names, key=key)


def called(answers: Coded, declared: Sequence[str], source: str, *, any_case: bool) -> tuple[dict[str, str], list[str]]:
    """What classes of a training split are called instead, by the names in its answers and those that a dataset has
    `declared`; and notes on names that may mean one class. Whole numbers have no fraction where all names are whole
    numbers; in `any_case`, names that differ by case only are one, as most rows spell it."""
    import numpy as np

    n_of_value = np.bincount(answers.codes, minlength=len(answers.values)).tolist()
    spelled_as, n_rows = Counter[str](dict.fromkeys(map(spelled, declared), 0)), Counter[str]()
    for answer, n in zip(answers.values, n_of_value, strict=True):
        spelled_as.update(dict.fromkeys([answer] if isinstance(answer, str) else answer, n) if n else {})
    are_whole = all(map(WHOLE.fullmatch, spelled_as))
    names = {name: without_zeros(name) if are_whole else name for name in spelled_as}
    for name, n in spelled_as.items():
        n_rows[names[name]] += n
    notes = list[str]()
    for way, what in ((str.casefold, "case only"), (_number, "how a number is written")):
        alike = defaultdict[Any, list[str]](list)
        for name in natural_order(n_rows):
            alike[way(name)].append(name)
        groups = [one for one in alike.values() if len(one) > 1]
        shown = "; ".join(
            ", ".join(f"{format_value(name)} ({n_rows[name]:,})" for name in one) for one in groups[:SHOWN]
        )
        shown += f" and {len(groups) - SHOWN:,} more" if len(groups) > SHOWN else ""
        if groups and way is str.casefold and any_case:
            notes.append(f"{source}: data.merge_labels=case joins {shown}")
            usual = {name: max(one, key=n_rows.__getitem__) for one in groups for name in one}
            names = {name: usual.get(other, other) for name, other in names.items()}
        elif groups:
            remedy = "data.merge_labels=case joins them" if way is str.casefold else "write them alike if they are one"
            notes.append(f"{source}: classes that differ by {what}: {shown}: {remedy}")
    return {name: other for name, other in names.items() if other != name}, notes


def _number(name: str) -> Any:
    return Decimal(name) if NUMBER.fullmatch(name) else name


def renamed(answer: Any, instead: dict[str, str]) -> Any:
    """A name, or those of all labels of a row, each once."""
    if isinstance(answer, str):
        return instead.get(answer, answer)
    return tuple(dict.fromkeys(instead.get(name, name) for name in answer))


def screen(table: RawTable, faults: dict[int, str], on_bad_row: OnBadRow, notes: list[str]) -> Any:
    """Indices of the good rows of a table with `faults`; a count of the others is added to `notes`.

    Raises:
        UserError: a row is bad under `raise`, or no row is good; names file and row.
    """
    import numpy as np

    n_rows = len(table.numbers)
    if faults:
        first = min(faults)
        place = f"row {table.numbers[first]}: {faults[first]}"
        if on_bad_row is OnBadRow["raise"]:
            others = len(faults) - 1
            more = f" ({others:,} more {'row is' if others == 1 else 'rows are'} bad)" if others else ""
            raise UserError(f"{table.source}, {place}{more}; {REMEDY}")
        notes.append(f"{table.source}: {len(faults):,} of {n_rows:,} rows left out (first: {place})")
    good = np.delete(np.arange(n_rows), [*faults])
    if not n_rows:
        raise UserError(f"{table.source} has no row: a split needs at least one")
    if not len(good):
        first = min(faults)
        raise UserError(
            f"{table.source} has no usable row, but a split needs at least one: {len(faults):,} of {n_rows:,} are left "
            f"out by data.on_bad_row=drop (first: row {table.numbers[first]}: {faults[first]})"
        )
    return good


def audit_splits(splits: Splits) -> None:
    """Check what the splits say together; warnings are added to `splits.notes`.

    Raises:
        UserError: there is only one class.
    """
    if splits.train.targets is None and not splits.multi and len(splits.labels) < 2:
        only = splits.labels[0] if splits.labels else ""
        raise UserError(
            f"{splits.train.source} has one class only, '{only}': a classifier needs at least two; "
            "check data.label, the column of the label"
        )
    splits.notes += _scores(splits)
    _audit_train(splits)
    named = splits.by_name()
    for (earlier, there), (name, here) in combinations(named.items(), 2):
        splits.notes += overlap(name, here, earlier, there)


def _scores(splits: Splits) -> Iterable[str]:
    """That labels look like scores: many, and most of them numbers with decimals."""
    broken = [name for name in splits.labels if re.fullmatch(r"-?\d*\.\d+", name) and float(name) % 1]
    if len(broken) > max(SCORES, len(splits.labels) / 2):
        yield (
            f"{splits.train.source}: its {len(splits.labels):,} labels look like scores, such as {broken[0]}: each is "
            "a class of its own, as if none were near another; write a class for each range of them instead"
        )


def _audit_train(splits: Splits) -> None:
    """Repeated texts and contradicting answers inside train."""
    from manyheads.data.hashes import repeats

    train = splits.train
    later, firsts = (one.tolist() for one in repeats(hashed(train)))
    if not later:
        return
    splits.notes.append(
        f"train ({train.source}): {len(later):,} of {len(train):,} rows repeat the text of an earlier row "
        f"(first: row {train.numbers[later[0]]} repeats row {train.numbers[firsts[0]]})"
    )
    some = sorted({*later, *firsts})
    part = train.pick(some)
    words = dict(zip(some, part.targets or label_words(part, splits.labels), strict=True))
    given: dict[int, set[str]] = defaultdict(set)
    for index, first in zip(later, firsts, strict=True):
        given[first] |= {words[first], words[index]}
    conflicts = [first for first, several in given.items() if len(several) > 1]
    if conflicts:
        names = " and ".join(sorted(given[conflicts[0]]))
        splits.notes.append(
            f"train ({train.source}): {len(conflicts):,} texts carry more than one "
            f"{'target' if train.targets is not None else 'set of labels' if splits.multi else 'label'} "
            f"(first: row {train.numbers[conflicts[0]]}, {names})"
        )


def label_words(rows: Rows, labels: list[str]) -> list[str]:
    """The label of each row or, where it has any number of them, their names joined, or that it has none."""
    if rows.sets is None:
        return [labels[label] for label in rows.labels]
    return [join_names([labels[label] for label in one]) or "no label" for one in rows.sets]


def rows_of_class(rows: Rows, n_classes: int) -> list[int]:
    """How many rows have each class or label."""
    counts = Counter(rows.labels if rows.sets is None else (label for one in rows.sets for label in one))
    return [counts[label] for label in range(n_classes)]


def hashed(rows: Rows) -> Any:
    """Hashes of the texts, or pairs: an int64 array."""
    import numpy as np

    return np.asarray(hash_texts(rows.texts, rows.pairs)[0] if rows.hashes is None else rows.hashes)


def kept_together(rows: Rows) -> Any:
    """A number a row, int64: rows of one are never parted. They are of one group or, where there are none, one text."""
    import numpy as np

    return hashed(rows) if rows.groups is None else np.asarray(rows.groups, dtype=np.int64)


def overlap(name: str, rows: Rows, earlier: str, others: Rows) -> Iterable[str]:
    """Texts of split `name` that are also in the split `earlier`."""
    from manyheads.data.hashes import count_shared

    n_shared, here, there = count_shared(hashed(rows), hashed(others))
    if n_shared:
        yield (
            f"{name} ({rows.source}): {n_shared:,} of {len(rows):,} texts are also in {earlier} "
            f"(first: row {rows.numbers[here]} is row {others.numbers[there]} of {others.source})"
        )


def _kind(cell: object) -> str:
    names = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "an object",
        bytes: "bytes",
    }
    return names.get(type(cell), f"of type {type(cell).__name__}")


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
