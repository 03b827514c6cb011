"""Evaluation of a text classifier, whose rows have one class each or any number of labels: figures, confusions, and the
worst mistakes with the words that carry them.

n rows
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

import numpy as np
from tokenizers import Encoding

import manyheads.plugin as plugin
from manyheads.config.figures import figures_of, figures_of_answers
from manyheads.data.rows import Rows, rows_of_class
from manyheads.data.tokens import tokenizing
from manyheads.evaluation.answered import Stored, Worst, answer_rows, cell_groups, cell_key, write_predictions
from manyheads.evaluation.evaluation import Evaluation, Finding, Setup, compared, figures_section
from manyheads.evaluation.intervals import share_interval
from manyheads.evaluation.metrics import Judged, LabelScore, Scores, change_of_answers, score_answers
from manyheads.evaluation.report import (
    BLUE,
    MOST_LETTERS,
    PALE,
    Example,
    Link,
    Picture,
    Section,
    Table,
    draw,
    draw_reliability,
)
from manyheads.inference.classifier import TextClassifier
from manyheads.runs.summary import LINEAR, Figures, beside, lead_words, linear_words, strongest, words_of

MOST_CLASSES = 20  # of a square table
MOST_CONFUSIONS = 20  # in a list of them, where there are more classes
MOST_LINKED, MOST_OF_CELL = 40, 5  # cells whose texts are shown, and texts of each
WORDS = (
    "underlined words carry the answer, those underlined by dots speak against it: by how much its probability changes "
    "if they are cut out of the text"
)
MOST_READ = 2**16  # tokens, to see which words carry answers: where words are many, neighbours are cut out together
LEAST = 0.01  # of a probability, that is told
MOST_TOLD, MOST_OF_WORD = 3, 40  # words in a sentence, either way, and letters of each
SHARES = [at / 20 for at in range(1, 21)]  # of the rows, that are answered
Span = tuple[int, int]


class Kind(NamedTuple):
    """What is said of a classifier: of rows with one class each, or with any number of labels."""

    rows: str  # as figures name such rows
    title: str
    most_frequent: str


CLASSES = Kind("classes", "A text classifier, evaluated", "most frequent class")
LABELS = Kind("labels", "A classifier of any number of labels, evaluated", "most frequent label")
N_LARGE = 4  # figures above a report: the first of its tables


def evaluate_classifier(
    classifier: TextClassifier, rows: Rows, setup: Setup, stored: Stored | None = None
) -> Evaluation:
    """The classifier, each of its members alone, the linear model of the run and the most frequent class or label; of
    what is `stored` where several of its kind have answered, each some of the rows.

    Raises:
        UserError: there are no rows, or they are pairs and the model takes single texts, or the other way round.
    """
    kind, n_classes = LABELS if classifier.multi else CLASSES, len(classifier.labels)
    explained = with_words if stored is None else lambda _, examples: examples
    stored = stored or answer_rows(classifier, rows, setup)
    worst, judged = Worst(), {name: list[Judged]() for name in stored.models}
    own_name = next(iter(judged))
    for chunk in stored.chunks():
        for name, one in chunk.items():
            judged[name].append(Judged.of(one.judged(one.marks_nC), one.judged(one.given_nC), one.probabilities_nC))
        worst.add(chunk[own_name])
    of_models = {name: Judged.joined(parts) for name, parts in judged.items()}
    own = of_models[own_name]
    scores = own.scores(classifier.labels, stored.models[own_name])
    table = figures_of(kind.rows, "table")
    members = {}
    for name, one in of_models.items():
        figures = scores.figures if name == own_name else one.figures(table)
        members[name] = {figure: figures[figure] for figure in table}

    rivals = dict[str, np.ndarray]()  # answers of models that need no training of ours
    if setup.compare:
        frequent = frequent_label(rows, n_classes, setup)
        answer = np.arange(n_classes) == frequent if classifier.multi else np.array(frequent)
        rivals[kind.most_frequent] = np.broadcast_to(answer, own.labels.shape)
        if LINEAR in of_models:
            rivals[LINEAR] = of_models[LINEAR].answers
    baselines, leads = {}, {}
    first, second = [one for one in table if one in figures_of_answers(kind.rows)][:2]
    for name, answers in rivals.items():
        figures = score_answers(own.labels, answers, n_classes)
        (lead,) = change_of_answers(own.labels, answers, [own.answers], n_classes)
        baselines[name] = {figure: figures[figure] for figure in (first, second)}
        leads[name] = {figure: lead[figure] for figure in (first, second)}

    note = "" if setup.baseline is None else linear_words(setup.baseline.linear.terms.value, classifier.share)
    note = f"{LINEAR.capitalize()}: {note}." if note else ""
    models = beside(members, baselines)
    models = {f"{own_name} (this model)": models.pop(own_name), **models}
    return Evaluation(
        title=kind.title,
        size=f"{scores.n_rows:,} rows, {n_classes} {kind.rows}",
        scores=scores.as_json(),
        members=members,
        baselines=baselines,
        leads=leads,
        verdict=verdict(scores, baselines, leads),
        tiles=reported(scores, table[:N_LARGE]),
        comparison=compared("Compared with simpler models, on the same rows", models, first, second, note=note),
        note=note,
        figures=lambda: sections_of_figures(scores, stored),
        findings=findings(stored, setup, own),
        details=lambda: details(scores, explained(classifier, worst.examples())),
        write=lambda path: write_predictions(path, stored),
    )


def findings(stored: Stored, setup: Setup, judged: Judged) -> list[Finding]:
    """What was asked beyond the figures, and what there is beyond them wherever a row has one class."""
    found = [analyse(stored) for analyse in setup.analyses]
    for rule, marks_n in zip(setup.rules, stored.marks, strict=True):
        if rule.judge is not None:
            found.append(plugin.resolve(rule.judge)(stored, rule.fitted, marks_n))
    if not judged.multi:
        found.append(risk_by_coverage(judged))
    return found


def risk_by_coverage(judged: Judged) -> Finding:
    """The share of wrong answers where only the surest texts are answered, by how many are, with all that are as sure:
    El-Yaniv and Wiener (2010), "On the Foundations of Noise-free Selective Classification"."""
    order_n, n = np.argsort(-judged.confidence_n, kind="stable"), len(judged.labels)
    sure_n, wrong_n = judged.confidence_n[order_n], np.cumsum(~judged.right_n[order_n])
    points = []
    for share in SHARES:
        least = float(sure_n[max(0, math.ceil(share * n - 1e-9) - 1)])
        n_answered = int(np.searchsorted(-sure_n, -least, side="right"))
        risk = share_interval(int(wrong_n[n_answered - 1]), n_answered)
        points.append({"answered": n_answered / n, "confidence": least, "risk": asdict(risk)})
    figure, ((axes,),) = draw(1, 1, width=5.2, height=3.4)
    shares = [one["answered"] for one in points]
    axes.fill_between(
        shares, [one["risk"]["low"] for one in points], [one["risk"]["high"] for one in points], color=PALE
    )
    axes.plot(shares, [one["risk"]["value"] for one in points], color=BLUE, marker=".", markersize=4)
    axes.set(xlim=(0, 1), ylim=(0, None), xlabel="share of texts that are answered", ylabel="wrong among them")
    caption = "wrong answers if only the surest texts are answered, with 95 % intervals"
    picture = Picture("risk", figure, caption)
    return Finding("risk_coverage", points, [Section("What if it answers only when sure?", pictures=[picture])])


def frequent_label(rows: Rows, n_classes: int, setup: Setup) -> int:
    """The class or label that most training rows have, of equals the first; that of `rows` where those are unknown."""
    if setup.most_frequent is not None:
        return setup.most_frequent
    return int(np.argmax(rows_of_class(setup.train or rows, n_classes)))


def verdict(scores: Scores, baselines: dict[str, Figures], leads: dict[str, Figures]) -> str:
    """One sentence a hurried reader can repeat; it says so where a cheap model wins."""
    first, of = next(iter(scores.figures.items()))
    if first == "accuracy":
        share, same, said = ".1%", "on the same rows ", f"{of.value:.1%} of {scores.n_rows:,} rows are answered right"
    else:
        share, same, said = ".3f", "", f"micro F1 is {of.value:.3f} on {scores.n_rows:,} rows"
    said = f"{said} (95 % interval {of.low:{share}} to {of.high:{share}})"
    if not (rival := strongest(baselines, first)):
        return f"{said}."
    return f"{said}; {same}the model {lead_words(leads[rival][first], rival)}."


def reported(scores: Scores, names: Iterable[str] = ()) -> Figures:
    """Some figures, or all, by their names in a report."""
    rows, found = "classes" if scores.confusion else "labels", {}
    for name in names or scores.figures:
        words = plugin.find("figure", name).facts.get("words", {})
        found[words.get(rows, words_of(name))] = scores.figures[name]
    return found


def sections_of_figures(scores: Scores, stored: Stored) -> list[Section]:
    """Confusions, classes or labels, and all figures."""
    lines = [
        [
            *(one.name, f"{one.precision:.3f}", f"{one.recall:.3f}", f"{one.f1:.3f}", one.f1, f"{one.support:,}"),
            *([f"{one.threshold:.3f}"] if isinstance(one, LabelScore) else []),
        ]
        for one in scores.per_class
    ]
    columns = ["precision", "recall", "F1", "", "rows"]
    notes, noun = list[str](), "classes" if scores.confusion else "labels"
    if scores.averaged < len(scores.labels):
        notes = [f"macro figures are means over the {scores.averaged:,} {noun} that rows have or are given"]
    if not scores.confusion:
        table = Table(["label", *columns, "given from"], lines, "wnnnbnn")
        return [Section("Labels", table, notes, long=True), figures_section(reported(scores))]
    return [
        confusion_section(scores, stored),
        Section("Classes", Table(["class", *columns], lines, "wnnnbn"), notes, long=True),
        figures_section(reported(scores)),
    ]


def details(scores: Scores, mistakes: list[Example]) -> list[Section]:
    """Calibration and the worst mistakes."""
    worst, trust = "Worst mistakes: wrong, and sure of it", "Can its confidence be trusted?"
    wrong = [Section(worst, notes=[WORDS], examples=mistakes, long=True)] if mistakes else []
    if not scores.confusion:
        return wrong
    caption = (
        "accuracy of the answers given with a confidence, with 95 % intervals; on the dashed line the model knows how "
        "often it is right, pale bars hold few rows"
    )
    return [Section(trust, pictures=[Picture("reliability", draw_reliability(scores), caption)]), *wrong]


def confusion_section(scores: Scores, stored: Stored) -> Section:
    """Counts of classes and answers, the rows of wrong ones a click away; of many classes the largest confusions."""
    wrong = [
        (count, label, answer)
        for label, of_class in enumerate(scores.confusion)
        for answer, count in enumerate(of_class)
        if count and label != answer
    ]
    wrong.sort(key=lambda one: -one[0])
    small = len(scores.labels) <= MOST_CLASSES
    cells = {(label, answer): count for count, label, answer in wrong[: MOST_LINKED if small else MOST_CONFUSIONS]}
    groups = cell_groups(stored, cells, MOST_OF_CELL)

    def link(label: int, answer: int) -> Link:
        count, shown = scores.confusion[label][answer], (label, answer) in cells
        title = f"{count:,} rows of {scores.labels[label]} answered as {scores.labels[answer]}: show them"
        to, share = cell_key(label, answer) if shown else "", count / max(sum(scores.confusion[label]), 1)
        return Link(f"{count:,}", to, title if shown else "", share)

    if small:
        ids = range(len(scores.labels))
        rows = [[name, *(link(label, answer) for answer in ids)] for label, name in enumerate(scores.labels)]
        table = Table(["true class", *scores.labels], rows, "w" + "s" * len(ids))
        note = "rows are true classes, columns answers, shaded by the share of the class; a number shows its texts"
        return Section("Confusion", table, [note], groups=groups, long=True)
    rows = [
        [scores.labels[label], scores.labels[answer], one, f"{one.share:.0%}", one.share]
        for label, answer in cells
        for one in [link(label, answer)]
    ]
    table = Table(["true class", "answered as", "rows", "of the class", ""], rows, "wwlnb")
    return Section("Most frequent confusions", table, ["a number shows its texts"], groups=groups, long=True)


def with_words(classifier: TextClassifier, examples: Sequence[Example], *, most: int = MOST_READ) -> list[Example]:
    """The examples, each with what its words add to the probability of its answer; those whose texts are too long for
    their part of `most` tokens stay as they are.

    Li, Monroe and Jurafsky (2016), "Understanding Neural Networks through Representation Erasure": a word, of the
    tokenizer's, is cut out of the text and all members of the classifier are asked again.
    """
    if not examples:
        return []
    rows = [tuple(one.texts) if classifier.pairs else one.texts[0] for one in examples]
    with tokenizing("the tokenizer fails on a text"):
        encodings = classifier.tokenizer.encode_batch(rows)
    cuts = [_cuts(one, encoding, most // len(rows)) for one, encoding in zip(examples, encodings, strict=True)]
    asked: list[list[str]] = []
    for one, (spans, _) in zip(examples, cuts, strict=True):
        asked.append(one.texts)
        asked += [_without(one.texts, text, span) for text, span in spans]
    texts, *pairs = map(list, zip(*asked, strict=True))
    logits_nC = classifier.logits(texts, pairs[0] if pairs else None)
    probabilities, found = iter(classifier.probabilities(logits_nC.double())), []
    for one, (spans, together) in zip(examples, cuts, strict=True):
        answer = classifier.labels.index(str(one.answer))
        whole = float(next(probabilities)[answer])
        added = [whole - float(next(probabilities)[answer]) for _ in spans]
        found.append(_marked(one, spans, added, together) if spans else one)
    return found


def spans_of(encoding: Encoding, texts: Sequence[str]) -> list[list[Span]]:
    """Where the words of each text begin and end, without white space; tokens are words where a text is one word."""
    places: list[dict[int, Span]] = [{} for _ in texts]
    keys = [word for word, text in zip(encoding.word_ids, encoding.sequence_ids, strict=True) if text is not None]
    alone = len({*keys}) < 2
    for at, (word, text, (start, end)) in enumerate(
        zip(encoding.word_ids, encoding.sequence_ids, encoding.offsets, strict=True)
    ):
        letters = "" if text is None else texts[text][start:end]
        if text is not None and word is not None and letters.strip():
            start, end = start + len(letters) - len(letters.lstrip()), end - len(letters) + len(letters.rstrip())
            first, last = places[text].get(at if alone else word, (start, end))
            places[text][at if alone else word] = min(first, start), max(last, end)
    found = []
    for of_text in places:
        spans, reached = [], 0
        for start, end in sorted(of_text.values()):
            if start >= reached:  # tokens of one letter may lie at the same place
                spans.append((start, end))
                reached = end
        found.append(spans)
    return found


def _cuts(example: Example, encoding: Encoding, most: int) -> tuple[list[tuple[int, Span]], int]:
    """What is cut out of which text, of the letters that a page shows, and how many words together."""
    spans = [[one for one in of_text if one[1] <= MOST_LETTERS] for of_text in spans_of(encoding, example.texts)]
    room = most // max(1, len(encoding)) - len(spans)  # pieces; the text is read as it is, too
    together = max(1, -(-sum(map(len, spans)) // max(1, room)))
    groups = [
        (text, (some[0][0], some[-1][1]))
        for text, of_text in enumerate(spans)
        for at in range(0, len(of_text), together)
        if (some := of_text[at : at + together])
    ]
    return (groups if len(groups) > 1 and room > 0 else []), together


def _without(texts: Sequence[str], text: int, span: Span) -> list[str]:
    return [one[: span[0]] + one[span[1] :] if at == text else one for at, one in enumerate(texts)]


def _marked(example: Example, spans: list[tuple[int, Span]], added: list[float], together: int) -> Example:
    largest = max(map(abs, added))
    parts, told = [], []
    for at, text in enumerate(example.texts):
        pieces, reached = list[tuple[str, float]](), 0
        for (of_text, (start, end)), one in zip(spans, added, strict=True):
            if of_text == at:
                pieces += [(text[reached:start], 0.0), (text[start:end], one / largest if abs(one) >= LEAST else 0.0)]
                told.append((one, text[start:end]))
                reached = end
        parts.append([*pieces, (text[reached:MOST_LETTERS], 0.0)])
    told.sort(key=lambda pair: -abs(pair[0]))
    ways = {
        "loses": [f"{_short(word)} {100 * one:.1f}" for one, word in told if one >= LEAST],
        "gains": [f"{_short(word)} {100 * -one:.1f}" for one, word in told if -one >= LEAST],
    }
    each = "a word" if together == 1 else f"{together} neighbouring words"
    said = "; ".join(f"{way} {', '.join(words[:MOST_TOLD])}" for way, words in ways.items() if words)
    note = f"points that {example.answer} {said or 'neither loses nor gains'} without {each}"
    return replace(example, parts=parts, note=note)


def _short(word: str) -> str:
    return f"“{word if len(word) <= MOST_OF_WORD else f'{word[:MOST_OF_WORD]}…'}”"
