"""Settings of pretraining and of answers that are texts, and what goes together with them."""

from typing import Any

import manyheads.plugin as plugin
from manyheads.config.facts import require, section, setting


@section("generate.")
class GenerateConfig:
    """The answer of a model that writes texts; classifiers read nothing of it."""

    max_length: int = setting(0, "most tokens of an answer; 0: data.max_length of the training", ge=0, le=2**20)


@section("pretrain.")
class PretrainConfig:
    """Masked language modelling: Devlin et al. (2019), "BERT", section 3.1. Small models learn best from 15 to 20 % of
    the tokens, and need no mixture of masks, other tokens and the token itself: Wettig et al. (2023), "Should You Mask
    15% in Masked Language Modeling?"."""

    mask_share: float = setting(0.15, "share of the tokens that are hidden and predicted", gt=0.0, lt=1.0)
    also: list[str] = setting(
        list, "further files or folders of texts to learn from, read like data.path", path=True, resume="free"
    )


def why_pretrain_unread(run: Any, name: str) -> str:
    """Why a run does not read a setting of `pretrain`."""
    if not name.startswith("pretrain.") or run.task == "pretrain":
        return ""
    return f"with task={run.task}: use manyheads pretrain"


def check_targets(run: Any) -> None:
    """Refuse a source whose rows are of another task."""
    source = plugin.find("source", run.data.source)
    require(
        bool(run.data.path) or source.facts.get("task", run.task) == run.task,
        f"task={run.task} needs target texts, which data={source.name} lacks: name a file by "
        "data.path=<file or folder>, or use data=dates",
    )
