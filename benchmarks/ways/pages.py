"""accuracy.json to the tables of docs/accuracy.md."""

import math
from collections import defaultdict
from statistics import mean
from typing import Any

import numpy as np
from contestants.tables import markdown

from ways import figures
from ways.figures import Bools, Figure
from ways.recipes import ABOUT, CHEAP, MULTI, OURS, SEEDS, SETS, SIZES, WAYS, seeds_of, tasks, words_of
from ways.recipes import Task as One

Runs = dict[str, list[dict[str, Any]]]  # by way: its measurements in the order of their seeds

AIMS = {  # test accuracy: from scratch, from scratch or self-pretrained, from MiniLM
    "trec6": (0.86, 0.86, 0.95),
    "snips": (0.978, 0.978, 0.98),
    "sst2": (0.815, 0.815, 0.885),
    "indonlu_smsa": (0.82, 0.82, None),
    "banking77": (0.91, 0.91, 0.936),
    "emotion": (0.905, 0.905, 0.925),
    "ag_news_10k": (0.885, 0.885, 0.90),
    "sick": (0.70, 0.70, 0.84),
    "imdb": (0.89, 0.905, 0.915),
}


def all_tables(measured: dict[str, dict[str, Any]]) -> dict[str, str]:
    """By the marker in the document."""
    by_size = {size: grouped(measured, size) for size in SIZES}
    single = {size: {name: one for name, one in sets.items() if name not in MULTI} for size, sets in by_size.items()}
    return {
        **{f"accuracy-{size}": accuracies(sets) for size, sets in single.items()},
        **{f"advantage-{size}": advantages(sets) for size, sets in single.items()},
        "by-rows": by_rows(single),
        "aims": aims(single["full"]),
        "runs": runs(by_size["full"]),
        "labels": of_labels(by_size["full"]),
        "recipes": recipes(),
        "unfinished": unfinished(measured),
        "machines": machines(by_size["full"]),
    }


def grouped(measured: dict[str, dict[str, Any]], size: str) -> dict[str, Runs]:
    """What was measured on each set with so many rows."""
    found: dict[str, Runs] = {}
    for name in SETS:
        for way in WAYS:
            titles = [One(name, size, way, seed).title for seed in range(seeds_of(name, size, way))]
            done = [measured[title] for title in titles if "test" in measured.get(title, {})]
            if done:
                found.setdefault(name, {})[way] = done
    return found


def right_of(runs_of_way: list[dict[str, Any]]) -> Bools:
    """Seeds by rows."""
    return np.stack([figures.unpacked(one["right"], (one["n"],)) for one in runs_of_way])


def best_cheap(of_set: Runs) -> str | None:
    """The cheap way with the best test accuracy, which is the hardest one to beat."""
    cheap = [way for way in CHEAP if way in of_set]
    return max(cheap, key=lambda way: mean(one["test"]["accuracy"] for one in of_set[way]), default=None)


def accuracies(sets: dict[str, Runs]) -> str:
    """Mean over seeds and standard deviation, the best of a set in bold."""
    ways = [way for way in WAYS if any(way in one for one in sets.values())]
    lines = []
    for name, of_set in sets.items():
        values = {way: mean(run["test"]["accuracy"] for run in done) for way, done in of_set.items()}
        best = max(values.values())
        lines.append([name, *(cell(of_set.get(way), bold=values.get(way) == best) for way in ways)])
    return markdown(["test accuracy", *(WAYS[way] for way in ways)], lines)


def cell(done: list[dict[str, Any]] | None, *, bold: bool) -> str:
    if not done:
        return "-"
    values = [one["test"]["accuracy"] for one in done]
    spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"**{mean(values):.3f}**{spread}" if bold else f"{mean(values):.3f}{spread}"


def advantages(sets: dict[str, Runs]) -> str:
    """Of each of our ways over the best cheap one, with the interval."""
    lines = []
    for name, of_set in sets.items():
        if not (cheap := best_cheap(of_set)):
            continue
        others = right_of(of_set[cheap])
        cells = []
        for way in OURS:
            if way not in of_set:
                cells.append("-")
                continue
            cells.append(points(figures.advantage(right_of(of_set[way]), others)))
        lines.append([name, CHEAP[cheap], *cells])
    return markdown(["points over the best cheap model (95 %)", "which", *OURS.values()], lines)


def points(gain: Figure) -> str:
    shown = f"{100 * gain.value:+.1f} ({100 * gain.low:+.1f} to {100 * gain.high:+.1f})"
    return f"**{shown}**" if gain.low > 0 else shown


def by_rows(by_size: dict[str, dict[str, Runs]]) -> str:
    """What trained weights and what training from scratch are worth, few rows to all, short texts to long."""
    ways, sizes = ("minilm", "scratch"), {"10": "10 a class", "100": "100 a class", "full": "all rows"}
    headings = [f"{OURS[way]}, {sizes[size]}" for way in ways for size in sizes]
    lines = []
    for name, (n_rows, n_words) in sorted(ABOUT.items(), key=lambda one: one[1][1]):
        cells = [gain_of(by_size[size].get(name, {}), way) for way in ways for size in sizes]
        lines.append([name, f"{n_rows:,}", str(n_words), *cells])
    return markdown(["points over the best cheap model", "rows", "words a text", *headings], lines)


def gain_of(of_set: Runs, way: str) -> str:
    """The points alone; bold: the whole interval is above zero; with a star: it is below."""
    cheap = best_cheap(of_set)
    if not cheap or way not in of_set:
        return "-"
    gain = figures.advantage(right_of(of_set[way]), right_of(of_set[cheap]))
    shown = f"{100 * gain.value:+.1f}"
    return f"**{shown}**" if gain.low > 0 else f"{shown}*" if gain.high < 0 else shown


def aims(sets: dict[str, Runs]) -> str:
    """What was asked for and what was reached."""
    lines = []
    for name, (scratch, either, minilm) in AIMS.items():
        of_set = sets.get(name, {})
        values = {way: mean(one["test"]["accuracy"] for one in of_set[way]) for way in OURS if way in of_set}
        without = max((values[way] for way in ("scratch", "pretrained") if way in values), default=None)
        pairs = [(scratch, values.get("scratch")), (either, without), (minilm, values.get("minilm"))]
        lines.append([name, *(reached(aim, value) for aim, value in pairs)])
    return markdown(["reached (aim)", OURS["scratch"], "the better without other weights", OURS["minilm"]], lines)


def reached(aim: float | None, value: float | None) -> str:
    if aim is None:
        return "-"
    shown = "not measured" if value is None else f"{value:.3f}"
    mark = "" if value is None or value >= aim else ", missed"
    return f"{shown} ({aim:g}){mark}"


def runs(sets: dict[str, Runs]) -> str:
    """A line for each set and way."""
    columns = ["", "seeds", "accuracy (95 %)", "macro-F1", "validation", "minutes", "parameters", "threads"]
    lines = []
    for name, of_set in sets.items():
        for way, done in of_set.items():
            if name in MULTI:
                continue
            figure = figures.accuracy(right_of(done))
            macro = mean(one["test"]["macro_f1"] for one in done)
            chosen = mean(one["validation"]["accuracy"] for one in done)
            lines.append(
                [
                    f"{name}, {WAYS[way]}",
                    str(len(done)),
                    f"{figure.value:.3f} ({figure.low:.3f}-{figure.high:.3f})",
                    *(f"{macro:.3f}", f"{chosen:.3f}"),
                    *time_and_size(done),
                ]
            )
    return markdown(columns, lines)


def machines(sets: dict[str, Runs]) -> str:
    """What ran on which processor."""
    counts: dict[tuple[str, int, str], int] = defaultdict(int)
    for of_set in sets.values():
        for way, done in of_set.items():
            for one in done:
                counts[one["processor"], one["cores"], WAYS[way]] += 1
    kinds = sorted({kind[:2] for kind in counts})
    ways = [way for way in WAYS.values() if any(kind[2] == way for kind in counts)]
    lines = [[f"{kind[0]}, {kind[1]} cores", *(str(counts.get((*kind, way), 0)) for way in ways)] for kind in kinds]
    return markdown(["runs on", *ways], lines)


def time_and_size(done: list[dict[str, Any]]) -> list[str]:
    """Minutes (the mean), parameters, threads and precision."""
    minutes = mean(one["wall_seconds"] for one in done) / 60
    counts = {one["parameters"] for one in done if "parameters" in one}
    threads = sorted({how_run(one) for one in done})
    return [f"{minutes:.1f}", f"{max(counts):,}" if counts else "-", "; ".join(threads)]


def how_run(one: dict[str, Any]) -> str:
    side = ", two side by side" if one["side_by_side"] > 1 else ""
    return f"{one['threads']}{side}{', ' + one['precision'] if 'precision' in one else ''}"


def of_labels(sets: dict[str, Runs]) -> str:
    """Sets whose rows have any number of labels."""
    columns = ["", "seeds", "micro-F1 (95 %)", "macro-F1 (95 %)", "minutes", "parameters", "threads"]
    lines = []
    for name, of_set in sets.items():
        for way, done in of_set.items() if name in MULTI else ():
            shape = (done[0]["n"], len(done[0]["labels"]))
            truth_nC = figures.unpacked(done[0]["truth"], shape)
            found = figures.f1_of_labels(truth_nC, [figures.unpacked(one["answers"], shape) for one in done])
            both = (found["micro_f1"], found["macro_f1"])
            cells = [f"{one.value:.3f}{sd(one)} ({one.low:.3f}-{one.high:.3f})" for one in both]
            lines.append([f"{name}, {WAYS[way]}", str(len(done)), *cells, *time_and_size(done)])
    return markdown(columns, lines)


def sd(figure: Figure) -> str:
    return "" if math.isnan(figure.sd) else f" ± {figure.sd:.3f}"


def recipes() -> str:
    """What is typed for each, apart from data.path, seed and output."""
    grouped_words: dict[tuple[str, str], list[str]] = defaultdict(list)
    for way in OURS:
        for name in SETS:
            if seeds_of(name, "full", way):
                words = " ".join(words_of(One(name, "full", way, 0)))
                grouped_words[way, words].append(name)
    lines = []
    for (way, words), names in grouped_words.items():
        lines.append([OURS[way], ", ".join(names), f"`{words}`" if words else "none"])
    return markdown(["way", "sets", "words"], lines)


def unfinished(measured: dict[str, dict[str, Any]]) -> str:
    """What lacks or has failed, so that no table is taken for whole."""
    failed = [f"- {title}: {one['failed']}" for title, one in sorted(measured.items()) if "failed" in one]
    lacking = []
    for way in WAYS:
        wanted = tasks(SETS, SIZES, [way], SEEDS)
        there = sum("test" in measured.get(one.title, {}) for one in wanted)
        if there < len(wanted):
            lacking.append(f"{WAYS[way]} ({len(wanted) - there} of {len(wanted)})")
    said = f"Runs not made: {', '.join(lacking)}." if lacking else "All runs are made."
    return "\n".join([said, *([""] if failed else []), *failed])
