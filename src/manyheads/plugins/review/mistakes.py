"""The mistakes of a classifier: which classes are confused, the worst mistakes, and the words that carry them.

n rows
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Encoding

from manyheads.data.rows import NO_LABEL
from manyheads.data.tokenizer import tokenizer_errors
from manyheads.evaluation.answered import AnsweredRows, LogitStore
from manyheads.evaluation.classification import MOST_CLASSES
from manyheads.evaluation.evaluation import Judged
from manyheads.evaluation.metrics import Scores
from manyheads.evaluation.report import MOST_LETTERS, Example, Group, Link, ReportSection, ReportTable
from manyheads.inference.classifier import TextClassifier

MOST_CONFUSIONS = 20  # in a list of them, if there are more classes than a square table shows
MOST_LINKED = 40  # cells whose texts are shown
WORDS = (
    "underlined words support the answer, words with a dotted underline oppose it: by how much its probability changes "
    "if they are removed from the text"
)
MOST_READ = 2**16  # tokens, to see which words carry answers: if words are many, neighbours are cut out together
LEAST = 0.01  # of a probability, that is shown
MOST_TOLD, MOST_OF_WORD = 3, 40  # words in a sentence that support or oppose the answer, and letters of each
MOST_OF_CELL = 5  # texts that are shown of a cell of the confusion matrix
Span = tuple[int, int]


def mistake_sections(judged: Judged) -> list[ReportSection]:
    """What a report begins with: the confusions, then the most confident mistakes. Where several classifiers each
    answered some of the rows, as in a cross-validation, these come without the words that carry them."""
    stored, sections = judged.stored, list[ReportSection]()
    if judged.scores.confusion:
        sections.append(confusion_section(judged.scores, stored))
    mistakes, notes = worst_mistakes(stored), list[str]()
    if stored.of_model_n is None:
        mistakes, notes = with_words(judged.classifier, mistakes), [WORDS]
    if mistakes:
        sections.append(ReportSection("Most confident mistakes", notes=notes, examples=mistakes, long=True))
    return sections


def confusion_section(scores: Scores, stored: LogitStore) -> ReportSection:
    """Counts of classes and answers, with links to the texts of wrong ones; of many classes the most frequent
    confusions only."""
    n_classes = len(scores.labels)
    is_square = n_classes <= MOST_CLASSES
    wrong = []
    for label, of_class in enumerate(scores.confusion):
        for answer, count in enumerate(of_class):
            if count and label != answer:
                wrong.append((count, label, answer))
    wrong.sort(key=lambda cell: -cell[0])
    n_linked = MOST_LINKED if is_square else MOST_CONFUSIONS
    linked = {(label, answer): count for count, label, answer in wrong[:n_linked]}
    groups = cell_groups(stored, linked)

    def link(label: int, answer: int) -> Link:
        count = scores.confusion[label][answer]
        share = count / max(sum(scores.confusion[label]), 1)
        if (label, answer) not in linked:
            return Link(f"{count:,}", share=share)
        title = f"{count:,} rows of {scores.labels[label]} answered as {scores.labels[answer]}: show them"
        return Link(f"{count:,}", cell_key(label, answer), title, share)

    lines: list[list[Any]] = []
    if is_square:
        for label, name in enumerate(scores.labels):
            lines.append([name, *(link(label, answer) for answer in range(n_classes))])
        table = ReportTable(["true class", *scores.labels], lines, "w" + "s" * n_classes)
        note = "rows are true classes, columns answers, shaded by the share of the class; a number shows its texts"
        return ReportSection("Confusion", table, [note], groups=groups, long=True)
    for label, answer in linked:
        cell = link(label, answer)
        lines.append([scores.labels[label], scores.labels[answer], cell, f"{cell.share:.0%}", cell.share])
    if not linked:
        return ReportSection("Most frequent confusions", notes=["every row is answered right"])
    table = ReportTable(["true class", "answered as", "rows", "of the class", ""], lines, "wwlnb")
    return ReportSection("Most frequent confusions", table, ["a number shows its texts"], groups=groups, long=True)


class Worst:
    """The `n` rows with the most probable wrong answer: a class that they are given and do not have."""

    def __init__(self, n: int = 20) -> None:
        self.n = n
        self._found: list[tuple[float, Example]] = []  # the most probable first

    def add(self, found: AnsweredRows) -> None:
        wrong_nC = np.where(found.given_nC & ~found.marks_nC, found.probabilities_nC, -1.0)
        probability_n, rows = wrong_nC.max(1), found.rows
        n_wrong = int((probability_n >= 0).sum())
        least = self._found[-1][0] if len(self._found) == self.n else -1.0
        for row in np.argsort(-probability_n, kind="stable")[: min(self.n, n_wrong)].tolist():
            probability = float(probability_n[row])
            if probability <= least:
                break  # before its text is read
            label = ", ".join(found.words(found.marks_nC[row])) or NO_LABEL
            answer = found.names[int(wrong_nC[row].argmax())]
            place = f"{probability:.1%} sure, row {rows.numbers[row]:,}"
            self._found.append((probability, Example(place, rows.texts_of(row), label, answer)))
        self._found.sort(key=lambda one: -one[0])  # of equally probable ones the first stays first
        del self._found[self.n :]

    def examples(self) -> list[Example]:
        """The rows, the most probable first."""
        return [example for _, example in self._found]


def worst_mistakes(stored: LogitStore) -> list[Example]:
    """The wrong answers that the model is most confident of."""
    worst = Worst()
    for found in stored.answers():
        worst.add(found)
    return worst.examples()


def cell_groups(stored: LogitStore, cells: dict[tuple[int, int], int]) -> list[Group]:
    """The most confident mistakes of some cells of a confusion matrix, at most `MOST_OF_CELL` of each.

    Args:
        cells: a class and an answer, with the number of their rows.
    """
    if not cells:
        return []
    worst = {cell: Worst(MOST_OF_CELL) for cell in cells}
    for found in stored.answers():
        label_n, answer_n = found.marks_nC.argmax(1), found.given_nC.argmax(1)
        occurring = set(zip(label_n.tolist(), answer_n.tolist(), strict=True))
        for label, answer in occurring & cells.keys():
            worst[label, answer].add(found.pick(np.flatnonzero((label_n == label) & (answer_n == answer))))
    groups = []
    for (label, answer), n_rows in cells.items():
        shown = [replace(example, label=None, answer=None) for example in worst[label, answer].examples()]
        title = f"{stored.names[label]} answered as {stored.names[answer]}"
        if len(shown) < n_rows:
            title += f", the {len(shown)} surest of {n_rows:,}"
        groups.append(Group(cell_key(label, answer), title, shown))
    return groups


def cell_key(label: int, answer: int) -> str:
    """The id of such mistakes in a page."""
    return f"cell-{label}-{answer}"


class Cuts(NamedTuple):
    """The spans of an example that are cut out one at a time: a text and where in it; each is `together` words."""

    spans: list[tuple[int, Span]]
    together: int


def with_words(classifier: TextClassifier, examples: Sequence[Example], *, most: int = MOST_READ) -> list[Example]:
    """The examples, each with what its words add to the probability of its answer: a word is cut out of the text, and
    all members of the classifier answer again. Words are those of the tokenizer. Texts that are too long for their part
    of `most` tokens stay as they are.

    Source: Li, Monroe and Jurafsky (2016), "Understanding Neural Networks through Representation Erasure".
    """
    if not examples:
        return []
    examples = [replace(one, texts=[*classifier.as_read(one.texts[:1]), *one.texts[1:]]) for one in examples]
    classifier = replace(classifier, settings=replace(classifier.settings, kept={}))  # which reads these as they are
    rows = [tuple(example.texts) if classifier.pairs else example.texts[0] for example in examples]
    with tokenizer_errors("the tokenizer fails on a text"):
        encodings = classifier.tokenizer.encode_batch(rows)
    cuts = []
    versions: list[list[str]] = []  # of each example its texts, and its texts without each span
    for example, encoding in zip(examples, encodings, strict=True):
        cut = _cuts(example, encoding, most // len(rows))
        cuts.append(cut)
        versions.append(example.texts)
        for text, span in cut.spans:
            without = list(example.texts)
            without[text] = without[text][: span[0]] + without[text][span[1] :]
            versions.append(without)
    texts, *pairs = map(list, zip(*versions, strict=True))
    logits_nC = classifier.logits(texts, pairs[0] if pairs else None)
    probabilities_nC, at = classifier.probabilities(logits_nC.double()), 0
    explained = []
    for example, cut in zip(examples, cuts, strict=True):
        answer = classifier.labels.index(str(example.answer))
        whole, *without = probabilities_nC[at : at + 1 + len(cut.spans), answer].tolist()
        at += 1 + len(cut.spans)
        if cut.spans:
            example = _marked(example, cut, [whole - one for one in without])
        explained.append(example)
    return explained


def spans_of(encoding: Encoding, texts: Sequence[str]) -> list[list[Span]]:
    """Where the words of each text begin and end, without white space; if the whole text is one word, its tokens count
    as words."""
    words = set()
    for word, text in zip(encoding.word_ids, encoding.sequence_ids, strict=True):
        if text is not None:
            words.add(word)
    by_token = len(words) < 2
    places: list[dict[int, Span]] = [{} for _ in texts]  # of each text, by word or token
    tokens = zip(encoding.word_ids, encoding.sequence_ids, encoding.offsets, strict=True)
    for at, (word, text, (start, end)) in enumerate(tokens):
        if text is None or word is None:
            continue
        letters = texts[text][start:end]
        if not letters.strip():
            continue
        start += len(letters) - len(letters.lstrip())
        end -= len(letters) - len(letters.rstrip())
        key = at if by_token else word
        first, last = places[text].get(key, (start, end))
        places[text][key] = min(first, start), max(last, end)
    spans = []
    for of_text in places:
        separate, reached = [], 0
        for start, end in sorted(of_text.values(), key=lambda span: (span[0], -span[1])):
            if start >= reached:  # tokens of one letter may lie at the same place, and of a prefix at the first one
                separate.append((start, end))
                reached = end
        spans.append(separate)
    return spans


def _cuts(example: Example, encoding: Encoding, most: int) -> Cuts:
    """What is cut out of the letters that a page shows, so that all versions of the texts have at most `most` tokens
    together; many words are cut out several neighbours at a time."""
    shown = []
    for spans in spans_of(encoding, example.texts):
        shown.append([span for span in spans if span[1] <= MOST_LETTERS])
    n_words = sum(map(len, shown))
    n_cuts = most // max(1, len(encoding)) - len(shown)  # the text is read as it is, too
    together = max(1, math.ceil(n_words / max(1, n_cuts)))
    cuts = []
    for text, spans in enumerate(shown):
        for at in range(0, len(spans), together):
            some = spans[at : at + together]
            cuts.append((text, (some[0][0], some[-1][1])))
    if len(cuts) < 2 or n_cuts < 1:
        cuts = []
    return Cuts(cuts, together)


def _marked(example: Example, cut: Cuts, added: list[float]) -> Example:
    """The example, with what each span adds to the probability of its answer."""
    largest = max(map(abs, added))
    parts, words = [], []
    for at, text in enumerate(example.texts):
        pieces, reached = list[tuple[str, float]](), 0
        for (of_text, (start, end)), one in zip(cut.spans, added, strict=True):
            if of_text != at:
                continue
            share = one / largest if abs(one) >= LEAST else 0.0
            pieces += [(text[reached:start], 0.0), (text[start:end], share)]
            words.append((one, text[start:end]))
            reached = end
        parts.append([*pieces, (text[reached:MOST_LETTERS], 0.0)])
    words.sort(key=lambda pair: -abs(pair[0]))
    falls = [(one, word) for one, word in words if one >= LEAST][:MOST_TOLD]
    rises = [(one, word) for one, word in words if one <= -LEAST][:MOST_TOLD]
    each = "a word" if cut.together == 1 else f"{cut.together} neighbouring words"
    changes = ", ".join(f"{_short(word)} {-100 * one:+.1f}" for one, word in falls + rises)
    changed = f": {changes} points" if changes else " by less than one point"
    return replace(example, parts=parts, note=f"removing {each} changes the probability of {example.answer}{changed}")


def _short(word: str) -> str:
    if len(word) > MOST_OF_WORD:
        word = f"{word[:MOST_OF_WORD]}…"
    return f"“{word}”"
