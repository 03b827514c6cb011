"""What `audit` finds in the splits of a data set, its page, and the list of labels that may be wrong.

n rows . C classes or labels
"""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from manyheads.config.conversion import to_plain
from manyheads.config.sentences import install_extra, list_names
from manyheads.data.class_names import join_names
from manyheads.data.rows import NO_LABEL, Rows, Splits, class_counts, label_words
from manyheads.evaluation.evaluation import write_answers
from manyheads.evaluation.report import Example, Page, ReportSection, ReportTable, settings_sections, write_page
from manyheads.linear.fit import choose_terms, too_many
from manyheads.linear.near_repeats import NearRepeat, both_texts, near_repeats
from manyheads.plugins.judge.annotations import agreement
from manyheads.plugins.judge.config import AuditConfig
from manyheads.plugins.judge.row_facts import (
    fewest_rows,
    labels_of,
    learning_curve,
    likely_wrong,
    masked,
    out_of_fold,
    personal,
    rows_by_script,
    token_counts,
    without_rare,
)
from manyheads.runs.summary import Interval

MISSING = f"not looked for: {install_extra('audit')}"
MOST_SHOWN = 10  # of each kind of finding
MOST_CLASSES = 30  # on the page


@dataclass(slots=True)
class Suspects:
    """Rows whose label is probably wrong.

    Attributes:
        rows: all rows that were asked.
        probabilities_nC: of each class of each of them, by models that have not learnt from the row.
        at: places in the rows of those under suspicion, the worst first.
    """

    rows: Rows
    probabilities_nC: np.ndarray
    at: list[int]

    def likelier(self, at: int, labels: list[str]) -> str:
        """The likeliest class, or the labels that are likelier than not, of the row at a place."""
        names = [labels[index] for index in np.flatnonzero(self.answer(at)).tolist()]
        if self.rows.sets is None:
            return names[0]
        return join_names(names) or NO_LABEL

    def answer(self, at: int) -> np.ndarray:
        """The same as marks `(C,)`."""
        probability_C = self.probabilities_nC[at]
        if self.rows.sets is not None:
            return probability_C >= 0.5
        return np.arange(len(probability_C)) == probability_C.argmax()

    def probability(self, at: int, marks_C: np.ndarray) -> float:
        """How probable labels are: as the least probable of them, or, of none, as that the likeliest is not there."""
        probability_C = self.probabilities_nC[at]
        return float(probability_C[marks_C].min()) if marks_C.any() else 1 - float(probability_C.max())


@dataclass(slots=True)
class Inspection:
    """All that was found.

    Attributes:
        samples: the rows of each split that were looked at.
        repeats: near repeats by split; None where they were not looked for, as the package for it is missing.
        suspects: None where labels were not checked; `content` says why.
        content: of audit.json.
    """

    splits: Splits
    samples: dict[str, Rows]
    repeats: dict[str, list[NearRepeat]] | None
    suspects: Suspects | None
    content: dict[str, Any]


def inspect(splits: Splits, config: AuditConfig) -> Inspection:
    """Look at all splits, or at samples of large ones."""
    labels, n_classes, by_name = splits.labels, len(splits.labels), splits.by_name()
    samples = {name: rows.sample(config.sample, config.seed) for name, rows in by_name.items()}
    train = samples["train"]
    content: dict[str, Any] = {
        "source": splits.train.source,
        "rows": {name: len(rows) for name, rows in by_name.items()},
        "sampled": {name: len(rows) for name, rows in samples.items()},
        "classes": {},
        "lengths": token_counts(samples, config),
        "scripts": {name: rows_by_script(rows) for name, rows in samples.items()},
        "personal": {name: personal(rows) for name, rows in samples.items()},
        "agreement": {} if train.voters is None else agreement(train.probabilities, train.voters),
        "notes": splits.notes,
    }
    for name, rows in by_name.items():
        content["classes"][name] = dict(zip(labels, class_counts(rows, n_classes), strict=True))
    repeats = None if find_spec("datasketch") is None else near_repeats(samples)
    content["near_repeats"] = MISSING
    if repeats is not None:
        content["near_repeats"] = {name: len(of_split) for name, of_split in repeats.items()}
    terms = None  # as a run on these rows chooses them
    if not too_many(train, n_classes):
        terms = choose_terms(train.readable(), n_classes, None, samples["validation"])
    content["curve"] = learning_curve(train, samples["validation"], n_classes, config.seed, terms)

    found = Inspection(splits, samples, repeats, None, content)
    if find_spec("cleanlab") is None:
        content["suspects"] = MISSING
        return found
    rows, rare = without_rare(train, config.folds)
    probabilities_nC = out_of_fold(rows, n_classes, config.folds, config.seed, terms)
    if probabilities_nC is None:
        if fewest_rows(rows, n_classes) < config.folds:
            what = "class" if rows.sets is None else "label"
            why = f"a {what} has fewer rows than there are folds ({config.folds})"
        elif too_many(rows, n_classes):
            why = f"a linear model of {n_classes:,} classes and {len(rows):,} rows takes hours"
        else:
            why = "the texts hold nothing that a linear model counts"
        content["suspects"] = f"not looked for: {why}"
        return found
    found.suspects = Suspects(rows, probabilities_nC, likely_wrong(rows, probabilities_nC))
    not_asked = [labels[index] for index in rare]
    content["suspects"] = {"rows": len(found.suspects.at), "of": len(rows), "not_asked": not_asked}
    return found


def write_suspects(path: Path, suspects: Suspects, labels: list[str]) -> None:
    """One line a suspect row, the worst first: as predictions.csv, with its label, a likelier one, and how probable
    both are."""
    rows = suspects.rows.pick(suspects.at)
    marks_nC = labels_of(rows, len(labels))
    if rows.sets is None:
        marks_nC = marks_nC[:, None] == np.arange(len(labels))
    lines = []
    for label, marks_C, at in zip(label_words(rows, labels), marks_nC, suspects.at, strict=True):
        p_label, p_likelier = suspects.probability(at, marks_C), suspects.probability(at, suspects.answer(at))
        lines.append([label, suspects.likelier(at, labels), round(p_label, 4), round(p_likelier, 4)])
    write_answers(path, rows, ["label", "likelier", "p_label", "p_likelier"], lines)


def sentences(content: dict[str, Any]) -> list[str]:
    """What was found, a line each."""
    said = []
    for name, of in content["lengths"].items():
        cut = f"; {of['cut']:.1%} are cut" if of["cut"] else ""
        said.append(f"{name}: texts of {of['least']:.0f} to {of['most']:.0f} tokens, median {of['median']:.0f}{cut}")
    for name, counts in content["scripts"].items():
        if len(counts) > 1:
            by_script = ", ".join(f"{script} {count:,}" for script, count in counts.items())
            said.append(f"{name}: rows by script: {by_script}")
    for name, counts in content["personal"].items():
        for kind, count in counts.items():
            said.append(f"{name}: {_rows(count, 'seem')} to hold personal data: {kind}")
    if agreed := content["agreement"]:
        alpha = agreed["alpha"]
        said.append(
            f"train: annotators agree by Krippendorff's alpha {alpha['value']:.3f} ({alpha['low']:.3f} to "
            f"{alpha['high']:.3f}): {agreed['votes']:,} votes on {agreed['rows']:,} rows; no answer agrees with more "
            f"than {agreed['for_most']:.1%} of them"
        )
    repeats = content["near_repeats"]
    if isinstance(repeats, str):
        said.append(f"near repeats: {repeats}")
    else:
        for name, count in repeats.items():
            if count:
                said.append(f"{name}: {_rows(count, 'nearly repeat')} the text of another row")
    suspects = content["suspects"]
    if isinstance(suspects, str):
        said.append(f"wrong labels: {suspects}")
    else:
        said.append(f"train: {suspects['rows']:,} of {suspects['of']:,} labels may be wrong: a linear model disagrees")
        rare = suspects["not_asked"]
        if rare:
            said.append(f"wrong labels: {list_names(rare)} not checked, with fewer rows than there are folds")
    curve = content["curve"]
    if curve:
        now, more = curve["accuracy"][-1]["value"], curve["twice"]
        guess = f"with {more['rows']:,} expect {more['value']:.3f} ({more['low']:.3f} to {more['high']:.3f})"
        if more["value"] < now:  # more rows seldom make a linear model worse: few validation rows mislead the guess
            guess = f"what {more['rows']:,} would give is unknown, as validation has few rows"
        said.append(f"a linear model has an accuracy of {now:.3f} with {curve['rows'][-1]:,} training rows; {guess}")
    return said


def _rows(count: int, verb: str) -> str:
    return f"1 row {verb}s" if count == 1 else f"{count:,} rows {verb}"


def write_audit(path: Path, found: Inspection, config: AuditConfig) -> None:
    """The page: what was found, then classes, lengths, repeats, suspects and the curve."""
    splits, content = found.splits, found.content
    drawn = []
    for name, rows in found.samples.items():
        n_rows = content["rows"][name]
        if len(rows) < n_rows:
            drawn.append(f"{name}: {len(rows):,} of {n_rows:,} rows, drawn, were looked at")
    sections = [
        ReportSection("Findings", items=[*splits.notes, *sentences(content), *drawn]),
        classes_section(content, len(splits.train)),
        lengths_section(content),
        *repeats_sections(found.samples, found.repeats),
        *suspects_sections(found.suspects, splits.labels),
        *curve_sections(content["curve"]),
        *settings_sections(to_plain(config)),
    ]
    counts = ", ".join(f"{name} {count:,}" for name, count in content["rows"].items())
    kind = "labels" if splits.multi else "classes"
    subtitle = f"{splits.train.source}: {counts} rows; {len(splits.labels)} {kind}"
    write_page(path, Page(title="Audit of texts and labels", subtitle=subtitle, sections=sections))


def classes_section(content: dict[str, Any], n_train: int) -> ReportSection:
    """Rows of each class by split, those of many training rows first."""
    counts = content["classes"]
    names = sorted(counts["train"], key=lambda name: -counts["train"][name])
    lines = []
    for name in names[:MOST_CLASSES]:
        lines.append([name, *(f"{of_split[name]:,}" for of_split in counts.values()), counts["train"][name] / n_train])
    notes = []
    if len(names) > MOST_CLASSES:
        notes.append(f"{len(names) - MOST_CLASSES:,} more have fewer rows.")
    table = ReportTable(["class", *counts, "share of train"], lines, f"w{'n' * len(counts)}b")
    return ReportSection("Classes", table, notes=notes, long=True)


def lengths_section(content: dict[str, Any]) -> ReportSection:
    """Tokens of a text by split."""
    columns, lines = ["least", "5 %", "median", "95 %", "most"], []
    for name, of in content["lengths"].items():
        lines.append([name, *(f"{of[key]:,.0f}" for key in columns), f"{of['cut']:.1%}"])
    return ReportSection("Tokens of a text", ReportTable(["split", *columns, "cut"], lines, "wnnnnnn"))


def repeats_sections(samples: dict[str, Rows], repeats: dict[str, list[NearRepeat]] | None) -> list[ReportSection]:
    """Nearly equal texts; those of two splits first, as these leak."""
    found: list[NearRepeat] = []
    for of_split in (repeats or {}).values():
        found += of_split
    found.sort(key=lambda one: (one.split == one.other_split, -one.similarity))
    examples = []
    for one in found[:MOST_SHOWN]:
        rows, others = samples[one.split].pick([one.at]), samples[one.other_split].pick([one.other_at])
        texts = [masked(text)[0] for text in (*both_texts(rows), *both_texts(others))]
        place = (
            f"{one.similarity:.0%} alike: {one.split} row {rows.numbers[0]:,}, "
            f"{one.other_split} row {others.numbers[0]:,}"
        )
        examples.append(Example(place, texts))
    return [ReportSection("Nearly the same text", examples=examples, long=True)] if examples else []


def suspects_sections(suspects: Suspects | None, labels: list[str]) -> list[ReportSection]:
    """Rows whose label is probably wrong, with the class that is likelier."""
    if suspects is None or not suspects.at:
        return []
    shown = suspects.at[:MOST_SHOWN]
    rows, examples = suspects.rows.pick(shown), []
    for at, label, text, number in zip(shown, label_words(rows, labels), both_texts(rows), rows.numbers, strict=True):
        place = f"{suspects.probability(at, suspects.answer(at)):.0%} sure, row {number:,}"
        examples.append(Example(place, [masked(text)[0]], label, suspects.likelier(at, labels)))
    note = (
        "The label, and the answer of a linear model that has not learnt from the row. suspects.csv has all of them, "
        "the worst first. Read them before you change any: a right label of an unusual text looks the same."
    )
    return [ReportSection("Labels that may be wrong", notes=[note], examples=examples, long=True)]


def curve_sections(curve: dict[str, Any]) -> list[ReportSection]:
    """Accuracy by training rows, and with twice as many."""
    if not curve:
        return []
    lines = []
    for n_rows, accuracy in zip(curve["rows"], curve["accuracy"], strict=True):
        lines.append([f"{n_rows:,}", Interval(**accuracy), Interval(**accuracy)])
    more = curve["twice"]
    guess = Interval(more["value"], more["low"], more["high"])
    lines.append([f"{more['rows']:,}, by a power law", guess, guess])
    table = ReportTable(["training rows", "accuracy", "from 0 to 1"], lines, "wib")
    note = "Accuracy of a linear model on validation rows. The last line is a guess, for more rows of the same kind."
    return [ReportSection("Accuracy with more rows", table, [note])]
