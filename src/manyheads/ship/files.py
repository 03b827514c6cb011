"""Where a deliverable lies, and how it is opened."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from manyheads.config import Task
from manyheads.ship.settings import Settings, read_settings

FILES = ("config.json", "labels.json", "tokenizer.json", "model.safetensors")
MORE = ("thresholds.json", "linear.safetensors")  # of some
REMEDY = "name the folder that training wrote, or its model/ folder"
NEEDED = {
    Task.classify: "a classifier",
    Task.seq2seq: "a model of task=seq2seq",
    Task.pretrain: "a model of task=pretrain",
}
FOUND = {
    Task.classify: "is a classifier",
    Task.seq2seq: "answers by texts, not by classes",
    Task.pretrain: "tells hidden words, not classes",
}


def find_model(folder: Path) -> Path:
    """The folder of the deliverable: `folder` itself, or model/ in a run folder.

    Raises:
        ValueError: `folder` is neither, or a file is missing.
    """
    if not folder.is_dir():
        what = "it is a file" if folder.exists() else "there is no such folder"
        raise ValueError(f"run={folder} is not a run folder: {what}; {REMEDY}")
    found = next((place for place in (folder, folder / "model") if (place / "config.json").is_file()), None)
    if found is None:
        began = (folder / "config.yaml").is_file()
        what = (
            "its training has not written model/, and run.log in it says how far it came"
            if began
            else "there is no model/config.json in it"
        )
        raise ValueError(f"run={folder} is not a run folder{' to use' if began else ''}: {what}; {REMEDY}")
    missing = [name for name in FILES if not (found / name).is_file()]
    if missing:
        raise ValueError(f"run={folder} is not a run folder: {found} has no {' and no '.join(missing)}; {REMEDY}")
    return found


def run_folder(model: Path) -> Path | None:
    """The run folder around model/, which says what data it was trained on; None where model/ stands alone."""
    return model.parent if model.name == "model" and (model.parent / "config.yaml").is_file() else None


@contextmanager
def opened(folder: str | Path, needed: Task | None = None) -> Iterator[tuple[Path, Settings]]:
    """The folder of the deliverable and its config.json, while the other files are read.

    Raises:
        ValueError: there is none, it is not of the task `needed`, or a file cannot be read.
    """
    place = find_model(Path(folder))
    try:
        settings = read_settings(place / "config.json")
        if needed is not None and needed is not settings.task:
            found = FOUND[settings.task]
            raise ValueError(f"run={place} {found}, but {NEEDED[needed]} is needed here: name another")
        yield place, settings
    except OSError as error:
        raise ValueError(f"{error.filename or place} cannot be read: {error.strerror or error}") from error
