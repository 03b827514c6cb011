"""A model of the Hugging Face hub as a folder. Only this file asks the hub for models."""

import os
from pathlib import Path

from manyheads.config.plain import show
from manyheads.data.hub import can_connect

DESCRIBED = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "1_Pooling/config.json",
)
INDICES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
SAFE, PICKLED = ("model.safetensors", "model-*.safetensors"), ("pytorch_model.bin", "pytorch_model-*.bin")
SECONDS = 5.0  # that the hub may take to say what it has


def local_folder(name: str) -> Path:
    """The folder where the model `name` lies: its files are fetched, but for those that are here already.

    Weights are fetched as safetensors, and in PyTorch's own format where there are no others. Without network, or
    with HF_HUB_OFFLINE=1, what was fetched before is taken.

    Raises:
        ValueError: no network and no copy, or the hub has no such model, or none with weights, or keeps it closed.
    """
    if not can_connect():
        return _copy(name)
    folder = _fetched(name, (*DESCRIBED, *INDICES, *SAFE))
    if not any(folder.glob("model*.safetensors")):
        folder = _fetched(name, (*DESCRIBED, *INDICES, *PICKLED))
    if not (folder / "config.json").is_file():
        raise ValueError(f"init_from={name} has no config.json on the Hugging Face hub: name a model of BERT's family")
    return folder


def _copy(name: str) -> Path:
    """What was fetched before, as the hub's own library lays it out."""
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    folder = cache / f"models--{name.replace('/', '--')}"
    newest = folder / "refs" / "main"
    found = folder / "snapshots" / newest.read_text(encoding="utf-8").strip() if newest.is_file() else folder
    if not (found / "config.json").is_file():
        raise ValueError(
            f"init_from={name} is no folder here, and the Hugging Face hub cannot be reached, as the network is off or "
            "down: connect, or name a local folder"
        )
    return found


def _fetched(name: str, files: tuple[str, ...]) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    try:
        return Path(snapshot_download(name, allow_patterns=list(files), etag_timeout=SECONDS))
    except Exception as problem:  # its own errors, those of the network and of the disk have no narrower class
        first = (str(problem).strip().splitlines() or [type(problem).__name__])[0].rstrip(".")
        raise ValueError(
            f"init_from={name} cannot be fetched from the Hugging Face hub ({show(first)}): check the name, "
            "or name a local folder"
        ) from problem
