"""The model card of a classifier after `calibrate`."""

import re
from collections.abc import Sequence
from typing import Any

from manyheads.inference.card import FIGURE, figure_lines, plain_line
from manyheads.runs.summary import Interval, moved_by, words_of

CALIBRATED, AFTER = "Calibrated by", "after calibrate"  # how a card says it


def calibrated_card(
    card: str,
    fitted: dict[str, Any],
    labels: Sequence[str],
    thresholds: Sequence[float] | None,
    figures: dict[str, str] | None = None,
) -> str:
    """`card` after `manyheads calibrate`, which found `fitted`: the figures that it changed are replaced, and labels
    have their new thresholds.

    Args:
        figures: of the model before it, as in `add_results`; None: those of the card, some of which an earlier
            calibration has removed.
    """
    changed = moved_by(fitted["method"], multi=thresholds is not None)
    head, use, rest = card.partition("\n## Use\n")
    head, _, table = head.partition("\n## Figures\n")
    rows = []
    for line in figure_lines(figures) if figures else table.split("\n"):
        if not line.startswith("| ") or line == FIGURE:
            continue
        split, _, figure = line.removeprefix("| ").partition(" |")[0].partition(" ")
        is_of_model = split in ("validation", "test") and " of the " not in figure
        is_changed = is_of_model and changed(figure.replace(" ", "_").lower())
        if not is_changed and not figure.endswith(AFTER):
            rows.append(line)
    for name, figure in fitted["after"].items():
        rows.append(f"| {words_of(name)} {AFTER} | {Interval(**figure).words} |")
    if thresholds is not None:
        for label, threshold in zip(labels, thresholds, strict=True):
            line = rf"^(- {re.escape(plain_line(label))}, from )[\d.]+ on$"
            rest = re.sub(line, rf"\g<1>{threshold:.3f} on", rest, flags=re.MULTILINE)
    earlier = ""
    if changed("accuracy"):
        earlier = "; how it compares with other models was measured before that"
    said = (
        f"{CALIBRATED} {fitted['method']} on {fitted['rows']:,} rows of {plain_line(fitted['source'])}{earlier}. "
        f"Figures {AFTER} are of five folds of these rows, each mapped by what the others fitted."
    )
    head = re.sub(f"\n{CALIBRATED} .*\n?", "", head).rstrip("\n")
    return "\n".join([head, "", said, "", "## Figures", "", FIGURE, "|---|---|", *rows, ""]) + use + rest
