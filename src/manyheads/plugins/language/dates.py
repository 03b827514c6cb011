"""`data=dates`: dates in many English spellings, to be written in ISO form. Standard library only.

Years are 1970 to 2069, so that two digits name one of them, and dates in figures have a day above 12, so that
nothing but the figures themselves says which is the day. A quarter of the texts name a second date, and only the
words around the two and their order say which is meant. No date that is meant occurs twice, in whatever spelling.
"""

import random
from datetime import date, timedelta
from functools import cache

from manyheads.config import DataConfig

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


def dates(data: DataConfig) -> dict[str, dict[str, list[str]]]:
    """The source `dates`: dates in words, and as numbers."""
    return {
        name: {"source": [text for text, _ in rows], "target": [target for _, target in rows]}
        for name, rows in dates_splits().items()
    }


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
