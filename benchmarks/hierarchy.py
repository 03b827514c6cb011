"""What rows teach that are labelled by a level above the classes.

    MANYHEADS_DATA=<folder of NAME/{train,test}.csv> python benchmarks/hierarchy.py [WAY ...]
    python benchmarks/hierarchy.py powers
    python benchmarks/hierarchy.py table

The 77 intents of banking77 are put into nine groups by their names, as in `cards/card_arrival`. Of each intent a few
rows are drawn with their intent. The default from scratch, or MiniLM (`minilm`, `minilm-nodes`), learns from these
alone, or also from all other training rows, which are labelled by their group. One row of each intent is chosen on, the
same for both, and the test split is read once. Figures go to hierarchy.json as they are measured; a second start
measures only what is missing.

The linear model learns each row with a group as an intent of it, drawn by the odds of a linear model of the rows with
intents, taken to a power. `powers` chooses the power, for the linear model of words, by HELD other training rows of
each intent, and reads the test split for this one and for the model without the rows with groups.
"""

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from contestants.tables import fill_document, markdown
from machine import machine
from ways.figures import accuracy, advantage, packed, unpacked
from ways.ours import command
from ways.recipes import data_folder, filled, minilm
from ways.rows import data_words, draw, read, write

from manyheads import compose
from manyheads.config import Terms
from manyheads.data.opening import add_further_rows
from manyheads.data.sources import read_splits
from manyheads.linear.fit import fit_linear
from manyheads.linear.model import linear_logits

HERE = Path(__file__).parent
RESULTS, DOCUMENT = HERE / "hierarchy.json", HERE.parent / "docs" / "results" / "hierarchy.md"
GROUPS = {  # the first that fits
    "top_up": "top_up|topping_up",
    "cash": "cash|atm",
    "exchange": "exchange|currency",
    "transfer": "transfer|beneficiary|receiving_money",
    "identity": "identity|source_of_funds|personal_details|age_limit|country",
    "security": "lost|compromised|pin|passcode|terminate|phone",
    "virtual": "virtual|disposable|apple_pay",
    "payment": "payment|refund|charge|transaction|direct_debit|statement",
    "cards": "",
}
ROWS = (5, 10)  # of each intent
DRAWS = 3
NODES = "-nodes"
WAYS = {"scratch": ["trainer.max_steps=600"], "minilm": ["init_from={minilm}", "trainer.max_steps=600"]}
SURE = 0.8
WITHOUT, LIKELIEST = "without", "1000"
POWERS = (WITHOUT, "1", "2", "4", "8", LIKELIEST)
HELD = 10


def group_of(intent: str) -> str:
    """The group of an intent."""
    return next(name for name, pattern in GROUPS.items() if re.search(pattern, intent.lower()))


def main() -> None:
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"runs": {}}
    if sys.argv[1:] == ["powers"]:
        choose_power(results)
    elif sys.argv[1:] != ["table"]:
        for seed in range(DRAWS):
            for n_rows in ROWS:
                for way in sys.argv[1:] or ("scratch", "scratch" + NODES):
                    measure(way, n_rows, seed, results)
    shown = table(results["runs"])
    print(shown)
    if DOCUMENT.exists():
        fill_document(DOCUMENT, {"hierarchy": shown})


def measure(way: str, n_rows: int, seed: int, results: dict[str, Any]) -> None:
    """Train and judge one way on one draw, unless it is known."""
    known = results["runs"].setdefault(f"{n_rows} {seed}", {})
    words = WAYS[way.removesuffix(NODES)]
    if known.get(way, {}).get("words") == words:
        return
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        prepare(n_rows, seed, home / "data", with_nodes=way.endswith(NODES))
        places = {"minilm": str(minilm())} if way.startswith("minilm") else {}
        typed = [*data_words(home / "data"), "data.hierarchy=/", *filled(words, places), f"seed={seed}", "test=false"]
        command(["train", *typed, f"output={home / 'run'}"], home / "log")
        judge = ["split=test", f"hierarchy.sure={SURE}", f"output={home / 'judged'}"]
        command(["evaluate", f"run={home / 'run'}", *judge], home / "log")
        given = read(home / "judged" / "predictions.csv")
        right_nD = np.array([[row["label"] == row["prediction"], same_group(row)] for row in given])
        metrics = json.loads((home / "judged" / "metrics.json").read_text())
        summary = json.loads((home / "run" / "summary.json").read_text())
        known[way] = {
            "words": words,
            "right": packed(right_nD[:, 0]),
            "right_group": packed(right_nD[:, 1]),
            "rows": len(given),
            "train": summary["rows"]["train"],
            "f1": metrics["hierarchy"]["f1"]["value"],
            "levels": metrics["levels"],
        }
        results["machine"] = machine()
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        print(f"{n_rows} a class, draw {seed}, {way}: {right_nD.mean(0)}", flush=True)


def choose_power(results: dict[str, Any]) -> None:
    """Accuracy of intents by each power, on rows held out of train; and by the best of them, on test."""
    found = results.setdefault("powers", {"held": {}, "test": {}})
    for seed in range(DRAWS):
        for n_rows in ROWS:
            for power in POWERS:
                measure_power(power, n_rows, seed, found["held"], results)
    means = {}
    for power in POWERS[1:]:
        means[power] = np.mean([of_draw[power] for of_draw in found["held"].values()])
    found["chosen"] = max(means, key=lambda power: means[power])
    for seed in range(DRAWS):
        for n_rows in ROWS:
            for power in (WITHOUT, found["chosen"]):
                measure_power(power, n_rows, seed, found["test"], results)
    print(means, found)


def measure_power(power: str, n_rows: int, seed: int, found: dict[str, Any], results: dict[str, Any]) -> None:
    """Fit the linear model of words to one draw and judge it, on test or on rows of train, unless it is known."""
    known, is_held = found.setdefault(f"{n_rows} {seed}", {}), found is results["powers"]["held"]
    if power in known:
        return
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "data"
        prepare(n_rows, seed, data, with_nodes=power != WITHOUT, n_held=HELD if is_held else 0)
        run = compose("train", [*data_words(data), "data.hierarchy=/", f"seed={seed}"])
        splits = read_splits(run.data, run.seed)
        with mock.patch("manyheads.plugins.hierarchy.learning.SHARPER", float(power if power != WITHOUT else 1)):
            add_further_rows(run, splits)
    linear, test = fit_linear(splits.train, len(splits.labels), terms=Terms.words), splits.test
    assert linear is not None, "there are words"
    assert test is not None, "it was written"
    right_n = linear_logits(linear, test.texts, None).argmax(1).numpy() == np.asarray(test.labels)
    known[power] = round(float(right_n.mean()), 4)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(f"{n_rows} a class, draw {seed}, power {power}: {known[power]}", flush=True)


def same_group(row: dict[str, str]) -> bool:
    return row["label"].partition("/")[0] == row["prediction"].partition("/")[0]


def prepare(n_rows: int, seed: int, folder: Path, *, with_nodes: bool, n_held: int = 0) -> None:
    """Write the rows with intents, the others with groups if they are learnt from, and the test rows. Those that are
    chosen on are a file of their own, so that they are the same whatever is learnt. With `n_held` this number of the
    other training rows of each intent takes the place of the test rows."""
    folder.mkdir()
    published = data_folder() / "banking77"
    rows = read(published / "train.csv")
    drawn = draw(rows, n_rows, seed)
    chosen_on = draw(drawn, 1, seed)
    held = {row["text"] for row in chosen_on}
    texts = {row["text"] for row in drawn}
    others = [row for row in rows if row["text"] not in texts]
    tested = draw(others, n_held, seed) if n_held else read(published / "test.csv")
    train = [with_path(row) for row in drawn if row["text"] not in held]
    if with_nodes:
        is_tested = {row["text"] for row in tested} if n_held else set()
        train += [{**row, "label": group_of(row["label"])} for row in others if row["text"] not in is_tested]
    write(folder / "train.csv", train)
    write(folder / "validation.csv", [with_path(row) for row in chosen_on])
    write(folder / "test.csv", [with_path(row) for row in tested])


def with_path(row: dict[str, str]) -> dict[str, str]:
    return {**row, "label": f"{group_of(row['label'])}/{row['label']}"}


def table(runs: dict[str, Any]) -> str:
    """Means over draws, and what the rows with groups gain, with its 95 % interval, in points."""
    lines = []
    for n_rows in ROWS:
        for way in WAYS:
            both = (way, way + NODES)
            draws = [run for title, run in runs.items() if title.startswith(f"{n_rows} ") and {*both} <= run.keys()]
            if not draws:
                continue
            line = [f"{way}, {n_rows} a class, draws: {len(draws)}"]
            for key in ("right", "right_group"):
                right = {one: np.array([unpacked(run[one][key], (run[one]["rows"],)) for run in draws]) for one in both}
                gain = advantage(right[both[1]], right[both[0]])
                line += [f"{accuracy(right[one]).value:.3f}" for one in both]
                line.append(f"{100 * gain.value:+.1f} ({100 * gain.low:+.1f} to {100 * gain.high:+.1f})")
            line += [f"{np.mean([run[one]['f1'] for run in draws]):.3f}" for one in both]
            lines.append(line)
    titles = ["", "intents", "with groups", "gain (95 %)", "group right", "with groups", "gain (95 %)"]
    return markdown([*titles, "hierarchical F1", "with groups"], lines)


if __name__ == "__main__":
    main()
