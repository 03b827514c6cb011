"""Whatever data and paths hold, a terminal shows it as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyheads.terminal import as_text, console, one_line


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

    table = Table(title=as_text(text))
    table.add_column(as_text(text))
    table.add_row(as_text(text))
    for printed in (text, as_text(text), as_text(f"{text}\x1b"), table):
        console().print(printed, soft_wrap=True)
    said = capsys.readouterr().out
    assert said.count(text) == 6
    assert "\x1b" not in said


def test_labels_of_a_dry_run_are_text(capsys):
    from manyheads.training.sizing import show_plan

    show_plan({"classes": "3: [/b], [red]x, \x1b[2J:smile:"})
    assert "3: [/b], [red]x, \\x1b[2J:smile:" in capsys.readouterr().out
