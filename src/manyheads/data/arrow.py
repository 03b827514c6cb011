"""What needs pyarrow or datasets, which data imports here alone, when they are asked for.

Parquet files to tables; datasets of the Hugging Face hub, and folders of `save_to_disk`.
"""

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from manyheads.config import DataConfig
from manyheads.config.fields import show
from manyheads.data.columns import class_names
from manyheads.data.files import most_unpacked, require_unchanged
from manyheads.data.seen import fingerprint
from manyheads.data.table import Table

CELL = 8  # bytes of a list that each takes


SAVED_MARKS = ("dataset_dict.json", "state.json")
SECONDS_TO_CONNECT = 5.0


def read_parquet(path: Path, *, large: bool) -> Table:
    """Read the schema now, a column when it is asked for, row group by row group; a file that is not `large` is held.

    Class names that `datasets` wrote into the schema are kept.

    Raises:
        ValueError: not parquet, truncated, a text that is not UTF-8, or cells that fill the memory; names the file.
    """
    import pyarrow
    import pyarrow.parquet

    from manyheads.data.column import sliced

    damaged = f"{path} cannot be read as parquet: the file is truncated, damaged or of another kind; copy it again"
    try:
        content = path if large else pyarrow.BufferReader(path.read_bytes())
        file = pyarrow.parquet.ParquetFile(content)
        schema = file.schema_arrow
        texts = [one.name for one in schema if pyarrow.types.is_string(one.type)]
        packed = pyarrow.parquet.ParquetFile(content, read_dictionary=texts)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError):
        raise ValueError(damaged) from None
    most, facts, checked = most_unpacked(path), path.stat(), set[tuple[str, int]]()

    def check(name: str, groups: Sequence[int]) -> None:
        if _n_bytes(packed, name, most, [*groups]) > most:
            much = f"{most:,} bytes once decompressed"
            raise ValueError(f"{path} holds more than {much}: split it, or write it as csv")

    def array(name: str, group: int) -> Any:
        if large:
            require_unchanged(path, facts)
        if large and (name, group) not in checked:
            check(name, [group])
            checked.add((name, group))
        return file.read_row_group(group, columns=[name]).column(name)

    @contextmanager
    def readable(name: str) -> Iterator[None]:
        try:
            yield
        except UnicodeDecodeError:
            named = f"the column '{show(name)}'"
            raise ValueError(f"{path}: {named} holds text that is not UTF-8; write it as UTF-8") from None
        except (pyarrow.ArrowException, OSError, KeyError):
            raise ValueError(damaged) from None

    def cells(name: str, group: int, rows: slice) -> list[Any]:
        with readable(name):
            return _array(array, name, group)[rows].to_pylist()

    @lru_cache
    def column(name: str) -> Any:
        groups = [file.metadata.row_group(at) for at in range(file.num_row_groups)]
        if not large:  # all of it will be held
            with readable(name):
                check(name, range(len(groups)))
        weight = sum(one.total_byte_size for one in groups) / max(1, file.metadata.num_rows)
        return sliced(partial(cells, name), [one.num_rows for one in groups], f"{fingerprint(path)} {name}", weight)

    return Table(
        names=schema.names,
        column=column,
        numbers=range(1, file.metadata.num_rows + 1),
        source=path.name,
        classes=_classes(schema.metadata or {}),
    )


@lru_cache(maxsize=2)
def _array(read: Callable[[str, int], Any], name: str, group: int) -> Any:
    return read(name, group)


def _n_bytes(packed: Any, name: str, most: int, groups: list[int]) -> int:
    """What the cells take, or some more than `most`: a text that stands in the file once may be in a million rows."""
    import pyarrow.compute

    n_bytes = 0
    for batch in packed.iter_batches(columns=[name], row_groups=groups):
        cells = batch.column(0)
        n_bytes += CELL * len(cells)
        if isinstance(cells, pyarrow.DictionaryArray):
            lengths = pyarrow.compute.call_function("binary_length", [cells.dictionary]).take(cells.indices)
            n_bytes += pyarrow.compute.call_function("sum", [lengths]).as_py() or 0
        else:
            n_bytes += cells.nbytes
        if n_bytes > most:
            break
    return n_bytes


def _classes(metadata: dict[bytes, bytes]) -> dict[str, list[str]]:
    try:
        return class_names(json.loads(metadata[b"huggingface"])["info"]["features"])
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return {}


def is_saved(folder: Path) -> bool:
    """Whether `datasets.save_to_disk` wrote this folder."""
    return any((folder / mark).is_file() for mark in SAVED_MARKS)


def open_saved(folder: Path) -> dict[str, Any]:
    """Splits of a `save_to_disk` folder by name; one Dataset alone is named `all`.

    Raises:
        ValueError: the folder is incomplete or damaged.
    """
    import datasets

    try:
        saved = datasets.load_from_disk(str(folder))
    except (OSError, ValueError, LookupError, TypeError, RuntimeError, AttributeError, AssertionError) as problem:
        raise ValueError(
            f"{folder} cannot be read as a save_to_disk folder ({_first_line(problem)}); save it again"
        ) from None
    return _by_name(saved)


def open_hub(data: DataConfig) -> dict[str, Any]:
    """Splits of a hub dataset by name, from the local copy `datasets` keeps where there is no network.

    Raises:
        ValueError: no network and no copy, no such dataset, config or revision.
    """
    if not can_connect():
        if not _has_copy(data.hub):
            raise ValueError(
                f"data.hub={data.hub} needs the network, which is off or cannot reach the Hugging Face hub: "
                "connect, or read a local copy by data.path=<file or folder>"
            )
        os.environ["HF_HUB_OFFLINE"] = "1"  # `datasets` reads it when it is imported, and then asks its copy alone
    import datasets
    from datasets.exceptions import DatasetsError

    datasets.disable_progress_bars()
    # a revision converted to parquet keeps each config in a folder of its own and declares none
    converted = data.revision.startswith("refs/convert")
    try:
        loaded = datasets.load_dataset(
            data.hub,
            None if converted else data.hub_config or None,
            data_dir=data.hub_config or None if converted else None,
            revision=data.revision or None,
        )
    except (OSError, ValueError, RuntimeError, DatasetsError) as problem:
        raise ValueError(
            f"data.hub={data.hub} cannot be loaded ({_first_line(problem)}): check data.hub, "
            f"data.hub_config={data.hub_config} and data.revision={data.revision}, "
            "or read a local copy by data.path=<file or folder>"
        ) from None
    return _by_name(loaded)


def table_of(dataset: Any, source: str) -> Table:
    """A `datasets.Dataset` as a table; class names come from its features.

    Cells are what is stored: to decode a picture or a sound would open the file or the address that a cell names.
    """
    from manyheads.data.column import sliced

    stored, n_bytes = dataset.with_format("arrow"), dataset.data.nbytes

    @lru_cache
    def column(name: str) -> Any:
        one = stored.select_columns([name])
        return sliced(
            lambda at, rows: one[rows].column(name).to_pylist(),
            [len(dataset)],
            f"{dataset._fingerprint} {name}",
            n_bytes / max(1, len(dataset)),
        )

    return Table(
        names=list(dataset.column_names),
        column=column,
        numbers=range(1, len(dataset) + 1),
        source=source,
        classes=class_names(dataset.features.to_dict()),
    )


def _by_name(loaded: Any) -> dict[str, Any]:
    return {str(name): split for name, split in loaded.items()} if isinstance(loaded, Mapping) else {"all": loaded}


def _first_line(problem: Exception) -> str:
    text = str(problem).strip()
    return text.splitlines()[0].rstrip(".")[:200] if text else type(problem).__name__


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE")


def _has_copy(hub: str) -> bool:
    """Whether `datasets` keeps a copy of this dataset."""
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    folder = Path(os.environ.get("HF_DATASETS_CACHE") or home / "datasets").expanduser()
    name = hub.replace("/", "___")
    return any((folder / one).is_dir() for one in (name.lower(), name))


def can_connect() -> bool:
    """Whether the hub, or the proxy in front of it, takes a connection within seconds; name lookup included."""
    if _is_set("HF_HUB_OFFLINE") or _is_set("HF_DATASETS_OFFLINE"):
        return False
    url = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    proxy = os.environ.get(f"{url.scheme}_proxy") or os.environ.get(f"{url.scheme.upper()}_PROXY") or ""
    if proxy:
        url = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    reached: list[bool] = []

    def connect() -> None:
        port = url.port or (80 if url.scheme == "http" else 443)
        with suppress(OSError):  # not reached, which is the answer
            socket.create_connection((url.hostname or "", port), timeout=SECONDS_TO_CONNECT).close()
            reached.append(True)

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(SECONDS_TO_CONNECT + 1)
    return bool(reached)
