"""Whether these rows are few enough to begin by contrast. Standard library only."""

from typing import Any

from manyheads.config.facts import replace_settings, require
from manyheads.config.training import COMPARED
from manyheads.inference.origin import find_origin

# Rows in all: with 3,850 rows of 77 classes contrast gains nothing over fine-tuning, see docs/results/lab-notes.md.
ENOUGH = 2000


def with_contrast(run: Any, splits: Any) -> Any:
    """`run` with the number that `optim.contrast=null` comes to: 0 unless these are few texts of one class each, with
    an encoder of sentences. A budget does not pay for contrast, and a teacher leaves the class open."""
    rows = splits.train
    own = splits.own_train or rows
    kinds = {
        "are pairs of texts": rows.pairs is not None,
        "have any number of labels": splits.multi,
        "have votes": own.probabilities is not None,
    }
    typed = run.optim.contrast
    for kind, holds in kinds.items():
        rule = f"optim.contrast={typed} compares texts of one class with others, but rows of this data {kind}"
        require(not (typed and holds), f"{rule}: remove it")
    if run.task != "classify" or not run.init_from or typed is not None:
        return run
    n_rows, n_classes = len(rows) if rows.weights is None else int((rows.weights > 0).sum()), len(splits.labels)
    few = n_rows <= ENOUGH and run.optim.may_compare(n_rows, n_classes)
    learns = few and rows.probabilities is None and not run.budget and not any(kinds.values())
    if learns and find_origin(run.init_from, run.model.encoder).of_sentences:
        return replace_settings(run, {"optim.contrast": COMPARED * run.optim.few})
    return replace_settings(run, {"optim.contrast": 0})
