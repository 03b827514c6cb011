"""Dates are the same everywhere, each once, and mean what they say."""

import re
import subprocess
import sys
from datetime import date, datetime
from random import Random

import pytest

from manyheads.cli.compose import compose
from manyheads.config import DataConfig
from manyheads.data.sources import read_splits
from manyheads.plugins.language.dates import ALONE, N_DATES, OF_TWO, dates_splits, ordinal, spelt, year_in_words


@pytest.fixture(scope="module")
def made():
    return dates_splits()


@pytest.fixture(scope="module")
def every_row(made):
    return [row for split in made.values() for row in split]


def test_sizes_and_every_date_once(made, every_row):
    assert {name: len(rows) for name, rows in made.items()} == N_DATES
    assert len({target for _, target in every_row}) == len({text for text, _ in every_row}) == len(every_row)
    assert all(date.fromisoformat(target).isoformat() == target for _, target in every_row)


def test_another_process_makes_the_same_rows(made):
    code = "from manyheads.plugins.language.dates import dates_splits; print(dates_splits()['test'][-1])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str(made["test"][-1])
    assert dates_splits(1)["test"] != made["test"]


@pytest.mark.parametrize(
    ("form", "spelling"),
    [
        ("%d %B %Y", "5 March 2021"),
        ("%B %d, %Y", "March 5, 2021"),
        ("%A, %B %dth, %Y", "Friday, March 5th, 2021"),
        ("%d-%b-%y", "5-Mar-21"),
        ("%b %dth '%y", "Mar 5th '21"),
    ],
)
def test_spellings_are_read_back_by_strptime(form, spelling):
    assert datetime.strptime(spelling, form).date() == date(2021, 3, 5)
    draw = Random(0)
    assert spelling in {spelt(draw, date(2021, 3, 5)) for _ in range(400)}


def test_figures_alone_leave_no_doubt_which_is_the_day():
    for one in (date(1999, 4, 3), date(1999, 4, 12), date(1999, 4, 13)):
        draw = Random(0)
        spellings = {spelt(draw, one) for _ in range(400)}
        figures = {text for text in spellings if not re.search("[a-z]", text)}
        assert len(figures) == (5 if one.day > 12 else 0)


def test_a_quarter_names_a_second_date_and_says_by_words_which_is_meant(every_row):
    two = [text for text, _ in every_row if re.search(r"\bnot\b|instead of|moved|it was", text, re.IGNORECASE)]
    assert 0.2 < len(two) / len(every_row) < 0.3
    assert all("{other}" in frame for frame in OF_TWO)
    assert not any("{other}" in frame for frame in ALONE)
    for before, after in (("{date}, not {other}", "not {other} but {date}"), ("from {other} to", "to {date} from")):
        assert any(before in frame for frame in OF_TWO)
        assert any(after in frame for frame in OF_TWO)


def test_words_for_days_and_years():
    assert [ordinal(day) for day in (1, 12, 20, 21, 30, 31)] == [
        "first", "twelfth", "twentieth", "twenty-first", "thirtieth", "thirty-first",
    ]  # fmt: skip
    assert len({ordinal(day) for day in range(1, 32)}) == 31
    years = {1970: "nineteen seventy", 1999: "nineteen ninety-nine", 2000: "two thousand", 2012: "twenty twelve"}
    years |= {2005: "two thousand and five", 2042: "twenty forty-two"}
    assert {year: year_in_words(year) for year in years} == years
    assert len({year_in_words(year) for year in range(1970, 2070)}) == 100


def test_they_are_read_as_any_data_is(made):
    splits = read_splits(DataConfig(source="dates", text="source"), 0, answer="target")
    assert splits.train.targets == [target for _, target in made["train"]]
    assert (splits.labels, splits.notes, splits.train.source) == ([], [], "dates/train")


def test_a_path_replaces_those_of_an_experiment():
    assert compose("train", ["experiment=dates", "data.path=x.csv"]).data.source == "files"


@pytest.mark.verb("audit")
def test_audit_needs_labels_which_they_lack():
    with pytest.raises(ValueError, match=r"^data=dates has no labels to look at: name a file by data\.path="):
        compose("audit", ["data.source=dates"])
