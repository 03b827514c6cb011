"""Settings of contrast and of descriptions. Standard library only."""

from typing import Any

from manyheads.config.facts import section, setting


@section("optim.")
class ContrastConfig:
    """An encoder of trained weights first learns which texts are of one class."""

    contrast: int | None = setting(
        None,
        "most rows per class to begin by contrast; null: 4 times optim.few with sentence encoders; 0: never",
        ge=0,
        by_rows=True,
        tasks=("classify",),
        only_with="init_from",
    )
    contrast_epochs: int = setting(
        16, "how often each row is then read", ge=1, le=10_000, tasks=("classify",), only_with="init_from"
    )
    contrast_lr: float = setting(1e-4, "peak learning rate of this", gt=0.0, tasks=("classify",), only_with="init_from")


@section("data.")
class DescriptionsConfig:
    """What labels mean."""

    descriptions: str = setting(
        "",
        "file with columns label and text: what a label means, learnt from as a row of it",
        path=True,
        resume="free",
        tasks=("classify",),
        only_with="checkpoint.metric",  # a verb that trains a single model
    )


def why_contrast_unread(config: Any, name: str) -> str:
    """Why random weights learn nothing by contrast."""
    if name.startswith("optim.contrast") and not getattr(config, "init_from", ""):
        return "without trained weights: name them by init_from=, or remove it"
    if name in ("optim.contrast_epochs", "optim.contrast_lr") and config.optim.contrast == 0:
        return "with optim.contrast=0: remove one of them"
    return ""
