"""What `optim.contrast` comes to with the rows of a training. Standard library only."""

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
    typed, why_not = run.optim.contrast, ""
    if rows.pairs is not None:
        why_not = "are pairs of texts"
    elif splits.multi:
        why_not = "have any number of labels"
    elif own.probabilities is not None:
        why_not = "have votes"
    require(
        not (typed and why_not),
        f"optim.contrast={typed} compares texts of one class with others, but rows of this data {why_not}: remove it",
    )
    if run.task != "classify" or not run.init_from or typed is not None:
        return run
    n_rows, n_classes = len(rows) if rows.weights is None else int((rows.weights > 0).sum()), len(splits.labels)
    few = n_rows <= ENOUGH and run.optim.may_compare(n_rows, n_classes)
    learns = few and rows.probabilities is None and not run.budget and not why_not
    if learns and find_origin(run.init_from, run.model.encoder).of_sentences:
        return replace_settings(run, {"optim.contrast": COMPARED * run.optim.few})
    return replace_settings(run, {"optim.contrast": 0})
