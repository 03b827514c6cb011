"""The built-in data. Standard library only.

`data=demo`: English-like sentences whose label is the sense of an ambiguous word.
Half of the sentences show the sense by their own words. The others name the contexts of two senses of one word,
and only word order says which of them owns it: who told whom, where someone went from where, what was denied.
Every such sentence is as likely with the two exchanged, so a bag of words can but toss a coin there.

`data=dates`: dates in many English spellings, to be written in ISO form.
Years are 1970 to 2069, so that two digits name one of them, and dates in figures have a day above 12, so that
nothing but the figures themselves says which is the day. A quarter of the texts name a second date, and only the
words around the two and their order say which is meant. No date that is meant occurs twice, in whatever spelling.
"""

import json
import random
from datetime import date, timedelta
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
    return json.loads((files("manyheads.data") / "sentences.json").read_text(encoding="utf-8"))


def demo(data: DataConfig) -> dict[str, dict[str, list[str]]]:
    """The source `demo`: sentences of made-up classes."""
    return {name: _named(rows, "text", "label") for name, rows in demo_splits().items()}


def dates(data: DataConfig) -> dict[str, dict[str, list[str]]]:
    """The source `dates`: dates in words, and as numbers."""
    return {name: _named(rows, "source", "target") for name, rows in dates_splits().items()}


def _named(rows: list[tuple[str, str]], *names: str) -> dict[str, list[str]]:
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


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


N_DATES = {"train": 16000, "validation": 500, "test": 1000}
FIRST, LAST = date(1970, 1, 1), date(2069, 12, 31)
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
UNITS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
ORDINALS = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh",
    "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth",
    "twentieth",
)  # fmt: skip
SPELLINGS = (
    "{day} {month} {year}",
    "{day} {mon} {year}",
    "{month} {day}, {year}",
    "{mon}. {day}, {year}",
    "{mon} {nth} '{yy}",
    "the {nth} of {month}, {year}",
    "{weekday}, {month} {nth}, {year}",
    "{weekday} the {nth} of {month} {year}",
    "{day}-{mon}-{yy}",
    "{mon}-{dd}-{year}",
    "the {ordinal} of {month} {year}",
    "{month} the {ordinal}, {words}",
    "the {ordinal} day of {month} in the year {year}",
    "{day} {month} {words}",
)
FIGURES = (
    "{day}/{number}/{yy}",
    "{number}/{day}/{yy}",
    "{day}.{number}.{year}",
    "{number}-{day}-{year}",
    "{year}/{number}/{day}",
)
ALONE = ("{date}", "{date}", "{date}", "on {date}", "dated {date}", "due by {date}")
OF_TWO = (
    "{date}, not {other}",
    "not {other} but {date}",
    "{date} instead of {other}",
    "instead of {other} on {date}",
    "moved from {other} to {date}",
    "moved to {date} from {other}",
    "{date} (it was {other})",
)


@cache
def dates_splits(seed: int = 0) -> dict[str, list[tuple[str, str]]]:
    """Rows `(text, date in ISO form)` of train, validation and test; every row has its own date."""
    draw = random.Random(f"dates {seed}")  # noqa: S311 - dates, not secrets
    every = [FIRST + timedelta(days) for days in range((LAST - FIRST).days + 1)]
    meant = draw.sample(every, sum(N_DATES.values()))
    rows = [(_text(draw, one, draw.choice(every)), one.isoformat()) for one in meant]
    splits: dict[str, list[tuple[str, str]]] = {}
    for split, n_rows in N_DATES.items():
        splits[split], rows = rows[:n_rows], rows[n_rows:]
    return splits


def _text(draw: random.Random, meant: date, other: date) -> str:
    frame = draw.choice(OF_TWO if draw.random() < 0.25 else ALONE)
    text = frame.format(date=spelt(draw, meant), other=spelt(draw, other))
    return draw.choice((text, text, text[0].upper() + text[1:]))


def spelt(draw: random.Random, one: date) -> str:
    """A date in one of the spellings."""
    spelling = draw.choice((*SPELLINGS, *FIGURES) if one.day > 12 else SPELLINGS)
    return spelling.format(
        day=one.day,
        dd=f"{one.day:02}",
        nth=f"{one.day}{_ending(one.day)}",
        ordinal=ordinal(one.day),
        number=one.month,
        month=MONTHS[one.month - 1],
        mon=MONTHS[one.month - 1][:3],
        weekday=WEEKDAYS[one.weekday()],
        year=one.year,
        yy=f"{one.year % 100:02}",
        words=year_in_words(one.year),
    )


def ordinal(day: int) -> str:
    """A day in words: twenty-first."""
    if day <= 20:
        return ORDINALS[day - 1]
    return "thirtieth" if day == 30 else f"{TENS[day // 10 - 2]}-{ORDINALS[day % 10 - 1]}"


def year_in_words(year: int) -> str:
    """A year as it is said: nineteen eighty-four, two thousand and five, twenty twenty-one."""
    if 2000 <= year < 2010:
        return "two thousand" + (f" and {UNITS[year % 100]}" if year % 100 else "")
    return f"{UNITS[year // 100] if year < 2000 else 'twenty'} {_below_hundred(year % 100)}"


def _below_hundred(number: int) -> str:
    if number < 20:
        return UNITS[number]
    return TENS[number // 10 - 2] + (f"-{UNITS[number % 10]}" if number % 10 else "")


def _ending(day: int) -> str:
    return "th" if 11 <= day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
