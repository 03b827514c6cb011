"""Models of the Hugging Face hub, `name/model`, or at a branch, tag or commit `name/model@v1`: their names, the files
that are fetched into the cache of the hub's own client, and its errors as one sentence.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from manyheads.config.data import HUB_MODEL
from manyheads.config.sentences import first_line
from manyheads.errors import UserError
from manyheads.runs.summary import CALIBRATION

OUTLIERS = "outliers.safetensors"  # that outliers.false_alarms adds
OF_HUB = (  # files that are fetched and pushed, none of which can run code
    *("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "1_Pooling/config.json"),
    *("config_sentence_transformers.json", "modules.json"),  # by which an encoder of sentences is known
    *("labels.json", "thresholds.json", "linear.safetensors", CALIBRATION, OUTLIERS),
    *("model.safetensors", "model-?????-of-?????.safetensors", "model.safetensors.index.json"),
)
SECONDS = 5.0  # that the hub may take to say what it has
STATUS = {
    401: "it does not accept the token in $HF_TOKEN: make another one in the settings of your account",
    403: "the token in $HF_TOKEN may not do that: make one with that permission in the settings of your account",
    429: "too many requests came from here: wait some minutes, or set $HF_TOKEN",
}


def is_hub_name(name: str) -> bool:
    """Whether `run=name` is a model of the hub: not where there is such a path, or the folder that it would be in."""
    found = HUB_MODEL.fullmatch(name)
    if found is None or "/" not in found["id"] or os.path.lexists(name):
        return False
    return found["revision"] is not None or not os.path.isdir(name.partition("/")[0])


def download(name: str, setting: str) -> Path:
    """The folder where the copy of the model `name` lies; without network, or with HF_HUB_OFFLINE=1, the one that was
    fetched before.

    Raises:
        UserError: one sentence that begins with `setting`; there is no such model or revision, it is not open to this
            user, or the hub cannot be reached and there is no copy.
    """
    from manyheads.data.formats.hub import can_connect  # the one that asks the network

    offline = not can_connect()
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    repo, _, revision = name.partition("@")
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    with hub_errors(f"{setting}={name}", "or name a local folder", offline=offline):
        found = snapshot_download(
            repo,
            revision=revision or None,
            cache_dir=os.environ.get("HF_HUB_CACHE") or home / "hub",
            allow_patterns=list(OF_HUB),
            etag_timeout=SECONDS,
            local_files_only=offline,
            token=os.environ.get("HF_TOKEN") or None,
            endpoint=os.environ.get("HF_ENDPOINT") or None,
        )
    return Path(found)


@contextmanager
def hub_errors(what: str, otherwise: str, *, offline: bool = False) -> Iterator[None]:
    """Turn what the hub's client raises into a UserError that begins with `what`; none of them holds the token.

    Args:
        otherwise: what else can be done.
        offline: the network is off or down.
    """
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError as problem:
        why = "its owner lets in whom he chose: ask on its page, and set $HF_TOKEN"
        raise UserError(f"{what} is closed ({why}), {otherwise}") from problem
    except errors.RepositoryNotFoundError as problem:
        why = "it is no folder here and the Hugging Face hub has no such model, or it is private"
        raise UserError(f"{what} is not found, as {why}: check the name, set $HF_TOKEN, {otherwise}") from problem
    except errors.RevisionNotFoundError as problem:
        why = "the Hugging Face hub has the model, but no such revision"
        raise UserError(f"{what} is not found, as {why}: name a branch, tag or commit after @") from problem
    except errors.LocalEntryNotFoundError as problem:
        inner = problem.__cause__
        if isinstance(inner, errors.HfHubHTTPError):
            raise UserError(f"{what} {_status_sentence(inner)}") from problem
        reached = "as the network is off or down" if offline or inner is None else f"({first_line(inner)})"
        raise UserError(
            f"{what} is no folder here, and the Hugging Face hub cannot be reached, {reached}: connect, {otherwise}"
        ) from problem
    except errors.HfHubHTTPError as problem:
        raise UserError(f"{what} {_status_sentence(problem)}") from problem
    except Exception as problem:  # of the network and the disk: they have no narrower class
        raise UserError(
            f"{what} cannot be exchanged with the Hugging Face hub ({first_line(problem)}): try again, {otherwise}"
        ) from problem


def _status_sentence(problem: Exception) -> str:
    status = getattr(getattr(problem, "response", None), "status_code", 0)
    why = STATUS.get(status) or f"it says {first_line(problem)}: try again later"
    return f"is refused by the Hugging Face hub with status {status}, as {why}"
