"""Settings that are resolved before the first step: `auto`, and limits of training that the data or a budget decides.

What they came to is written into config.yaml, and a resumed run takes it from there. What has to be measured, the
largest batch and the time of a step, is found in training/batch_size.py and training/budget.py. Standard library only.
"""

from collections.abc import Iterator
from dataclasses import replace

from manyheads.config import PairKind, Precision, RunConfig
from manyheads.config.conversion import named_values
from manyheads.config.facts import replace_settings, settings, settings_where
from manyheads.config.trainer_flags import END_FLAGS
from manyheads.config.training import BASE_STEPS, COMPARED
from manyheads.runs.summary import words_of

BUDGET_FLAGS = (*END_FLAGS, "val_check_interval")  # the flags of the Trainer that a budget is converted to


def with_resolved(run: RunConfig, saved: RunConfig) -> RunConfig:
    """`run` with the values that the `saved` run, which it resumes, was resolved to at its first start."""
    if run.batch.is_auto:
        run = replace(run, batch=replace(run.batch, tokens=saved.batch.tokens))
    now, then, known = named_values(run), named_values(saved), settings(RunConfig)
    by_rows = [name for name in settings_where(RunConfig, by_rows=True) if now[name] == known[name].default]
    run = replace_settings(run, {name: then[name] for name in by_rows})
    if run.model.pair is not PairKind.compare:  # which alone reads it: older runs do not have it
        run = replace(run, optim=replace(run.optim, compare_rate=saved.optim.compare_rate))
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


def explain_choices(typed: RunConfig, run: RunConfig, precision: str) -> Iterator[tuple[str, str]]:
    """What was chosen by a rule: in a few words, and with the reason and the setting that would choose otherwise.

    Args:
        typed: the settings before they were resolved to `run`.
        precision: in which the training multiplies.
    """
    if typed.batch != run.batch:
        yield f"{run.batch.tokens:,} tokens a batch", f"batch.tokens=auto: {run.batch.tokens}, as memory has room for"
    epochs, steps = (run.trainer.get(name) for name in END_FLAGS)
    if run.budget and typed.trainer != run.trainer:
        yield f"{steps:,} steps for budget={run.budget}", f"budget={run.budget}: {steps} steps"
    elif not run.budget and typed.trainer.get("max_epochs") != epochs:
        why = f"rows are few (optim.few={run.optim.few}): {epochs} epochs instead of {typed.trainer['max_epochs']}"
        yield f"{epochs} epochs, as rows are few", f"{why}; type trainer.max_epochs to choose"
    if not run.budget and typed.trainer.get("max_steps") != steps:
        rule = f"{BASE_STEPS} + {run.optim.steps_per_class} per class"
        yield f"{steps:,} steps at most ({rule})", f"trainer.max_steps={steps}: {rule}; type it to choose"
    if typed.model.pair is PairKind.auto and run.model.pair is PairKind.compare:
        few = f"rows are at most {COMPARED} times optim.few={run.optim.few} per class"
        why = f"{few}, or the weights of init_from learnt so"
        yield "texts compared by their vectors", f"model.pair=auto: compare, as {why}; type model.pair=joint otherwise"
    if typed.checkpoint.metric == "auto":
        figure = words_of(run.checkpoint.metric)
        yield f"best epoch by {figure}", f"checkpoint.metric=auto: the epoch with the best validation {figure} is kept"
    before, now = named_values(typed), named_values(run)
    for name in settings_where(RunConfig, by_rows=True):
        if name not in ("model.pair", "checkpoint.metric") and now[name] and before[name] != now[name]:
            yield f"{name}={now[name]}", f"{name}={now[name]}, as the training rows decide; type it to choose"
    if run.hardware.precision is Precision.auto:
        how = "as this device multiplies in it" if precision == "bf16" else "as this device does not multiply in bf16"
        yield precision, f"hardware.precision=auto: {precision}, {how}"
