"""Few rows: which ways are measured on how many rows of each class, and the tables of docs/results/few-rows.md.

Records lie in few_rows.json. Those of accuracy.json, made by the same protocol on the same rows, need not be made
again: of their answers those to the same test rows are taken.
"""

from collections import Counter
from collections.abc import Iterable
from statistics import mean
from typing import Any

import numpy as np
from contestants.tables import markdown

from ways import figures, recipes, store
from ways.figures import Bools, Figure
from ways.pages import points, verdict
from ways.recipes import CHEAP, FEWER_SEEDS, MULTI, NOT_ENGLISH, OTHERS, PAIRS, SEEDS, SETS, Task
from ways.rows import tested

TEST_ROWS = 1000  # at most that are answered, so that many models can be measured
SIZES = ("10", "50", "100", "200", "full")  # rows of each class
NAMES = {**{size: f"{size} a class" for size in SIZES}, "full": "all rows"}
OURS = recipes.OURS | recipes.OF_FEW
WAYS = {way: name for way, name in (CHEAP | OTHERS | OURS).items() if way != "tfidf_lr"}
PLAIN = ("majority", "tfidf", "pairs", "fasttext", "scratch")  # without trained weights
RIVALS = {way: name for way, name in WAYS.items() if way not in OURS}
QUICK = ("majority", "tfidf", "pairs", "model2vec")  # answered in seconds, in the process of the script
NO_CHANCE = ("majority", "tfidf", "pairs", "model2vec")  # draw nothing but their rows
FEW = ("10", "50", "100", "200")
OF_FEW_ROWS = ("setfit",)  # not measured on all rows, for which it is not made
SINGLE = [name for name in SETS if name not in MULTI]

Cells = dict[tuple[str, str, str], dict[int, dict[str, Any]]]  # set, size and way: a record by its seed


def seeds_of(name: str, size: str, way: str) -> int:
    """How many runs of a way there are to be; none where it makes no sense."""
    if (way == "pairs" and name not in PAIRS) or (way not in PLAIN and name in NOT_ENGLISH):
        return 0
    if size == "full":
        return 0 if way in OF_FEW_ROWS else 1 if way in NO_CHANCE else FEWER_SEEDS.get(name, SEEDS)
    return SEEDS


def tasks(names: Iterable[str], sizes: Iterable[str], ways: Iterable[str], n_seeds: int) -> list[Task]:
    """One draw of all before the next; within it by the order of what is given."""
    return [
        Task(name, size, way, seed)
        for seed in range(n_seeds)
        for size in sizes
        for name in names
        for way in ways
        if seed < seeds_of(name, size, way)
    ]


def known(accuracy: store.Measured, few: store.Measured) -> store.Measured:
    """What was measured, by the title of its task: answers to the same test rows."""
    found = {}
    for title, one in store.valid(accuracy).items():
        task = Task.titled(title)
        if "right" in one and task.name in SINGLE and task.way in WAYS:
            right_n = figures.unpacked(one["right"], (one["n"],))[tested(one["n"], TEST_ROWS)]
            test = {"accuracy": round(float(right_n.mean()), 5)}
            found[title] = {**one, "test": test, "n": len(right_n), "right": figures.packed(right_n)}
    return found | store.valid(few)


def cells_of(measured: store.Measured) -> Cells:
    """Records by set, size and way."""
    cells: Cells = {}
    for title, one in measured.items():
        task = Task.titled(title)
        if "right" in one and task.seed < seeds_of(task.name, task.size, task.way):
            cells.setdefault((task.name, task.size, task.way), {})[task.seed] = one
    return cells


def all_tables(measured: store.Measured) -> dict[str, str]:
    """By the marker in the documents."""
    cells = cells_of(measured)
    return {
        **{f"few-{size}": accuracies(cells, size) for size in SIZES},
        "few-means": means(cells),
        "few-leads": leads(cells),
        "few-verdicts": verdicts(cells),
        "few-minutes": minutes(cells),
        "few-unfinished": unfinished(cells),
    }


def value_of(cells: Cells, name: str, size: str, way: str) -> float | None:
    """Mean accuracy over the draws."""
    done = cells.get((name, size, way))
    return mean(one["test"]["accuracy"] for one in done.values()) if done else None


def accuracies(cells: Cells, size: str) -> str:
    """Mean over the draws and standard deviation; bold: the best of a set."""
    lines = []
    for name in SINGLE:
        found = {way: value_of(cells, name, size, way) for way in WAYS}
        best = max((value for value in found.values() if value is not None), default=0.0)
        line = [name]
        for way, value in found.items():
            if value is None:
                line.append("-")
                continue
            values = [one["test"]["accuracy"] for one in cells[name, size, way].values()]
            spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
            line.append(f"**{value:.3f}**{spread}" if value == best else f"{value:.3f}{spread}")
        lines.append(line)
    return markdown([f"test accuracy, {NAMES[size]}", *WAYS.values()], lines)


def means(cells: Cells) -> str:
    """How far each way is above TF-IDF, on average over the sets that were measured by both, draw by draw."""
    lines = []
    for way in WAYS:
        line = [WAYS[way]]
        for size in SIZES:
            gains = []
            for name in SINGLE:
                if pairs := common(cells, name, size, way, "tfidf"):
                    gains.append(mean(one["test"]["accuracy"] - other["test"]["accuracy"] for one, other in pairs))
            line.append(f"{100 * mean(gains):+.1f} ({len(gains)})" if gains else "-")
        if way != "tfidf":
            lines.append(line)
    return markdown(["points over TF-IDF + linear SVC (sets)", *(NAMES[size] for size in SIZES)], lines)


def common(cells: Cells, name: str, size: str, way: str, other: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The records of two ways by the draws that both have; what draws nothing has one, for all draws of the other."""
    ours, others = cells.get((name, size, way), {}), cells.get((name, size, other), {})
    if size == "full" and other in NO_CHANCE and others:
        others = dict.fromkeys(ours, others[0])
    return [(ours[seed], others[seed]) for seed in ours if seed in others]


def lead_of(cells: Cells, name: str, size: str, way: str, rival: str) -> Figure | None:
    """Of a way over another; None without two draws, as one says nothing of how far another would differ."""
    pairs = common(cells, name, size, way, rival)
    if len(pairs) < 2:
        return None
    return figures.advantage(right_of(one for one, _ in pairs), right_of(other for _, other in pairs))


def right_of(done: Iterable[dict[str, Any]]) -> Bools:
    """Draws by rows."""
    return np.stack([figures.unpacked(one["right"], (one["n"],)) for one in done])


def best_rival(cells: Cells, name: str, size: str, way: str) -> str:
    """The way with the best test accuracy, which is the hardest one to beat: of those without weights for a way without
    weights, else of all; "" if none has two draws in common with it."""
    values = {}
    for rival in RIVALS:
        if (way not in PLAIN or rival in PLAIN) and len(common(cells, name, size, way, rival)) > 1:
            values[rival] = value_of(cells, name, size, rival) or 0.0
    return max(values, key=lambda one: values[one], default="")


def leads(cells: Cells) -> str:
    """Of each of our ways over the best of the others, with the interval."""
    lines = []
    for size in SIZES:
        for name in SINGLE:
            line = [f"{name}, {NAMES[size]}"]
            for way in OURS:
                rival = best_rival(cells, name, size, way)
                lead = lead_of(cells, name, size, way, rival)
                line.append("-" if lead is None else f"{points(lead)} {RIVALS[rival]}")
            if any(cell != "-" for cell in line[1:]):
                lines.append(line)
    return markdown(["points over the best of the others (95 %)", *OURS.values()], lines)


def verdicts(cells: Cells) -> str:
    """On which sets each of our ways is above the best of the others, level with it, and below."""
    lines = []
    for size in SIZES:
        line = [NAMES[size]]
        for way in OURS:
            said: dict[str, list[str]] = {"above": [], "level": [], "below": []}
            for name in SINGLE:
                if lead := lead_of(cells, name, size, way, best_rival(cells, name, size, way)):
                    said[verdict(lead)].append(name)
            shown = [f"{len(some)} {kind}" for kind, some in said.items() if kind != "below" and some]
            shown += [f"below on {', '.join(said['below'])}"] if said["below"] else []
            line.append(", ".join(shown) or "-")
        lines.append(line)
    return markdown(["sets on which it is above, level with or below the best of the others", *OURS.values()], lines)


def minutes(cells: Cells) -> str:
    """Seconds of one thread for a run, the mean over sets and draws: reading, choosing, training, answering."""
    lines = []
    for way in WAYS:
        line = [WAYS[way]]
        for size in SIZES:
            seconds = [
                one["wall_seconds"]
                for (_, of_size, of_way), done in cells.items()
                if (of_size, of_way) == (size, way)
                for one in done.values()
            ]
            line.append(f"{mean(seconds):,.0f}" if seconds else "-")
        lines.append(line)
    return markdown(["seconds a run", *(NAMES[size] for size in SIZES)], lines)


def unfinished(cells: Cells) -> str:
    """What lacks, so that no table is taken for whole."""
    wanted = tasks(SINGLE, SIZES, WAYS, SEEDS)
    lacking = [one for one in wanted if one.seed not in cells.get((one.name, one.size, one.way), {})]
    if not lacking:
        return f"All {len(wanted)} runs are made."
    counts = Counter(f"{WAYS[one.way]}, {NAMES[one.size]}" for one in lacking)
    shown = "; ".join(f"{what}: {n}" for what, n in counts.items())
    return f"{len(lacking)} of {len(wanted)} runs are missing. {shown}."
