"""Settings of several label columns, what they refuse, and what of them is kept with a model. Standard library only."""

from typing import Any

from manyheads.config.facts import require, section, setting
from manyheads.config.figures import figures_of, is_of_answers
from manyheads.config.required import OF_COLUMN, bounds_of
from manyheads.config.sentences import format_list, format_value
from manyheads.config.training import is_factor
from manyheads.errors import UserError
from manyheads.runs.summary import JOINT, MEAN

RESERVED = (MEAN, "probabilities", "row", "index", "text", "text_pair")  # which answers and figures have already


@section("data.")
class LabelsConfig:
    """Which columns hold labels."""

    labels: list[str] = setting(
        list,
        "columns of labels, as [topic,urgency], each with a head of its own; a row may lack some",
        tasks=("multitask",),
        needs="training",
        implies=("task", "multitask"),
    )
    label_sets: list[str] = setting(
        list,
        "those of data.labels in which a row has any number of labels, joined by |",
        tasks=("multitask",),
        needs="training",
        implies=("task", "multitask"),
    )
    label_weights: dict[str, Any] = setting(
        dict,
        "factors of the losses of some of data.labels, as {topic: 2}; of others 1",
        tasks=("multitask",),
        needs="training",
        implies=("task", "multitask"),
    )


def check_run(run: Any) -> None:
    """The columns of a run are several different ones, and `require` is of their figures."""
    labels, sets, weights = run.data.labels, run.data.label_sets, run.data.label_weights
    typed = f"data.labels={format_list(labels)}"
    asked = "task=multitask"
    if weights:
        asked = f"data.label_weights={format_value(weights)}"
    elif sets:
        asked = f"data.label_sets={format_list(sets)}"
    require(bool(labels), f"{asked} is for several columns of labels: name them, as data.labels=[topic,urgency]")
    require(not run.data.streaming, f"{typed} cannot join what data.streaming=true reads: remove one of them")
    require(len(labels) > 1, f"{typed} names one column: write data.label={format_value(labels[0])}")
    require(all(labels) and len({*labels}) == len(labels), f"{typed} has an empty name, or one twice: name each once")
    for name in labels:
        is_like_other = any(name.startswith(f"{other}{JOINT}") for other in labels)
        require(
            name not in RESERVED and not is_like_other,
            f"{typed}: '{format_value(name)}' would mean something else in answers, too: rename the column",
        )
    for name in sets:
        require(name in labels, f"data.label_sets={format_list(sets)} has {format_value(name)}, which {typed} lacks")
    for name, weight in weights.items():
        require(name in labels, f"data.label_weights names the column '{format_value(name)}', which {typed} lacks")
        require(
            is_factor(weight),
            f"data.label_weights gives '{format_value(name)}' the weight {format_value(weight)}: it must be a positive "
            "number",
        )
    bounds_of(run.require, figures_of_columns({name: name in sets for name in labels}))


def figures_of_columns(columns: dict[str, bool]) -> list[str]:
    """The names of all figures that `require` may bound, of columns with or without any number of labels a row."""
    names = [MEAN]
    for name, is_set in columns.items():
        measured = figures_of("labels" if is_set else "classes", "table")
        names += [f"{name}.{figure}" for figure in measured if is_of_answers(figure)]
    return names


def required_figures(kept: dict[str, Any] | None) -> list[str]:
    """`Task.required`: the figures of a model, or of any."""
    return [MEAN, OF_COLUMN] if kept is None else figures_of_columns(columns_in(kept))


def kept_columns(data: Any, splits: object = None) -> dict[str, Any]:
    """The hook `Section.keep`: of each column whether a row has any number of its labels."""
    return {"labels": {name: name in data.label_sets for name in data.labels}} if data.labels else {}


def columns_in(kept: dict[str, Any]) -> dict[str, bool]:
    """The same, from config.json of a model."""
    columns = kept.get("labels", {})
    right = isinstance(columns, dict) and all(isinstance(is_set, bool) for is_set in columns.values())
    require(right, "kept.labels in config.json does not say whether each column has any number of labels")
    return columns


def label_settings(kept: dict[str, Any]) -> dict[str, Any]:
    """The hook `Section.read_as`."""
    columns = columns_in(kept)
    return {"labels": [*columns], "label_sets": [name for name, is_set in columns.items() if is_set]} if columns else {}


def refuse_elsewhere(config: Any, where: str) -> None:
    """The hook `Section.refuse`: other verbs than train compare or choose by the figures of one column."""
    labels, is_train = config.data.labels, getattr(config, "task", "") == "multitask" and not hasattr(config, "search")
    if labels and not is_train:
        raise UserError(
            f"data.labels={format_list(labels)} is learnt by train alone: name one column by data.label={labels[0]}"
        )
