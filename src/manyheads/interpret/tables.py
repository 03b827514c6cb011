"""A study as tables: on the terminal, as CSV, and as a page of one's own."""

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from manyheads.evaluation.page import Html, picture, section, shown, table
from manyheads.evaluation.report import page
from manyheads.evaluation.scores import Interval
from manyheads.interpret.faithfulness import N_DRAWS
from manyheads.interpret.pictures import spell_amount
from manyheads.interpret.statistics import FIGURES
from manyheads.interpret.study import Study
from manyheads.terminal import as_text, console

MOST_SHOWN = 32  # heads on a terminal; beyond, those that are missed most
HEADS = ["head", "nats", "share", "far", "first", "marks", "like", "F1 points without", "flips"]
TOKENS = ["tokens", "chosen by", "rows", "falls", "random", "further by", "flips", "random"]


def head_rows(study: Study) -> list[list[str]]:
    """A line a head under HEADS, and first what an even head would have."""
    even = study.statistics.uniform
    rows = [["even", *(_places(name, even[name]) for name in FIGURES), "", "", ""]]
    for p, silenced in enumerate(study.silenced):
        alike = study.statistics.agreement(p)
        rows.append(
            [
                str(silenced.head),
                *(_places(name, study.statistics.figures[name][p].mean) for name in FIGURES),
                "" if alike is None else f"{alike[1]} {alike[0]:.2f}".replace(" 0.", " ."),
                signed(silenced.macro_f1_change, 1, 100),
                f"{silenced.answers_changed:.1%}",
            ]
        )
    return rows


def token_rows(study: Study) -> list[list[str]]:
    """A line for each ranking and amount, under TOKENS."""
    return [
        [
            spell_amount(one.amount),
            one.ranking,
            f"{one.n_rows:,}",
            f"{one.ranked.value:+.2f}",
            f"{one.random.value:+.2f}",
            signed(one.difference, 2),
            f"{one.ranked_flips:.1%}",
            f"{one.random_flips:.1%}",
        ]
        for one in study.faithfulness
    ]


def signed(interval: Interval, places: int, times: int = 1) -> str:
    """A change with its interval."""
    value, low, high = (f"{times * number:+.{places}f}" for number in (interval.value, interval.low, interval.high))
    return f"{value} ({low}, {high})"


def notes(study: Study) -> list[str]:
    """What a reader must know to take the figures for what they are."""
    n_heads, n_sure = len(study.silenced), sum(missed(one.macro_f1_change) for one in study.silenced)
    alone = [
        f"All figures are of the network alone: {study.share:.0%} of each answer are those of a linear model beside "
        "it, which has no heads; evaluate judges both together."
    ]
    return [
        *(alone if study.share else []),
        f"Of {n_heads} intervals of macro F1, {n_sure} do not hold zero; by chance alone some {0.05 * n_heads:.1f} "
        "would not.",
        "Nats: entropy; share: of its largest, log n; far: mean distance in tokens; first, marks: share on the "
        "first token and on separators; each the mean over documents of equal weight. Like: the head of least mean "
        "Jensen-Shannon divergence, as 1 - JS / log 2. Flips: other answers.",
        "Falls: of the logit of the predicted class. "
        f"Random: the mean of {N_DRAWS} draws of as many tokens. Chosen by gradient: what should lower the logit "
        "most to first order, for a scale. Marks such as [CLS] are never silenced.",
    ]


def missed(change: Interval) -> bool:
    return change.high < 0 or change.low > 0


def show_study(study: Study, title: str) -> None:
    """Print the tables. Of many heads those are shown that are missed most."""
    rows = head_rows(study)
    if len(rows) > MOST_SHOWN + 1:
        by_change = sorted(range(len(study.silenced)), key=lambda p: study.silenced[p].macro_f1_change.value)
        rows = [rows[0], *(rows[p + 1] for p in by_change[:MOST_SHOWN])]
    screen = console()
    screen.print(_rich(title, HEADS, rows), soft_wrap=True)
    screen.print(_rich("Tokens silenced", TOKENS, token_rows(study)), soft_wrap=True)
    for note in notes(study):
        screen.print(as_text(note))


def _rich(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(title=as_text(title), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for at, name in enumerate(head):
        made.add_column(name, justify="left" if at == 0 else "right", no_wrap=True)
    for row in rows:
        made.add_row(*(as_text(cell) for cell in row))
    return made


def write_csv(path: Path, study: Study) -> None:
    """One line a head with every figure: means, deviations and intervals."""
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = [_flat(one) for one in study.as_json()["heads"]]
        write = csv.DictWriter(file, fieldnames=list(lines[0]), lineterminator="\n")
        write.writeheader()
        write.writerows(lines)


def _flat(nested: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"entropy": {"mean": 1}}` as `{"entropy_mean": 1}`."""
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        flat |= _flat(value, f"{prefix}{name}_") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def study_page(study: Study, png: bytes, title: str, subtitle: str) -> str:
    """The tables and the figure as one page, nothing fetched from anywhere."""
    accuracy, macro_f1 = study.accuracy, study.macro_f1
    verdict = (
        f"With all heads: accuracy {accuracy.value:.3f} ({accuracy.low:.3f} to {accuracy.high:.3f}), "
        f"macro F1 {macro_f1.value:.3f} ({macro_f1.low:.3f} to {macro_f1.high:.3f})."
    )
    caption = (
        "Darker is more. Changes of macro F1 in brackets may be chance. Agreement is 1 where two heads always look "
        "alike; above the dashed line a ranking finds tokens that matter more than random ones."
    )
    said = "".join(f"<li>{shown(note)}</li>" for note in notes(study))
    parts = [
        Html(f"<p class=verdict>{shown(verdict)}</p>"),
        section("All heads", f'<div class="pictures">{picture(png, caption, full=True)}</div>'),
        section("Head by head", table(HEADS, head_rows(study), "wnnnnnnnn"), long=True),
        section("Tokens silenced", table(TOKENS, token_rows(study), "wwnnnnnn")),
        section("How to read this", f"<ul>{said}</ul>"),
    ]
    return page(title, subtitle, parts)


def _places(name: str, value: float) -> str:
    return "" if math.isnan(value) else f"{value:.1f}" if name == "distance" else f"{value:.2f}"
