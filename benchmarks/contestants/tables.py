"""peers.json and accuracy_parity.json to the tables of docs/results/performance.md."""

import re
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from contestants.process import NAMES, PEAK
from contestants.settings import PROTOCOL, SETTINGS

MARKER = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
Round = dict[str, Any]


def fill_document(document: Path, tables: dict[str, str]) -> list[str]:
    """Put each table between `<!-- table: NAME -->` and `<!-- end -->`; returns the names found."""
    found: list[str] = []

    def filled(match: re.Match[str]) -> str:
        if match[2] not in tables:
            return match[0]
        found.append(match[2])
        return f"{match[1]}{tables[match[2]]}\n{match[3]}"

    document.write_text(MARKER.sub(filled, document.read_text(encoding="utf-8")), encoding="utf-8")
    return found


def speed_tables(results: dict[str, Any]) -> dict[str, str]:
    """One table a setting, in the order they are defined, and `overview`, a line each."""
    found = {name: results["settings"].get(name, {}) for name in SETTINGS}
    measured = {name: one for name, one in found.items() if one.get("protocol") == PROTOCOL and one.get("rounds")}
    return {"overview": overview(measured)} | {name: of_setting(figures) for name, figures in measured.items()}


def overview(measured: dict[str, Any]) -> str:
    columns = ["manyheads", "real tokens/s", "times (a)", "times (c)", "share of peak", "of the bare loop"]
    lines = []
    for name, figures in measured.items():
        rounds = figures["rounds"]
        cells = [ratio(rounds, "f", other) for other in "ac"]
        lines.append([name, speeds(rounds, "f"), *cells, share(figures, "f"), ratio(rounds, "f", "e", "{:.3f}")])
    return markdown(columns, lines)


def of_setting(figures: dict[str, Any]) -> str:
    """Medians of the rounds (least to most); ratios are taken within a round."""
    rounds = figures["rounds"]
    columns = ["", "real tokens/s", "texts/s", "times (a)", "times (c)", "padding", "share of peak", "memory"]
    lines = []
    for name in (name for name in NAMES if name in rounds[0]):
        turns = [one[name] for one in rounds if name in one]
        texts = median(map(per_second, turns)) / figures["tokens_per_text"]
        padding = 1 - sum(turn["tokens"] for turn in turns) / sum(turn["cells"] for turn in turns)
        memory = max(turn["peak_memory_mib"] or 0 for turn in turns)
        lines.append(
            [
                *(f"({name}) {NAMES[name]}", speeds(rounds, name), f"{texts:,.0f}"),
                *(ratio(rounds, name, other) for other in "ac"),
                *(f"{padding:.0%}", share(figures, name) if name != "g" else "-", f"{memory:,} MiB"),
            ]
        )
    peaks = {kind: median(one[PEAK][kind] for one in rounds if PEAK in one) for kind in ("fp32", "bf16")}
    threads = sorted({count for count in figures["threads"].values() if count})
    notes = (
        f"{len(rounds)} rounds; {', '.join(map(str, threads))} threads each; texts of {figures['tokens_per_text']:.0f} "
        f"tokens, a token's text of {figures['mean_length_met']:.0f}; {figures['flops_per_token'] / 1e6:.1f} MFLOP a "
        f"real token; matrix product {peaks['fp32'] * 1e3:.0f} GFLOP/s in fp32, {peaks['bf16'] * 1e3:.0f} in bf16."
    )
    search = f" {tried(figures['searched'])}" if "searched" in figures else ""
    return f"{markdown(columns, lines)}\n\n{notes}{search}"


def tried(searched: list[dict[str, Any]]) -> str:
    """What of the Trainer's settings was tried, and what was fastest."""
    rows = sorted({one["rows"] for one in searched})
    kinds = sorted({one["attention"] for one in searched})
    shown = [f"{way_of(one)} {one['tokens_per_s']:,}" for one in searched]
    others = f"; then {', '.join(shown[1:3])}" if len(shown) > 1 else ""
    return (
        f"(c) is the fastest of {len(searched)} settings, {rows[0]} to {rows[-1]} rows and {' and '.join(kinds)} "
        f"attention: {shown[0]} real tokens/s in a trial of seconds{others}."
    )


def way_of(one: dict[str, Any]) -> str:
    precision, groups = "bf16" if one["bf16"] else "fp32", "grouped by length" if one["by_length"] else "ungrouped"
    return f"{one['rows']} rows, {one['attention']}, {precision}, {groups}:"


def markdown(columns: list[str], lines: list[list[str]]) -> str:
    rows = [columns, ["---"] + ["---:"] * (len(columns) - 1), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def per_second(turn: dict[str, Any]) -> float:
    """Real tokens."""
    return turn["tokens"] / turn["seconds"]


def speeds(rounds: list[Round], name: str) -> str:
    return spread([per_second(one[name]) for one in rounds if name in one], lambda value: f"{value:,.0f}")


def ratio(rounds: list[Round], name: str, other: str, form: str = "{:.2f}") -> str:
    """How many times as fast `name` is as `other`."""
    pairs = [per_second(one[name]) / per_second(one[other]) for one in rounds if name in one and other in one]
    return spread(pairs, form.format)


def share(figures: dict[str, Any], name: str) -> str:
    """Of the matrix product in the precision it computes in, measured in the same round."""
    kind = figures["precision"][name]
    rounds = [one for one in figures["rounds"] if name in one and PEAK in one]
    of_peak = [per_second(one[name]) * figures["flops_per_token"] / (one[PEAK][kind] * 1e12) for one in rounds]
    return spread(of_peak, lambda value: f"{value:.0%}")


def spread(values: list[float], shown: Callable[[float], str]) -> str:
    """The median, least and most in brackets."""
    return f"{shown(median(values))} ({shown(min(values))}-{shown(max(values))})" if values else "-"
