"""Where datasets of the Hugging Face Hub and of `save_to_disk` are opened; dataset.py makes tables of them. `datasets`
is imported when it is asked for."""

import os
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from manyheads.config import DataConfig
from manyheads.config.sentences import first_line
from manyheads.errors import UserError

SAVED_MARKS = ("dataset_dict.json", "state.json")
SECONDS_TO_CONNECT = 5.0


class StreamedSplit(NamedTuple):
    """A split that `datasets` streams: a `datasets.IterableDataset`, and what identifies its rows in the cache."""

    dataset: Any
    identity: str


def is_saved(folder: Path) -> bool:
    """Whether `datasets.save_to_disk` wrote this folder."""
    return any((folder / mark).is_file() for mark in SAVED_MARKS)


def open_saved(folder: Path, *, streaming: bool) -> dict[str, Any]:
    """Splits of a `save_to_disk` folder by name; one Dataset alone is named `all`. With `streaming` each is a
    `StreamedSplit`.

    Raises:
        UserError: the folder is incomplete or damaged.
    """
    import datasets

    try:
        saved = datasets.load_from_disk(str(folder))
    except (OSError, ValueError, LookupError, TypeError, RuntimeError, AttributeError, AssertionError) as problem:
        raise UserError(
            f"{folder} cannot be read as a save_to_disk folder ({first_line(problem)}); save it again"
        ) from None
    splits = _by_name(saved)
    if streaming:
        for name, split in splits.items():
            splits[name] = StreamedSplit(split.to_iterable_dataset(), split._fingerprint)
    return splits


def open_hub(data: DataConfig) -> dict[str, Any]:
    """Splits of a hub dataset by name, from the local copy `datasets` keeps where there is no network; with
    `data.streaming` each is a `StreamedSplit`, and nothing of it is stored.

    Raises:
        UserError: no network and no copy, no such dataset, config or revision.
    """
    if not can_connect():
        if not _has_copy(data.hub):
            raise UserError(
                f"data.hub={data.hub} needs the network, which is off or cannot reach the Hugging Face hub: "
                "connect, or read a local copy by data.path=<file or folder>"
            )
        os.environ["HF_HUB_OFFLINE"] = "1"  # `datasets` reads it when it is imported, and then asks its copy alone
    import datasets
    from datasets.exceptions import DatasetsError

    datasets.disable_progress_bars()
    config, folder = data.hub_config or None, None
    if data.revision.startswith("refs/convert"):
        # a revision converted to parquet keeps each config in a folder of its own and declares none
        config, folder = None, config
    load: Any = datasets.load_dataset_builder if data.streaming else datasets.load_dataset
    try:
        loaded = load(data.hub, config, data_dir=folder, revision=data.revision or None)
        if not data.streaming:
            return _by_name(loaded)
        splits = _by_name(loaded.as_streaming_dataset())
    except (OSError, ValueError, RuntimeError, DatasetsError) as problem:
        raise UserError(
            f"data.hub={data.hub} cannot be loaded ({first_line(problem)}): check data.hub, "
            f"data.hub_config={data.hub_config} and data.revision={data.revision}, "
            "or read a local copy by data.path=<file or folder>"
        ) from None
    return {name: StreamedSplit(split, f"{loaded.cache_dir} {name}") for name, split in splits.items()}


def _by_name(loaded: Any) -> dict[str, Any]:
    if isinstance(loaded, Mapping):
        return {str(name): split for name, split in loaded.items()}
    return {"all": loaded}


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE")


def _has_copy(hub: str) -> bool:
    """Whether `datasets` keeps a copy of this dataset."""
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    folder = Path(os.environ.get("HF_DATASETS_CACHE") or home / "datasets").expanduser()
    name = hub.replace("/", "___")
    return (folder / name.lower()).is_dir() or (folder / name).is_dir()


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
