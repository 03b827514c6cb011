"""What the registry says of figures; evaluation/figures.py has those of core. Standard library only."""

import math
from typing import Any

import manyheads.plugin as plugin


def figures_of(rows: str = "", fact: str = "rows") -> list[str]:
    """The names of a classifier's figures, the main one first, then in the order in which they were registered.

    Args:
        rows: "classes": of rows with one class each; "labels": of rows with any number of labels; empty: of either.
        fact: "table": those that tables and summary.json show, by default those that validation measures; "checkpoint":
            these.
    """
    kinds = [rows] if rows else ["classes", "labels"]
    main, others = list[str](), list[str]()
    for name, part in plugin.parts("figure").items():
        usual = {"rows": kinds, "table": part.facts.get("checkpoint", ())}
        if not set(kinds) & set(part.facts.get(fact, usual.get(fact, ()))):
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


def limits_of(figure: str) -> tuple[float, float]:
    """The least and the most that it can be: a share lies between 0 and 1, a loss is at least 0, any other figure of a
    plugin may be any number. Figures of other tasks are shares, unless they are called like one that is none."""
    part = plugin.parts("figure").get(figure)
    if part is None or part.facts.get("is_share", False):
        return 0.0, 1.0
    return (0.0 if part.facts.get("lower_is_better", False) else -math.inf), math.inf


def is_of_answers(figure: str) -> bool:
    """Whether it follows from answers alone, so that probabilities may change without it."""
    part = plugin.parts("figure").get(figure)
    return part is None or part.facts.get("of") == "counts"


def lower_is_better(figure: str) -> bool:
    part = plugin.parts("figure").get(figure)
    return part is not None and part.facts.get("lower_is_better", False)
