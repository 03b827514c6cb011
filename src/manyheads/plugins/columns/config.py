"""Settings of the columns that are read with the text. Standard library only."""

from typing import Any

from manyheads.config import Long
from manyheads.config.facts import require, section, setting
from manyheads.config.sentences import format_list


@section("data.")
class ColumnsConfig:
    """Categories and numbers that are read with the text."""

    columns: list[str] = setting(
        list,
        "columns of categories or numbers, read with the text: [priority,amount]",
        tasks=("classify",),
        needs="training",
    )
    text_names: bool = setting(
        False,
        "with data.text=[title,body] the name of its column is read before each text: title: plan for May",
        tasks=("classify",),
        needs="training",
        only_with="hardware.accelerator",  # a verb that reads tokens: audit does not
    )


def column_names(data: Any) -> list[str]:
    """The hook `Section.fields`."""
    return list(getattr(data, "columns", ()))


def refuse_columns(config: Any, where: str) -> None:
    """Each is named once, has room before a text, and is read with all of it."""
    data, names = config.data, column_names(config.data)
    typed = f"data.columns={format_list(names)}" if names else "data.text_names=true"
    texts = data.text if isinstance(data.text, list) else [data.text]
    others = {*texts, data.text_pair, data.label, data.votes, data.weight, data.group, *data.label_columns}
    twice = [name for at, name in enumerate(names) if not name or name in {*names[:at]} | others]
    require(
        not twice, f"{typed}: '{', '.join(twice)}' is empty, or is named twice in the settings data: name each once"
    )
    require(
        not data.text_names or len(texts) > 1,
        "data.text_names=true names the columns that data.text joins, but there is one: name several, or remove it",
    )
    least = len(names) + 2 * len(texts) + 4 if names else 0
    require(
        data.max_length >= least, f"data.max_length={data.max_length} has no room for {typed}: use at least {least}"
    )
    for name, is_set in {
        "data.long=windows": data.long is Long.windows,  # the first window alone would have them
        "data.streaming": data.streaming,
        "data.descriptions": getattr(data, "descriptions", ""),
    }.items():
        require(
            not ((names or data.text_names) and is_set), f"{typed} and {name} do not go together: remove one of them"
        )
