"""What the registry says of figures; evaluation/figures.py has those of core. Standard library only."""

from typing import Any

import manyheads.plugin as plugin


def figures_of(rows: str = "", fact: str = "rows") -> list[str]:
    """The names of a classifier's figures, the main one first, then in the order in which they were registered.

    Args:
        rows: "classes": of rows with one class each; "labels": of rows with any number of labels; empty: of either.
        fact: "table": those that tables and summary.json show; "checkpoint": those that validation measures.
    """
    kinds = [rows] if rows else ["classes", "labels"]
    usual = kinds if fact == "rows" else []
    main, others = list[str](), list[str]()
    for name, part in plugin.parts("figure").items():
        if not set(kinds) & set(part.facts.get(fact, usual)):
            continue
        if kinds[0] in part.facts.get("main", ()):
            main.append(name)
        else:
            others.append(name)
    return main + others


def figures_of_answers(rows: str) -> list[str]:
    """Those that follow from labels and answers alone, without probabilities."""
    return [name for name in figures_of(rows) if is_of_answers(name)]


def measured_by(task: str, kept: dict[str, Any] | None = None) -> list[str]:
    """All figures that `evaluate` measures of a task, which `require` may bound; `kept` is what plugins keep with the
    model, if that is known."""
    required = plugin.task(task).required
    if not isinstance(required, tuple):
        required = plugin.resolve(required)(kept)
    return [*required] or figures_of()


def checkpoint_figures(task: str, rows: str = "") -> list[str]:
    """What `checkpoint.metric` may be in a task, where classifiers have such rows; `auto` is the first."""
    return [*plugin.task(task).figures] or figures_of(rows, "checkpoint")


def is_share(figure: str) -> bool:
    """Whether it lies between 0 and 1; figures of other tasks do, unless they are called like one that does not."""
    part = plugin.parts("figure").get(figure)
    return part is None or part.facts.get("is_share", False)


def is_of_answers(figure: str) -> bool:
    """Whether it follows from answers alone, so that probabilities may change without it."""
    part = plugin.parts("figure").get(figure)
    return part is None or part.facts.get("of") == "counts"


def lower_is_better(figure: str) -> bool:
    part = plugin.parts("figure").get(figure)
    return part is not None and part.facts.get("lower_is_better", False)
