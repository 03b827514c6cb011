"""accuracy.json to the tables of docs/results/accuracy.md, docs/choosing.md and the README."""

import math
from collections import Counter
from collections.abc import Iterable
from statistics import mean
from typing import Any

import numpy as np
from contestants.tables import markdown

from ways import figures, store
from ways.figures import Bools, Figure
from ways.recipes import ABOUT, CHEAP, MULTI, OURS, SEEDS, SETS, SIZES, WAYS, seeds_of, tasks
from ways.recipes import Task as One

Runs = dict[str, dict[int, dict[str, Any]]]  # by way and seed: its measurements

AIMS = {  # test accuracy with all rows: from scratch, from MiniLM
    "trec6": (0.885, 0.95),
    "snips": (0.972, 0.978),
    "sst2": (0.815, 0.885),
    "indonlu_smsa": (0.81, None),
    "banking77": (0.91, 0.935),
    "emotion": (0.895, 0.925),
    "ag_news_10k": (0.878, 0.90),
    "sick": (0.815, 0.855),
    "imdb": (0.90, 0.915),
}
MEMBERS = ("network", "linear model", "both")  # their names in metrics.json
ROWS = {"full": "all rows", "100": "100 a class", "10": "10 a class"}
SINGLE_WAYS = [way for way in WAYS if way != "tfidf_lr"]


def all_tables(everything: store.Measured) -> dict[str, str]:
    """By the marker in the document; records of another protocol or other words are not shown."""
    measured = store.valid(everything)
    by_size = {size: grouped(measured, size) for size in SIZES}
    single = {size: {name: one for name, one in sets.items() if name not in MULTI} for size, sets in by_size.items()}
    return {
        **{f"accuracy-{size}": accuracies(sets, size) for size, sets in single.items()},
        **{f"advantage-{size}": advantages(sets, size) for size, sets in single.items()},
        "by-rows": by_rows(single),
        "aims": aims(single["full"]),
        "members": members(single["full"]),
        "runs": runs(by_size["full"]),
        "labels": of_labels(by_size["full"]),
        "unfinished": unfinished(measured),
        "machines": machines(by_size),
    }


def grouped(measured: store.Measured, size: str) -> dict[str, Runs]:
    """The measurements on each set with rows of this `size`."""
    found: dict[str, Runs] = {}
    for name in SETS:
        for way in WAYS:
            titles = {seed: One(name, size, way, seed).title for seed in range(seeds_of(name, size, way))}
            done = {seed: measured[title] for seed, title in titles.items() if "test" in measured.get(title, {})}
            if done:
                found.setdefault(name, {})[way] = done
    return found


def right_of(runs_of_way: Iterable[dict[str, Any]]) -> Bools:
    """Runs by rows."""
    return np.stack([figures.unpacked(one["right"], (one["n"],)) for one in runs_of_way])


def lead_of(of_set: Runs, way: str, cheap: str, n_cheap: int) -> Figure | None:
    """Of a way over a cheap one, of the runs that both have: with few rows those of one draw, with all those of one
    seed; a cheap model without chance has one run (`n_cheap`), which is paired with each of ours. None without two such
    pairs: one says nothing of how far another would differ."""
    ours, others = of_set.get(way, {}), of_set[cheap]
    if n_cheap == 1:
        others = dict.fromkeys(ours, others[0])
    both = [seed for seed in ours if seed in others]
    if len(both) < 2:
        return None
    return figures.advantage(right_of(ours[seed] for seed in both), right_of(others[seed] for seed in both))


def leads(sets: dict[str, Runs], size: str) -> dict[str, tuple[str, dict[str, Figure | None]]]:
    """By set: the cheap way with the best test accuracy, which is the hardest one to beat, and the lead of ours."""
    found = {}
    for name, of_set in sets.items():
        cheap = max((way for way in CHEAP if way in of_set), key=lambda way: value_of(of_set[way]), default=None)
        if cheap:
            n_cheap = seeds_of(name, size, cheap)
            found[name] = cheap, {way: lead_of(of_set, way, cheap, n_cheap) for way in OURS}
    return found


def value_of(done: dict[int, dict[str, Any]]) -> float:
    """Mean test accuracy."""
    return mean(one["test"]["accuracy"] for one in done.values())


def accuracies(sets: dict[str, Runs], size: str) -> str:
    """Mean over runs and standard deviation, the best of a set in bold; a dash where nothing is measured."""
    lines = []
    for name in (name for name in SETS if name not in MULTI):
        of_set = sets.get(name, {})
        best = max((value_of(done) for done in of_set.values()), default=0.0)
        lines.append([name, *(cell(of_set.get(way), best) for way in SINGLE_WAYS)])
    return markdown([f"test accuracy, {ROWS[size]}", *(WAYS[way] for way in SINGLE_WAYS)], lines)


def cell(done: dict[int, dict[str, Any]] | None, best: float) -> str:
    if not done:
        return "-"
    values = [one["test"]["accuracy"] for one in done.values()]
    spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"**{mean(values):.3f}**{spread}" if mean(values) == best else f"{mean(values):.3f}{spread}"


def advantages(sets: dict[str, Runs], size: str) -> str:
    """Of each of our ways over the best cheap one, with the interval."""
    found = leads(sets, size)
    lines = []
    for name in (name for name in SETS if name not in MULTI):
        cheap, gains = found.get(name, (None, {}))
        lines.append([name, CHEAP[cheap] if cheap else "-", *(points(gains.get(way)) for way in OURS)])
    heading = f"points over the best cheap model (95 %), {ROWS[size]}"
    return markdown([heading, "which", *OURS.values()], lines)


def points(gain: Figure | None, *, interval: bool = True) -> str:
    """Bold where they are above zero by their interval, with a star where they are below."""
    if gain is None:
        return "-"
    shown = f"{100 * gain.value:+.1f}"
    if interval:
        shown += f" ({100 * gain.low:+.1f} to {100 * gain.high:+.1f})"
    return {"above": f"**{shown}**", "level": shown, "below": f"{shown}*"}[verdict(gain)]


def verdict(gain: Figure) -> str:
    """Level where the interval holds zero."""
    return "above" if gain.low > 0 else "below" if gain.high < 0 else "level"


def by_rows(by_size: dict[str, dict[str, Runs]]) -> str:
    """The gain from trained weights and from training from scratch, few rows to all, short texts to long."""
    found = {size: leads(sets, size) for size, sets in by_size.items()}
    places = [(way, size) for way in ("minilm", "scratch") for size in ("10", "100", "full")]
    headings = [f"{OURS[way]}, {ROWS[size]}" for way, size in places]
    lines = []
    for name, (n_rows, n_words) in sorted(ABOUT.items(), key=lambda one: one[1][1]):
        gains = [found[size][name][1][way] if name in found[size] else None for way, size in places]
        cells = [points(gain, interval=False) for gain in gains]
        lines.append([name, f"{n_rows:,}", str(n_words), *cells])
    return markdown(["points over the best cheap model", "rows", "words a text", *headings], lines)


def aims(sets: dict[str, Runs]) -> str:
    """The targets and what was reached."""
    lines = []
    for name, aimed in AIMS.items():
        of_set = sets.get(name, {})
        values = [value_of(of_set[way]) if way in of_set else None for way in OURS]
        lines.append([name, *(reached(aim, value) for aim, value in zip(aimed, values, strict=True))])
    return markdown(["reached (aim)", *OURS.values()], lines)


def reached(aim: float | None, value: float | None) -> str:
    if aim is None:
        return "-"
    shown = "not measured" if value is None else f"{value:.3f}"
    mark = "" if value is None or value >= aim else ", missed"
    return f"{shown} ({aim:g}){mark}"


def members(sets: dict[str, Runs]) -> str:
    """Test accuracy of all rows by who answers: both members, or one alone."""
    columns = [(way, member) for way in OURS for member in MEMBERS]
    lines = []
    for name in (name for name in SETS if name not in MULTI):
        cells = []
        for way, member in columns:
            done = sets.get(name, {}).get(way, {}).values()
            values = [one["members"][member]["accuracy"] for one in done if member in one.get("members", {})]
            cells.append(f"{mean(values):.3f}" if values else "-")
        lines.append([name, *cells])
    return markdown(["test accuracy, all rows", *(f"{OURS[way]}: {member}" for way, member in columns)], lines)


def runs(sets: dict[str, Runs]) -> str:
    """A line for each set and way."""
    columns = ["", "runs", "accuracy (95 %)", "macro-F1", "validation", "minutes", "parameters", "threads"]
    lines = []
    for name, way, done in each(sets):
        if name in MULTI:
            continue
        figure = figures.accuracy(right_of(done))
        macro = mean(one["test"]["macro_f1"] for one in done)
        chosen = mean(one["validation"]["accuracy"] for one in done)
        shown = f"{figure.value:.3f} ({figure.low:.3f}-{figure.high:.3f})"
        cells = [f"{name}, {WAYS[way]}", str(len(done)), shown, f"{macro:.3f}", f"{chosen:.3f}"]
        lines.append([*cells, *time_and_size(done)])
    return markdown(columns, lines)


def each(sets: dict[str, Runs]) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Set, way and measurements."""
    return [(name, way, list(done.values())) for name, of_set in sets.items() for way, done in of_set.items()]


def machines(by_size: dict[str, dict[str, Runs]]) -> str:
    """What ran where, by which commit."""
    counts = Counter(
        (one["commit"] + (", changed" if one["dirty"] else ""), one["processor"], one["cores"], WAYS[way])
        for sets in by_size.values()
        for _, way, done in each(sets)
        for one in done
    )
    kinds = sorted({kind[:3] for kind in counts})
    ways = [way for way in WAYS.values() if any(kind[3] == way for kind in counts)]
    lines = [
        [commit, f"{processor}, {cores} cores", *(str(counts[commit, processor, cores, way]) for way in ways)]
        for commit, processor, cores in kinds
    ]
    return markdown(["commit", "runs on", *ways], lines)


def time_and_size(done: list[dict[str, Any]]) -> list[str]:
    """Minutes (the mean), parameters, threads and precision."""
    minutes = mean(one["wall_seconds"] for one in done) / 60
    counts = {one["parameters"] for one in done if "parameters" in one}
    threads = sorted({how_run(one) for one in done})
    return [f"{minutes:.1f}", f"{max(counts):,}" if counts else "-", "; ".join(threads)]


def how_run(one: dict[str, Any]) -> str:
    side = f", {one['side_by_side']} side by side" if one["side_by_side"] > 1 else ""
    return f"{one['threads']}{side}{', ' + one['precision'] if 'precision' in one else ''}"


def of_labels(sets: dict[str, Runs]) -> str:
    """Sets whose rows have any number of labels."""
    lead = f"points of micro-F1 over {CHEAP['tfidf_lr']}"
    columns = ["", "runs", "micro-F1 (95 %)", "macro-F1 (95 %)", lead, "minutes", "parameters", "threads"]
    lines = []
    for name, way, done in each(sets):
        if name not in MULTI:
            continue
        truth_nC, answer_SnC = answers_of(done)
        found = figures.f1_of_labels(truth_nC, answer_SnC)
        cells = [f"{one.value:.3f}{sd(one)} ({one.low:.3f}-{one.high:.3f})" for one in found.values()]
        gain = None
        if way in OURS and len(done) > 1 and (cheap := sets[name].get("tfidf_lr")):
            gain = figures.f1_of_labels(truth_nC, answer_SnC, answers_of([cheap[0]])[1])["micro_f1"]
        lines.append([f"{name}, {WAYS[way]}", str(len(done)), *cells, points(gain), *time_and_size(done)])
    return markdown(columns, lines)


def answers_of(done: list[dict[str, Any]]) -> tuple[Bools, list[Bools]]:
    """Which labels are true of each row, and which each run answered."""
    shape = (done[0]["n"], len(done[0]["labels"]))
    assert all(one["labels"] == done[0]["labels"] for one in done)
    return figures.unpacked(done[0]["truth"], shape), [figures.unpacked(one["answers"], shape) for one in done]


def sd(figure: Figure) -> str:
    return "" if math.isnan(figure.sd) else f" ± {figure.sd:.3f}"


def unfinished(measured: store.Measured) -> str:
    """What lacks or has failed, so that no table is taken for whole."""
    wanted = tasks(SETS, SIZES, WAYS, SEEDS)
    lacking = [one for one in wanted if "test" not in measured.get(one.title, {})]
    cells, empty = ({(one.name, one.size, one.way) for one in some} for some in (wanted, lacking))
    counts = Counter(WAYS[one.way] for one in lacking)
    failed = [f"- {title}: {one['failed']}" for title, one in sorted(measured.items()) if "failed" in one]
    said = (
        f"{len(lacking)} of {len(wanted)} runs are missing, in {len(empty)} of {len(cells)} cells: "
        + ", ".join(f"{way} {n}" for way, n in counts.items())
        if lacking
        else f"All {len(wanted)} runs are made"
    )
    return "\n".join([f"{said}.", *([""] if failed else []), *failed])
