"""What evaluate and predict check of the settings of this plugin, before torch is imported; and the table of costs."""

import math
from pathlib import Path
from typing import Any, Protocol

import manyheads.plugin as plugin
from manyheads.config import RunConfig
from manyheads.config.inference import InferenceBatch
from manyheads.config.sentences import format_list, format_value, list_names
from manyheads.data.class_names import ClassLookup
from manyheads.data.opening import read_file
from manyheads.data.rows import Rows
from manyheads.data.table import require_whole
from manyheads.errors import UserError
from manyheads.inference.format import WEIGHTS, ModelFolder, Settings
from manyheads.plugins.judge.sections import AbstainConfig, OutliersConfig, SetsConfig

MOST_COST = 1e12  # of an answer, so that squares of costs have sums


class AnswerSettings(Protocol):
    """The settings of predict, or of evaluate, that this plugin reads."""

    run: str
    labelled: str
    abstain: AbstainConfig
    sets: SetsConfig
    outliers: OutliersConfig
    batch: InferenceBatch


def wants_slices(config: Any, folder: ModelFolder, rows: Rows) -> bool:
    """Whether slices are asked for. A UserError where the model has no classes, or they are of a column that the rows
    do not have beyond those that are read."""
    if config.slices and folder.settings.task != "classify":
        raise UserError(
            f"slices={format_list(config.slices)} does nothing, as the model of run {no_one_class(folder.settings)}: "
            "remove it"
        )
    known = rows.unread.names if rows.unread else []
    for one in config.slices:
        column = one.removeprefix("column:")
        if one.startswith("column:") and column not in known:
            raise UserError(
                f"slices=column:{column} is no further column of {rows.source}: it has {list_names(known) or 'none'}"
            )
    return bool(config.slices)


def no_one_class(model: Settings) -> str:
    """Why a model does not give one class a text, after "the model of run"; empty where it does."""
    if not model.n_classes:
        return "has no classes"
    if model.task != "classify":
        return plugin.task(model.task).model
    return "gives any number of labels" if model.multi else ""


def wants_costs(config: Any, folder: ModelFolder, rows: Rows) -> bool:
    """Whether costs are asked for. A UserError where the model does not give one class a text, or the file lacks
    costs of its classes."""
    if not config.costs:
        return False
    if has := no_one_class(folder.settings):
        raise UserError(f"costs={config.costs} are of one class a text, but the model of run {has}: remove it")
    return bool(read_costs(config.costs, folder.labels()))


def wants_outliers(config: AnswerSettings, folder: ModelFolder) -> bool:
    """Whether outliers are asked for. A UserError where the model has no vectors of texts."""
    alarms, model = config.outliers.false_alarms, folder.settings
    has = "" if model.task == "classify" else no_one_class(model)
    if not (folder.path / WEIGHTS).is_file():
        has = "is a graph for onnxruntime, which gives answers alone"
    if alarms and has:
        raise UserError(
            f"outliers.false_alarms={alarms:g} asks for vectors of texts, but the model of run {has}: remove it"
        )
    return alarms > 0


def wants_promises(config: AnswerSettings, folder: ModelFolder) -> bool:
    """Whether a risk or sets are asked for. A UserError where the settings do nothing, or the model has no one class a
    text to promise something of."""
    asked = ""
    if config.abstain.risk:
        asked = f"abstain.risk={config.abstain.risk:g}"
    elif config.sets.coverage:
        asked = f"sets.coverage={config.sets.coverage:g}"
    if config.labelled and not asked:
        raise UserError(
            f"labelled={config.labelled} does nothing without abstain.risk or sets.coverage: add one, or remove it"
        )
    if config.sets.by_class and not config.sets.coverage:
        raise UserError("sets.by_class=true does nothing without sets.coverage: add it, for example sets.coverage=0.9")
    if asked and (has := no_one_class(folder.settings)):
        raise UserError(f"{asked} is a promise of one class a text, but the model of run {has}: remove it")
    return bool(asked)


def read_costs(file: str, names: list[str]) -> list[list[float]]:
    """What an answer costs, of each true class by each answer: the first column of the file has the true classes, the
    header the answers. A UserError where it is not so of all classes."""
    path = Path(file)
    if not path.is_file():
        raise UserError(f"costs={file} is not a file: name a csv whose header names the answers, and a row each class")
    table = read_file(path)
    require_whole(table, f"costs={file}")
    first, *answers = table.names
    known = ClassLookup(names, any_case=True)
    answers = [known.find(one) for one in answers]
    if sorted(map(known.find, table.names)) == sorted(names):  # a column without a name is not read
        raise UserError(
            f"costs={file}: its first column, of the true classes, has no name in the header: give it one, with pandas "
            "by to_csv(file, index_label='true')"
        )
    classes = [known.find(one) for one in table.column(first)]
    for what, found in (("header", answers), ("first column", classes)):
        if sorted(found) != sorted(names):
            raise UserError(
                f"costs={file}: its {what} names {list_names(found)}, but the classes are {list_names(names)}"
            )
    costs = [[math.nan] * len(names) for _ in names]
    for answer, column in zip(answers, table.names[1:], strict=True):
        for true, cell in zip(classes, table.column(column), strict=True):
            try:
                cost = float(cell)
            except (TypeError, ValueError):
                cost = math.nan
            if not abs(cost) <= MOST_COST:
                raise UserError(
                    f"costs={file}: '{format_value(cell)}' of {true} answered as {answer} is not a number up to "
                    f"{MOST_COST:g}: give one"
                )
            costs[names.index(true)][names.index(answer)] = cost
    return costs


def require_held_out(run: RunConfig, what: str, otherwise: str) -> None:
    """Raise UserError if a run was validated on its training rows, on which `what` cannot be set.

    Args:
        otherwise: what the user can do.
    """
    if run.data.validates_on_train:
        raise UserError(
            f"data.validation_split={run.data.validation_split} of the run made its training rows those of validation, "
            f"by which {what} cannot be set, as they were learnt from: {otherwise}"
        )
