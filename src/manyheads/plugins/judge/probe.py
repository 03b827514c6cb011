"""The verb `probe`: behavioural tests of a classifier, on texts whose answer is known beforehand.

Three kinds of tests, of Ribeiro et al. (2020), "Beyond Accuracy: Behavioral Testing of NLP Models with CheckList":
a changed text keeps its answer (invariance), a change moves the probability of a label one way (direction), and a short
text of a template has a label (minimum functionality).
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyheads.config import EvaluateConfig
from manyheads.config.conversion import to_plain
from manyheads.config.sentences import format_value, list_names, one_of
from manyheads.data.class_names import ClassLookup, join_names
from manyheads.data.rows import Rows
from manyheads.data.texts import NOT_UTF8
from manyheads.errors import UserError
from manyheads.evaluation.evaluation_data import EvaluationData, find_data
from manyheads.inference.format import enclosing_run, home_of, open_folder
from manyheads.plugins.judge.config import ProbeConfig
from manyheads.runs.config_file import read_yaml
from manyheads.runs.files import write_json
from manyheads.runs.folder import within
from manyheads.runs.verb_output import VerbOutput, output_folder, refuse_occupied
from manyheads.terminal import progress_bar, say, show_files

if TYPE_CHECKING:
    from numpy.random import Generator

    from manyheads.evaluation.report import Page
    from manyheads.inference.classifier import TextClassifier

KEYS = ["name", "change", "template", "words", "label", "expect"]
WAYS = ("up", "down")
TOLERANCE = 0.1  # by which a probability may move the wrong way, as in CheckList
MOST = 10_000  # texts of a template
SLOT = re.compile(r"\{(\w+)\}")
SURROGATE = re.compile("[\ud800-\udfff]")
TAB = "\t"  # between a pair


@dataclass(slots=True)
class Check:
    """`template` with `words` for each name in it, or rows of the data where it is empty; `change` is a name of
    `CHANGES`, `{"append": text}` or `{"replace": {old: new}}`."""

    name: str
    change: str | dict[str, Any] = ""
    template: str = ""
    words: dict[str, list[str]] = field(default_factory=dict)
    label: str = ""
    expect: str = ""

    @property
    def says(self) -> str:
        """What passes, in words."""
        if self.expect:
            return f"the probability of {self.label} does not go {'down' if self.expect == 'up' else 'up'}"
        return f"the answer is {self.label}" if self.label else "the answer stays"


PROBED = VerbOutput("probe", "probe.json", ('"tests":', '"run":'), ("report.html",))


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


def probe(config: ProbeConfig) -> dict[str, Any]:
    """Try a classifier on the tests of a file, or on the default ones; returns the content of probe.json.

    Writes probe.json and report.html to `output`, else <run>/probe/<data>-<split>.

    Raises:
        UserError: one sentence; the run, the data, a test, or the output.
    """
    folder = open_folder(config.run, "classify", graph=True)
    labels, home = folder.labels(), enclosing_run(folder.path)
    tests = read_tests(Path(config.tests), labels) if config.tests else [Check(one, one) for one in CHANGES]
    asked = EvaluateConfig(run=config.run, split=config.split, data=config.data)
    data = find_data(asked, home, folder.settings, labels) if any(not one.template for one in tests) else None
    name = data.folder if data else "templates"
    output = Path(config.output or within(home_of(config.run, folder.path), "probe", name))
    if config.output or config.overwrite:
        refuse_occupied(output, PROBED, overwrite=config.overwrite)
    cases = [cases_of(one, data.rows if data else None, config) for one in tests]
    for test, some in zip(tests, cases, strict=True):
        if any((len(one.texts) == 2) != folder.settings.pairs for one in some):
            kind = "pairs of texts, with a tab between them" if folder.settings.pairs else "single texts, without a tab"
            raise UserError(f"{config.tests}: the template of '{test.name}' must make {kind}, as the run reads them")

    from manyheads.inference.classifier import TextClassifier
    from manyheads.inference.folder import load, place

    classifier = place(load(folder, TextClassifier), config.hardware)
    with progress_bar(sum(map(len, cases))) as progress:
        found = [run_test(*one, classifier, config, progress) for one in zip(tests, cases, strict=True)]
    return _write(output, config, data, found)


def read_tests(path: Path, labels: list[str]) -> list[Check]:
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
    tests = [_test(one, f"tests={path}, test {number}", labels) for number, one in enumerate(given, 1)]
    twice = next((one.name for at, one in enumerate(tests) if one.name in [of.name for of in tests[:at]]), None)
    if twice is not None:
        raise UserError(f"tests={path} has two tests called '{twice}': give each a name of its own")
    return tests


def _test(given: Any, where: str, labels: list[str]) -> Check:
    def need(holds: object, what: str) -> None:
        if not holds:
            raise UserError(f"{where}: {what}")

    need(isinstance(given, dict) and isinstance(given.get("name"), str) and given["name"], "give it a name")
    where = f"{where}, '{given['name']}'"
    strange = next((one for one in given if one not in KEYS), None)
    need(strange is None, f"{format_value(strange)} is no part of a test: choose {one_of(KEYS)}")
    need(_is_whole(given), f"it {NOT_UTF8}: correct it")
    texts = [key for key in ("template", "label", "expect") if not isinstance(given.get(key, ""), str)]
    need(not texts, f"{list_names(texts)} must be text: put it in quotes")
    words = given.get("words", {})
    need(
        isinstance(words, dict) and all(isinstance(one, list) and one for one in words.values()) and _is_text(words),
        "words must be lists of texts by name, such as words: {thing: [film, 'yes']}",
    )
    test = Check(**given)
    test.label = ClassLookup(labels, any_case=True).find(test.label)
    slots = {*SLOT.findall(test.template)}
    need(
        slots == {*test.words},
        f"the template names {list_names(sorted(slots))}, but words {list_names(sorted(test.words))}",
    )
    n_texts = prod(map(len, test.words.values()))
    need(n_texts <= MOST, f"the template makes {n_texts:,} texts, more than {MOST:,}: give fewer words")
    need(
        test.label in ("", *labels),
        f"label '{format_value(test.label)}' is no class of the run: choose {one_of(labels)}",
    )
    need(test.template or test.change, "give it a template, or a change of texts of the data")
    need(test.change or test.label, "give it the label of its texts, or a change that keeps their answer")
    need(not test.expect or test.expect in WAYS, f"expect={format_value(test.expect)} is not up or down")
    need(bool(test.expect) == bool(test.change and test.label), "a change, a label and expect (up or down) go together")
    if isinstance(test.change, dict):
        kinds = {"append": str, "replace": dict}
        kind, what = next(iter(test.change.items()), ("", ""))
        is_one = len(test.change) == 1 and isinstance(what, kinds.get(kind, ())) and what and _is_text(what)
        need(is_one, f"change={format_value(test.change)} is no change: {_CHOICE}, with texts in quotes")
    else:
        is_one = isinstance(test.change, str) and test.change in ("", *CHANGES)
        need(is_one, f"change={format_value(test.change)} is no change: {_CHOICE}")
    return test


def _is_whole(given: Any) -> bool:
    """Whether no text, all the way down, holds a lone surrogate."""
    if isinstance(given, dict):
        return all(map(_is_whole, (*given, *given.values())))
    if isinstance(given, list):
        return all(map(_is_whole, given))
    return not (isinstance(given, str) and SURROGATE.search(given))


def _is_text(given: Any) -> bool:
    """Whether names and values are text, all the way down: YAML reads `no` and `1` as something else."""
    if isinstance(given, dict):
        return all(map(_is_text, (*given, *given.values())))
    return all(map(_is_text, given)) if isinstance(given, list) else isinstance(given, str)


def cases_of(test: Check, rows: Rows | None, config: ProbeConfig) -> list[Case]:
    """The texts of a test, each changed; a text that stays as it is shows nothing and is left out."""
    import numpy as np

    if test.template:
        names = list(test.words)
        texts = [dict(zip(names, one, strict=True)) for one in product(*test.words.values())]
        made = [SLOT.sub(lambda found, of=of: of[found[1]], test.template) for of in texts]
        cases = [Case("template", one.split(TAB, 1)) for one in made]
    else:
        assert rows is not None, "rows are read for tests without a template"
        some = rows.sample(config.rows, config.seed)
        columns = [some.texts] if some.pairs is None else [some.texts, some.pairs]
        texts = [list(one) for one in zip(*columns, strict=True)]
        cases = [Case(f"row {number:,}", one) for number, one in zip(some.numbers, texts, strict=True)]
    if not test.change:
        return cases
    change, draw = _change(test.change), np.random.default_rng(config.seed)
    for one in cases:
        one.changed = change(one.texts[0], draw)
    return [one for one in cases if one.changed != one.texts[0]]


def _change(change: str | dict[str, Any]) -> "Change":
    if isinstance(change, str):
        return CHANGES[change]
    if "append" in change:
        return lambda text, draw: text + str(change["append"])
    pairs = {str(old): str(new) for old, new in change["replace"].items()}
    # a word is not found inside another one
    found = re.compile("|".join(rf"(?<!\w){re.escape(one)}(?!\w)" for one in sorted(pairs, key=len, reverse=True)))
    return lambda text, draw: found.sub(lambda one: pairs[one[0]], text)


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
    bare = "".join(one for one in decomposed if unicodedata.category(one) != "Mn")
    return unicodedata.normalize("NFC", bare)


Change = Callable[[str, Any], str]
CHANGES: dict[str, Change] = {
    "typo": typo,
    "lower": lambda text, draw: text.lower(),
    "upper": lambda text, draw: text.upper(),
    "punctuation": punctuation,
    "spaces": lambda text, draw: re.sub(" ", "  ", text),
    "accents": accents,
}
_CHOICE = f"choose {one_of([*CHANGES, '{append: text}', '{replace: {old: new}}'])}"


def run_test(
    test: Check, cases: list[Case], classifier: "TextClassifier", config: ProbeConfig, progress: Callable[[int], None]
) -> dict[str, Any]:
    """How often a test fails, with its interval, and the cases that fail, those that move most first."""
    import numpy as np

    from manyheads.evaluation.intervals import share_interval

    if not cases:
        return {"test": test, "n": 0, "failures": [], "rate": None}
    before, given_before = label_texts([one.texts for one in cases], classifier, config)
    after, given_after = before, given_before
    if test.change:
        after, given_after = label_texts([one.after for one in cases], classifier, config)
    at = classifier.labels.index(test.label) if test.label else -1
    if test.expect:
        moved = (after[:, at] - before[:, at]) * (1 if test.expect == "up" else -1)
        fails, size = moved < -TOLERANCE, -moved
    elif test.label:
        fails, size = ~given_after[:, at], 1 - after[:, at]
    else:
        fails, size = (given_before != given_after).any(1), np.abs(after - before).max(1)
    progress(len(cases))
    order = sorted(np.flatnonzero(fails).tolist(), key=lambda one: -size[one])

    def words(given: Any, likely: Any) -> str:
        names = [classifier.labels[one] for one in given.nonzero()[0].tolist()]
        shown = f" ({test.label} {likely[at]:.3f})" if test.label else f" ({likely.max():.3f})"
        return ((join_names(names) or "no label") if classifier.multi else names[0]) + shown

    failures = []
    for one in order[: config.examples]:
        failure: dict[str, Any] = {"place": cases[one].place, "texts": cases[one].texts}
        if test.change:
            failure |= {"changed": cases[one].changed, "before": words(given_before[one], before[one])}
        failures.append(failure | {"answer": words(given_after[one], after[one])})
    rate = share_interval(int(fails.sum()), len(cases))
    return {"test": test, "n": len(cases), "n_failed": int(fails.sum()), "rate": rate, "failures": failures}


def label_texts(texts: list[list[str]], classifier: "TextClassifier", config: ProbeConfig) -> tuple[Any, Any]:
    """Probabilities `(n, C)`, and which labels each text is given."""
    from manyheads.inference.classifier import answer_in_chunks

    firsts, seconds = [one[0] for one in texts], [one[1] for one in texts] if classifier.settings.pairs else None
    rows = Rows(firsts, seconds, [0] * len(texts), "tests", range(1, len(texts) + 1))
    ask = lambda some, others: {"": classifier.logits(some, others, tokens=config.batch.tokens)}  # noqa: E731
    likely_nC = classifier.probabilities(
        answer_in_chunks(ask, rows, len(classifier.labels), lambda _: None)[""].double()
    )
    return likely_nC.numpy(), classifier.given(likely_nC).numpy()


def _write(
    folder: Path, config: ProbeConfig, data: EvaluationData | None, found: list[dict[str, Any]]
) -> dict[str, Any]:
    from manyheads.evaluation.report import write_page

    tests = []
    for one in found:
        rate = None if one["rate"] is None else asdict(one["rate"])
        figures = {key: value for key, value in one.items() if key not in ("test", "rate")}
        tests.append({**asdict(one["test"]), **figures, "rate": rate})
    content = {"run": config.run, **(data.about if data else {}), "tests": tests}
    with output_folder(folder, PROBED, overwrite=config.overwrite) as place:
        write_page(place / "report.html", _page(config, data, found))
        write_json(place / "probe.json", content)
    say(*_lines(found))
    show_files(folder, ["probe.json", "report.html"])
    return content


def _lines(found: list[dict[str, Any]]) -> Iterator[str]:
    for one in found:
        name, rate = one["test"].name, one["rate"]
        if rate is None:
            yield f"{name}: no text is changed by it"
            continue
        span = f"{rate.value:.1%} ({rate.low:.1%} to {rate.high:.1%})"
        yield f"{name}: {one['n_failed']:,} of {one['n']:,} texts fail, {span}; passes where {one['test'].says}"


def _page(config: ProbeConfig, data: EvaluationData | None, found: list[dict[str, Any]]) -> "Page":
    from manyheads.evaluation.evaluation import dotted
    from manyheads.evaluation.report import (
        Example,
        Page,
        ReportSection,
        ReportTable,
        installed_versions,
        value_sections,
    )

    tried, idle = [one for one in found if one["n"]], [one["test"].name for one in found if not one["n"]]
    rows = [[one["test"].name, one["test"].says, f"{one['n']:,}", one["rate"]] for one in tried]
    notes = [f"no text is changed by {list_names(idle)}"] if idle else []
    sections = [
        ReportSection("Tests", ReportTable(["test", "passes where", "texts", "share that fails"], rows, "wwni"), notes)
    ]
    for one in found:
        examples = []
        for of in one["failures"]:
            texts = [*of["texts"], of["changed"]] if "changed" in of else of["texts"]
            examples.append(Example(of["place"], texts, of.get("before", one["test"].label), of["answer"]))
        title = f"{one['test'].name}: {len(examples)} of {one.get('n_failed', 0):,} failures"
        notes = ["the answer before and after; the text, and what it is changed to"] if one["test"].change else []
        if examples:
            sections.append(ReportSection(title, notes=notes, examples=examples, long=True))
    settings = dict(dotted(to_plain(config)))
    return Page(
        title=f"Behaviour of {config.run}",
        subtitle=data.title if data else "texts of templates",
        sections=[*sections, *value_sections({"Settings": settings, "Versions": installed_versions()})],
    )
