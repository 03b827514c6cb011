"""What a terminal is shown: values of data and paths are text, never markup and never control sequences; tables; and in
an encoding that lacks a sign its escape.

Standard library only until something is printed with rich.
"""

import codecs
import io
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_stack
from types import FrameType
from typing import TYPE_CHECKING, Any

from manyheads.distributed.ranks import this_process

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


SECONDS_OF_SILENCE = 3.0
FOR_FILE = {"for_file": True}


def one_line(text: str) -> str:
    """The text with line ends, control characters and the like escaped: what is typed never steers the terminal."""
    shown = [sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text]
    return "".join(shown)


def escape_unwritable() -> None:
    """From here on the standard streams write `\\xb1` for a ± that their encoding lacks, where they would raise. What
    was closed by who started this process goes nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def writes_unicode() -> bool:
    """Whether the encoding of standard output has every sign; else JSON and the like escape them in their own way."""
    return codecs.lookup(getattr(sys.stdout, "encoding", None) or "utf-8").name.startswith("utf")


def as_text(value: object, screen: "Console") -> "Text":
    """A value for a cell or a line: one line, in which rich finds no `[markup]`, no `:emoji:` and no link. What the
    screen's encoding lacks is escaped here already, so that tables know how wide it is."""
    from rich.text import Text

    return Text(one_line(str(value)).encode(screen.encoding, "backslashreplace").decode(screen.encoding))


def console() -> "Console":
    """Standard output, on which nothing that is printed is taken for markup."""
    from rich.console import Console

    width = 80 if os.environ.get("COLUMNS") == "0" else None  # what some shells say without a terminal
    return Console(markup=False, emoji=False, highlight=False, width=width)


def say(*lines: object, screen: "Console | None" = None) -> None:
    """Print each line as text, never broken, on standard output or another `screen`."""
    screen = screen or console()
    for line in lines:
        screen.print(as_text(line, screen), soft_wrap=True)


def typed_path(path: Path) -> str:
    """As one would type it here: relative if it is in the current folder."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def show_files(folder: Path, names: Sequence[str]) -> None:
    """Print where files lie."""
    say(*(typed_path(folder / name) for name in names))


@contextmanager
def progress_bar(total: int, what: str = "rows") -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal, called with the number of further rows or steps; nothing elsewhere."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda n_done: bar.advance(task, n_done)


@contextmanager
def row_counter(wanted: bool) -> Iterator[Callable[[int], None]]:
    """A line on a terminal, from the third second on, which is given how many rows are done; nothing elsewhere."""
    begun, shown = time.monotonic(), False

    def count(n_rows: int) -> None:
        nonlocal shown
        seconds = time.monotonic() - begun
        if wanted and seconds > SECONDS_OF_SILENCE and sys.stderr.isatty():
            print(f"\r{n_rows:,} rows, {n_rows / seconds:,.0f} a second ", end="", file=sys.stderr, flush=True)
            shown = True

    try:
        yield count
    finally:
        if shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def screen_handler() -> logging.Handler:
    """Records go to the screen, but for those that are for a file alone: `log.info(..., extra=FOR_FILE)`."""
    handler = logging.StreamHandler()
    handler.addFilter(lambda record: not getattr(record, "for_file", False))
    return handler


@contextmanager
def log_to_screen(log: logging.Logger) -> Iterator[None]:
    """The lines of `log` go to the screen while the block lasts, and nowhere else."""
    handler, before = screen_handler(), (log.level, log.propagate)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before[0])
        log.propagate = before[1]


@contextmanager
def ends_by_ctrl_c(work: Callable[..., Any]) -> Iterator[None]:
    """Ctrl-C ends the process at once where nothing is at stake: before `work` has been called, and while a module is
    imported. Torch, Hydra and others make other exceptions of a KeyboardInterrupt that comes to them then, or abort."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        above = [one.f_code for one, _ in walk_stack(frame)]
        if work.__code__ in above and not any("importlib._bootstrap" in code.co_filename for code in above):
            signal.default_int_handler(number, frame)
        if this_process().is_first:
            os.write(2, b"stopped by Ctrl-C\n")  # sys.stderr may be captured, as while an export is traced
        os._exit(130)

    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table as texts, and what to know to read it."""

    title: str
    columns: list[str]
    lines: list[list[str]]
    notes: list[str]


def print_sheet(sheet: Sheet, screen: "Console | None" = None) -> None:
    """Print the table and its notes; a narrow screen wraps the names of columns, and cuts no figure off."""
    from rich.box import SIMPLE_HEAD
    from rich.measure import Measurement
    from rich.table import Table

    screen = screen or console()
    lines = []
    for line in sheet.lines:
        lines.append([as_text(cell, screen) for cell in line])
    title = as_text(sheet.title, screen) if sheet.title else None
    looks = {"box": SIMPLE_HEAD, "padding": (0, 0), "pad_edge": False, "show_edge": bool(sheet.title)}
    table = Table(title=title, title_justify="left", **looks)
    for at, column in enumerate(sheet.columns):
        widest = max((line[at].cell_len for line in lines), default=0)
        side = "right" if at else "left"
        table.add_column(as_text(column, screen), justify=side, min_width=widest, overflow="fold")
    for line in lines:
        table.add_row(*line)
    least = Measurement.get(screen, screen.options.update(max_width=10_000), table).minimum
    screen.print(table, width=max(screen.width, least), crop=False)
    for note in sheet.notes:
        screen.print(as_text(note, screen))
