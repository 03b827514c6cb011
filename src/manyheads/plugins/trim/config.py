"""The settings of trimming, which are those of the section `tokenizer`. Standard library only."""

from enum import StrEnum
from typing import Any

from manyheads.config.facts import require, section, setting

Trim = StrEnum("Trim", "none train")


@section("tokenizer.")
class TrimConfig:
    """What is kept of the tokenizer of trained weights."""

    trim: Trim = setting(
        Trim.none,
        "train: of the tokenizer of init_from keep letters, the reserve and what the training texts need",
        tasks=("classify",),
        only_with="init_from",
    )
    reserve: int = setting(
        10000,
        "with tokenizer.trim: entries that are kept whatever the texts are, the most frequent ones",
        ge=0,
        tasks=("classify",),
        only_with="init_from",
    )


def why_reserve_unread(config: Any, name: str) -> str:
    """Why a reserve does nothing."""
    if name != "tokenizer.reserve" or config.tokenizer.trim is Trim.train:
        return ""
    return "with tokenizer.trim=none: add tokenizer.trim=train, or remove it"


def refuse_nothing_to_trim(config: Any, where: str) -> None:
    """Trimming needs the tokenizer of trained weights, and all training texts."""
    if config.tokenizer.trim is Trim.none:
        return
    require(
        bool(getattr(config, "init_from", "")),
        "tokenizer.trim=train keeps a part of the tokenizer that comes with trained weights, and none are named: add "
        "init_from=, or remove it",
    )
    require(
        not config.data.streaming,
        "tokenizer.trim=train reads all training texts, of which data.streaming=true keeps a sample: remove one of "
        "them",
    )
