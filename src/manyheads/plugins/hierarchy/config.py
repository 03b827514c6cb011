"""Settings of labels with levels. Standard library only."""

from typing import Any

from manyheads.config.facts import require, section, setting
from manyheads.config.sentences import format_value


@section("data.")
class HierarchyConfig:
    """How labels are parts of others."""

    hierarchy: str = setting(
        "",
        "sign between the levels of a label, such as / in animals/cats; empty: labels have no levels",
        verbatim=True,
        resume="refuse",
        tasks=("classify",),
        needs="training",
    )
    parents: str = setting(
        "",
        "file with the columns label and parent, which says what each label is a part of",
        path=True,
        resume="refuse",
        tasks=("classify",),
        needs="training",
    )


@section("hierarchy.")
class SureConfig:
    """Which level of a label is answered."""

    sure: float = setting(
        0.0, "least probability of the deepest level that is answered; 0: the likeliest class", ge=0.0, lt=1.0
    )


def typed_levels(data: Any) -> str:
    """What was typed of levels; empty: nothing."""
    if data.parents:
        return f"data.parents={data.parents}"
    return f"data.hierarchy={format_value(data.hierarchy)}" if data.hierarchy else ""


def refuse_levels(config: Any, where: str) -> None:
    """Levels are read in one way, and from rows that are all at hand."""
    data = config.data
    require(
        not (data.hierarchy and data.parents),
        f"data.hierarchy={format_value(data.hierarchy)} reads levels from the labels, and data.parents={data.parents} "
        "from a file: remove one of them",
    )
    require(
        not (typed_levels(data) and (data.votes or data.label_columns)),
        f"{typed_levels(data)} is for rows of one label, but data.{'votes' if data.votes else 'label_columns'} gives "
        "several: remove one of them",
    )
    require(
        not (typed_levels(data) and data.streaming),
        f"{typed_levels(data)} looks at all training rows, of which data.streaming=true keeps a sample: remove one of "
        "them",
    )


def wants_levels(config: Any, folder: Any) -> bool:
    """Whether the labels of the model have levels, which `hierarchy.sure` needs."""
    has_levels = "hierarchy" in folder.settings.kept
    require(
        has_levels or not config.hierarchy.sure,
        f"hierarchy.sure={config.hierarchy.sure:g} chooses a level, but the labels of the model of run have none: "
        "remove it, or name a run trained with data.hierarchy= or data.parents=",
    )
    return has_levels
