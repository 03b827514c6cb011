"""Small pieces of HTML. Every string that comes from data passes `shown`; nothing here can open a tag of its own."""

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from unicodedata import category

from manyheads.judge.scores import Interval

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
