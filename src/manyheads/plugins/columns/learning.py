"""The entries of the tokenizer for the cells of data.columns, and what the columns add."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer

from manyheads.data.column import zipped
from manyheads.data.disk_cache import cache_folder
from manyheads.data.formats.fields import FIELD
from manyheads.data.ids.terms import UNIT
from manyheads.data.prepare_tokens import splits_as_read
from manyheads.data.rows import Splits
from manyheads.evaluation.intervals import mean_interval
from manyheads.linear.blend import label_tensor
from manyheads.linear.fit import cached_linear
from manyheads.linear.model import linear_logits
from manyheads.plugins.columns.units import units_of
from manyheads.runs.summary import Interval
from manyheads.training.objectives import weights_of_linear

FIGURE = "accuracy that columns add to the linear model"


def with_units(run: Any, splits: Splits, tokenizer: Tokenizer) -> Tokenizer:
    """The hook `Section.tokenizer`: the tokenizer with an entry for each unit."""
    known = splits.kept["columns"]["known"] if "columns" in splits.kept else {}
    names = [f"{UNIT}{unit}{UNIT}" for of_column in known.items() for unit in units_of(*of_column)]
    tokenizer.add_tokens([AddedToken(name, lstrip=True, rstrip=True, normalized=False) for name in names])
    return tokenizer


def gain_of_columns(context: Any) -> dict[str, Interval]:
    """The hook `Section.measure`: the accuracy of the linear model, less that of one fitted to the texts alone, on the
    rows that the run is judged on; with several labels a row the mean over labels."""
    splits, alone, right = context.splits, dict[str, Any](), []
    weights_C = weights_of_linear(context)
    if not splits.kept.get("columns", {}).get("known"):
        return {}
    n_texts = splits.kept["columns"]["texts"]

    def texts_alone(cells: Sequence[str]) -> str:
        return FIELD.join(cells[0].split(FIELD)[:n_texts]).strip()

    for name, rows in splits.by_name().items():
        alone[name] = replace(rows, texts=zipped([rows.texts], texts_alone, f"{n_texts} texts"))
    for some in (splits_as_read(splits), replace(splits, **alone)):
        linear = cached_linear(cache_folder(context.run.data), some, None if weights_C is None else weights_C.numpy())
        rows = some.test or some.validation
        if linear is None:
            return {}
        logits_nC, labels = linear_logits(linear, rows.texts, rows.pairs), label_tensor(rows, len(splits.labels))
        is_right = (logits_nC > 0) == labels.bool() if splits.multi else (logits_nC.argmax(1) == labels)[:, None]
        right.append(is_right.float().mean(1).numpy())
    return {FIGURE: mean_interval(np.subtract(*right), least=-1, most=1)}
