"""Settings that are resolved before the first step: `auto`, and limits of training that the data or a budget decides.

What they came to is written into config.yaml, and a resumed run takes it from there. What has to be measured, the
largest batch and the time of a step, is found in training/batch_size.py and training/budget.py. Standard library only.
"""

from collections.abc import Iterator
from dataclasses import replace

from manyheads.config import RunConfig
from manyheads.config.trainer_flags import END_FLAGS
from manyheads.config.training import BASE_STEPS

BUDGET_FLAGS = (*END_FLAGS, "val_check_interval")  # the flags of the Trainer that a budget is converted to


def with_resolved(run: RunConfig, saved: RunConfig) -> RunConfig:
    """`run` with the values that the `saved` run, which it resumes, was resolved to at its first start."""
    if run.batch.is_auto:
        run = replace(run, batch=replace(run.batch, tokens=saved.batch.tokens))
    if run.checkpoint.metric == "auto":
        run = replace(run, checkpoint=replace(run.checkpoint, metric=saved.checkpoint.metric))
    if run.budget and run.budget == saved.budget:
        spent = {name: saved.trainer[name] for name in BUDGET_FLAGS if name in saved.trainer}
        run = replace(run, trainer={**run.trainer, **spent})
    return run


def with_data(run: RunConfig, *, n_rows: int, n_classes: int, multi: bool) -> RunConfig:
    """`run` with the figure for `checkpoint.metric=auto` and, without a budget, the limits that its training rows
    decide.

    Args:
        n_rows: training rows.
        n_classes: 0 where rows have no classes.
        multi: rows have any number of labels.

    Raises:
        UserError: such rows do not have the figure `checkpoint.metric`.
    """
    run = replace(run, checkpoint=run.checkpoint.settled(run.task, multi=multi))
    return run if run.budget else with_limits(run, n_rows=n_rows, n_classes=n_classes)


def with_limits(run: RunConfig, *, n_rows: int, n_classes: int) -> RunConfig:
    """`run` with the limits of training that its rows decide: more epochs where rows are few, steps for each class."""
    few = run.optim.are_few(n_rows, n_classes)
    return replace(run, trainer=run.optim.limited(run.trainer, few=few, n_classes=n_classes))


def resolution_notes(asked: RunConfig, run: RunConfig) -> Iterator[str]:
    """What the log says of the settings that were resolved between `asked` and `run`."""
    if asked.batch != run.batch:
        yield f"batch.tokens=auto: {run.batch.tokens}"
    if asked.trainer == run.trainer:
        return
    if run.budget:
        yield f"budget={run.budget}: {run.trainer['max_steps']} steps"
        return
    if asked.trainer.get("max_epochs") != run.trainer.get("max_epochs"):
        yield f"rows are few: {run.trainer['max_epochs']} epochs instead of {asked.trainer['max_epochs']}"
    if asked.trainer.get("max_steps") != run.trainer.get("max_steps"):
        steps = f"trainer.max_steps={run.trainer['max_steps']}"
        yield f"{steps}: {BASE_STEPS} + {run.optim.steps_per_class} per class"
