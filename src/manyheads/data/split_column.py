"""One table whose column `split`, or `Split`, says of each row which split it is of. Standard library only."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from manyheads.config import DataConfig
from manyheads.config.plain import listed, show
from manyheads.data.naming import ALIASES, require_typed_names, take_typed_names, typed_split
from manyheads.data.rows import Table

COLUMN = "split"
ROLES = {name: role for role, names in ALIASES.items() for name in names}


def parts_of(table: Table, data: DataConfig) -> dict[str, Callable[[], Table]]:
    """Role to rows, where each row of the table is given one and some are for training; else `all`.

    Raises:
        ValueError: a typed name is in no row of the column.
    """
    whole = {"all": lambda: table}
    named = next((name for name in table.names if name.casefold() == COLUMN), None)
    if named is None or named in (data.text, data.text_pair, data.label, data.target):
        return whole
    said = ["train" if at in table.broken else str(cell).strip().lower() for at, cell in enumerate(table.column(named))]
    typed = {one.lower(): one for role in ALIASES if (one := typed_split(data, role))}
    known = typed | ROLES
    names = [known.get(one) for one in said]
    counts = Counter(name for name in names if name)
    found = {role: role for role in ALIASES if role in counts}
    take_typed_names(found, {name: name for name in counts}, data)
    if "train" not in found or len(counts) < 2:
        return whole
    if Path(data.path).expanduser().is_file():  # else it is the name of a file, or of a split
        where = f"in no row of the column {show(named)} of data.path={data.path}"
        require_typed_names(sorted({typed.get(one, one) for one in said}), data, where, "its rows are of")
    if None in names:
        others = listed(sorted({one for one, name in zip(said, names, strict=True) if name is None}))
        table.notes.append(
            f"{table.source}: its column {show(named)} is not followed, as it also holds {others or 'nothing'}"
        )
        return whole
    shown = sorted(counts, key=[*ALIASES, *counts].index)
    table.notes.append(
        f"{table.source}: its column {show(named)} says which rows are "
        f"{listed([f'{name} ({counts[name]:,})' for name in shown])}; rename it to have them drawn"
    )

    def rows_of(name: str) -> Callable[[], Table]:
        return lambda: _part(table, [at for at, one in enumerate(names) if one == name])

    return {role if len(found) > 1 else "all": rows_of(name) for role, name in found.items()}


def _part(table: Table, indices: list[int]) -> Table:
    def column(name: str) -> list[object]:
        cells = table.column(name)
        return [cells[at] for at in indices]

    return Table(
        names=table.names,
        column=column,
        numbers=[table.numbers[at] for at in indices],
        source=table.source,
        classes=table.classes,
        broken={new: table.broken[at] for new, at in enumerate(indices) if at in table.broken},
        notes=table.notes,
        positions=indices,
    )
