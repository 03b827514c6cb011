"""What `probe` finds: how often a classifier fails each behavioural test, and the report.

n texts . C classes or labels
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from manyheads.config.conversion import to_plain
from manyheads.config.sentences import list_names
from manyheads.data.class_names import join_names
from manyheads.data.rows import NO_LABEL, Rows
from manyheads.evaluation.evaluation_data import EvaluationData
from manyheads.evaluation.intervals import Bools, Floats, share_interval
from manyheads.evaluation.report import Example, Page, ReportSection, ReportTable, settings_sections, write_page
from manyheads.inference.classifier import TextClassifier, answer_in_chunks
from manyheads.inference.folder import load, place
from manyheads.inference.format import ModelFolder
from manyheads.plugins.judge.config import ProbeConfig
from manyheads.plugins.judge.probe_tests import BehaviourTest, Case
from manyheads.runs.files import write_json
from manyheads.runs.summary import Interval
from manyheads.runs.verb_output import VerbOutput, output_folder
from manyheads.terminal import progress_bar, say, show_files

TOLERANCE = 0.1  # by which a probability may move the wrong way, as in CheckList


@dataclass(slots=True)
class Behaviour:
    """How a classifier does on a test.

    Attributes:
        n, n_failed: texts that were tried, and those of them that failed.
        rate: the share that fails, with its interval; None where no text is changed.
        failures: those that fail, the clearest first: `place`, `texts` and `answer`, and `changed` and `before` of a
            change.
    """

    test: BehaviourTest
    n: int = 0
    n_failed: int = 0
    rate: Interval | None = None
    failures: list[dict[str, Any]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        content: dict[str, Any] = {**asdict(self.test), "n": self.n}
        if self.rate is not None:
            content["n_failed"] = self.n_failed
        return content | {"failures": self.failures, "rate": None if self.rate is None else asdict(self.rate)}


def run_tests(
    tests: list[BehaviourTest], cases: list[list[Case]], folder: ModelFolder, config: ProbeConfig
) -> list[Behaviour]:
    """Try a model on the cases of each test."""
    classifier = place(load(folder, TextClassifier), config.hardware)
    results = []
    with progress_bar(sum(map(len, cases))) as progress:
        for test, of_test in zip(tests, cases, strict=True):
            results.append(run_test(test, of_test, classifier, config))
            progress(len(of_test))
    return results


def run_test(test: BehaviourTest, cases: list[Case], classifier: TextClassifier, config: ProbeConfig) -> Behaviour:
    """How often a test fails, with its interval, and the cases that fail, those that move most first."""
    if not cases:
        return Behaviour(test)
    before_nC, given_before_nC = label_texts([case.texts for case in cases], classifier, config)
    after_nC, given_after_nC = before_nC, given_before_nC
    if test.change:
        after_nC, given_after_nC = label_texts([case.after for case in cases], classifier, config)
    label = classifier.labels.index(test.label) if test.label else None
    if test.expect:  # direction
        moved_n = after_nC[:, label] - before_nC[:, label]
        size_n = -moved_n if test.expect == "up" else moved_n
        fails_n = size_n > TOLERANCE
    elif test.label:  # minimum functionality
        size_n = 1 - after_nC[:, label]
        fails_n = ~given_after_nC[:, label]
    else:  # invariance
        size_n = np.abs(after_nC - before_nC).max(1)
        fails_n = (given_before_nC != given_after_nC).any(1)

    def words(given_C: Bools, likely_C: Floats) -> str:
        """An answer, with the probability of the label of the test, else of the likeliest."""
        shown = f"{likely_C.max():.3f}" if label is None else f"{test.label} {likely_C[label]:.3f}"
        names = [classifier.labels[index] for index in np.flatnonzero(given_C).tolist()]
        return f"{join_names(names) or NO_LABEL if classifier.multi else names[0]} ({shown})"

    failures = []
    order = sorted(np.flatnonzero(fails_n).tolist(), key=lambda at: -size_n[at])
    for at in order[: config.examples]:
        failure: dict[str, Any] = {"place": cases[at].place, "texts": cases[at].texts}
        if test.change:
            failure |= {"changed": cases[at].changed, "before": words(given_before_nC[at], before_nC[at])}
        failures.append(failure | {"answer": words(given_after_nC[at], after_nC[at])})
    n_failed = int(fails_n.sum())
    return Behaviour(test, len(cases), n_failed, share_interval(n_failed, len(cases)), failures)


def label_texts(texts: list[list[str]], classifier: TextClassifier, config: ProbeConfig) -> tuple[Floats, Bools]:
    """Probabilities `(n, C)`, and which labels each text, or pair of texts, is given `(n, C)`."""
    pairs = [both[1] for both in texts] if classifier.settings.pairs else None
    rows = Rows([both[0] for both in texts], pairs, [0] * len(texts), "tests", range(1, len(texts) + 1))

    def answer(some: list[str], others: list[str] | None) -> dict[str, Tensor]:
        return {"": classifier.logits(some, others, tokens=config.batch.tokens)}

    logits_nC = answer_in_chunks(answer, rows, len(classifier.labels), lambda n_rows: None)[""].double()
    likely_nC = classifier.probabilities(logits_nC)
    return likely_nC.numpy(), classifier.given(likely_nC).numpy()


def write_behaviour(
    folder: Path, output: VerbOutput, results: list[Behaviour], data: EvaluationData | None, config: ProbeConfig
) -> dict[str, Any]:
    """Write probe.json and report.html, and print a line a test; returns the content of probe.json."""
    about = data.about if data else {}
    content = {"run": config.run, **about, "tests": [one.as_json() for one in results]}
    with output_folder(folder, output, overwrite=config.overwrite) as part:
        write_page(part / "report.html", behaviour_page(results, data, config))
        write_json(part / "probe.json", content)
    for one in results:
        said = f"{one.test.name}: no text is changed by it"
        if one.rate is not None:
            span = f"{one.rate.value:.1%} ({one.rate.low:.1%} to {one.rate.high:.1%})"
            failed = f"{one.n_failed:,} of {one.n:,} texts fail, {span}"
            said = f"{one.test.name}: {failed}; passes where {one.test.passes_where}"
        say(said)
    show_files(folder, ["probe.json", "report.html"])
    return content


def behaviour_page(results: list[Behaviour], data: EvaluationData | None, config: ProbeConfig) -> Page:
    """The table of tests, and failures of each."""
    tried, idle = [one for one in results if one.n], [one.test.name for one in results if not one.n]
    lines = [[one.test.name, one.test.passes_where, f"{one.n:,}", one.rate] for one in tried]
    notes = [f"no text is changed by {list_names(idle)}"] if idle else []
    table = ReportTable(["test", "passes where", "texts", "share that fails"], lines, "wwni")
    sections = [ReportSection("Tests", table, notes)]
    for one in results:
        examples = []
        for failure in one.failures:
            texts = list(failure["texts"])
            if "changed" in failure:
                texts.append(failure["changed"])
            wanted = failure.get("before", one.test.label)
            examples.append(Example(failure["place"], texts, wanted, failure["answer"]))
        if examples:
            title = f"{one.test.name}: {len(examples)} of {one.n_failed:,} failures"
            notes = ["the answer before and after; the text, and what it is changed to"] if one.test.change else []
            sections.append(ReportSection(title, notes=notes, examples=examples, long=True))
    return Page(
        title=f"Behaviour of {config.run}",
        subtitle=data.title if data else "texts of templates",
        sections=[*sections, *settings_sections(to_plain(config))],
    )
