"""What a notebook shows. Nothing is fetched, and no text becomes markup. Standard library only."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

MOST = 50  # answers shown
LETTERS = 100  # of a text


def html_table(title: str, lines: Iterable[Sequence[str]], notes: Sequence[str] = ()) -> str:
    """A table of texts, the first line of which names its columns."""
    rows = []
    for line in lines:
        rows.append("".join(f'<td dir="auto" style="text-align: left">{escape(cell)}</td>' for cell in line))
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    caption = f'<caption style="text-align: left">{escape(title)}</caption>'
    return f"<table>{caption}<tr>{'</tr><tr>'.join(rows)}</tr></table>{below}"


class AnswerList(list[Any]):
    """Predictions, one for each of `texts`: a list that a notebook shows as a table."""

    def __init__(self, texts: Sequence[str], predictions: Iterable[Any]) -> None:
        super().__init__(predictions)
        self.texts = texts

    def _repr_html_(self) -> str:
        lines = [["text", "answer", "likeliest", "second"]]
        for text, one in zip(self.texts[:MOST], self, strict=False):
            given = ", ".join(one.labels) if hasattr(one, "labels") else one.label
            ranked = sorted(one.probabilities.items(), key=lambda of: -of[1])[:2]
            shown = text if len(text) <= LETTERS else f"{text[: LETTERS - 1]}…"
            lines.append([shown, given, *(f"{label} {share:.1%}" for label, share in ranked)])
        return html_table(f"{len(self):,} texts", lines, [f"{len(self) - MOST:,} more"] if len(self) > MOST else [])


@dataclass(frozen=True, slots=True)
class InlinePage:
    """A page of HTML, which a notebook shows in a frame of its own that may run its scripts and reach nothing else."""

    html: str

    def _repr_html_(self) -> str:
        look = 'style="width: 100%; height: 700px; border: 0"'
        return f'<iframe sandbox="allow-scripts" {look} srcdoc="{escape(self.html)}"></iframe>'

    def __repr__(self) -> str:
        return f"InlinePage({len(self.html):,} characters)"
