"""How several columns are learnt: by the weighted sum of their losses, where a row has them; and their linear models.

B rows of a batch . C labels of all columns . K labels of one
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from manyheads.config import RunConfig
from manyheads.data.batches import Batch
from manyheads.data.disk_cache import cache_folder
from manyheads.data.rows import Splits
from manyheads.data.tokens import Tokens
from manyheads.inference.batching import network_logits
from manyheads.inference.folder import save
from manyheads.inference.precision import choose_device
from manyheads.linear.blend import Blend, Tuned, divide_head, tune, usual_share
from manyheads.linear.fit import cached_linear
from manyheads.nn import Classifier
from manyheads.nn.cost import mean_flops
from manyheads.plugins.multitask.columns import LabelColumn, columns_of, rows_of
from manyheads.plugins.multitask.config import MEAN, kept_columns
from manyheads.plugins.multitask.model import column_folder, part_of
from manyheads.training.context import RunContext
from manyheads.training.objectives import ClassFigures, LabelFigures, class_logits, label_losses


class ColumnFigures(nn.Module):
    """The figures of each column on the rows that have it, and the mean of their accuracies or micro F1."""

    def __init__(self, columns: list[LabelColumn]) -> None:
        super().__init__()
        self.columns = columns
        self.of_columns: Any = nn.ModuleList(
            (LabelFigures if column.is_set else ClassFigures)(len(column.labels)) for column in columns
        )

    def update(self, logits_BC: Tensor, marks_BC: Tensor) -> None:
        for column, figures in zip(self.columns, self.of_columns, strict=True):
            logits_BK, marks_BK = logits_BC[:, column.ids], marks_BC[:, column.ids]
            if column.is_set:
                figures.update(logits_BK, marks_BK)
            else:
                figures.update(logits_BK, marks_BK.argmax(1), marks_BK.any(1))

    def compute(self) -> dict[str, Tensor]:
        found, main = dict[str, Tensor](), list[Tensor]()
        for column, figures in zip(self.columns, self.of_columns, strict=True):
            own = figures.compute()
            found |= {f"{column.name}.{name}": value for name, value in own.items()}
            main.append(own["micro_f1" if column.is_set else "accuracy"])
        return {MEAN: torch.stack(main).nanmean(), **found}  # a part of an epoch may have no row of a column

    def reset(self) -> None:
        for figures in self.of_columns:
            figures.reset()


class LearnColumns(nn.Module):
    """The sum of the losses of all columns: of one with a class a row cross-entropy, 0 where the row lacks it; of one
    with any number of labels the binary cross-entropies of these.

    Args:
        smoothing: probability mass that is shared among all classes of a column.
        weights: factors of the training losses of columns by name; 1 where there is none.
    """

    def __init__(self, columns: list[LabelColumn], *, smoothing: float, weights: dict[str, float]) -> None:
        super().__init__()
        self.columns, self.smoothing, self.weights = columns, smoothing, weights
        self.train_metrics, self.validation_metrics = ColumnFigures(columns), ColumnFigures(columns)

    def training_loss(self, classifier: Classifier, batch: Batch) -> Tensor:
        """The weighted and smoothed loss of each row `(B,)`; updates `train_metrics`."""
        logits_BC = class_logits(classifier, batch)
        if len(batch.rows_B):
            self.train_metrics.update(logits_BC.detach(), batch.labels_B)
        return column_losses(self.columns, logits_BC, batch.labels_B, self.smoothing, self.weights)

    def validation_loss(self, classifier: Classifier, batch: Batch) -> Tensor:
        """The plain loss of each row `(B,)`; updates `validation_metrics`."""
        logits_BC = class_logits(classifier, batch)
        self.validation_metrics.update(logits_BC, batch.labels_B)
        return column_losses(self.columns, logits_BC, batch.labels_B)

    def given(self, batch: Batch) -> tuple[Any, ...]:
        """The arguments of the network."""
        return batch.ids_N, batch.layout, batch.segments_N

    def plan(self, run: RunConfig, tokens: Tokens, labels: list[str], n_words: int) -> dict[str, str]:
        """Lines of a dry run."""
        forward = mean_flops(run.model, tokens.sizes(), pooled=True)
        sizes = []
        for column in self.columns:
            weight = f", weight {self.weights[column.name]:g}" if column.name in self.weights else ""
            sizes.append(f"{column.name} ({len(column.labels)}{weight})")
        return {
            "columns and their labels": ", ".join(sizes),
            "FLOPs a token": f"{forward:,.0f} forward, {3 * forward:,.0f} with backward",
        }


def column_losses(
    columns: list[LabelColumn],
    logits_BC: Tensor,
    marks_BC: Tensor,
    smoothing: float = 0.0,
    weights: dict[str, float] | None = None,
) -> Tensor:
    """The loss of each row, `(B,)`: the sum over columns, each times its weight."""
    total_B = logits_BC.new_zeros(len(logits_BC))
    for column in columns:
        logits_BK, marks_BK = logits_BC[:, column.ids], marks_BC[:, column.ids]
        if column.is_set:
            losses_B = label_losses(logits_BK, marks_BK, smoothing).sum(1)
        else:
            losses_B = label_losses(logits_BK, marks_BK.argmax(1), smoothing)
            losses_B = losses_B.where(marks_BK.bool().any(1), 0.0)
        weight = (weights or {}).get(column.name, 1.0)
        total_B = total_B + weight * losses_B
    return total_B


def learn_columns(run: Any, tokens: Tokens, labels: list[str]) -> LearnColumns:
    """`Task.objective`."""
    columns = columns_of(labels, kept_columns(run.data))
    return LearnColumns(columns, smoothing=run.optim.label_smoothing, weights=run.data.label_weights)


def fit_columns(context: RunContext) -> Callable[[Path], None]:
    """`Task.finish`: the linear model of each column is fitted on the rows that have it, its share in the answers and
    the thresholds of labels are tuned on those of validation; returns what writes a classifier of each column."""
    run, splits = context.run, context.splits
    columns = columns_of(splits.labels, kept_columns(run.data))
    logits_nC = network_logits(context.network, context.tokens["validation"], choose_device(run.hardware))
    tuned = list[Tuned]()
    for column in columns:
        n_labels, (train, _) = len(column.labels), rows_of(column, splits.train)
        validation, at_n = rows_of(column, splits.validation)
        linear = cached_linear(cache_folder(run.data), Splits(train, validation, None, column.labels), None)
        share = usual_share(trained=bool(run.init_from), few=run.optim.are_few(len(train), n_labels))
        logits_nK = logits_nC[torch.from_numpy(at_n)][:, column.ids]
        found = tune(logits_nK, linear, validation, n_labels, answers=run.linear, prior_share=share)
        if found.blend is None and found.baseline is not None:  # the baseline lies in the folder of the column, too
            members = {}
            if found.thresholds is not None:
                members = {"network": found.thresholds, "linear": found.baseline.thresholds or []}
            found = found._replace(blend=Blend(found.baseline.linear, 0.0), member_thresholds=members)
        divide_head(context.network.head, found.temperature, column.ids)
        tuned.append(found)

    def write(folder: Path) -> None:
        for number, (column, one) in enumerate(zip(columns, tuned, strict=True), 1):
            save(
                folder / column_folder(column, number),
                part_of(context.network, column.ids),
                model=run.model,
                data=replace(run.data, label=column.name, labels=[], label_sets=[]),
                tokenizer=context.tokenizer,
                pairs=splits.train.pairs is not None,
                labels=column.labels,
                tuned=one,
            )

    return write
