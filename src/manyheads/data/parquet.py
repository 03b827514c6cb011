"""One parquet file to one `Table`, columns read when asked for. Only this file imports pyarrow."""

import json
from pathlib import Path
from typing import Any

from manyheads.data.columns import class_names
from manyheads.data.rows import Table


def read_parquet(path: Path) -> Table:
    """Read the schema now, a column when it is asked for.

    Class names that `datasets` wrote into the schema are kept.

    Raises:
        ValueError: not parquet, truncated, or a text that is not UTF-8; names the file.
    """
    import pyarrow
    import pyarrow.parquet

    damaged = f"{path} cannot be read as parquet: the file is truncated, damaged or of another kind; copy it again"
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError):
        raise ValueError(damaged) from None

    def column(name: str) -> list[Any]:
        try:
            return file.read(columns=[name]).column(name).to_pylist()
        except UnicodeDecodeError:
            raise ValueError(f"{path}: the column '{name}' holds text that is not UTF-8; write it as UTF-8") from None
        except (pyarrow.ArrowException, OSError):
            raise ValueError(damaged) from None

    schema = file.schema_arrow
    return Table(
        names=schema.names,
        column=column,
        numbers=range(1, file.metadata.num_rows + 1),
        source=path.name,
        classes=_classes(schema.metadata or {}),
    )


def _classes(metadata: dict[bytes, bytes]) -> dict[str, list[str]]:
    try:
        return class_names(json.loads(metadata[b"huggingface"])["info"]["features"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}
