"""Behavioural tests of a classifier: what a file of them may hold, and the texts that each test makes or changes.

Three kinds of tests, of Ribeiro et al. (2020), "Beyond Accuracy: Behavioral Testing of NLP Models with CheckList":
a changed text keeps its answer (invariance), a change moves the probability of a label one way (direction), and a short
text of a template has a label (minimum functionality).
"""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyheads.config.facts import require
from manyheads.config.sentences import format_value, list_names, one_of
from manyheads.data.class_names import ClassLookup
from manyheads.data.formats.fields import FIELD
from manyheads.data.rows import Rows
from manyheads.data.texts import NOT_UTF8
from manyheads.errors import UserError
from manyheads.plugins.judge.config import ProbeConfig
from manyheads.runs.config_file import read_yaml

if TYPE_CHECKING:
    from numpy.random import Generator

KEYS = ["name", "change", "template", "words", "label", "expect"]
MOST = 10_000  # texts of a template
SLOT = re.compile(r"\{(\w+)\}")
LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # of YAML's escapes: it cannot be written as UTF-8
TAB = "\t"  # between a pair


@dataclass(slots=True)
class BehaviourTest:
    """One test of a file, or one of `CHANGES` by default.

    Attributes:
        change: a name of `CHANGES`, `{"append": text}` or `{"replace": {old: new}}`; empty: texts stay as they are.
        template: makes the texts, by `words` for each name in it; empty: the texts are rows of the data.
        label: the class that the texts have, or, with `expect`, whose probability moves.
        expect: "up" or "down", the way that it may move; empty: the answer is to stay, or to be `label`.
    """

    name: str
    change: str | dict[str, Any] = ""
    template: str = ""
    words: dict[str, list[str]] = field(default_factory=dict)
    label: str = ""
    expect: str = ""

    @property
    def passes_where(self) -> str:
        """What passes, in words."""
        if self.expect:
            return f"the probability of {self.label} does not go {'down' if self.expect == 'up' else 'up'}"
        return f"the answer is {self.label}" if self.label else "the answer stays"


@dataclass(slots=True)
class Case:
    """A text, or a pair, and what its first text is changed to; `place` says where it is from."""

    place: str
    texts: list[str]
    changed: str = ""

    @property
    def after(self) -> list[str]:
        """What it is changed to."""
        return [self.changed, *self.texts[1:]]


def read_tests(path: Path, labels: list[str]) -> list[BehaviourTest]:
    """The tests of a YAML file, a list of mappings.

    Raises:
        UserError: names the file, the test and what is wrong with it.
    """
    if not path.is_file():
        raise UserError(f"tests={path} does not exist: name a YAML file of tests")
    try:
        given = read_yaml(path)
    except ValueError as problem:
        raise UserError(f"tests={path} {problem}".replace("the config.yaml of a run", "a list of tests")) from problem
    if not isinstance(given, list) or not given:
        raise UserError(f"tests={path} holds no list of tests: begin each with '- name: ...'")
    tests: dict[str, BehaviourTest] = {}
    for number, values in enumerate(given, 1):
        test = _read_test(values, f"tests={path}, test {number}", labels)
        if test.name in tests:
            raise UserError(f"tests={path} has two tests called '{test.name}': give each a name of its own")
        tests[test.name] = test
    return list(tests.values())


def _read_test(given: Any, where: str, labels: list[str]) -> BehaviourTest:
    """One test, checked; `where` begins each sentence."""
    has_name = isinstance(given, dict) and isinstance(given.get("name"), str) and given["name"] != ""
    require(has_name, f"{where}: give it a name")
    where = f"{where}, '{given['name']}'"
    for key in given:
        require(key in KEYS, f"{where}: {format_value(key)} is no part of a test: choose {one_of(KEYS)}")
    require(_is_utf8(given), f"{where}: it {NOT_UTF8}: correct it")
    others = [key for key in ("template", "label", "expect") if not isinstance(given.get(key, ""), str)]
    require(not others, f"{where}: {list_names(others)} must be text: put it in quotes")
    require(
        _are_words(given.get("words", {})),
        f"{where}: words must be lists of texts by name, such as words: {{thing: [film, 'yes']}}",
    )
    test = BehaviourTest(**given)
    test.label = ClassLookup(labels, any_case=True).find(test.label)

    slots, names = sorted({*SLOT.findall(test.template)}), sorted(test.words)
    require(slots == names, f"{where}: the template names {list_names(slots)}, but words {list_names(names)}")
    n_texts = prod(map(len, test.words.values()))
    require(n_texts <= MOST, f"{where}: the template makes {n_texts:,} texts, more than {MOST:,}: give fewer words")
    require(
        test.label in ("", *labels),
        f"{where}: label '{format_value(test.label)}' is no class of the run: choose {one_of(labels)}",
    )
    changes, has_label = bool(test.change), test.label != ""
    require(test.template != "" or changes, f"{where}: give it a template, or a change of texts of the data")
    require(changes or has_label, f"{where}: give it the label of its texts, or a change that keeps their answer")
    require(test.expect in ("", "up", "down"), f"{where}: expect={format_value(test.expect)} is not up or down")
    require(
        (test.expect != "") == (changes and has_label),
        f"{where}: a change, a label and expect (up or down) go together",
    )
    in_quotes = ", with texts in quotes" if isinstance(test.change, dict) else ""
    require(
        test.change == "" or _is_change(test.change),
        f"{where}: change={format_value(test.change)} is no change: choose "
        f"{one_of([*CHANGES, '{append: text}', '{replace: {old: new}}'])}{in_quotes}",
    )
    return test


def _is_utf8(given: Any) -> bool:
    """Whether no text, all the way down, holds a lone surrogate."""
    if isinstance(given, dict):
        return all(_is_utf8(key) and _is_utf8(value) for key, value in given.items())
    if isinstance(given, list):
        return all(_is_utf8(value) for value in given)
    return not (isinstance(given, str) and LONE_SURROGATE.search(given))


def _are_words(given: Any) -> bool:
    """Whether it holds lists of texts by name, none of them empty: YAML reads `no` and `1` as something else."""
    if not isinstance(given, dict):
        return False
    for name, words in given.items():
        if not isinstance(name, str) or not isinstance(words, list) or not words:
            return False
        if not all(isinstance(word, str) for word in words):
            return False
    return True


def _is_change(given: Any) -> bool:
    """Whether it is a name of `CHANGES`, `{append: text}` or `{replace: {old: new}}`."""
    if isinstance(given, str):
        return given in CHANGES
    if not isinstance(given, dict) or len(given) != 1:
        return False
    ((kind, what),) = given.items()
    if kind == "append":
        return isinstance(what, str) and what != ""
    if kind != "replace" or not isinstance(what, dict) or not what:
        return False
    return all(isinstance(old, str) and isinstance(new, str) for old, new in what.items())


def cases_of(test: BehaviourTest, rows: Rows | None, config: ProbeConfig, read: Any = None) -> list[Case]:
    """The texts of a test, each changed; a text that stays as it is shows nothing and is left out.

    Args:
        read: how the model reads rows, see `reader_of`; None: as they are.
    """
    import numpy as np  # mistakes in the tests do not wait for it

    cases = []
    if test.template:
        for words in product(*test.words.values()):
            by_name = dict(zip(test.words, words, strict=True))
            text = SLOT.sub(lambda slot, by_name=by_name: by_name[slot[1]], test.template)
            cases.append(Case("template", text.split(TAB, 1)))
    else:
        assert rows is not None, "rows are read for tests without a template"
        some = rows.sample(config.rows, config.seed)
        for at, number in enumerate(some.numbers):
            cases.append(Case(f"row {number:,}", some.texts_of(at)))
    if not test.change:
        return cases
    change, draw = change_of(test.change), np.random.default_rng(config.seed)
    for case in cases:
        row = text = case.texts[0]
        if read is not None:  # the columns after its texts stay as they are
            n_texts = len(read([row])[0].split(FIELD))
            text = FIELD.join(row.split(FIELD)[:n_texts]).rstrip()
        case.changed = change(text, draw) + row[len(text) :]
    return [case for case in cases if case.changed != case.texts[0]]


def change_of(change: str | dict[str, Any]) -> "Change":
    """The function that changes a text as a test says."""
    if isinstance(change, str):
        return CHANGES[change]
    if "append" in change:
        return lambda text, draw: text + change["append"]
    replaced = change["replace"]
    # a word is not found inside another one, and of two that begin alike the longer is
    words = [rf"(?<!\w){re.escape(word)}(?!\w)" for word in sorted(replaced, key=len, reverse=True)]
    pattern = re.compile("|".join(words))
    return lambda text, draw: pattern.sub(lambda found: replaced[found[0]], text)


def typo(text: str, draw: "Generator") -> str:
    """Two letters inside a word change places."""
    inner = []
    for word in re.finditer(r"[^\W\d_]{4,}", text):
        if word[0].isalpha():  # a raised 2 is neither letter nor digit
            inner += [at for at in range(word.start() + 1, word.end() - 2) if text[at] != text[at + 1]]
    if not inner:
        return text
    at = int(draw.choice(inner))
    return text[:at] + text[at + 1] + text[at] + text[at + 2 :]


def punctuation(text: str, draw: "Generator") -> str:
    """The mark at the end is removed, or a full stop is added."""
    bare = text.rstrip()
    if not bare:
        return text
    if len(bare) > 1 and unicodedata.category(bare[-1]).startswith("P"):
        return bare[:-1]
    return f"{bare}."


def accents(text: str, draw: "Generator") -> str:
    """Letters lose their accents."""
    decomposed = "".join(unicodedata.normalize("NFD", letter) for letter in text)
    bare = "".join(letter for letter in decomposed if unicodedata.category(letter) != "Mn")
    return unicodedata.normalize("NFC", bare)


Change = Callable[[str, Any], str]  # of a text, with a generator of random numbers
CHANGES: dict[str, Change] = {
    "typo": typo,
    "lower": lambda text, draw: text.lower(),
    "upper": lambda text, draw: text.upper(),
    "punctuation": punctuation,
    "spaces": lambda text, draw: re.sub(" ", "  ", text),
    "accents": accents,
}
