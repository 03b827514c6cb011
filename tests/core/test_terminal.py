"""Whatever data and paths hold, a terminal shows it as text."""

import io
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyheads.terminal import Sheet, as_text, console, escape_unwritable, one_line, print_sheet, typed_path


@given(st.text())
def test_one_line_is_printable_and_keeps_what_is(text):
    shown = one_line(text)
    assert shown.isprintable()
    assert one_line(shown) == shown
    if text.isprintable():
        assert shown == text


SHOWN = {"a\nb\t": "a\\nb\\t", "\x1b[2J": "\\x1b[2J", "\x9b": "\\x9b", "\u202e": "\\u202e", "爱 é": "爱 é"}


@pytest.mark.parametrize(("text", "shown"), SHOWN.items())
def test_what_steers_a_terminal_is_escaped(text, shown):
    assert one_line(text) == shown


@pytest.mark.parametrize("text", ["/tmp/x[/b]", "[red]a[/red]", "[link=http://x]y[/link]", ":smile:", "[/]", "\\[b]"])
def test_markup_is_text(text, capsys):
    from rich.table import Table

    table = Table(title=as_text(text, console()))
    table.add_column(as_text(text, console()))
    table.add_row(as_text(text, console()))
    for printed in (text, as_text(text, console()), as_text(f"{text}\x1b", console()), table):
        console().print(printed, soft_wrap=True)
    said = capsys.readouterr().out
    assert said.count(text) == 6
    assert "\x1b" not in said


def test_labels_of_a_dry_run_are_text(capsys):
    from manyheads.training.dry_run import show_plan

    show_plan({"classes": "3: [/b], [red]x, \x1b[2J:smile:"})
    assert "3: [/b], [red]x, \\x1b[2J:smile:" in capsys.readouterr().out


def test_a_table_is_straight_where_its_signs_are_escaped():
    from rich.console import Console

    sheet = Sheet("Größe ±", ["größe", "n"], [["schlecht ≈ übel", "1"], ["gut", "±2"]], ["≈ 3"])
    shown = io.TextIOWrapper(io.BytesIO(), "ascii", write_through=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", shown)
        patch.setenv("COLUMNS", "60")
        print_sheet(sheet)
        assert Console().encoding == "ascii"
    title, *table, note = shown.buffer.getvalue().decode("ascii").splitlines()
    assert (title.strip(), note) == ("Gr\\xf6\\xdfe \\xb1", "\\u2248 3")
    lines = [line for line in table if line.strip()]
    assert any("schlecht \\u2248 \\xfcbel" in line for line in lines)
    assert len({len(line) for line in lines}) == 1


def test_a_stream_that_was_closed_at_the_start_goes_nowhere(monkeypatch):
    """As in `manyheads ... >&-`."""
    monkeypatch.setattr(sys, "stdout", None)
    escape_unwritable()
    print("nowhere")
    sys.stdout.flush()


def test_a_path_is_printed_as_one_would_type_it(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert typed_path(tmp_path / "here" / "outputs" / "report.html") == "outputs/report.html"
    assert typed_path(tmp_path / "elsewhere") == str(tmp_path / "elsewhere")
    assert typed_path(Path("outputs", "a")) == "outputs/a"


def test_a_screen_of_no_columns_is_none(monkeypatch, capsys):
    from rich.table import Table

    monkeypatch.setenv("COLUMNS", "0")
    table = Table("name")
    table.add_row("value")
    console().print("line", table)
    printed = capsys.readouterr().out
    assert all(one in printed for one in ("line", "name", "value"))
