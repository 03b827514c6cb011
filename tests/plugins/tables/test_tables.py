"""Labels by other names, splits by date, workbooks of Excel, and frames of polars and pandas."""

import csv
import random
import zipfile
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manyheads
from manyheads import TextData
from manyheads.cli.main import main
from manyheads.config import DataConfig, OnBadRow
from manyheads.data.columns import find_columns
from manyheads.data.formats import source
from manyheads.data.opening import read_file, table_from
from manyheads.data.sources import read_split, read_splits
from manyheads.evaluation import results
from manyheads.inference.chunks import WantedColumns
from manyheads.inference.records import chunks_of_rows
from manyheads.plugins.tables.dates import newest, read_date, read_dates
from manyheads.plugins.tables.labels import read_new_names
from manyheads.runs.files import read_json

TINY = [
    *("model.d_model=16", "model.n_layers=1", "model.n_heads=2", "model.d_k=8", "model.d_v=8", "model.d_ff=16"),
    *("hardware=cpu", "hardware.precision=fp32", "tokenizer.vocab_size=200", "batch.rows=16", "optim.average=0"),
]


def write(path: Path, header: str, rows: list[tuple]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header.split(","), *rows])
    return path


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(results, "write_page", lambda path, _: path.touch())
    return tmp_path


def splits_of(*words: str):
    return read_splits(manyheads.compose("train", ["data.path=rows.csv", *words]).data, 1)


def labels_of(rows, labels: list[str]) -> list[str]:
    return [labels[label] for label in rows.labels]


def test_labels_get_other_names_and_some_are_left_out(home) -> None:
    names = ["bug", "Bug", "feature", "spam", "1.0"]
    write(home / "rows.csv", "text,label", [(f"text {at}", names[at % 5]) for at in range(60)])
    write(home / "names.csv", "from,to", [("Bug", "bug"), ("spam", ""), ("1", "other"), ("gone", "x")])
    found = splits_of("data.rename=names.csv")
    assert found.labels == ["bug", "feature", "other"]
    parts = found.by_name().values()
    assert sum(map(len, parts)) == 48
    for rows in parts:
        for text, label, number in zip(rows.texts, labels_of(rows, found.labels), rows.numbers, strict=True):
            at = int(text.split()[1])
            assert number == at + 2
            assert label == {"Bug": "bug", "1.0": "other"}.get(names[at % 5], names[at % 5])
    said = "\n".join(found.notes)
    assert "no row has gone, which data.rename=" in said
    assert "12 of 60 rows left out, as data.rename=" in said


def test_names_are_found_as_those_of_classes_are(home) -> None:
    """1 by 1.0, as a workbook may have it; with data.merge_labels=case bug and Bug; and a row names a label once whose
    labels get one name."""
    names = ["bug", "Bug", "1", "spam"]
    write(home / "rows.csv", "text,label", [(f"text {at}", names[at % 4]) for at in range(60)])
    write(home / "names.csv", "from,to", [("bug", "fault"), ("1.0", "other")])
    assert splits_of("data.rename=names.csv").labels == ["Bug", "fault", "other", "spam"]
    assert splits_of("data.rename=names.csv", "data.merge_labels=case").labels == ["fault", "other", "spam"]

    write(home / "rows.csv", "text,labels", [(f"text {at}", ("a|b", "b", "c")[at % 3]) for at in range(60)])
    write(home / "names.csv", "from,to", [("a", "x"), ("b", "x")])
    found = splits_of("data.rename=names.csv")
    assert found.labels == ["c", "x"]
    assert "name a label twice" not in "\n".join(found.notes)


def test_several_labels_a_row_and_classes_by_number(home) -> None:
    rows = [(f"text {at}", ("a|b", "b", "c", "a|c")[at % 4]) for at in range(40)]
    write(home / "rows.csv", "text,labels", rows)
    write(home / "names.csv", "from,to", [("a", "A"), ("c", "")])
    found = splits_of("data.rename=names.csv")
    assert found.labels == ["A", "b"]
    assert found.train.sets is not None
    for text, ids in zip(found.train.texts, found.train.sets, strict=True):
        assert [found.labels[id] for id in ids] == [["A", "b"], ["b"], None, ["A"]][int(text.split()[1]) % 4]

    data = DataConfig(source="memory")
    object.__setattr__(data, "rename", "names.csv")
    table = table_from({"text": [f"t {at}" for at in range(40)], "label": [0, 1, 2, 1] * 10}, "rows", ["a", "b", "c"])
    found = read_splits(data, 1, held={"all": lambda: table})
    assert found.labels == ["A", "b"]
    assert sum(map(len, found.by_name().values())) == 30


def test_numbers_that_name_no_class_are_bad_rows_under_other_names_too(home) -> None:
    write(home / "names.csv", "from,to", [("a", "A"), ("c", "")])
    data = DataConfig(source="memory", on_bad_row=OnBadRow.drop)
    object.__setattr__(data, "rename", "names.csv")
    for label in ([0, 1, 2, -1], [0.0, 1.0, 2.0, 3.0]):
        rows = {"text": [f"t {at}" for at in range(40)], "label": label * 10}
        table = table_from(rows, "rows", ["a", "b", "c"])
        found = read_splits(data, 1, held={"all": lambda table=table: table})
        assert found.labels == ["A", "b"]
        assert sum(map(len, found.by_name().values())) == 20
        said = f"rows: 10 of 30 rows left out (first: row 4: the label {int(label[3])} is not a known class)"
        assert said in found.notes


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "data.rename=names.csv is no file: name a csv with the columns from and to"),
        ("a,b\n1,2\n", "has the columns a, b: it must have from and to"),
        ("from,to\na,b\na,c\n", "row 3: 'a' is renamed twice: remove one row"),
        ("from,to\n,b\n", "row 2: from is empty: name the label, or remove the row"),
        ("from,to\na,b,c\n", "row 2: "),
    ],
)
def test_mistakes_in_the_file_of_names(home, content, said) -> None:
    if content is not None:
        (home / "names.csv").write_text(content)
    with pytest.raises(ValueError, match=said):
        read_new_names("names.csv")


@pytest.mark.parametrize("words", [["data.rename=names.csv"], ["data.split_by=day"]])
def test_a_table_without_rows_is_said_to_be_one(home, words) -> None:
    (home / "rows.csv").write_text("text,label,day\n")
    (home / "names.csv").write_text("from,to\na,b\n")
    with pytest.raises(ValueError, match=r"^rows.csv has no row: a split needs at least one$"):
        splits_of(*words)


def test_all_rows_cannot_be_left_out(home) -> None:
    write(home / "rows.csv", "text,label", [(f"text {at}", "ab"[at % 2]) for at in range(40)])
    write(home / "names.csv", "from,to", [("a", ""), ("b", "")])
    with pytest.raises(ValueError, match=r"leaves no row of rows.csv"):
        splits_of("data.rename=names.csv")


@settings(deadline=None)
@given(st.lists(st.integers(0, 6) | st.none(), min_size=1, max_size=30), st.integers(1, 10))
def test_the_newest_rows_are_newer_than_all_others(days: list[int | None], n_wanted: int) -> None:
    seconds_n = np.array([np.nan if day is None else float(day) for day in days])
    is_new_n = newest(seconds_n, n_wanted)
    new = [day for day, one in zip(days, is_new_n, strict=True) if one]
    old = [day for day, one in zip(days, is_new_n, strict=True) if not one and day is not None]
    assert None not in new
    assert not new or not old or min(new) > max(old)
    if new:
        assert len(new) <= n_wanted or len({*new}) == 1
        rest = [day for day in old if day == max(old)]
        assert len(new) + len(rest) > n_wanted or len(new) + len(old) <= n_wanted
    else:
        assert days.count(None) == len(days)


DAY = datetime(2024, 5, 31)


@pytest.mark.parametrize(
    ("cell", "day_first", "expected"),
    [
        ("2024-05-31", False, DAY),
        (" 20240531 ", False, DAY),
        ("2024-05-31T00:00:00Z", False, DAY.replace(tzinfo=UTC)),
        ("2024-05-31 02:00+02:00", False, DAY.replace(hour=2, tzinfo=timezone(timedelta(hours=2)))),
        ("Fri, 31 May 2024 00:00:00 +0000", False, DAY.replace(tzinfo=UTC)),
        ("31.05.2024", False, DAY),
        ("31/5/2024 7:30", True, DAY.replace(hour=7, minute=30)),
        ("05/31/2024", False, DAY),
        ("2024", False, datetime(2024, 1, 1)),
        (2024.0, False, datetime(2024, 1, 1)),
        ("2024-05", False, datetime(2024, 5, 1)),
        (1717113600, False, DAY.replace(tzinfo=UTC)),
        ("1717113600000", False, DAY.replace(tzinfo=UTC)),
        (DAY.date(), False, DAY),
        (DAY, False, DAY),
        ("", False, None),
        (float("nan"), False, None),
        ("2024/05/31", True, datetime(2024, 5, 31)),
        ("2024.5.3 19:30", False, datetime(2024, 5, 3, 19, 30)),
        ("31 May 2024", False, DAY),
        ("Fri, 31 May 2024", False, DAY),
        ("May 31, 2024", False, DAY),
        ("31 December 99", False, datetime(1999, 12, 31)),
        ("31-May-24", False, DAY),
        ("31-MAY-2024 7:30", False, DAY.replace(hour=7, minute=30)),
        ("31/May/1969", False, datetime(1969, 5, 31)),
        ("31.05.2024 07:30:15.5", False, DAY.replace(hour=7, minute=30, second=15, microsecond=500_000)),
        ("2024-05-31 00:00:00 +0000", False, DAY.replace(tzinfo=UTC)),
        ("31/05/24", True, DAY),
        ("5/31/24 7:30", False, DAY.replace(hour=7, minute=30)),
        ("31.5.69", False, datetime(1969, 5, 31)),
        ("1-2-68", True, datetime(2068, 2, 1)),
    ],
)
def test_dates_as_people_write_them(cell, day_first, expected) -> None:
    assert read_date(cell, day_first=day_first) == expected


@pytest.mark.parametrize(
    "cell",
    [
        *("soon", "2024-13-01", "2024-13", "31/31/2024", "12", "0.5", "2024-05-31-7x", "2024/05.31", "2024/31/05"),
        *("2024053110", "202405311030", 202405311030, "31 May 2024 10:30 PM", "31/05/2024 10:30 p.m."),
        *("31 May", "May 2024", "31 Mai 2024", "1 June at noon", "31/05/024", "31-Mai-24", "31-May", "32-May-24"),
    ],
)
def test_what_is_no_date(cell) -> None:
    with pytest.raises((ValueError, OverflowError)):
        read_date(cell, day_first=True)


MINUTES, SECONDS = " {0.hour}:{0:%M}", " {0.hour}:{0:%M:%S}"
DAYS = ("{0:%Y-%m-%d}", "{0:%Y/%m/%d}", "{0.year}.{0.month}.{0.day}", "{0:%d.%m.%Y}", "{0.day}/{0.month}/{0.year}")
WRITTEN = [
    *((day, {"hour": 0, "minute": 0, "second": 0}) for day in DAYS),
    *((day + MINUTES, {"second": 0}) for day in DAYS),
    *((day + SECONDS, {}) for day in DAYS),
    *((DAYS[0] + time, {"tzinfo": UTC}) for time in ("T{0:%H:%M:%S}Z", f"{SECONDS}+00:00", " {0:%H:%M:%S} UTC")),
    ("{0:%d.%m.%Y},{0.hour}:{0:%M:%S}", {}),
]


@given(st.sampled_from(WRITTEN), st.datetimes(datetime(1950, 1, 1), datetime(2099, 1, 1)))
def test_a_date_is_read_however_it_is_written(written: tuple[str, dict[str, Any]], moment: datetime) -> None:
    form, unsaid = written
    assert read_date(form.format(moment), day_first=True) == moment.replace(**{"microsecond": 0} | unsaid)


def test_an_hour_that_no_year_has_is_no_date() -> None:
    """In UTC it is the year 10000, or one before the first."""
    cells = ["9999-12-31T23:59:59-05:00", "0001-01-01T00:00+05:00", "9999-12-31T23:59:59Z"]
    seconds = read_dates(cells, "data.split_by=d", "rows.csv", [])
    assert np.isnan(seconds).tolist() == [True, True, False]


def test_days_and_months_are_told_by_one_of_them() -> None:
    notes: list[str] = []
    seconds_n = read_dates(
        ["03/04/2024", "25/12/2024", "2024-12-25T00:00Z", None], "data.split_by=d", "rows.csv", notes
    )
    assert seconds_n[0] == datetime(2024, 4, 3, tzinfo=UTC).timestamp()
    assert seconds_n[1] == seconds_n[2]
    assert np.isnan(seconds_n[3])
    assert notes == ["rows.csv: 2 dates have no time zone, as others have: they count as UTC"]
    with pytest.raises(ValueError, match="whether '03/04/2024' begins with the day or the month: write dates"):
        read_dates(["03/04/2024", "2024-01-01"], "data.split_by=d", "rows.csv", notes)
    with pytest.raises(ValueError, match=r"no cell of rows.csv is a date \(first: 'x'\)"):
        read_dates(["x", ""], "data.split_by=d", "rows.csv", notes)


@pytest.mark.parametrize(
    ("cells", "first"),
    [
        ([f"{day}/05/24" for day in range(31, 3, -1)], datetime(2024, 5, 31)),  # days of a month
        ([f"{day}.05.{day + 60}" for day in range(31, 3, -1)], datetime(1991, 5, 31)),
        (["5/31/24", "6/1/24"], datetime(2024, 5, 31)),
        (["31.05.24", "31.05.2024"], datetime(2024, 5, 31)),
        (["31.05.24", "01.06.24"], datetime(2024, 5, 31)),
        (["31.05.24", "01.06.24", "29.11.23", "02.01.23"], datetime(2024, 5, 31)),
        (["31.05.24"], None),
        (["31/05/24"], None),  # or 24 May 2031
        (["24/05/31", "24/05/30"], None),
        (["24.05.31", "23.05.30"], None),
        (["31/05/24", "30/05/24"], None),  # or two years, and the same day of each
        ([f"{year}-{month:02}-01" for year in range(19, 25) for month in range(1, 13)], None),
        ([f"{year:02}.05.15" for year in range(40)], None),
        (["05/04/24", "03/04/24", "02/04/24"], None),  # or months first
    ],
)
def test_a_year_of_two_digits_is_read_where_it_must_come_last(cells, first) -> None:
    if first is None:
        with pytest.raises(ValueError, match=f"whether '{cells[0]}' begins with the day or the "):
            read_dates(cells, "data.split_by=d", "rows.csv", [])
    else:
        assert read_dates(cells, "data.split_by=d", "rows.csv", [])[0] == first.replace(tzinfo=UTC).timestamp()


def dated(home: Path, *more: tuple) -> list[tuple]:
    drawn = random.Random(1)
    days = [date(2024, 1, 1) + timedelta(days=at // 2) for at in range(100)]
    rows = [(f"text {at} {'ab'[at % 2]}", "ab"[at % 2], day.isoformat()) for at, day in enumerate(days)]
    drawn.shuffle(rows)
    write(home / "rows.csv", "text,label,day", [*rows, *more])
    return rows


def test_the_newest_rows_are_test_and_those_before_validation(home) -> None:
    dated(home)
    found = splits_of("data.split_by=day", "data.test_share=0.1", "data.validation_share=0.09")
    assert found.test is not None
    days = {name: {int(text.split()[1]) // 2 for text in rows.texts} for name, rows in found.by_name().items()}
    assert days == {"test": {*range(45, 50)}, "validation": {*range(41, 45)}, "train": {*range(41)}}
    assert found.notes[:2] == [
        "test: 10 of 100 rows of rows.csv are the newest by day, from 2024-02-15 to 2024-02-19",
        "validation: 8 of 100 rows of rows.csv are the newest by day, from 2024-02-11 to 2024-02-14 (2 rows of one "
        "date stay together before them)",
    ]
    whole = splits_of("data.split_by=day", "data.validation_split=train")
    assert len(whole.train) == 90


def test_unreadable_dates_are_bad_rows(home) -> None:
    dated(home, ("odd", "a", "soon"), ("none", "b", ""))
    with pytest.raises(ValueError, match=r"rows.csv, row 102: the date in 'day' 'soon' is none that can be read"):
        splits_of("data.split_by=day")
    found = splits_of("data.split_by=day", "data.on_bad_row=drop")
    assert sum(map(len, found.by_name().values())) == 100


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["data.split_by=when"], "data.split_by=when is no column of rows.csv: its columns are text, label, day"),
        (["data.split_by=day", "data.folds=3"], "data.folds=3 both say how splits are drawn"),
        (["data.split_by=day", "data.group=label"], "data.group=label both say how splits are drawn"),
        (["data.split_by=label"], r"no cell of rows.csv is a date \(first: '"),
    ],
)
def test_mistakes_of_a_split_by_date(home, words, said) -> None:
    dated(home)
    with pytest.raises(ValueError, match=said):
        splits_of(*words)


def test_several_files_have_their_splits(home) -> None:
    for name in ("train", "test"):
        write(home / f"{name}.csv", "text,label,day", [(f"t {at}", "ab"[at % 2], "2024") for at in range(20)])
    run = manyheads.compose("train", ["data.path=.", "data.split_by=day"])
    with pytest.raises(ValueError, match="draws splits of one file, but there are train, test: remove it"):
        read_splits(run.data, 1)


def workbook(path: Path, rows: list[list[str]], sheets: int = 1) -> None:
    """Cells that are numbers are `n:5`, dates (of the style 1) `d:45443`; others are texts."""

    def cell(at: int, row: int, value: str) -> str:
        place = f'r="{chr(65 + at)}{row}"'
        if value[:2] in ("n:", "d:"):
            return f'<c {place} s="{int(value[0] == "d")}"><v>{value[2:]}</v></c>'
        return f'<c {place} t="inlineStr"><is><t>{value}</t></is></c>' if value else ""

    space = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    package = "http://schemas.openxmlformats.org/package/2006"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    lines = []
    for row, cells in enumerate(rows, 1):
        inner = "".join(cell(at, row, value) for at, value in enumerate(cells))
        lines.append(f'<row r="{row}">{inner}</row>' if inner else "")
    sheet = f'<worksheet {space}><dimension ref="A1"/><sheetData>{"".join(lines)}</sheetData></worksheet>'
    numbers = range(1, sheets + 1)
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    types = "".join(
        f'<Override PartName="/xl/worksheets/s{at}.xml" ContentType="{kind}.worksheet+xml"/>' for at in numbers
    )
    types += f'<Override PartName="/xl/workbook.xml" ContentType="{kind}.sheet.main+xml"/>'
    types += f'<Override PartName="/xl/styles.xml" ContentType="{kind}.styles+xml"/>'
    relations = "".join(
        f'<Relationship Id="r{at}" Type="{office}/worksheet" Target="worksheets/s{at}.xml"/>' for at in numbers
    )
    relations += f'<Relationship Id="r0" Type="{office}/styles" Target="styles.xml"/>'
    names = "".join(f'<sheet name="S{at}" sheetId="{at}" r:id="r{at}"/>' for at in numbers)
    font = (
        "<fonts><font/></fonts><fills><fill><patternFill/></fill></fills><borders><border/></borders>"
        "<cellStyleXfs><xf/></cellStyleXfs>"
    )
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"><Default Extension="rels" ContentType='
        f'"application/vnd.openxmlformats-package.relationships+xml"/>{types}</Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
        f'Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook {space} xmlns:r="{office}"><sheets>{names}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships">{relations}</Relationships>',
        "xl/styles.xml": f'<styleSheet {space}>{font}<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs>'
        "</styleSheet>",
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in parts.items():
            file.writestr(name, text)
        for at in numbers:
            file.writestr(f"xl/worksheets/s{at}.xml", sheet)


@pytest.fixture
def openpyxl():
    return pytest.importorskip("openpyxl")


def test_a_workbook_is_read_as_the_csv_that_is_saved_of_it(home, openpyxl) -> None:
    rows = [
        ["text", "label", "stars", "day"],
        ["good film", "up", "n:5", "d:45443"],
        [],
        ["bad", "", "n:1.5", "d:45443.5"],
    ]
    workbook(home / "rows.xlsx", rows, sheets=2)
    table = read_file(home / "rows.xlsx")
    assert table.names == rows[0]
    assert list(table.numbers) == [2, 4]
    assert {name: list(table.column(name)) for name in table.names} == {
        "text": ["good film", "bad"], "label": ["up", ""], "stars": ["5", "1.5"],
        "day": ["2024-05-31", "2024-05-31 12:00:00"],
    }  # fmt: skip
    assert table.notes == ["rows.xlsx: of its sheets S1, S2 the first is read"]
    said = "day; of its sheets S1, S2 the first is read: move that of the rows there, or save it as .csv$"
    with pytest.raises(ValueError, match=said):
        find_columns(table, DataConfig(label="class"))
    with pytest.raises(ValueError, match=r"day; did you mean data\.label=stars"):
        find_columns(table, DataConfig(label="Stars"))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (None, "cannot be read as a workbook of Excel"),
        ([], "its first sheet, S1, is empty"),
        ([["text", "text"], ["a", "b"]], "row 1: the header names the column 'text' twice"),
    ],
)
def test_broken_workbooks(home, openpyxl, rows, said) -> None:
    if rows is None:
        (home / "rows.xlsx").write_bytes(b"PK\3\4 nothing")
    else:
        workbook(home / "rows.xlsx", rows)
    with pytest.raises(ValueError, match=said):
        read_file(home / "rows.xlsx")


@pytest.mark.parametrize("title", [["Tickets of May"], ["Ticket", "", "", "Answer"]])
def test_a_title_above_the_header_of_a_workbook_is_named(home, openpyxl, title) -> None:
    rows = [title, [], ["id", "day", "body", "topic"], ["n:7", "d:45443", "It never came.", "parcel"]]
    workbook(home / "rows.xlsx", rows)
    with pytest.raises(ValueError, match=r"no column 'body'.*; row 3 looks like its header \(id, day, body, topic\)"):
        splits_of("data.path=rows.xlsx", "data.text=body", "data.label=topic")
    with pytest.raises(ValueError, match=r"row 3 looks like its header"):
        [*chunks_of_rows(home / "rows.xlsx", WantedColumns(["body", "text"], []))]


def test_a_workbook_that_unpacks_to_more_than_memory_holds(home, openpyxl, monkeypatch) -> None:
    monkeypatch.setattr(source, "FREE_BYTES", 2**20)
    workbook(home / "rows.xlsx", [["text", "label"], ["a", "b"]])
    with zipfile.ZipFile(home / "rows.xlsx", "a", zipfile.ZIP_DEFLATED) as file, file.open("more", "w") as part:
        for _ in range(9):
            part.write(bytes(2**20))
    with pytest.raises(ValueError, match=r"bytes once decompressed: save it as .csv"):
        read_file(home / "rows.xlsx")


def test_the_package_that_reads_workbooks_is_named(home, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    (home / "rows.xlsx").touch()
    with pytest.raises(ValueError, match=r"package openpyxl, which is not installed: pip install -e '.\[excel\]'"):
        read_file(home / "rows.xlsx")


def frame_of(rows: list[tuple]) -> dict[str, list]:
    return dict(zip(["text", "label", "n"], map(list, zip(*rows, strict=True)), strict=True))


def test_frames_of_pandas_and_arrow_are_rows() -> None:
    import pandas
    import pyarrow

    columns = frame_of([("a", "x", 1), ("b", None, None), ("c", "y", 2)])
    expected = [["a", "b", "c"], ["x", None, "y"]]
    for rows in (pandas.DataFrame(columns), pyarrow.table(columns), columns):
        table = table_from(rows, "rows")
        assert [list(table.column(name)) for name in ("text", "label")] == expected


def test_frames_of_polars_are_rows() -> None:
    polars = pytest.importorskip("polars")
    columns = frame_of([("a", "x", 1), ("b", None, None), ("c", "y", 2)])
    frame = polars.DataFrame(columns).with_columns(polars.col("label").cast(polars.Categorical))
    table = table_from(frame, "rows")
    assert {name: list(table.column(name)) for name in table.names} == columns
    lazy = table_from(frame.lazy(), "rows")
    assert {name: list(lazy.column(name)) for name in lazy.names} == columns


def test_lists_that_pandas_holds_as_arrays_are_lists() -> None:
    """As `pandas.read_parquet` gives a column of labels, or of votes."""
    pandas, numpy = pytest.importorskip("pandas"), pytest.importorskip("numpy")
    frame = pandas.DataFrame({"text": ["a", "b"], "labels": [numpy.array(["x", "y"]), numpy.array([], dtype=object)]})
    assert list(table_from(frame, "rows").column("labels")) == [["x", "y"], []]
    with pytest.raises(ValueError, match="rows has two columns of one name: name every column once"):
        table_from(pandas.concat([frame, frame[["text"]]], axis=1), "rows")


def test_a_run_by_all_of_it_and_what_judges_it(home, openpyxl, capsys) -> None:
    rows = dated(home)
    workbook(home / "rows.xlsx", [["text", "label", "day"], *([*map(str, row)] for row in rows)])
    write(home / "names.csv", "from,to", [("a", "first"), ("b", "second")])
    command = ["train", "data.path=rows.xlsx", "data.rename=names.csv", "data.split_by=day", *TINY]
    assert main([*command, "trainer.max_steps=8", "output=run"]) == 0
    assert read_json(home / "run" / "summary.json")["test"]
    assert read_json(home / "run" / "model" / "labels.json") == ["first", "second"]
    assert main(["evaluate", "run=run"]) == 0
    assert main(["evaluate", "run=run", "data.path=rows.csv"]) == 2
    assert main(["evaluate", "run=run", "data.path=rows.csv", "data.rename=names.csv", "overwrite=true"]) == 0
    assert main(["predict", "run=run", "input=rows.xlsx", "output=out.csv"]) == 0
    with (home / "out.csv").open(newline="") as file:
        assert [row["text"] for row in csv.DictReader(file)] == [text for text, *_ in rows]
    write(home / "names.csv", "from,to", [("a", "first"), ("b", "last")])
    capsys.readouterr()
    assert main(["train", "resume=run"]) == 2
    assert "rows" in capsys.readouterr().err


def test_rows_in_python_are_renamed_and_split(home) -> None:
    dated(home)
    write(home / "names.csv", "from,to", [("a", "first")])
    with (home / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    run = manyheads.compose("train", ["data.rename=names.csv", "data.split_by=day", *TINY])
    data = TextData.from_rows(rows, run=run)
    assert data.splits is not None
    assert data.splits.labels == ["b", "first"]
    assert data.splits.test is not None
    assert {int(text.split()[1]) // 2 for text in data.splits.test.texts} == {*range(45, 50)}


def test_one_split_is_read_with_other_names(home) -> None:
    write(home / "rows.csv", "text,label", [(f"text {at}", "ab"[at % 2]) for at in range(10)])
    write(home / "names.csv", "from,to", [("a", "x"), ("b", "y")])
    run = manyheads.compose("train", ["data.path=rows.csv", "data.rename=names.csv"])
    assert labels_of(read_split(run.data, "test", ["x", "y"]), ["x", "y"]) == ["x", "y"] * 5
