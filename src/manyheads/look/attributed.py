"""An attribution shown: a section of the page of its text, a picture and JSON beside it, lines on the terminal."""

import json
from dataclasses import asdict
from pathlib import Path

from matplotlib.figure import Figure

from manyheads.judge.markup import Html, shown
from manyheads.judge.pictures import BLUE, GREY, INK, RED, png, quiet
from manyheads.look.attribution import Attribution
from manyheads.terminal import as_text, console
from manyheads.whole import replace_file

MOST_DRAWN = 60  # tokens of a table or picture; of a longer text those that add most, in their order
MOST_SHOWN = 12
LETTERS = 18  # most of a token


def attribution_section(found: Attribution) -> Html:
    """A section of the page: what each token adds, its bar of another colour below zero, and the attention it gets."""
    largest = max(map(abs, found.added)) or 1.0
    head = f"<tr><th>token</th><th></th><th>adds to {shown(found.label)}</th><th>attention it gets</th></tr>"
    rows = ""
    for token in sorted(_largest(found, MOST_DRAWN)):
        added, attention = found.added[token], found.attention[token]
        bar = f'<rect class="{"more" if added >= 0 else "less"}" width="{abs(added) / largest:.2%}" height="100%"/>'
        rows += (
            f'<tr><th scope="row">{shown(found.tokens[token])}</th><td class="long"><svg aria-hidden="true">{bar}</svg>'
            f"</td><td>{added:+.3f}</td><td>{attention:.3f}</td></tr>"
        )
    return Html(
        '<section class="adds"><h2>What does each token add to the answer?</h2>'
        f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"
        f"<p>Integrated gradients of the logit. {shown(completeness(found).strip())}.</p></section>"
    )


def write_attribution(page: Path, found: Attribution) -> list[Path]:
    """Write `<page>-attribution.png` and `.json` beside the page; each appears whole or not at all."""
    picture, record = (page.with_name(f"{page.stem}-attribution.{end}") for end in ("png", "json"))
    with replace_file(picture) as part:
        part.write_bytes(draw_attribution(found))
    with replace_file(record) as part:
        part.write_text(json.dumps(asdict(found), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return [picture, record]


def draw_attribution(found: Attribution) -> bytes:
    """Tokens downward; what each adds on the left, red below zero, and the attention it gets on the right."""
    chosen = sorted(_largest(found, MOST_DRAWN))
    at, added = range(len(chosen)), [found.added[token] for token in chosen]
    figure = Figure(figsize=(7.0, 1.0 + 0.22 * max(len(chosen), 3)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    left.barh(at, added, color=[BLUE if value >= 0 else RED for value in added])
    left.axvline(0, color=GREY, linewidth=0.8)
    right.barh(at, [found.attention[token] for token in chosen], color=GREY)
    left.set_yticks(at, [_short(found.tokens[token]) for token in chosen], parse_math=False)
    left.set_ylim(len(chosen) - 0.4, -0.6)
    left.set_title(_short(f"adds to the logit of {found.label}", 48), fontsize=9, color=INK, parse_math=False)
    right.set_title("attention it gets, mean of all heads", fontsize=9, color=INK)
    for axes in (left, right):
        quiet(axes)
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x", color="#e6e9ef", linewidth=0.8)
    return png(figure)


def show_attribution(found: Attribution) -> None:
    """Print whether the parts make up the whole, and the tokens that add or take most."""
    screen = console()
    screen.print(as_text(completeness(found)), soft_wrap=True)
    widest = max(len(_short(token)) for token in found.tokens)
    for token in _largest(found, MOST_SHOWN):
        letters = f"{_short(found.tokens[token]):{widest}}"
        screen.print(as_text(f"  {letters}  adds {found.added[token]:+.3f}  attention {found.attention[token]:.3f}"))


def completeness(found: Attribution) -> str:
    """The check of Sundararajan et al.: attributions sum to the difference of two logits."""
    return (
        f"  {found.label}: {len(found.tokens)} tokens add {sum(found.added):+.4f}; logit {found.logit:.4f} less "
        f"{found.baseline:.4f} without words is {found.logit - found.baseline:+.4f}: "
        f"error {found.error:+.1e} ({found.off:.2%}) at {found.steps} points"
    )


def _largest(found: Attribution, n: int) -> list[int]:
    """The tokens that add or take most, most first."""
    return sorted(range(len(found.added)), key=lambda token: -abs(found.added[token]))[:n]


def _short(text: str, most: int = LETTERS) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
