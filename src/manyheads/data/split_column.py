"""One table whose column `split`, or `Split`, says of each row which split it is of. Standard library only."""

from collections import Counter
from collections.abc import Callable

from manyheads.config import DataConfig
from manyheads.config.plain import listed, show
from manyheads.data.naming import ALIASES, take_typed_names
from manyheads.data.rows import Table

COLUMN = "split"
ROLES = {name: role for role, names in ALIASES.items() for name in names}


def parts_of(table: Table, data: DataConfig) -> dict[str, Callable[[], Table]]:
    """Role to rows, where each row of the table is given one and some are for training; else `all`."""
    whole = {"all": lambda: table}
    named = next((name for name in table.names if name.casefold() == COLUMN), None)
    if named is None or named in (data.text, data.text_pair, data.label, data.target):
        return whole
    said = ["train" if at in table.broken else str(cell).strip().lower() for at, cell in enumerate(table.column(named))]
    roles = [ROLES.get(one) for one in said]
    counts = Counter(role for role in roles if role)
    if "train" not in counts or len(counts) < 2:
        return whole
    if None in roles:
        others = listed(sorted({one for one, role in zip(said, roles, strict=True) if role is None}))
        table.notes.append(
            f"{table.source}: its column {show(named)} is not followed, as it also holds {others or 'nothing'}"
        )
        return whole
    table.notes.append(
        f"{table.source}: its column {show(named)} says which rows are "
        f"{listed([f'{role} ({counts[role]:,})' for role in ALIASES if role in counts])}; rename it to have them drawn"
    )
    found: dict[str, str] = {role: role for role in counts}
    take_typed_names(found, dict(found), data)

    def rows_of(name: str) -> Callable[[], Table]:
        return lambda: _part(table, [at for at, one in enumerate(roles) if one == name])

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
