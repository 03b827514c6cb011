"""data.descriptions=: a text for each label, which is learnt from as a row of it. Standard library and NumPy.

n rows . C classes
"""

from dataclasses import replace
from typing import Any

import numpy as np

from manyheads.config.data import MergeLabels
from manyheads.config.sentences import format_value, list_names
from manyheads.data.class_names import ClassLookup
from manyheads.data.columns import find_columns, text_rows
from manyheads.data.opening import further_table
from manyheads.data.rows import Rows, Splits
from manyheads.errors import UserError
from manyheads.evaluation.further_rows import not_judged

SETTING = "data.descriptions"


def described_rows(run: Any, splits: Splits) -> Rows | None:
    """The texts of the file `data.descriptions` that are not judged, each a row of its label; its columns are called
    label and text, or as those of the data.

    Raises:
        UserError: a label that the data does not have, or pairs of texts; or the file is missing or broken.
    """
    path = run.data.descriptions
    if not path:
        return None
    if splits.train.pairs is not None:
        raise UserError(f"{SETTING}={path} gives labels one text each, but the data has pairs of texts: remove it")
    table = further_table(path, run.data, SETTING)
    names: dict[str, Any] = {key: key for key in ("text", "label") if key in table.names}
    only_of_data: dict[str, Any] = {"text_pair": "", "weight": "", "votes": "", "label_columns": []}
    data = replace(run.data, source="files", path=path, **only_of_data, **names)
    known = ClassLookup(splits.labels, any_case=run.data.merge_labels is MergeLabels.case)
    found_nC, faults = np.zeros((len(table.numbers), len(splits.labels)), dtype=np.float32), dict[int, str]()
    for at, cell in enumerate(table.column(find_columns(table, data).answer)):
        name = known.find(cell)
        if name in splits.labels:
            found_nC[at, splits.labels.index(name)] = 1
        else:
            faults[at] = f"'{format_value(name)}' is no label of the data, which has {list_names(splits.labels)}"
    rows = text_rows(replace(table, broken=table.broken | faults), data, splits.notes, found_nC)
    labels_n = rows.probabilities.argmax(1).astype(np.int32)
    rows.labels, rows.probabilities = labels_n, None  # pyright: ignore[reportAttributeAccessIssue]
    if splits.multi:
        rows.sets = [(label,) for label in labels_n.tolist()]
    n_rows, rows = len(rows), rows.pick(not_judged(run, splits, rows))
    labels_n = rows.labels
    note = f"{SETTING}: {len(rows):,} texts of labels are learnt from"
    if len(rows) < n_rows:
        note += f", as {n_rows - len(rows):,} are also in validation or test"
    if missing := [label for at, label in enumerate(splits.labels) if at not in labels_n]:
        note += f"; {list_names(missing)} has none" if len(missing) == 1 else f"; {list_names(missing)} have none"
    splits.notes.append(note)
    return rows if len(rows) else None
