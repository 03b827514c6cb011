"""The end of a training run: every split judged, cheap models beside it, summary.json and report.html written."""

from pathlib import Path
from typing import Any, NamedTuple

from manyheads.config import GenerateConfig
from manyheads.data.rows import Rows, Splits
from manyheads.evaluation.answers import NETWORK, majority, worst_mistakes
from manyheads.evaluation.masked_lm import COMMON, guess_sections, judge_common, judge_guesses, score_guesses
from manyheads.evaluation.members import (
    chosen_here,
    few_rows,
    judge_label_members,
    judge_members,
    rows_of_class,
    said_of,
)
from manyheads.evaluation.multilabel import most_frequent
from manyheads.evaluation.report import (
    Report,
    Sections,
    class_sections,
    installed_versions,
    label_sections,
    write_report,
)
from manyheads.evaluation.scores import Interval
from manyheads.evaluation.seq2seq import judge_texts, score_texts, text_baselines, translation_sections
from manyheads.evaluation.summary import Summary, baseline_figures, facts, headline, label_headline, leads
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.folder import AnyPredictor
from manyheads.inference.masked_lm import MaskedLMPredictor
from manyheads.inference.seq2seq import Seq2SeqPredictor
from manyheads.linear.model import LinearBaseline
from manyheads.runs.folder import read_curves


class Judged(NamedTuple):
    """Figures by split and by the name of the model, the one that answers first; those of cheap models on the split
    judged last, what the page says of that one, and by how much the cheap models are beaten there."""

    title: str
    figures: dict[str, dict[str, dict[str, Interval]]]
    baselines: dict[str, dict[str, Interval]]
    sections: Sections
    leads: dict[str, dict[str, Interval]] = {}  # noqa: RUF012 - read alone


def judge_run(
    splits: Splits,
    deliverable: AnyPredictor,
    training: dict[str, Any],
    config: dict[str, Any],
    folder: Path,
) -> Summary:
    """Judge what a run shipped, as it was shipped, and write summary.json and report.html into `folder`.

    `training` holds the figures of Summary that only the training loop knows, `config` the run's settings.
    """
    named = {name: rows for name, rows in splits.by_name().items() if name != "train"}
    judged_on, rows = list(named.items())[-1]
    judged = judge_splits(deliverable, splits.train, named, folder)
    shipped = {split: next(iter(models.values())) for split, models in judged.figures.items()}
    classifier = deliverable if isinstance(deliverable, TextClassifier) else None
    share, labels = classifier.share if classifier else 0.0, splits.labels
    chosen = chosen_here(judged_on, linear=share > 0, multi=splits.multi, classes=bool(classifier))
    baseline = classifier.baseline(folder) if classifier else None
    counts = rows_of_class(splits.train, len(labels))
    summary = Summary(
        output=str(folder),
        rows={name: len(one) for name, one in splits.by_name().items()},
        validation=shipped["validation"],
        test=shipped.get("test", {}),
        judged_on=judged_on,
        baselines=judged.baselines,
        leads=judged.leads,
        linear=share,
        digests={name: one.digest(labels) for name, one in splits.by_name().items()},
        versions=installed_versions(),
        members=judged.figures,
        terms=baseline.linear.terms_name if baseline else "",
        most_frequent=labels[most_frequent(counts)] if labels else "",
        warnings=[*([chosen] if chosen else []), *few_rows(rows, judged_on, labels, splits.validation)],
        **training,
    )
    classes = f", {len(labels)} {'labels' if splits.multi else 'classes'}" if labels else ""
    report = Report(
        title=judged.title,
        subtitle=f"{rows.source}, {judged_on} split, {len(rows):,} rows{classes}",
        sections=judged.sections,
        curves=read_curves(folder / "metrics.csv"),
        facts=facts(summary),
        notes=splits.notes,
        config=config,
        warnings=summary.warnings,
    )
    write_report(folder / "report.html", report)
    summary.write(folder / "summary.json")
    return summary


def judge_splits(deliverable: AnyPredictor, train: Rows, named: dict[str, Rows], home: Path) -> Judged:
    """Whatever was shipped, on splits, the last of which is the one that counts; the baseline of the run folder `home`,
    fitted in training, is judged there, too."""
    if isinstance(deliverable, Seq2SeqPredictor):
        return judge_answers(deliverable, train, named)
    if isinstance(deliverable, MaskedLMPredictor):
        return judge_hidden(deliverable, train, named)
    return (judge_sets if deliverable.multi else judge_classes)(deliverable, train, named, deliverable.baseline(home))


def judge_classes(
    classifier: TextClassifier, train: Rows, named: dict[str, Rows], baseline: LinearBaseline | None
) -> Judged:
    """A classifier on splits, the last of which is the one that counts."""
    figures, last = {}, None
    for split, rows in named.items():  # of a split but the last its headline alone is kept: scores hold C x C numbers
        last = judge_members(classifier, rows, baseline, majority(train))
        figures[split] = {name: headline(one) for name, one in last.scores.items()}
    assert last is not None, "there is always a validation split"
    return Judged(
        "A text classifier and what it is worth",
        figures,
        baseline_figures(last.baselines),
        class_sections(last.scores, last.baselines, worst_mistakes(last.answered), said_of(classifier, baseline)),
        leads(last.baselines),
    )


def judge_sets(
    classifier: TextClassifier, train: Rows, named: dict[str, Rows], baseline: LinearBaseline | None
) -> Judged:
    """The same where a row has any number of labels."""
    label = most_frequent(rows_of_class(train, len(classifier.labels)))
    found = {split: judge_label_members(classifier, rows, baseline, label) for split, rows in named.items()}
    last, names = found[list(named)[-1]], ("micro_f1", "macro_f1")
    return Judged(
        "A classifier of any number of labels and what it is worth",
        {split: {name: label_headline(one) for name, one in of.scores.items()} for split, of in found.items()},
        baseline_figures(last.baselines, names),
        label_sections(last.scores, last.answered, last.baselines, said_of(classifier, baseline)),
        leads(last.baselines, names),
    )


def judge_answers(translator: Seq2SeqPredictor, train: Rows, named: dict[str, Rows]) -> Judged:
    """The same of a model that answers by texts, greedily."""
    found = {name: judge_texts(translator, rows, GenerateConfig()) for name, rows in named.items()}
    scores = {name: score_texts(one) for name, one in found.items()}
    last = list(named)[-1]
    baselines = text_baselines(train, named[last])
    return Judged(
        "A model that answers texts by texts, and what it is worth",
        {name: {NETWORK: one.by_name()} for name, one in scores.items()},
        {name: {"exact_match": figure} for name, figure in baselines.items()},
        translation_sections(scores[last], found[last], baselines),
    )


def judge_hidden(guesser: MaskedLMPredictor, train: Rows, named: dict[str, Rows]) -> Judged:
    """The same of a model that tells hidden words, beside how often they occur."""
    scores = {name: score_guesses(judge_guesses(guesser, rows)) for name, rows in named.items()}
    last = list(named)[-1]
    beside = score_guesses(judge_common(guesser, train, named[last]))
    return Judged(
        "A model that predicts hidden words, and what it is worth",
        {name: {NETWORK: one.by_name()} for name, one in scores.items()},
        {COMMON: beside.by_name()},
        guess_sections(scores[last], beside),
    )
