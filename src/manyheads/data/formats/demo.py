"""The built-in data. Standard library only.

`data=demo`: English-like sentences whose label is the sense of an ambiguous word.
Half of the sentences show the sense by their own words. The others name the contexts of two senses of one word,
and only word order says which of them owns it: who told whom, where someone went from where, what was denied.
Every such sentence is as likely with the two exchanged, so a bag of words can but toss a coin there.
"""

import json
import random
from functools import cache
from importlib.resources import files
from typing import Any

from manyheads.config import DataConfig

N_ROWS = {"train": 4000, "validation": 500, "test": 1000}

# {owner} has the word in its sense, {other} belongs to another sense of the same word
TOLD = (
    "{owner} told {other} about the {word} {time}",
    "{owner} described the {word} to {other} {time}",
    "{other} heard about the {word} from {owner} {time}",
    "{other} was told about the {word} by {owner} {time}",
)
DENIED = (
    "{owner} and not {other} had to do with the {word} {time}",
    "not {other} but {owner} had to do with the {word} {time}",
)
WENT = (
    "{name} left {other} for {owner} because of the {word} {time}",
    "{name} came to {owner} from {other} because of the {word} {time}",
    "{name} went from {other} to {owner} because of the {word} {time}",
)
SHOWN = (
    "{name} {clause} {time}",
    "{name} left {elsewhere} and {clause} {time}",
    "{person} said that {name} {clause} {time}",
    "{name} {clause} and went to {elsewhere} {time}",
)


@cache
def words() -> dict[str, Any]:
    """What sentences are made of (sentences.json): of each sense of an ambiguous word who and where it belongs to, and
    clauses that show it by themselves; names, cities, sites and times."""
    return json.loads((files("manyheads.data.formats") / "sentences.json").read_text(encoding="utf-8"))


def demo(data: DataConfig) -> dict[str, dict[str, list[str]]]:
    """The source `demo`: sentences of made-up classes."""
    return {
        name: {"text": [text for text, _ in rows], "label": [label for _, label in rows]}
        for name, rows in demo_splits().items()
    }


@cache
def demo_splits(seed: int = 0) -> dict[str, list[tuple[str, str]]]:
    """Rows `(sentence, label)` of train, validation and test; no sentence occurs twice, classes are even."""
    draw = random.Random(f"demo {seed}")  # noqa: S311 - sentences, not secrets
    senses = [(word, name) for word, by_name in words()["senses"].items() for name in by_name]
    rows: dict[str, str] = {}
    turn = 0
    while len(rows) < sum(N_ROWS.values()):
        word, name = senses[turn % len(senses)]
        sentence = _sentence(draw, word, name)
        if sentence not in rows:
            rows[sentence] = f"{word}-{name}"
            turn += 1
    shuffled = list(rows.items())
    draw.shuffle(shuffled)
    splits: dict[str, list[tuple[str, str]]] = {}
    for split, n_rows in N_ROWS.items():
        splits[split], shuffled = shuffled[:n_rows], shuffled[n_rows:]
    return splits


def _sentence(draw: random.Random, word: str, name: str) -> str:
    senses = words()["senses"]
    sense = senses[word][name]
    other = senses[word][draw.choice([one for one in senses[word] if one != name])]
    kind = draw.randrange(4)
    if kind < 2:
        elsewhere = senses[draw.choice([one for one in senses if one != word])]
        stranger = draw.choice(list(elsewhere.values()))
        slots = {"clause": draw.choice(sense["clauses"]), "elsewhere": _place(draw, stranger["places"])}
        return _fill(draw, draw.choice(SHOWN), slots | {"person": _person(draw, stranger["people"])})
    if kind < 3:
        frame = draw.choice(TOLD + DENIED)
        slots = {"owner": _person(draw, sense["people"]), "other": _person(draw, other["people"])}
    else:
        frame = draw.choice(WENT)
        slots = {"owner": _place(draw, sense["places"]), "other": _place(draw, other["places"])}
    return _fill(draw, frame, slots | {"word": word})


def _fill(draw: random.Random, frame: str, slots: dict[str, str]) -> str:
    text = frame.format(name=draw.choice(words()["names"]), time=draw.choice(words()["times"]), **slots)
    text = text.strip().replace(" ,", ",")
    return f"{text[0].upper()}{text[1:]}."


def _person(draw: random.Random, people: list[str]) -> str:
    return f"the {draw.choice(people)} from {draw.choice(words()['cities'])}"


def _place(draw: random.Random, places: list[str]) -> str:
    return f"the {draw.choice(places)} {draw.choice(words()['sites'])}"
