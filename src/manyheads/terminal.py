"""What a terminal is shown: values of data and paths are text, never markup and never control sequences.

Standard library only until something is printed with rich.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


def one_line(text: str) -> str:
    """The text with line ends, control characters and the like escaped: what is typed never steers the terminal."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def as_text(value: object) -> "Text":
    """A value for a cell or a line: one line, in which rich finds no `[markup]`, no `:emoji:` and no link."""
    from rich.text import Text

    return Text(one_line(str(value)))


def console() -> "Console":
    """Standard output, on which nothing that is printed is taken for markup."""
    from rich.console import Console

    return Console(markup=False, emoji=False, highlight=False)
