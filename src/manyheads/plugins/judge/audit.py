"""The verb `audit`: one page on labelled texts before anything is trained on them.

Classes, lengths, scripts, repeated and nearly repeated texts, leaks between splits, contradicting and probably wrong
labels, personal data by its patterns (counted, and masked on the page), and what more rows would bring, by a linear
model in place of the classifiers to come. Of a large split a sample is looked at, which the page says.

n rows . C classes or labels
"""

from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from manyheads.config.conversion import to_plain
from manyheads.config.sentences import install_extra, list_names
from manyheads.data.class_names import join_names
from manyheads.data.rows import Rows, Splits, class_counts, label_words
from manyheads.data.sources import read_splits
from manyheads.evaluation.evaluation import write_answers
from manyheads.evaluation.mistakes import NO_LABEL
from manyheads.evaluation.report import (
    Example,
    Page,
    ReportSection,
    ReportTable,
    dotted,
    installed_versions,
    value_sections,
    write_page,
)
from manyheads.linear.fit import choose_terms, too_many
from manyheads.plugins.judge.config import AuditConfig
from manyheads.plugins.judge.facts import (
    answers_of,
    both_texts,
    learning_curve,
    likely_wrong,
    masked,
    near_repeats,
    out_of_fold,
    personal,
    rows_by_script,
    token_counts,
    without_rare,
)
from manyheads.runs.files import write_json
from manyheads.runs.folder import start_folder
from manyheads.runs.summary import Interval
from manyheads.runs.verb_output import VerbOutput, output_folder, refuse_occupied
from manyheads.terminal import say, show_files

MISSING = f"not looked for: {install_extra('audit')}"
SHOWN = 10  # of each kind of finding
TABLE = 30  # classes on the page


@dataclass(slots=True)
class Suspects:
    """Rows whose label is probably wrong, the worst first: their places in the rows, and the probability `(n, C)` of
    each class by models that have not learnt from the row."""

    at: list[int]
    probabilities_nC: np.ndarray
    multi: bool

    def likelier(self, at: int, labels: list[str]) -> str:
        """The likeliest class, or the labels that are likelier than not, of the row at a place."""
        names = [labels[one] for one in np.flatnonzero(self.given(at)).tolist()]
        return (join_names(names) or NO_LABEL) if self.multi else names[0]

    def given(self, at: int) -> np.ndarray:
        """The same as marks `(C,)`."""
        probability_C = self.probabilities_nC[at]
        return probability_C >= 0.5 if self.multi else np.arange(len(probability_C)) == probability_C.argmax()

    def share(self, at: int, given_C: np.ndarray) -> float:
        """How probable labels are: as the least probable of them, or, of none, as that the likeliest is not there."""
        probability_C = self.probabilities_nC[at]
        return float(probability_C[given_C].min()) if given_C.any() else 1 - float(probability_C.max())


AUDITED = VerbOutput("audit", "audit.json", ('"sampled":', '"source":'), ("audit.html", "suspects.csv"))


def audit(config: AuditConfig) -> dict[str, Any]:
    """Look at the data and write audit.html, audit.json and suspects.csv; returns the content of audit.json.

    Raises:
        UserError: the data, as in training; or the output is not an empty folder.
    """
    if config.output:
        refuse_occupied(Path(config.output), AUDITED, overwrite=config.overwrite)
    splits = read_splits(config.data, config.seed, with_unread=True)
    folder = Path(config.output).absolute() if config.overwrite else start_folder(config.output)
    found, page, suspects = inspect(splits, config)
    names = ["audit.html", "audit.json"]
    with output_folder(folder, AUDITED, overwrite=config.overwrite) as place:
        write_page(place / "audit.html", page)
        write_json(place / "audit.json", found)
        if suspects is not None:
            write_suspects(place / "suspects.csv", *suspects, splits.labels)
            names.append("suspects.csv")
    say(*splits.notes, *sentences(found))
    show_files(folder, names)
    return found


def inspect(splits: Splits, config: AuditConfig) -> tuple[dict[str, Any], Page, tuple[Rows, Suspects] | None]:
    """What audit.json holds, the page, and the training rows that were asked with those under suspicion."""
    some = {name: rows.sample(config.sample, config.seed) for name, rows in splits.by_name().items()}
    labels, n_classes = splits.labels, len(splits.labels)
    found: dict[str, Any] = {
        "source": splits.train.source,
        "rows": {name: len(rows) for name, rows in splits.by_name().items()},
        "sampled": {name: len(rows) for name, rows in some.items()},
        "classes": {
            name: dict(zip(labels, class_counts(rows, n_classes), strict=True))
            for name, rows in splits.by_name().items()
        },
        "lengths": token_counts(some, config),
        "scripts": {name: rows_by_script(rows) for name, rows in some.items()},
        "personal": {name: personal(rows) for name, rows in some.items()},
        "notes": splits.notes,
    }
    alike = None if find_spec("datasketch") is None else near_repeats(some)
    found["near_repeats"] = MISSING if alike is None else {name: len(pairs) for name, pairs in alike.items()}
    terms = None  # as a run on these rows chooses them
    if not too_many(some["train"], n_classes):
        terms = choose_terms(some["train"].readable(), n_classes, None, some["validation"])
    found["curve"] = learning_curve(some["train"], some["validation"], n_classes, config.seed, terms)
    suspects = None
    if find_spec("cleanlab") is None:
        found["suspects"] = MISSING
    else:
        rows, rare = without_rare(some["train"], config.folds)
        asked = out_of_fold(rows, n_classes, config.folds, config.seed, terms)
        if asked is None:
            if min(Counter(rows.labels).values()) < config.folds:
                why = f"a class has fewer rows than there are folds ({config.folds})"
            elif too_many(rows, n_classes):
                why = f"a linear model of {n_classes:,} classes and {len(rows):,} rows takes hours"
            else:
                why = "the texts hold nothing that a linear model counts"
            found["suspects"] = f"not looked for: {why}"
        else:
            suspects = (rows, Suspects(likely_wrong(rows, asked), asked, splits.multi))
            names = [labels[one] for one in rare]
            found["suspects"] = {"rows": len(suspects[1].at), "of": len(asked), "not_asked": names}
    return found, audit_page(found, splits, some, alike, suspects, config), suspects


def write_suspects(path: Path, rows: Rows, suspects: Suspects, labels: list[str]) -> None:
    """One line a suspect row, the worst first: as predictions.csv, with its label, a likelier one, and how probable
    both are."""
    part = rows.pick(suspects.at)
    answers = []
    own_n = answers_of(part, len(labels))
    own_nC = own_n if suspects.multi else np.arange(len(labels)) == own_n[:, None]
    for own, own_C, place in zip(label_words(part, labels), own_nC, suspects.at, strict=True):
        shares = [suspects.share(place, of) for of in (own_C, suspects.given(place))]
        answers.append([own, suspects.likelier(place, labels), *(round(one, 4) for one in shares)])
    write_answers(path, part, ["label", "likelier", "p_label", "p_likelier"], answers)


def sentences(found: dict[str, Any]) -> list[str]:
    """What was found, a line each."""
    said = []
    for name, of in found["lengths"].items():
        cut = f"; {of['cut']:.1%} are cut" if of["cut"] else ""
        said.append(
            f"{name}: a text has {of['least']:.0f} to {of['most']:.0f} tokens, {of['median']:.0f} in the middle{cut}"
        )
    for name, of in found["scripts"].items():
        if len(of) > 1:
            said.append(f"{name}: rows by script: {', '.join(f'{script} {count:,}' for script, count in of.items())}")
    for name, of in found["personal"].items():
        said += [f"{name}: {_rows(count, 'seem')} to hold personal data: {what}" for what, count in of.items()]
    alike = found["near_repeats"]
    if isinstance(alike, str):
        said.append(f"near repeats: {alike}")
    else:
        for name, count in alike.items():
            if count:
                said.append(f"{name}: {_rows(count, 'nearly repeat')} the text of another row")
    suspects = found["suspects"]
    if isinstance(suspects, str):
        said.append(f"wrong labels: {suspects}")
    else:
        said.append(f"train: {suspects['rows']:,} of {suspects['of']:,} labels may be wrong: a linear model disagrees")
        if rare := suspects["not_asked"]:
            said.append(f"wrong labels: {list_names(rare)} not checked, with fewer rows than there are folds")
    if curve := found["curve"]:
        more = curve["twice"]
        said.append(
            f"a linear model has an accuracy of {curve['accuracy'][-1]['value']:.3f} with {curve['rows'][-1]:,} "
            f"training rows; with {more['rows']:,} expect {more['value']:.3f} ({more['low']:.3f} to {more['high']:.3f})"
        )
    return said


def _rows(count: int, verb: str) -> str:
    return f"1 row {verb}s" if count == 1 else f"{count:,} rows {verb}"


def audit_page(
    found: dict[str, Any],
    splits: Splits,
    some: dict[str, Rows],
    alike: dict[str, list[Any]] | None,
    suspects: tuple[Rows, Suspects] | None,
    config: AuditConfig,
) -> Page:
    """The page: what was found, then classes, lengths, repeats, suspects and the curve."""
    drawn = []
    for name, rows in some.items():
        if len(rows) < found["rows"][name]:
            drawn.append(f"{name}: {len(rows):,} of {found['rows'][name]:,} rows, drawn, were looked at")
    sections = [
        ReportSection("What was found", items=[*splits.notes, *sentences(found), *drawn]),
        classes_section(found, len(splits.train)),
        lengths_section(found),
        *repeats_sections(some, alike),
        *suspects_sections(suspects, splits.labels),
        *curve_sections(found["curve"]),
        *value_sections({"Settings": dict(dotted(to_plain(config))), "Versions": installed_versions()}),
    ]
    rows = ", ".join(f"{name} {count:,}" for name, count in found["rows"].items())
    return Page(
        title="Texts and labels before training",
        subtitle=f"{splits.train.source}: {rows} rows; {len(splits.labels)} {'labels' if splits.multi else 'classes'}",
        sections=sections,
    )


def classes_section(found: dict[str, Any], n_train: int) -> ReportSection:
    """Rows of each class by split, those of many training rows first."""
    counts = found["classes"]
    names = sorted(counts["train"], key=lambda name: -counts["train"][name])
    lines = [
        [name, *(f"{of[name]:,}" for of in counts.values()), counts["train"][name] / n_train] for name in names[:TABLE]
    ]
    more = [f"{len(names) - TABLE:,} more have fewer rows."] if len(names) > TABLE else []
    columns = ["class", *counts, "share of train"]
    return ReportSection("Classes", ReportTable(columns, lines, f"w{'n' * len(counts)}b"), notes=more, long=True)


def lengths_section(found: dict[str, Any]) -> ReportSection:
    """Tokens of a text by split."""
    columns, lines = ["least", "5 %", "median", "95 %", "most"], []
    for name, of in found["lengths"].items():
        lines.append([name, *(f"{of[key]:,.0f}" for key in columns), f"{of['cut']:.1%}"])
    return ReportSection("Tokens of a text", ReportTable(["split", *columns, "cut"], lines, "wnnnnnn"))


def repeats_sections(some: dict[str, Rows], alike: dict[str, list[Any]] | None) -> list[ReportSection]:
    """Nearly equal texts; those of other splits than their own first, as these leak."""
    pairs = sorted((one for of in (alike or {}).values() for one in of), key=lambda one: (one[0] == one[2], -one[4]))
    shown = []
    for name, at, other, there, share in pairs[:SHOWN]:
        texts = []
        for split, row in ((name, at), (other, there)):
            (text,) = both_texts(some[split].pick([row]))
            texts.append(masked(text)[0])
        place = f"{share:.0%} alike: {name} row {some[name].numbers[at]:,}, {other} row {some[other].numbers[there]:,}"
        shown.append(Example(place, texts))
    return [ReportSection("Nearly the same text", examples=shown, long=True)] if shown else []


def suspects_sections(suspects: tuple[Rows, Suspects] | None, labels: list[str]) -> list[ReportSection]:
    """Rows whose label is probably wrong, with the class that is likelier."""
    if suspects is None or not suspects[1].at:
        return []
    rows, found = suspects
    part, shown = rows.pick(found.at[:SHOWN]), []
    for own, at, text, number in zip(
        label_words(part, labels), found.at[:SHOWN], both_texts(part), part.numbers, strict=True
    ):
        place = f"{found.share(at, found.given(at)):.0%} sure, row {number:,}"
        shown.append(Example(place, [masked(text)[0]], own, found.likelier(at, labels)))
    note = (
        "The label, and the answer of a linear model that has not learnt from the row. suspects.csv has all of them, "
        "the worst first. Read them before you change any: a right label of an unusual text looks the same."
    )
    return [ReportSection("Labels that may be wrong", notes=[note], examples=shown, long=True)]


def curve_sections(curve: dict[str, Any]) -> list[ReportSection]:
    """Accuracy by training rows, and with twice as many."""
    if not curve:
        return []
    figures = [Interval(**one) for one in curve["accuracy"]]
    more = dict(curve["twice"])
    lines = [[f"{n:,}", of, of] for n, of in zip(curve["rows"], figures, strict=True)]
    guess = Interval(more["value"], more["low"], more["high"])
    lines.append([f"{more['rows']:,}, by a power law", guess, guess])
    note = "Accuracy of a linear model on validation rows. The last line is a guess, for more rows of the same kind."
    return [
        ReportSection(
            "What more rows would bring",
            ReportTable(["training rows", "accuracy", "from 0 to 1"], lines, "wib"),
            [note],
        )
    ]
