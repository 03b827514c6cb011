"""Accuracy and time against the distance between a clue and its question, for self-attention and recurrent layers.

    python benchmarks/long_range.py [SETTING=VALUE ...]

Texts are generated: `box red cup blue` at the start, a number of filler words, `cup ?` at the end; the answer is a
colour, blue. Words alone leave two of four colours, so the question has to meet its clue. All models have as many
parameters as the first and take the same steps and batches (conf/experiment/ablate_long_range.yaml). Figures go to
long_range.json as they come; a second start measures only what is missing; the picture is long_range.png.
"""

import csv
import os
import random
import sys
import tempfile
from pathlib import Path

from matplotlib.figure import Figure

from manyheads.cli.compose import compose
from manyheads.plugins.sweep.ablate import ablate
from manyheads.plugins.sweep.results_file import Comparison

DISTANCES = (8, 16, 32, 64)
N_ROWS = {"train": 8000, "validation": 500}
THINGS, COLOURS = ("box", "cup"), ("red", "blue", "green", "white")
FILLER = "and so it was that they went on by day or night with all of the old ones as far as any could see"
RESULTS = Path(__file__).with_suffix(".json")
MODELS = {  # by the beginning of the row's name
    "transformer, first": ("self-attention", "#4a82e4", "-"),
    "gru, first": ("GRU, last state", "#d1495b", "--"),
    "gru, attention": ("GRU, attention", "#d1495b", "-"),
    "lstm, first": ("LSTM, last state", "#8a6d3b", "--"),
    "lstm, attention": ("LSTM, attention", "#8a6d3b", "-"),
}


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["MANYHEADS_DATA"] = scratch
        for distance in DISTANCES:
            write_set(Path(scratch) / name(distance), distance)
        sets = f"sets=[{','.join(map(name, DISTANCES))}]"
        record = ablate(compose("ablate", ["experiment=ablate_long_range", sets, f"output={RESULTS}", *sys.argv[1:]]))
    draw(record).savefig(RESULTS.with_suffix(".png"), dpi=160)


def name(distance: int) -> str:
    return f"distance-{distance}"


def write_set(folder: Path, distance: int) -> None:
    """train.csv and validation.csv; no text is in both."""
    folder.mkdir(parents=True)
    draw_from, seen = random.Random(f"long range {distance}"), set()
    for split, n_rows in N_ROWS.items():
        with (folder / f"{split}.csv").open("w", newline="") as file:
            write = csv.writer(file).writerow
            write(("text", "label"))
            for _ in range(n_rows):
                text, label = example(draw_from, distance)
                while text in seen:
                    text, label = example(draw_from, distance)
                seen.add(text)
                write((text, label))


def example(draw_from: random.Random, distance: int) -> tuple[str, str]:
    """A text with `distance` words between the clue and the question, and its answer."""
    things = draw_from.sample(THINGS, 2)
    colours = draw_from.sample(COLOURS, 2)
    asked = draw_from.randrange(2)
    clue = [word for pair in zip(things, colours, strict=True) for word in pair]
    return " ".join([*clue, *draw_from.choices(FILLER.split(), k=distance), things[asked], "?"]), colours[asked]


def draw(record: Comparison) -> Figure:
    """Accuracy and milliseconds a step, each against distance."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for row in record.rows:
        label, colour, dash = next(look for start, look in MODELS.items() if row.startswith(start))
        runs = [[record.at(name(distance), row).runs[str(seed)] for seed in record.seeds] for distance in DISTANCES]
        accuracy = [sum(run.accuracy for run in of_seeds) / len(of_seeds) for of_seeds in runs]
        time = [1000 * sum(run.seconds / run.steps for run in of_seeds) / len(of_seeds) for of_seeds in runs]
        for axes, values in ((left, accuracy), (right, time)):
            wide = 4.5 if label.startswith("GRU") and dash == "-" else 1.6  # seen beneath a line that hides it
            axes.plot(DISTANCES, values, dash, color=colour, marker="o", markersize=4, linewidth=wide, label=label)
    left.axhline(0.5, color="#8a93a3", linewidth=0.8, linestyle=":")
    left.annotate("words without the question", (DISTANCES[0], 0.44), ha="left", va="top", color="#8a93a3", fontsize=8)
    left.set_ylabel("validation accuracy")
    left.set_ylim(0.2, 1.03)
    right.set_ylabel("milliseconds a step")
    right.set_ylim(bottom=0)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(DISTANCES, map(str, DISTANCES))
        axes.set_xlabel("words between clue and question")
        axes.spines[["top", "right"]].set_visible(False)
    right.legend(frameon=False, fontsize=8)
    return figure


if __name__ == "__main__":
    main()
