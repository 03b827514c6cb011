"""Settings of a teacher and of the texts that it answers. Standard library only."""

from typing import Any

from manyheads.config.facts import require, section, setting
from manyheads.config.sentences import format_value


@section()
class TeacherConfig:
    """Who answers texts without labels."""

    teacher: str = setting(
        "",
        "trained run that answers data.unlabelled, or a file of texts with a column of probabilities for each class",
        path=True,
        hub=True,
        resume="refuse",
        tasks=("classify",),
    )


@section("data.")
class UnlabelledConfig:
    """Texts without labels."""

    unlabelled: str = setting(
        "",
        "file or folder of texts that teacher= answers",
        path=True,
        resume="free",
        tasks=("classify",),
        only_with="teacher",
    )


def check_teacher(run: Any) -> None:
    """A teacher is needed for texts without labels; its probabilities are learnt by cross-entropy."""
    if run.data.unlabelled:
        require(
            bool(run.teacher),
            f"data.unlabelled={run.data.unlabelled} has no labels to learn from: name a run that answers it by "
            "teacher=<run folder>",
        )
    if not run.teacher:
        return
    for name, default in (("objective", "cross_entropy"), ("focal_gamma", 0.0)):
        value = getattr(run.optim, name)
        require(
            value == default,
            f"optim.{name}={format_value(value)} knows labels alone, but teacher={run.teacher} gives probabilities: "
            "remove one of them",
        )
