"""Pages of HTML that need no network: markup and style.

The look of report.html: one column, readable on a phone and on paper.

Small pieces of HTML. Every string that comes from data passes `shown`; nothing here can open a tag of its own.
"""

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from unicodedata import category

from manyheads.evaluation.scores import Interval

CSS = """
:root { --ink: #1c2330; --soft: #5b6575; --line: #e3e7ee; --tint: #f5f7fb; --blue: #2f6fde; --red: #c2334a; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--tint); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 960px; margin: 0 auto; padding: 24px 16px 48px; }
header { padding: 8px 4px 12px; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 0 0 12px; }
p { margin: 0 0 12px; max-width: 70ch; }
.soft { color: var(--soft); font-size: .9rem; }
section { background: #fff; border: 1px solid var(--line); border-radius: 10px; padding: 18px; margin: 14px 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 14px; }
.tile { background: #fff; border: 1px solid var(--line); border-radius: 10px; padding: 14px 16px; }
.tile b { display: block; font-size: 1.9rem; line-height: 1.2; font-weight: 650; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: .85rem; }
.warning { border-left: 4px solid var(--red); background: var(--tint); padding: 8px 12px; margin: 16px 4px; }
.verdict { font-size: 1.05rem; margin: 16px 4px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th { text-align: left; color: var(--soft); font-weight: 500; border-bottom: 1px solid var(--line); padding: 4px 8px; }
td { border-bottom: 1px solid var(--line); padding: 6px 8px; vertical-align: top; }
tr:last-child td { border-bottom: 0; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.bar { min-width: 120px; width: 30%; vertical-align: middle; }
.own td { font-weight: 650; }
.track { position: relative; height: 10px; background: #e6ebf4; border-radius: 5px; }
.track i { position: absolute; top: 3px; height: 4px; background: #9dbbf0; border-radius: 2px; min-width: 2px; }
.track u { position: absolute; top: 0; width: 4px; height: 10px; margin-left: -2px; background: var(--blue);
  border-radius: 2px; }
.fill { height: 8px; background: var(--blue); border-radius: 4px; min-width: 1px; }
td.n .between { color: var(--soft); font-size: .82rem; font-weight: 400; }
.name { overflow-wrap: break-word; min-width: 110px; max-width: 340px; }
.mistakes { list-style: none; padding: 0; }
.mistakes li { border-top: 1px solid var(--line); padding: 10px 0; margin: 0; break-inside: avoid; }
.mistakes li:first-child { border-top: 0; padding-top: 0; }
.head { display: flex; flex-wrap: wrap; gap: 2px 8px; align-items: baseline; font-size: .92rem; }
.head .soft { margin-left: auto; }
.text { overflow-wrap: anywhere; white-space: pre-wrap; }
.second { border-left: 3px solid var(--line); padding-left: 10px; margin-top: 6px; }
.wrong { color: var(--red); }
.scroll + .pictures { margin-top: 18px; }
.pictures { display: flex; flex-wrap: wrap; gap: 18px; align-items: flex-start; }
figure { margin: 0; flex: 1 1 320px; max-width: 520px; }
figure.wide { max-width: 640px; }
figure.full { max-width: none; }
figure img { width: 100%; height: auto; display: block; }
figcaption { color: var(--soft); font-size: .85rem; }
ul { margin: 0; padding-left: 20px; }
li { margin: 4px 0; overflow-wrap: anywhere; }
dl { columns: 300px; column-gap: 28px; margin: 0; font-size: .85rem; }
dl div { display: flex; justify-content: space-between; gap: 12px; break-inside: avoid; padding: 1px 0; }
dt { color: var(--soft); flex: none; }
dd { margin: 0; text-align: right; overflow-wrap: anywhere; font-family: ui-monospace, Menlo, Consolas, monospace; }
@media (max-width: 600px) { main { padding: 14px 10px 32px; } section { padding: 14px 12px; } h1 { font-size: 1.4rem; }
  .tiles { grid-template-columns: 1fr 1fr; gap: 10px; }
  td.bar { min-width: 64px; } .name { min-width: 84px; } td, th { padding: 5px 5px; } }
@media print { body { background: #fff; font-size: 11pt; } main { max-width: none; padding: 0; }
  section, .tile { border-color: #ccc; } section, figure, tr { break-inside: avoid; }
  section.long { break-inside: auto; }
  .scroll { overflow: visible; } * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""


MOST_LETTERS = 600
UNSEEN = ("Cc", "Cs", "Cn")  # control characters, surrogates, letters that are none
TURNING = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}  # the direction of what follows


class Html(str):
    """A string that is markup already."""

    __slots__ = ()


def shown(text: object) -> str:
    """Escaped text; control characters, which HTML forbids, and those that turn the direction of what follows become a
    visible replacement."""
    if isinstance(text, Html):
        return text
    letters = str(text).replace("\r\n", "\n")
    return escape("".join(letter if _is_seen(letter) else "\ufffd" for letter in letters))


def _is_seen(letter: str) -> bool:
    if letter.isprintable() or letter in "\t\n":
        return True
    return category(letter) not in UNSEEN and ord(letter) not in TURNING


def excerpt(text: str) -> Html:
    """A text of the data, isolated in its own direction and cut to what can be read at a glance."""
    text = text.replace("\r\n", "\n")  # before it is cut between the two
    rest = len(text) - MOST_LETTERS
    more = f' <span class="soft">and {rest:,} more characters</span>' if rest > 0 else ""
    return Html(f'<bdi dir="auto">{shown(text[:MOST_LETTERS]) or "<i>empty</i>"}</bdi>{more}')


def section(title: str, *parts: str, long: bool = False) -> Html:
    """A titled card; a long one may break across printed pages."""
    return Html(f"<section{' class=long' if long else ''}><h2>{shown(title)}</h2>{''.join(parts)}</section>")


def table(header: Sequence[str], rows: Sequence[Sequence[object]], kinds: str, own: int = -1) -> Html:
    """A table. `kinds` has a letter a column: n number, b bar, w name; row `own` is set in bold."""
    classes = {"n": "n", "b": "bar", "w": "name"}
    head = "".join(f'<th class="{classes[kind]}">{shown(name)}</th>' for kind, name in zip(kinds, header, strict=True))
    body = "".join(
        f"<tr{' class=own' if at == own else ''}>"
        + "".join(f'<td class="{classes[kind]}">{shown(cell)}</td>' for kind, cell in zip(kinds, row, strict=True))
        + "</tr>"
        for at, row in enumerate(rows)
    )
    return Html(f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>')


def interval_bar(interval: Interval, low: float = 0.0) -> Html:
    """A mark for the figure on a track from `low` to 1, and a band for its interval."""

    def at(value: float) -> float:
        return 100 * min(max((value - low) / (1 - low), 0), 1)

    left, right = at(interval.low), at(interval.high)
    return Html(
        f'<div class="track"><i style="left:{left:.2f}%;width:{right - left:.2f}%"></i>'
        f'<u style="left:{at(interval.value):.2f}%"></u></div>'
    )


def share_bar(share: float) -> Html:
    """A bar as long as `share` of its cell."""
    return Html(f'<div class="fill" style="width:{100 * share:.2f}%"></div>')


def picture(png: bytes, caption: str, wide: bool = False, full: bool = False) -> Html:
    """An image inside the file itself; a full one is as wide as the page."""
    data = b64encode(png).decode("ascii")
    kind = ' class="full"' if full else ' class="wide"' if wide else ""
    return Html(
        f'<figure{kind}><img alt="{shown(caption)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{shown(caption)}</figcaption></figure>"
    )


def pairs_list(pairs: dict[str, object]) -> Html:
    """Names and values in as many columns as the page is wide."""
    return Html(
        "<dl>"
        + "".join(f"<div><dt>{shown(name)}</dt><dd>{shown(value)}</dd></div>" for name, value in pairs.items())
        + "</dl>"
    )


def two_lines(interval: Interval) -> Html:
    """The figure, and its interval small below it."""
    return Html(f'{interval.value:.3f}<br><span class="between">{interval.low:.3f} to {interval.high:.3f}</span>')
