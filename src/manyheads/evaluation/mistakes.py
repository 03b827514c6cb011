"""The worst mistakes of a classifier, and the words that carry its answers."""

import heapq
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import numpy as np
from tokenizers import Encoding

from manyheads.data.tokens import tokenizing
from manyheads.evaluation.answered import AnsweredRows, LogitStore
from manyheads.evaluation.report import MOST_LETTERS, Example, Group
from manyheads.inference.classifier import TextClassifier

NO_LABEL = "no label"
MOST_READ = 2**16  # tokens, to see which words carry answers: where words are many, neighbours are cut out together
LEAST = 0.01  # of a probability, that is shown
MOST_TOLD, MOST_OF_WORD = 3, 40  # words in a sentence, either way, and letters of each
Span = tuple[int, int]


class Worst:
    """The `n` rows with the likeliest class that they are given and have not, likeliest first; it is the answer."""

    def __init__(self, n: int = 20) -> None:
        self.n, self._heap, self._order = n, list[tuple[float, int, Example]](), count(0, -1)

    def add(self, found: AnsweredRows) -> None:
        sure_nC = np.where(found.given_nC & ~found.marks_nC, found.probabilities_nC, -1.0)
        sure_n, rows = sure_nC.max(1), found.rows
        for row in np.argsort(-sure_n, kind="stable")[: min(self.n, int((sure_n >= 0).sum()))].tolist():
            sure, answer = float(sure_n[row]), found.names[int(sure_nC[row].argmax())]
            if len(self._heap) == self.n and sure <= self._heap[0][0]:
                break
            texts = [rows.texts[row], *([] if rows.pairs is None else [rows.pairs[row]])]
            label = ", ".join(found.words(found.marks_nC[row])) or NO_LABEL
            place = f"{sure:.1%} sure, row {rows.numbers[row]:,}"
            one = (sure, next(self._order), Example(place, texts, label, answer))
            (heapq.heappush if len(self._heap) < self.n else heapq.heappushpop)(self._heap, one)

    def examples(self) -> list[Example]:
        return [example for *_, example in sorted(self._heap, reverse=True)]


def worst_mistakes(stored: LogitStore) -> list[Example]:
    """The wrong answers that the model is surest of."""
    worst = Worst()
    for found in stored.answers():
        worst.add(found)
    return worst.examples()


def cell_groups(stored: LogitStore, cells: dict[tuple[int, int], int], most: int) -> list[Group]:
    """The surest mistakes, `most` of each of the `cells`: of a class and an answer, with the number of its rows."""
    worst = {cell: Worst(most) for cell in cells}
    for found in stored.answers() if cells else ():
        labels_n, answers_n = found.marks_nC.argmax(1), found.given_nC.argmax(1)
        for label, answer in {*zip(labels_n.tolist(), answers_n.tolist(), strict=True)} & cells.keys():
            worst[label, answer].add(found.pick(np.flatnonzero((labels_n == label) & (answers_n == answer))))
    groups = []
    for (label, answer), n_rows in cells.items():
        shown = [replace(one, label=None, answer=None) for one in worst[label, answer].examples()]
        which = f", the {len(shown)} surest of {n_rows:,}" if len(shown) < n_rows else ""
        title = f"{stored.names[label]} answered as {stored.names[answer]}{which}"
        groups.append(Group(cell_key(label, answer), title, shown))
    return groups


def cell_key(label: int, answer: int) -> str:
    """By which a page refers to such mistakes."""
    return f"cell-{label}-{answer}"


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
