"""Settings of what is done to tables, and which module does it. Standard library at first."""

from typing import Any

import manyheads.plugin as plugin
from manyheads.config.facts import require, section, setting

CHANGES = {  # by the setting that asks for one, in their order
    "rename": "manyheads.plugins.tables.labels:rename_labels",
    "split_by": "manyheads.plugins.tables.dates:split_by_date",
}


@section("data.")
class TablesConfig:
    """What is done to the tables that are named."""

    rename: str = setting(
        "",
        "csv with columns from and to: labels by other names; where to is empty, rows of the label are left out",
        path=True,
        resume="free",
        tasks=("classify",),
    )
    split_by: str = setting(
        "", "column of dates of one file: its newest rows are test, those before them validation", tasks=("classify",)
    )


def apply_changes(data: Any, tables: dict[str, Any]) -> dict[str, Any]:
    """See `Section.tables`; a UserError where a setting does not go with the data."""
    for name, change in CHANGES.items():
        if value := getattr(data, name, ""):
            require(not data.streaming, f"data.{name}={value} cannot change what data.streaming=true reads: remove one")
            tables = plugin.resolve(change)(data, tables)
    return tables
